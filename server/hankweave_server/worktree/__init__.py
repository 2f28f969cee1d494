"""The work tree: patterns, scans, writing, rigs, archive and data source.

Reading order: `names` and `dirfd` (reach paths without following links), `gitignore`, `patterns`
and `parent_gitignore` (which paths count), `stat_index`, `lstat_diff`, `file_modes` and `scan`
(what changed), `open_files`, `tree_writer` and `removal` (change the tree), `rigs`, `archive`,
`data_source` and `export` (files that come in and go out), `tree_outline` (an overview for
clients).

Nothing here knows of git. The package may import only layout, files and the protocol.
"""
