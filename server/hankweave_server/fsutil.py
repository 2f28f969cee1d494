"""Durable and private files.

`replace_durably` is the only way a small file of the server changes: a reader sees the old or the
new content, never a part of one, and after the call returns the new content is on the disk. A crash
leaves at most a `.tmp` file beside it, which the next start removes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import filecmp
import os
import shutil
import socket
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700

CHUNK = 1 << 20
"""Bytes that are read or written in one piece."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a full disk, which may have space again later."""

BROKEN = frozenset({errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE})
"""Errors of a disk that can no longer be trusted."""

_NEXT_STEPS = {
    errno.EIO: "The disk reports errors: check it before you go on.",
    errno.EROFS: "Mount the file system for writing, and try again.",
    errno.EACCES: "Give this user access to it, and try again.",
    errno.EPERM: "It may be immutable (see lsattr), or another user's: change that, and try again.",
    errno.EMFILE: "Too many files are open: raise the limit (ulimit -n), and start again.",
    errno.ENFILE: "Too many files are open on this machine: end some programs, and try again.",
    errno.ENOENT: "It has been removed meanwhile: try again.",
    errno.EBUSY: "Something is mounted there, or a program holds it: end that, and try again.",
    errno.ELOOP: "It is a link where none may be: put what it points to in its place.",
    errno.ENAMETOOLONG: "Use a shorter path.",
    errno.ETXTBSY: "A program that runs is in that file: end it, and try again.",
} | dict.fromkeys(FULL, "Free some space, and try again.")

_libc = ctypes.CDLL(None, use_errno=True)


def content_of(path: Path) -> bytes | None:
    """Return the content of a file; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def held_open(folder: Path, owner: object) -> Path:
    """Return a path to a folder that is valid while `owner` lives.

    If another folder takes the place of this one later, the path does not lead there.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    weakref.finalize(owner, os.close, descriptor)
    return Path(f"/proc/self/fd/{descriptor}")


