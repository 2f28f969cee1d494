"""Checkpoints of the work tree in the shadow repository: make, compare, restore, prune, repair.

A checkpoint is made in the order scan, objects, trees, commit, ref, so a ref never names what is
not on the disk. A restore is planned first, and never touches what no checkpoint holds. The
package uses `git` for objects and refs, and `worktree` for files.

`engine` is the facade. The server calls it by `execution.checkpoint_access`, one call at a time.

Modules, in reading order:

- `engine`: the facade: everything that can be done with checkpoints; blocking
- `records`: checkpoints as the records that the journal and clients see
- `model`: requests, plans and reports; frozen, with paths as bytes
- `errors`: errors that carry the facts of a refusal
- `worktree_index`: tracked paths, stat data and digests, kept between two calls
- `file_reader`: the content at a path, or the reason why it cannot be read
- `capture`: one checkpoint: read what changed, write objects, then move the ref
- `manifest`: what a git tree cannot hold: permissions, empty folders, skipped files
- `notes`: manifests as git notes
- `commit_message`: commit messages in Hankweave's format, written and read
- `contents`: blobs of any size, and the objects that cannot be read
- `intent`: the file that makes a restore known to the next start
- `plan`: what a restore would change, without touching anything
- `restore`: a restore from a safety checkpoint to a target, path by path, repeatable
- `diff`: differences between checkpoints, or a checkpoint and the work tree; fingerprints
- `merge`: a checkpoint with the changes of another one that has the same origin
- `session_snapshots`: the memory of agents and sentinels, kept in epochs beside checkpoints
- `clone`: the part of a shadow repository that a branch of an execution needs
- `imports`: a checkpoint of another execution, taken over as a commit of this one
- `pins`: refs that protect checkpoints from pruning
- `pruning`: find what stays, move branches and notes, then remove objects
- `detach`: lost checkpoints, taken out of the history without changing any sha
- `repair`: damaged objects, rewritten from any source that still has them
- `rewrite`: the repository without a secret, as a second one beside it
- `repo_init`: the repository's own files: created crash-safely, checked at each start
"""
