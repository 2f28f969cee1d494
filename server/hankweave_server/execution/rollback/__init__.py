"""Rollbacks: plan them, perform them, report them, and finish them after a crash.

`docs/architecture.md` follows one rollback call by call.

Modules, in reading order:

- `rollback`: the protocol: plan, quiesce, safety, intent, restore, publish, forget
- `planner`: the checks and the preview: everything before the first file moves
- `user_edits`: edits by people that a rollback would overwrite, and external effects
- `events`: the events of a rollback, in Hankweave's order, and its report
"""
