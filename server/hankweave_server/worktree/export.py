"""Copy files of the work tree to a directory of the user, each one completely or not at all.

Only regular files are copied, and no link is followed on either side: the target of an agent's
link is not part of the export, and a link in the destination would redirect the copy.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path

from hankweave_server import fsutil
from hankweave_server.worktree.dirfd import FILE_FLAGS, FOLDER_FLAGS, Descent
from hankweave_server.worktree.names import shown
from hankweave_server.worktree.patterns import choose, is_regular

MOST_COPIES = 100
"""Number of alternative names tried when a file's own name is taken (Hankweave's limit)."""


class HandingOutFailed(Exception):
    """A file could not be copied; those before it were."""


def hand_out(
    work_tree: Path,
    at_the_top: frozenset[bytes],
    patterns: Iterable[str],
    directory: Path,
    *,
    overwrite: bool = True,
    now_ms: int = 0,
) -> tuple[bytes, ...]:
    """Copy the files that the patterns match, with the same relative paths; return when durable.

    With `overwrite`, existing files are replaced. Otherwise the copy becomes
    `name_<n>_<now_ms>.ext` beside the existing file, as in Hankweave, unless that file has the
    same content. Raises HandingOutFailed and UnsupportedPattern.
    """
    with closing(Descent(work_tree, at_the_top=at_the_top)) as descent:
        chosen = choose(descent, patterns)
        if chosen.failed:
            path, reason = next(iter(chosen.failed.items()))
            raise HandingOutFailed(f"{shown(path)}: {reason}")

        paths = tuple(path for path in chosen.files if is_regular(descent, path))
        for path in paths:
            try:
                _copy(descent, path, directory, None if overwrite else now_ms)
            except OSError as problem:
                raise HandingOutFailed(f"{shown(path)}: {problem.strerror}") from problem

        _sync(directory, paths)

    return paths


def _sync(directory: Path, paths: tuple[bytes, ...]) -> None:
    if not paths:
        return

    try:
        fsutil.sync_filesystem(directory)
    except OSError as problem:
        raise HandingOutFailed(f"{directory}: {problem.strerror}") from problem


def _copy(descent: Descent, path: bytes, directory: Path, beside_ms: int | None) -> None:
    """Copy one file; with `beside_ms`, replace no existing file."""
    *steps, name = path.split(b"/")
    temporary = f".hankweave-{secrets.token_hex(6)}"
    with ExitStack() as opened:
        descriptor = os.open(name, FILE_FLAGS, dir_fd=descent.folder_of(path))
        source = opened.enter_context(open(descriptor, "rb"))
        folder = _folder(directory, steps, opened)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                target.flush()
                mode = os.fstat(source.fileno()).st_mode
                os.fchmod(target.fileno(), stat.S_IMODE(mode) & 0o777)
                os.fdatasync(target.fileno())

            if beside_ms is not None:
                target_name = _free_name(folder, temporary, name, beside_ms)
            else:
                target_name = name

            if target_name is None:
                os.unlink(temporary, dir_fd=folder)
            else:
                os.rename(temporary, target_name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)

            raise


def _free_name(folder: int, made: str, name: bytes, now_ms: int) -> bytes | None:
    """Return the first free name; None if an existing file has the same content."""
    stem, dot, ending = name.rpartition(b".")
    if not stem:
        stem, dot, ending = name, b"", b""

    candidates = (
        b"%b_%d_%d%b%b" % (stem, n, now_ms, dot, ending) for n in range(1, MOST_COPIES + 1)
    )
    for candidate in (name, *candidates):
        try:
            there = os.stat(candidate, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return candidate

        if stat.S_ISREG(there.st_mode) and _is_same(folder, made, candidate):
            return None

    raise FileExistsError(errno.EEXIST, f"{MOST_COPIES} copies lie there already")


def _is_same(folder: int, one: str, other: bytes) -> bool:
    with (
        open(os.open(one, FILE_FLAGS, dir_fd=folder), "rb") as first,
        open(os.open(other, FILE_FLAGS, dir_fd=folder), "rb") as second,
    ):
        if os.fstat(first.fileno()).st_size != os.fstat(second.fileno()).st_size:
            return False

        while block := first.read(1 << 20):
            if block != second.read(1 << 20):
                return False

    return True


def _folder(directory: Path, steps: list[bytes], opened: ExitStack) -> int:
    """Open the folder for a copy; create missing folders on the way."""
    directory.mkdir(parents=True, exist_ok=True)
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    opened.callback(os.close, folder)
    for step in steps:
        with contextlib.suppress(FileExistsError):
            os.mkdir(step, dir_fd=folder)

        folder = os.open(step, FOLDER_FLAGS, dir_fd=folder)
        opened.callback(os.close, folder)

    return folder
