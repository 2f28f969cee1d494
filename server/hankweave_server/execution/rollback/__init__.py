"""Rollbacks: plan them, perform them, report them, and finish them after a crash.

`docs/explanation/architecture.md` follows one rollback call by call.

Modules, in reading order:

- `rollback`: the protocol: plan, quiesce, safety, intent, restore, publish, forget; its recovery
- `restoration`: restore the files to a checkpoint; also for the retry of a codon
- `intents`: what an intent on disk is worth: it has happened, or was overtaken by later work
- `unrestored`: why paths could not be restored, and what to do about it
- `guard`: one rollback at a time, and no codon on half-restored files
- `planner`: the checks and the preview: everything before the first file moves
- `user_edits`: edits by people that a rollback would overwrite
- `warnings`: programs at work and conversations, which a rollback does not take care of
- `events`: the events of a rollback, in Hankweave's order, and its report
"""
