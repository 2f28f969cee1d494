"""Checkpoints of the work tree in the shadow repository, and the way back.

`engine` is the door. Forward: scan -> `capture` -> `objects` -> `trees` -> commit -> ref; nothing
is named by a ref before it is on the disk. Back: `planning` says what would change, `materialise`
does it and never touches what no checkpoint holds. `shadow_repo` alone knows pygit2.
May import workspace, domain, layout, files and the protocol; no other room of its row.
"""
