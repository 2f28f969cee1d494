"""What is in the work tree: patterns, scans, rigs.

`resolver` says which paths are meant, `scan` finds what changed among them and remembers it in
the `table`, `descent` reaches files without following a link. Nothing here knows of git; it may
import only layout, files and the protocol.
"""