@contextlib.contextmanager
def opened(
    path: str | bytes | Path, flags: int, mode: int = PRIVATE_FILE, *, dir_fd: int | None = None
) -> Iterator[int]:
    """Open a file for the duration of the block, and close it."""
    descriptor = os.open(path, flags, mode, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_private_directory(path: Path) -> None:
    """Create the directory and missing parents for the owner alone; keep an existing one."""
    if path.is_dir():
        return

    make_private_directory(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=PRIVATE_DIRECTORY)


def bind_private(listener: socket.socket, path: Path) -> None:
    """Bind a Unix socket that only its owner may connect to; the path may have any length.

    A socket address holds at most 107 bytes, so the folder is named by a descriptor.
    """
    with opened(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as folder:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")

    path.chmod(PRIVATE_FILE)


def temporary_folder() -> str:
    """Return the folder for temporary files.

    `tempfile.gettempdir` writes a file to find out, which a process killed meanwhile leaves there.
    """
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    places = filter(None, [*named, "/tmp", "/var/tmp"])
    return next((place for place in places if os.access(place, os.W_OK | os.X_OK)), os.getcwd())


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: files created, renamed or unlinked there."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as descriptor:
        os.fsync(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of a file durable; its name is `sync_directory`'s."""
    with opened(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC) as descriptor:
        os.fsync(descriptor)


def sync_filesystem(path: Path) -> None:
    """Flush the whole file system that holds the path: one call for many new files.

    Raises OSError when the kernel reports a failed write-back (syncfs(2), Linux >= 5.8).
    """
    with opened(path, os.O_RDONLY | os.O_CLOEXEC) as descriptor:
        if _libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))


def is_full(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, is that of a full disk."""
    return _has_errno(error, FULL)


def is_broken(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, is that of a disk that cannot be trusted."""
    return _has_errno(error, BROKEN)


def os_error_in(error: BaseException | None) -> OSError | None:
    """Return the system's error that an error comes from, if there is one.

    What fails in the handling of an error does not come from it, but for `raise ... from None`.
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error

        hidden = error.__context__ if error.__suppress_context__ else None
        error = error.__cause__ or hidden

    return None


def described(problem: OSError, place: Path) -> str:
    """Return what the system reported and of which path; of `place`, if it names none.

    A name without its folder is said to be below `place`.
    """
    named = problem.filename if isinstance(problem.filename, str | bytes | os.PathLike) else place
    path = os.fsdecode(named)
    where = path if os.path.isabs(path) else f"{path} below {place}"
    name = errno.errorcode.get(problem.errno or 0, "unknown error")
    return f"{where}: {problem.strerror or problem} ({name})"


def next_step(problem: OSError) -> str:
    """Return what a person can do about an error of the system."""
    return _NEXT_STEPS.get(problem.errno or 0, "Mend that, and try again.")


def _has_errno(error: BaseException | None, numbers: frozenset[int]) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in numbers:
            return True

        error = error.__cause__

    return False


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte; write(2) may write fewer than it was given."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def append_whole(descriptor: int, data: bytes) -> None:
    """Append all of it, or nothing if the disk is full; for a file with a single writer."""
    size = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, data)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)

        raise


def append_private(path: Path, data: bytes) -> None:
    """Append to a file that only its owner may read, creating it; nothing is flushed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with opened(path, flags) as descriptor:
        append_whole(descriptor, data)


def write_private(path: Path, data: bytes, *, durable: bool) -> None:
    """Write a file for the owner alone, in place; only for names that have no readers yet."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with opened(path, flags) as descriptor:
        write_all(descriptor, data)
        if durable:
            os.fsync(descriptor)


def create_durably(temporary: Path, content: Iterable[bytes], path: Path) -> None:
    """Write a private file under a name that must be free, flush it, and rename it to `path`.

    Raises FileExistsError if the temporary name is taken, and any exception of `content`; `path` is
    then unchanged.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, PRIVATE_FILE)
    try:
        try:
            for piece in content:
                write_all(descriptor, piece)

            os.fsync(descriptor)
        finally:
            os.close(descriptor)

        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

    sync_directory(path.parent)


def replace(path: Path, data: bytes) -> None:
    """Replace a file atomically but not durably: for status files such as the heartbeat."""
    _replace(path, data, durable=False)


def replace_durably(path: Path, data: bytes) -> None:
    """Replace a file atomically; when it returns, the new content survives a power cut."""
    _replace(path, data, durable=True)
    sync_directory(path.parent)


def _replace(path: Path, data: bytes, *, durable: bool) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        write_private(temporary, data, durable=durable)
        temporary.replace(path)
    except OSError:
        # A full disk needs the space of the incomplete file.
        with contextlib.suppress(OSError):
            temporary.unlink()

        raise


def keep_original(path: Path) -> Path:
    """Keep another program's file under a second name, durably; return that name.

    A second call for the same content keeps nothing again. The original stays in place and must be
    replaced by rename alone: the two names may be one file.
    """
    number = 1
    while (kept := path.with_name(f"{path.stem}.hankweave-{number}{path.suffix}")).exists():
        if filecmp.cmp(path, kept, shallow=False):
            return kept

        number += 1

    try:
        os.link(path, kept)
    except OSError:
        temporary = kept.with_name(kept.name + ".tmp")
        shutil.copy2(path, temporary)
        with temporary.open("rb+") as copied:
            os.fsync(copied.fileno())

        temporary.rename(kept)

    sync_directory(path.parent)
    return kept


def clear_temporaries(folder: Path) -> None:
    """Remove what crashed writers left in a folder; only its single writer may call this."""
    for path in folder.glob("*.tmp"):
        path.unlink(missing_ok=True)


def remove_durably(path: Path) -> None:
    """Remove a file if it exists; when it returns, the removal survives a power cut."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()

    sync_directory(path.parent)
