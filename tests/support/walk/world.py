"""The world around a server: a person's editor, a program that logs, and faults of paths.

Faults are those that a rollback cannot know to be temporary: an immutable file, a file with a mount
on it, a read-only mount, a sticky folder of another user. They need root and an enclosure; `World`
refuses to be anywhere else. A sticky folder is none for root with `CAP_FOWNER`.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import enclosure
from support.waiting import eventually
from support.walk.acts import HELD, LOG, MAPPED, MOUNTED, Delete, Edit, Fault, Hold, Map, text
from support.walk.model import Content

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NOTICED_NS = 250_000_000
"""More than the time in which changes are taken for an agent's although its server is dead."""
_LINES_EACH = 0.002
"""Seconds between two lines of the log."""

_ANOTHER_USER = 12_345

_libc = ctypes.CDLL(None, use_errno=True)


class World:
    """The work tree of an execution, as everybody but the server sees it."""

    def __init__(self, work_tree: Path, scratch: Path) -> None:
        enclosure.require()
        self.work_tree = work_tree
        self.log = Log(work_tree / LOG)
        self.held_lines: list[bytes] = []
        self._scratch = scratch / "new"
        self._mapping: tuple[mmap.mmap, int] | None = None
        """The mapping that stays open, and the inode of its file."""
        self._held: int | None = None
        self._immutable: set[Path] = set()
        self._mounted: list[Path] = []
        self._sticky: dict[Path, int] = {}
        """The permissions that these folders had."""

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.work_tree)): path.read_bytes()
            for path in self.work_tree.rglob("*")
            if path.is_file() and not path.is_symlink()
        }

    def content(self, path: str) -> Content:
        try:
            return (self.work_tree / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def close(self) -> None:
        self.log.stop()
        self.lift()
        if self._mapping is not None:
            self._mapping[0].close()

        if self._held is not None:
            os.close(self._held)

    async def grows_old(self) -> None:
        """Wait until the newest change is older than what a keeper takes to notice a death.

        That of the log does not count: it grows all the time.
        """
        others = (path for path in self.work_tree.rglob("*") if path != self.work_tree / LOG)
        changed = [path.lstat().st_ctime_ns for path in others]
        newest = max(changed, default=0)

        def is_old() -> bool:
            self._scratch.write_bytes(b"")
            return self._scratch.stat().st_ctime_ns > newest + _NOTICED_NS

        await eventually(is_old)

    async def is_left_alone(self) -> None:
        """Wait until no process of an agent is at work in the tree any more."""

        def is_alone() -> bool:
            return not any(map(self._is_in, Path("/proc").glob("[0-9]*/cwd")))

        await eventually(is_alone)

    def _is_in(self, link: Path) -> bool:
        try:
            return self.work_tree in (place := Path(os.readlink(link)), *place.parents)
        except OSError:
            return False

    # --- a person -------------------------------------------------------------------------------

    def edit(self, edit: Edit) -> tuple[Content, bytes] | None:
        """Return what was there before and is there now; None if the path cannot be written."""
        path, new = self.work_tree / edit.path, text(edit.word).encode() + b"\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if edit.how == "anew":
                return self._exchange(edit.path, new), new

            before = self.content(edit.path)
            stat = path.stat() if before is not None else None
            if edit.how == "appended" and before is not None:
                new = before + new
            elif edit.how == "quietly" and before is not None:
                new = new.ljust(len(before), b".")[: len(before)]

            with path.open("r+b" if before is not None else "wb") as file:
                file.write(new)
                file.truncate()

            if edit.how == "quietly" and stat is not None:
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        except OSError:
            return None

        return before, new

    def _exchange(self, path: str, new: bytes) -> Content:
        """Replace a file as an editor does, in one system call; return what it has replaced."""
        self._scratch.write_bytes(new)
        target = os.fsencode(self.work_tree / path)
        while True:
            if not os.path.lexists(target):
                with contextlib.suppress(FileExistsError):
                    os.link(self._scratch, target)
                    self._scratch.unlink()
                    return None

            words = (_AT_FDCWD, os.fsencode(self._scratch), _AT_FDCWD, target, _RENAME_EXCHANGE)
            if _libc.renameat2(*words) == 0:
                before = self._scratch.read_bytes()
                self._scratch.unlink()
                return before

            if os.path.lexists(target):
                number = ctypes.get_errno()
                self._scratch.unlink()
                raise OSError(number, os.strerror(number))

    def delete(self, act: Delete) -> tuple[Content, None] | None:
        before = self.content(act.path)
        try:
            (self.work_tree / act.path).unlink()
        except OSError:
            return None

        return before, None

    def map(self, act: Map) -> tuple[Content, bytes] | None:
        """Write through the mapping; map the file anew if it has been replaced."""
        path, new = self.work_tree / MAPPED, text(act.word)[:10].encode()
        before = self.content(MAPPED)
        try:
            if before is None or len(before) < 4096:
                path.write_bytes((before or b"").ljust(4096, b"."))

            inode = path.stat().st_ino
            if self._mapping is None or self._mapping[1] != inode:
                with path.open("r+b") as file:
                    self._mapping = mmap.mmap(file.fileno(), 4096), inode
        except OSError:
            return None

        self._mapping[0][: len(new)] = new
        after = self.content(MAPPED)
        assert after is not None
        return before, after

    # --- another program ------------------------------------------------------------------------

    def hold(self, act: Hold) -> tuple[Content, bytes] | None:
        """Append a line through the descriptor, if the path is still its file's.

        What is written to a file that was replaced is lost, which a warning says.
        """
        path, line = self.work_tree / HELD, text(act.word)[:10].encode() + b"\n"
        before = self.content(HELD)
        try:
            if self._held is None or before is None or not self._is_held(path):
                if self._held is not None:
                    os.close(self._held)

                self._held = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

            os.write(self._held, line)
        except OSError:
            return None

        return before, (before or b"") + line

    def _is_held(self, path: Path) -> bool:
        assert self._held is not None
        return os.fstat(self._held).st_ino == path.stat().st_ino

    def held(self) -> frozenset[str]:
        """Return the files that this program has open or mapped: what it writes reaches them."""
        inodes = {
            HELD: None if self._held is None else os.fstat(self._held).st_ino,
            MAPPED: None if self._mapping is None else self._mapping[1],
        }
        here = ((path, self.work_tree / path, inode) for path, inode in inodes.items())
        return frozenset(
            path for path, place, inode in here if place.exists() and place.stat().st_ino == inode
        )

    # --- faults ---------------------------------------------------------------------------------

    def fault(self, fault: Fault) -> None:
        path = self.work_tree / (MOUNTED if fault.kind == "read-only" else fault.path)
        if not path.exists() or path in self._mounted or path in self._immutable:
            return

        match fault.kind:
            case "sticky":
                self._make_sticky(path.parent)
            case "immutable":
                if subprocess.run(["chattr", "+i", path], capture_output=True).returncode == 0:
                    self._immutable.add(path)
            case "bound" | "read-only":
                subprocess.run(["mount", "--bind", path, path], check=True)
                self._mounted.append(path)
                if fault.kind == "read-only":
                    subprocess.run(["mount", "-o", "remount,ro,bind", path], check=True)

    def _make_sticky(self, folder: Path) -> None:
        if folder == self.work_tree or any(map(self._is_blocked, (folder, *folder.iterdir()))):
            return

        self._sticky.setdefault(folder, stat.S_IMODE(folder.stat().st_mode))
        for each in (folder, *filter(Path.is_file, folder.iterdir())):
            os.chown(each, _ANOTHER_USER, _ANOTHER_USER)

        folder.chmod(0o1777)

    def lift(self) -> None:
        for path in reversed(self._mounted):
            # The file may be mapped through the mount.
            subprocess.run(["umount", "--lazy", path], check=True)

        self._mounted.clear()
        for path in self._immutable:
            subprocess.run(["chattr", "-i", path], check=True)

        self._immutable.clear()
        for folder, permissions in self._sticky.items():
            if folder.is_dir():
                folder.chmod(permissions)
                for each in (folder, *filter(Path.is_file, folder.iterdir())):
                    os.chown(each, 0, 0)

        self._sticky.clear()

    def is_faulty(self, path: str) -> bool:
        """Return whether nobody can replace a path now."""
        here = self.work_tree / path
        return self._is_blocked(here) or _is_of_another(here)

    def _is_blocked(self, here: Path) -> bool:
        return any(
            here == faulty or faulty in here.parents
            for faulty in (*self._mounted, *self._immutable)
        )


def _is_of_another(path: Path) -> bool:
    """Return whether a path is another user's in a sticky folder; a rollback can make one, too."""
    if not path.exists():
        return False

    folder = path.parent.stat()
    return bool(folder.st_mode & stat.S_ISVTX) and 0 not in (folder.st_uid, path.stat().st_uid)


class Log:
    """A program that appends to a file all the time, and opens it for each line."""

    def __init__(self, path: Path) -> None:
        self.written: list[bytes] = []
        self._path = path
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._ends.clear()
            self._thread = threading.Thread(target=self._run, name="log")
            self._thread.start()

    def stop(self) -> None:
        if self._thread is not None:
            self._ends.set()
            self._thread.join()
            self._thread = None

    @contextmanager
    def pausing(self) -> Iterator[None]:
        with self._lock:
            yield

    def _run(self) -> None:
        while not self._ends.wait(_LINES_EACH):
            with self._lock, contextlib.suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                line = b"line %06d\n" % len(self.written)
                with self._path.open("ab", buffering=0) as file:
                    file.write(line)

                self.written.append(line)
