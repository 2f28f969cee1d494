"""Work beside the plan: gc, fsck, packing, progress and health.

Modules, in reading order:

- `garbage_collection`: pins and pruning, with an intent that a start can finish
- `quiet`: when work in the background may run: not while anybody waits, but in time
- `repack`: packing beside the engine, in the background or for a gc
- `fsck`: the whole store, read and compared with the journal
- `git_index`: the index of the shadow repository, for stock git
- `secret_scan`: new content of checkpoints, searched for secrets after the reply
- `progress`: progress of long work, observed and published
- `health_monitor`: problems of the server, published; jumps of the clock
"""
