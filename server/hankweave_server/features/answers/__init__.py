"""Answers that only checkpoints of every call can give: who wrote this line, and what broke this.

Nothing here changes an execution. A server answers with it, and so does a command on the files.

Modules, in reading order:

- `blame`: the checkpoint that each line of a file comes from
- `file_versions`: the versions of files through checkpoints, renames and restores included
- `authors`: the call, or the person, behind a change
- `stories`: the answers, as they are sent and printed
- `handlers`: the commands `file.*`
- `local_past`: the history of an execution on this machine, for the terminal
- `blame_command`: `blame`
- `why_command`: `why`
- `changes_command`: `changes`
- `pickaxe_command`: `pickaxe`
- `bisection/`: find the first checkpoint at which a command fails
- `server_part`: all of it in a server
- `file_answers`: the same handlers, without a server
- `failed_check`: the call that broke a check
"""
