"""A work tree that tests arrange and disturb, step by step, and inspect from outside.

A step is a value: `write("a", b"1")` does nothing until it is applied to a tree. In paths and in
the text of links, `OUTSIDE` stands for a folder beside the work tree that must not be touched.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OUTSIDE = "{outside}"

PathLike = str | bytes


@dataclass(frozen=True)
class Seen:
    """The entry at one path."""

    kind: str
    permissions: int
    content: bytes
    """A file's digest, a link's text, empty for the rest."""
    identity: tuple[int, int]
    """mtime in nanoseconds and inode: they show whether the file was rewritten."""

    @property
    def value(self) -> tuple[str, int, bytes]:
        return self.kind, self.permissions, self.content

    @property
    def is_storable(self) -> bool:
        return self.kind in ("file", "link")


Picture = dict[bytes, Seen]


@dataclass(frozen=True)
class WorkTree:
    """The agent's folder, and an unrelated one beside it."""

    root: bytes
    outside: bytes

    @classmethod
    def beside(cls, root: Path) -> WorkTree:
        """Return the tree at a path, with an unrelated folder next to the execution."""
        outside = root.parent.parent / "outside"
        root.mkdir(parents=True, exist_ok=True)
        outside.mkdir(exist_ok=True)
        (outside / "f").write_text("not yours")
        return cls(os.fsencode(root), os.fsencode(outside))

    def at(self, path: PathLike) -> bytes:
        return os.path.join(self.root, self.spelled(path))

    def spelled(self, text: PathLike) -> bytes:
        return os.fsencode(text).replace(os.fsencode(OUTSIDE), self.outside)

    def apply(self, *steps: Step) -> None:
        for step in steps:
            step(self)

    def wipe(self) -> None:
        """Empty the tree, whatever is in it."""
        for name in os.listdir(self.root):
            remove(os.path.join(self.root, name))

    def picture(self) -> Picture:
        return picture_of(self.root)

    def picture_outside(self) -> Picture:
        return picture_of(self.outside)


Step = Callable[[WorkTree], None]


def picture_of(root: bytes) -> Picture:
    """Return everything below a folder, folders included and links not followed."""
    found: Picture = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = _seen(path)

    return found


def _seen(path: bytes) -> Seen:
    status = os.lstat(path)
    kind, content = "special", b""
    if stat.S_ISLNK(status.st_mode):
        kind, content = "link", os.readlink(path)
    elif stat.S_ISDIR(status.st_mode):
        kind = "folder"
    elif stat.S_ISREG(status.st_mode):
        with open(path, "rb") as stream:
            kind, content = "file", hashlib.file_digest(stream, "sha256").digest()

    identity = (status.st_mtime_ns, status.st_ino)
    return Seen(kind, stat.S_IMODE(status.st_mode), content, identity)


def remove(path: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


# Steps


def write(path: PathLike, content: bytes = b"1", mode: int | None = None) -> Step:
    def step(tree: WorkTree) -> None:
        with open(_made_room(tree, path), "wb") as stream:
            stream.write(content)

        if mode is not None:
            os.chmod(tree.at(path), mode)

    return step


def link(path: PathLike, text: PathLike) -> Step:
    def step(tree: WorkTree) -> None:
        os.symlink(tree.spelled(text), _made_room(tree, path))

    return step


def folder(path: PathLike, mode: int = 0o755) -> Step:
    def step(tree: WorkTree) -> None:
        os.makedirs(tree.at(path), exist_ok=True)
        os.chmod(tree.at(path), mode)

    return step


def delete(*paths: PathLike) -> Step:
    def step(tree: WorkTree) -> None:
        for path in paths:
            remove(tree.at(path))

    return step


def chmod(path: PathLike, mode: int) -> Step:
    return lambda tree: os.chmod(tree.at(path), mode)


def rename(old: PathLike, new: PathLike) -> Step:
    return lambda tree: os.rename(tree.at(old), tree.at(new))


def hard_link(path: PathLike, new: PathLike) -> Step:
    return lambda tree: os.link(tree.at(path), tree.at(new))


def pipe(path: PathLike) -> Step:
    return lambda tree: os.mkfifo(_made_room(tree, path))


def device(path: PathLike) -> Step:
    """Create the null device; only root can."""
    return lambda tree: os.mknod(
        _made_room(tree, path), stat.S_IFCHR | 0o600, device=os.makedev(1, 3)
    )


def unix_socket(path: PathLike) -> Step:
    def step(tree: WorkTree) -> None:
        # A path over /proc keeps the address below the 108 bytes that a socket's may have.
        place, name = os.path.split(_made_room(tree, path))
        descriptor = os.open(place, os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(b"/proc/self/fd/%d/%s" % (descriptor, name))
        finally:
            os.close(descriptor)

    return step


def sparse(path: PathLike, size: int) -> Step:
    """Create a sparse file with one byte at its end."""

    def step(tree: WorkTree) -> None:
        with open(_made_room(tree, path), "wb") as stream:
            stream.seek(size - 1)
            stream.write(b"1")

    return step


def edit_in_disguise(path: PathLike, content: bytes) -> Step:
    """Overwrite a file in place and restore its mtime."""

    def step(tree: WorkTree) -> None:
        status = os.stat(tree.at(path))
        with open(tree.at(path), "r+b") as stream:
            stream.write(content)

        os.utime(tree.at(path), ns=(status.st_atime_ns, status.st_mtime_ns))

    return step


def touch(path: PathLike, seconds: int) -> Step:
    """Set a time far from now, so that a rewritten file cannot have it by chance."""
    return lambda tree: os.utime(tree.at(path), (seconds, seconds), follow_symlinks=False)


def repository(path: PathLike) -> Step:
    """Run `git init`."""

    def step(tree: WorkTree) -> None:
        os.makedirs(tree.at(path), exist_ok=True)
        _git(tree.at(path), "init", "-q")

    return step


def commit(path: PathLike) -> Step:
    """Run `git commit` for everything in a repository of the agent's."""

    def step(tree: WorkTree) -> None:
        _git(tree.at(path), "add", "-A")
        _git(tree.at(path), "-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "x")

    return step


def _git(place: bytes, *arguments: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    subprocess.run(["git", *arguments], cwd=place, env=environment, check=True)


def _made_room(tree: WorkTree, path: PathLike) -> bytes:
    full = tree.at(path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    return full
