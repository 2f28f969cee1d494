"""Checkpoints as commits in the user's own repository, without the git program.

Invariants: no hook runs, nothing is signed, and nothing outside the workspace's folder is touched.
Uncommitted work is in a safety commit before a rollback changes a file. An intent is durable before
the first change, so that the next call finishes what a crash interrupted. `pygit2` is used in
`repository` alone; index, attributes, line ends and configuration are read here, because libgit2
supports neither split indexes nor names that are not text.

Reading order: `store` (the operations), `workspace` (one opened workspace, and the locks),
`capture` and `observer` (reading the work tree), `safety`, `intents`, `move` and `restore` (a
rollback), `commits`, `tree_builder`, `repository`, `index_file`, `attributes`, `ignore_rules`,
`settings`, `errors`.
"""
