"""Git objects, packs, trees and refs, read and written without the git program.

Reading order: `loose`, `objects` (writing), `pack_reader` (reading), `trees`, `repo` (refs and
history through pygit2), `store_files` and `repack` (maintenance), `errors`.

`repo` is the only module of this package that imports pygit2.
"""
