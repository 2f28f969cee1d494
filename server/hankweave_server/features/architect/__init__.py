"""Architect: its documented Python API, and its pipelines.

Modules, in reading order:

- `checkpoints`: `CheckpointManager`, the public class, which `hankweave_server.architect` exports;
  its checkpoints on the user's repository are in `user_git`
- `shadow`: checkpoints in the shadow repository, through a server
- `yaml/`: its pipelines, compiled to an ordinary hank
- `pipelines/`: its pipelines on the command line
- `rollback_targets`: `rollback --to-step` and `--to-commit`
"""
