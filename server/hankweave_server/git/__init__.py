"""Git objects, packs, trees and refs, read and written without the git program.

Only `repo`, `line_merge` and `line_changes` import pygit2. Objects are durable before the ref that
names them.

Modules, in reading order:

- `loose`: loose objects of any size, as streams
- `objects`: new objects, all of them or none; packs without deltas
- `pack_reader`: objects from git's packs, verified, in bounded pieces
- `trees`: trees as bytes: written, parsed, compared
- `checkout`: a work tree, taken from one tree to another, path by path, repeatable
- `repo`: refs, commits, line diffs and the index, through pygit2
- `line_changes`: the lines that differ between two contents, through pygit2
- `line_merge`: the lines of three contents merged, in memory, through pygit2
- `store_files`: the files of an object store: list, measure, remove
- `delta`: one content as a difference to another
- `pack_merge`: packs and loose objects merged into one pack
- `repack`: many packs combined into few, in short steps
- `errors`: no space left, damage, a failing disk
"""
