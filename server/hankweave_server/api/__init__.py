"""The handlers of client commands.

A refusal is raised before anything is touched. `dispatch` is the only entry point.

Modules, in reading order:

- `caller`: the sender of a command, and the answer to it
- `dispatch`: how handlers are declared and found; checks that apply to all commands
- `control`: codons, checkpoints on request, permission answers, branches, shutdown
- `rollback`: rollbacks, undo, redo and previews: resolve the target, call `execution.rollback`
- `executions`: the executions of the user, and where their pages are
- `inspect`: state, status, lists, `events.query`, pings, and whole results of tools
- `past`: `checkpoint.diff`, `checkpoint.readFile` and `replay.view`
- `lookup`: checkpoints and paths that clients name, in a server or in the files it left
- `checkpoint_list`: `checkpoint.list` and other lists, one page at a time
- `maintenance`: pins, gc and fsck
"""
