"""SQLite databases and the companion files without which their content is not whole.

What a program has committed may lie in `FILE-wal`, and what it has begun can be taken back only
with `FILE-journal`. A database that is restored without them, or beside those of another moment, is
malformed. So they are captured and restored together, whatever patterns and ignore rules say.

`FILE-shm` is an index of the `-wal` that SQLite builds anew when the first program opens the
database. One of another moment is dangerous, as long as a program has it open, and none is ever
needed. It is therefore not captured, and a restore that changes the database removes it.

A database is recognized by its first bytes. They are read only where a companion's name is met.
"""

from __future__ import annotations

import os

from hankweave_server.worktree.dirfd import FILE_FLAGS, Descent

HEADER = b"SQLite format 3\0"
PAGE_UNIT = 512
"""The size of a database is a multiple of this."""

INDEX = b"-shm"
_CONTENT = (b"-wal", b"-journal")
COMPANIONS = (*_CONTENT, INDEX)


def base_of(path: bytes) -> bytes:
    """Return the database that a path would belong to by its name; the path itself for others."""
    base = path.rpartition(b"-")[0] if path.endswith(COMPANIONS) else path
    return path if base.endswith(b"/") or not base else base


def family(base: bytes) -> tuple[bytes, ...]:
    """Return the paths of a database and of the companions that hold some of its content."""
    return (base, *(base + suffix for suffix in _CONTENT))


def is_database_in(folder: int, name: bytes) -> bool:
    """Return whether a name in an open folder is a database now."""
    try:
        descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
    except (OSError, ValueError):
        return False

    try:
        return os.read(descriptor, len(HEADER)) == HEADER
    except OSError:
        return False
    finally:
        os.close(descriptor)


def is_database_at(descent: Descent, path: bytes) -> bool:
    """Return whether there is a database at a path of the work tree now."""
    try:
        folder = descent.folder_of(path)
    except OSError:
        return False

    return is_database_in(folder, path.rpartition(b"/")[2])
