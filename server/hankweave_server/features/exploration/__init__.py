"""Several attempts from one checkpoint, each an execution of its own; the best is adopted.

Modules, in reading order:

- `explorations`: decisions about the records of explorations; pure
- `explorer`: make attempts, run them, take over their results
- `adoption`: go to the result of an attempt, or merge it into the present files
- `merge_preview`: the preview of a merge, on a copy of the checkpoints
- `judge`: ask a model which result is the best
- `child`: the server of an attempt, a process of its own
- `command`: `explore`, `attempts`, `compare`, `adopt` and `discard`
- `server_part`: the commands `exploration.*`, in a server
- `file_answers`: previews of adoptions, without a server
"""
