"""Answers that only checkpoints of every call can give: who wrote this line, and what broke this.

Nothing here changes an execution. A server answers with it, and so does a command on the files.

Modules, in reading order:

- `blame`: the checkpoint that each line of a file comes from
- `history`: the versions of files through checkpoints, renames and restores included
- `authors`: the call, or the person, behind a change
- `stories`: the answers, as they are sent and printed
"""
