"""The command line: one module per command, named after the command.

In reading order:

- `app`: the `hankweave` group, which imports a command on first use and maps errors to exit codes
- `shared`: arguments, settings, hank loading and shell completion that several commands use
- `remote`: the options `--execution` and `--json`, and requests to a server
- `run`, `sessions` (with `resume`), `pipeline` with `pipelines`: commands that run a plan
- `attach` with `live`: the live view of a running server
- `control`, `permissions`, `status`: commands for a running server
- `checkpoint`, `checkpoints`, `show`, `history`, `events`: commands that read or extend the history
- `rollback`, `branch`, `gc`: commands that restore, copy or prune it
- `init`, `validate`, `config`, `agents`, `ls`, `completion`, `mcp`: everything else
- `output`: text, tables, diffs, progress bars and error messages
- `manual`: the generator of COMMANDS.md
"""
