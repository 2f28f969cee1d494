"""A tree at two moments, and system calls that are refused for one path of its restore."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hankweave_server.worktree import tree_writer

NUMBERS = (
    errno.EPERM,
    errno.EACCES,
    errno.EROFS,
    errno.EBUSY,
    errno.ETXTBSY,
    errno.EXDEV,
    errno.ENOTSUP,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EINVAL,
    errno.EMLINK,
    errno.EAGAIN,
    errno.EFBIG,
    errno.ENOTEMPTY,
)
Snapshot = dict[str, tuple[int, str | bytes]]
WRITTEN = 20
"""More than there are temporary names."""


def snapshot(top: Path) -> Snapshot:
    """Return kind, permissions and content of everything below a folder, without Hankweave's."""
    found: Snapshot = {}
    for place in sorted(top.rglob("*")):
        name = place.relative_to(top).as_posix()
        if name.split("/")[0] in (".hankweave", ".git", "read_only_data_source"):
            continue

        mode = place.lstat().st_mode
        if stat.S_ISLNK(mode):
            found[name] = (stat.S_IFMT(mode), os.readlink(place))
        else:
            found[name] = (mode, place.read_bytes() if stat.S_ISREG(mode) else "")

    return found


def lay_out_target(top: Path) -> None:
    for name in ("file", "only-there", *(f"more/{number}" for number in range(WRITTEN))):
        write(top / name, f"{name} of the target")

    write(top / "folder-there/inner", "inner")
    write(top / "permissions", "the same")
    write(top / "folder/inner", "the same")
    (top / "only-there").chmod(0o640)
    (top / "permissions").chmod(0o644)
    (top / "folder").chmod(0o755)
    (top / "link").symlink_to("there")


def change(top: Path) -> None:
    for name in ("file", *(f"more/{number}" for number in range(WRITTEN))):
        write(top / name, f"{name} of now, which is longer")

    (top / "only-there").unlink()
    write(top / "only-here", "here")
    (top / "only-here").chmod(0o604)
    (top / "folder-there/inner").unlink()
    (top / "folder-there").rmdir()
    write(top / "folder-here/inner", "inner")
    (top / "permissions").chmod(0o600)
    (top / "folder").chmod(0o700)
    (top / "link").unlink()
    (top / "link").symlink_to("here")


def write(place: Path, text: str) -> None:
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)


@contextmanager
def refused(step: str, victim: bytes | None, number: int) -> Iterator[None]:
    """Refuse one kind of system call for one path, or for every path that is written."""
    under_way, exchange = threading.local(), tree_writer._renameat2

    def is_met() -> bool:
        path = getattr(under_way, "path", None)
        return path is not None and victim in (None, path)

    def placing(name: str) -> None:
        real = getattr(tree_writer.Placing, name)

        def known(self: Any, path: bytes, *words: Any) -> Any:
            under_way.path = path
            try:
                return real(self, path, *words)
            finally:
                under_way.path = None

        patch.setattr(tree_writer.Placing, name, known)

    def refuse(call: str, applies: Any = lambda *_: True) -> None:
        real = getattr(os, call)

        def maybe(*words: Any, **more: Any) -> Any:
            if is_met() and applies(*words):
                raise OSError(number, os.strerror(number))

            return real(*words, **more)

        patch.setattr(os, call, maybe)

    def refuse_name(call: str) -> None:
        real = getattr(os, call)

        def maybe(name: Any, *words: Any, **more: Any) -> Any:
            if name == victim:
                raise OSError(number, os.strerror(number))

            return real(name, *words, **more)

        patch.setattr(os, call, maybe)

    def renameat2(*words: Any) -> int:
        if is_met():
            ctypes.set_errno(number)
            return -1

        return int(exchange(*words)) if exchange is not None else -1

    with pytest.MonkeyPatch.context() as patch:
        placing("_placed")
        placing("set_permissions")
        match step:
            case "open":
                refuse("open", lambda name, flags, *_: flags & os.O_WRONLY)
            case "rename":
                refuse("rename")
                patch.setattr(tree_writer, "_renameat2", renameat2)
            case "mkdir" | "rmdir":
                refuse_name(step)
            case _:
                refuse(step)

        yield


STEPS = {
    # The call, and the path for which it is refused in a rollback and in its undo.
    "open a temporary file": ("open", "file", "file"),
    "write": ("write", "file", "file"),
    "set permissions of a new file": ("fchmod", "only-there", "only-here"),
    "exchange": ("rename", "file", "file"),
    "rename to a free name": ("rename", "only-there", "only-here"),
    "take away": ("rename", "only-here", "only-there"),
    "make a link": ("symlink", "link", "link"),
    "make a folder": ("mkdir", "folder-there", "folder-here"),
    "remove a folder": ("rmdir", "folder-here", "folder-there"),
    "set permissions": ("chmod", "permissions", "permissions"),
    "set permissions of a folder": ("chmod", "folder", "folder"),
}


def left_by(victim: str, call: str, before: Snapshot, wanted: Snapshot) -> Snapshot:
    """Return what a restore leaves that is refused one path."""
    stays = dict(wanted)
    for name in before.keys() | wanted.keys():
        if name == victim or (call == "mkdir" and name.startswith(f"{victim}/")):
            stays.pop(name, None)
            if name in before:
                stays[name] = before[name]

    return stays
