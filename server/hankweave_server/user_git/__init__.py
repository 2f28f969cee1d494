"""Checkpoints as commits in the user's own repository, without the git program.

No hook runs, nothing is signed, and nothing outside the workspace's folder is touched. Work that
is not committed is in a safety commit before a rollback changes a file. An intent is durable before
the first change, so the next call finishes what a crash interrupted. Only `repository` imports
pygit2; index, attributes, line ends and configuration are read here: libgit2 reads neither split
nor sparse indexes, has attributes that differ from git's, and cuts converted content at a NUL.

Modules, in reading order:

- `store`: make, list, restore and undo checkpoints
- `workspace`: one workspace, opened and locked for one operation
- `repository`: objects, refs and configuration, through pygit2
- `observer`: single files, as git would store them
- `attributes`: `.gitattributes`
- `settings`: the user's git configuration
- `ignore_rules`: names that git ignores
- `capture`: what `git add -A` would take, without secrets
- `tree_builder`: trees from paths
- `index_file`: git's index, every version, read and written
- `labels`: the labels of checkpoints
- `commits`: our commits, and how they differ from the user's
- `intents`: the intent of a move, and the record that an undo needs
- `restore`: the workspace, from a safety commit to a target
- `errors`: errors and warnings, each with advice
"""
