"""The work tree: patterns, scans, rigs, data, and single files.

Names are bytes. No link is followed below the work tree, and reserved names are never entered. The
package knows nothing of git except its ignore rules.

Modules, in reading order:

- `names`: names that no checkpoint holds, and bytes shown as text
- `dirfd`: paths below the work tree, reached without following a link
- `patterns`: the paths that `trackedFiles` patterns mean
- `gitignore`: `.gitignore` files, as git reads them
- `parent_gitignore`: ignore rules of a repository around the work tree
- `scan`: changed files, found by stat data
- `inotify`: an inotify instance that loses no event without saying so
- `watch`: what may have changed since the last scan, by inotify
- `stat_index`: tracked files and folders with their stat data, compared with the disk; maybe in C
- `file_modes`: permissions that differ from the usual ones
- `attributes`: owner, special bits, ACLs and other attributes of a file, read and given
- `open_files`: files that processes have open for writing
- `databases`: SQLite databases, and the files that belong to them
- `tree_writer`: files, links and folders, put in their places
- `obstacles`: what keeps files from being changed: attributes, mounts, rights of the folder
- `rigs`: rig copies and rig commands
- `data_source`: the data of an execution: linked or copied, identified by hash
- `data_listing`: a hash over the files of the data, at the cost of what changed
- `archive`: moves between the work tree and the archive, one rename each
- `removal`: removal of whole trees
- `tree_outline`: an outline of the tracked files, for people
"""
