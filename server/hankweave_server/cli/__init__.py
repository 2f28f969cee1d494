"""The command line: one module per command, named after the command.

Modules, in reading order:

- `app`: the `hankweave` group; imports a command on first use, maps errors to exit codes
- `shared/`: arguments, settings, hank loading and completion that several commands use
- `remote`: the options `--execution` and `--json`, and requests to a server
- `output/`: text, tables, diffs, progress bars, documents and error messages
- `run`: `run`: serve an execution, and run its plan
- `sessions`: `sessions` and `resume`
- `attach/`: `attach` and `open`: watch and control a running server, in the terminal or a browser
- `live/`: the live view of `run`
- `control`: `next`, `skip`, `stop` and `retry`
- `permissions`: `permissions`, `allow` and `deny`
- `status/`: `status`: where a plan stands
- `checkpoints`: `checkpoints` and `checkpoint`: list them, and take one now
- `show`: `show`, `diff`, `replay` and `runs`
- `events`: `events`: filter the journal without a server
- `log`: `log`: the journal as lines, and the graph of checkpoints
- `rollback`: `rollback`, `undo`, `redo` and `preview`
- `branch`: `branch`: a new execution from a checkpoint
- `gc`: `gc`, `fsck` and `pin`
- `demo`: `demo`: run the example with the earthquakes
- `init`: `init`: write an example hank
- `validate`: `validate`: check a hank and show what it would do
- `config`: `config`: print every setting, its value and its source
- `agents`: `agents`: list the agents on this machine, and test them
- `ls`: `ls`: list executions
- `cleanup`: `cleanup`: remove executions
- `completion`: `completion`: print the shell script for tab completion
"""
