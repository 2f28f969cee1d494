"""Run the plan: one codon after the other, with checkpoints, rollbacks and recovery.

Each step is recorded in the ledger before the next one begins. The collaborators that all modules
share are in one `context` object, made by `app`.

Modules, in reading order:

- `context`: what execution needs from the rest of the server; values of the hank's variables
- `runner`: which codon runs next: retries, commands of clients
- `codon/`: one codon, from its rig to its last checkpoint
- `runs`: runs: open, close, and the `state.snapshot` of clients
- `checkpoint_access`: calls of the checkpoint engine, one at a time; the checkpoints it holds
- `checkpointer`: checkpoints: take one, journal it; adopt commits that are not in the journal
- `account_limits`: limits of accounts, shared by all executions on the machine
- `post_codon`: what follows a success: output files, archiving, commits in the user's git
- `archive`: files that a codon or loop leaves behind: moved away, and back in a rollback
- `rollback/`: rollbacks, previews and undo
- `session_files`: the files by which agents and sentinels remember
- `branch/`: new executions from a checkpoint
- `score_output`: a program that runs a score command, and shortens what it prints
- `recovery`: repair at a start, before anything runs
- `resume`: the plan to continue with: loops that grow it, a hank that has changed
- `maintenance/`: gc, fsck, packing, progress and health
- `event_log`: server.log, written from the journal's events
"""
