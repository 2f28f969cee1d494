"""Setting up a codon's rig: copying what the hank brings along, running its commands."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from hankweave_server.worktree.dirfd import FILE_FLAGS, FOLDER_FLAGS
from hankweave_server.worktree.names import OUR_PREFIX, is_never_captured, is_out_of_bounds
from hankweave_server.worktree.rig_commands import (
    CommandFailed,
    CommandTimedOut,
    RigError,
    RunningCommand,
    Start,
    run_rig_command,
)

__all__ = [
    "CommandFailed",
    "CommandTimedOut",
    "RigError",
    "RunningCommand",
    "Start",
    "copy_rig",
    "run_rig_command",
]

_CHUNK = 1024 * 1024

Proceed = Callable[[], None]
"""Called between two steps; raises where the copy is not wanted any more."""


def copy_rig(source: Path, target_root: Path, to: str, proceed: Proceed = lambda: None) -> Path:
    """Copies a file or tree of the hank into the work tree and returns where it is.

    An existing target is replaced, and only when the copy is complete. No symbolic link is
    followed on either side; one in the source is refused, as are special files and names like
    `.git`. Raises RigError: the hank's fault, or the work tree's; and what `proceed` raises, with
    nothing changed.
    """
    steps = _steps(to)
    name = os.fsencode(f"{os.fsdecode(OUR_PREFIX)}-rig-{secrets.token_hex(4)}")
    try:
        with contextlib.ExitStack() as open_folders:
            parent = _parent(target_root, steps[:-1], open_folders)
            try:
                _Copying(proceed).copy(os.fspath(source), None, parent, name)
                _remove(steps[-1], parent)
                os.rename(name, steps[-1], src_dir_fd=parent, dst_dir_fd=parent)
            finally:
                _remove(name, parent)
    except (OSError, shutil.Error) as error:
        raise RigError(f"Copying {source.name} to {to}: {error}") from error

    return target_root.joinpath(*map(os.fsdecode, steps))


def _steps(to: str) -> list[bytes]:
    steps = [os.fsencode(step) for step in to.split("/") if step not in ("", ".")]
    if not steps or to.startswith("/") or "\0" in to or is_out_of_bounds(b"/".join(steps)):
        raise RigError(f"{to!r} is no place in the work tree that a rig may replace.")

    return steps


def _parent(root: Path, steps: list[bytes], open_folders: contextlib.ExitStack) -> int:
    """Opens the folder that will hold the target, and makes what is missing on the way."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    open_folders.callback(os.close, folder)
    for step in steps:
        with contextlib.suppress(FileExistsError):
            os.mkdir(step, dir_fd=folder)

        folder = os.open(step, FOLDER_FLAGS, dir_fd=folder)
        open_folders.callback(os.close, folder)

    return folder


class _Copying:
    """One copy, which may be given up at any file and at any megabyte."""

    def __init__(self, proceed: Proceed) -> None:
        self._proceed = proceed

    def copy(
        self, source: str | bytes, source_folder: int | None, folder: int, name: bytes
    ) -> None:
        self._proceed()
        mode = os.lstat(source, dir_fd=source_folder).st_mode
        if stat.S_ISREG(mode):
            self._file(os.open(source, FILE_FLAGS, dir_fd=source_folder), folder, name, mode)
        elif stat.S_ISDIR(mode):
            self._folder(os.open(source, FOLDER_FLAGS, dir_fd=source_folder), folder, name, mode)
        else:
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "a special file"
            raise RigError(f"{os.fsdecode(source)} is {kind}; a rig copies files and folders only.")

    def _file(self, source: int, folder: int, name: bytes, mode: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(source, "rb") as reader, open(_at(folder, name, flags), "wb") as writer:
            self._content(reader, writer)
            os.fchmod(writer.fileno(), stat.S_IMODE(mode) & 0o777)

    def _content(self, reader: BinaryIO, writer: BinaryIO) -> None:
        while chunk := reader.read(_CHUNK):
            writer.write(chunk)
            self._proceed()

    def _folder(self, source: int, folder: int, name: bytes, mode: int) -> None:
        with contextlib.ExitStack() as open_folders:
            open_folders.callback(os.close, source)
            os.mkdir(name, 0o700, dir_fd=folder)
            target = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            open_folders.callback(os.close, target)
            for item in sorted(map(os.fsencode, os.listdir(source))):
                if is_never_captured(b"-", item):
                    raise RigError(
                        f"{os.fsdecode(item)} is a protected name; a rig cannot bring it."
                    )

                self.copy(item, source, target, item)

            # The agent may need to write here even where the hank's own folder is read-only.
            os.fchmod(target, stat.S_IMODE(mode) & 0o777 | 0o700)


def _at(folder: int, name: bytes, flags: int) -> int:
    return os.open(name, flags, 0o600, dir_fd=folder)


def _remove(name: bytes, folder: int) -> None:
    try:
        mode = os.lstat(name, dir_fd=folder).st_mode
    except FileNotFoundError:
        return

    if stat.S_ISDIR(mode):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)
