"""Random changes of every kind between scans: a watched scan misses none of them.

The witness is independent: it walks the tree and reads every file. `HANKWEAVE_WATCH_CHANGES` sets
the number of changes, 4,000 without it; `HANKWEAVE_WATCH_SEED` repeats a run.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import os
import random
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.patterns import UnifiedFileResolver
from hankweave_server.worktree.scan import WorkTreeScan
from hankweave_server.worktree.stat_index import StatIndex, signature_of
from support import enclosure

CHANGES = int(os.environ.get("HANKWEAVE_WATCH_CHANGES", "4000"))
SEED = int(os.environ.get("HANKWEAVE_WATCH_SEED", "0")) or random.randrange(1 << 30)
EVERYTHING = UnifiedFileResolver(["**"])
NAMES = [f"n{number}" for number in range(12)]
EXCHANGE = 2
DETACHED = 2
LIBC = ctypes.CDLL(None, use_errno=True)


class Fuzz:
    """A work tree, a folder beside it, and the changes that may happen to both."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.root, self.outside = root / "tree", root / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        self.descent = Descent(self.root)
        self.scan = WorkTreeScan(self.descent, StatIndex(), watches=True)
        self.held: list[int] = []
        self.mapped: list[tuple[mmap.mmap, int]] = []
        self.skipped = 0
        """Number of files that scans did not compare."""
        self.counts: dict[str, int] = {}

    # --- what is there ---------------------------------------------------------------------------

    def folders(self, top: Path | None = None) -> list[Path]:
        return [Path(each) for each, _, _ in os.walk(top or self.root)]

    def rules(self) -> list[Path]:
        found = [each / ".gitignore" for each in self.folders()]
        return [each.relative_to(self.root) for each in found if each.is_file()]

    def folder(self) -> Path:
        """Return a folder of the tree, or sometimes one outside of it."""
        return self.random.choice(
            self.folders(self.outside if self.random.random() < 0.1 else self.root)
        )

    def name(self) -> Path:
        return self.folder() / self.random.choice(NAMES)

    def existing(self, *, folders: bool = False) -> Path:
        """Return an existing file, in the tree nine times out of ten."""
        top = self.outside if self.random.random() < 0.1 else self.root
        found = [
            Path(above, name)
            for above, below, names in os.walk(top)
            for name in (below if folders else names)
        ]
        if not found:
            raise FileNotFoundError

        return self.random.choice(found)

    def content(self) -> bytes:
        return self.random.randbytes(self.random.choice((1, 5, 5, 5, 5000)))

    # --- changes ---------------------------------------------------------------------------------

    def write(self) -> None:
        self.name().write_bytes(self.content())

    def write_in_place(self) -> None:
        path = self.existing()
        size = path.stat().st_size
        with open(path, "r+b") as file:
            file.write(self.random.randbytes(min(size, 5)))

    def replace(self) -> None:
        spare = self.folder() / "spare"
        spare.write_bytes(self.content())
        os.replace(spare, self.name())

    def hold(self) -> None:
        self.held.append(os.open(self.existing(), os.O_RDWR | os.O_APPEND))

    def append_through_old_descriptor(self) -> None:
        os.write(self.random.choice(self.held), self.content())

    def close(self) -> None:
        os.close(self.held.pop(self.random.randrange(len(self.held))))

    def truncate(self) -> None:
        path = self.existing()
        os.truncate(path, self.random.randrange(path.stat().st_size + 3))

    def map(self) -> None:
        path = self.existing()
        if path.name == ".gitignore":
            return  # A full scan does not see that either: its stat data stays the same.

        descriptor = os.open(path, os.O_RDWR)
        try:
            inode = os.fstat(descriptor).st_ino
            self.mapped.append((mmap.mmap(descriptor, 0), inode))
        finally:
            os.close(descriptor)

    def write_through_map(self) -> None:
        view, inode = self.random.choice(self.mapped)
        if any(self.inode(bytes(each)) == inode for each in self.rules()):
            return  # It has become a file of rules by a swap; a full scan does not see that either.

        size = min(len(view), view.size())  # Beyond the end of a shortened file is SIGBUS.
        view[self.random.randrange(size)] = self.random.randrange(256)

    def unmap(self) -> None:
        view, _ = self.mapped.pop(self.random.randrange(len(self.mapped)))
        view.close()

    def rename(self) -> None:
        os.rename(self.existing(), self.name())

    def move_folder(self) -> None:
        os.rename(self.existing(folders=True), self.name())

    def swap(self) -> None:
        folders = self.random.random() < 0.7
        one, other = self.existing(folders=folders), self.existing(folders=folders)
        self.exchange(one, other)

    def exchange(self, one: Path, other: Path) -> None:
        LIBC.renameat2(-100, bytes(one), -100, bytes(other), EXCHANGE)

    def link(self) -> None:
        os.link(self.existing(), self.name())

    def link_from_outside(self) -> None:
        os.link(self.existing(), self.outside / self.random.choice(NAMES))

    def symlink(self) -> None:
        self.name().symlink_to(self.random.choice(NAMES))

    def remove(self) -> None:
        os.unlink(self.existing())

    def make_folder(self) -> None:
        if len(self.folders()) < 40:
            self.name().mkdir()

    def remove_folder(self) -> None:
        if self.random.random() < 0.3:
            shutil.rmtree(self.existing(folders=True))

    def change_mode(self) -> None:
        os.chmod(self.existing(), self.random.choice((0o644, 0o600, 0o755)))

    def set_times_back(self) -> None:
        path = self.existing()
        before = path.stat()
        path.write_bytes(self.random.randbytes(before.st_size))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def change_folder_mode(self) -> None:
        os.chmod(self.existing(folders=True), self.random.choice((0o755, 0o700)))

    def change_rules(self) -> None:
        rules = self.folder() / ".gitignore"
        rules.write_text("".join(f"{name}\n" for name in self.random.sample(NAMES, 2)))

    def drop_rules(self) -> None:
        (self.folder() / ".gitignore").unlink()

    def overflow(self) -> None:
        """Send more events than the queue holds."""
        if self.random.random() < 0.005:
            one, other = self.root / "n0", self.root / "n1"
            for _ in range(20_000):
                os.close(os.open(one, os.O_RDWR | os.O_CREAT))
                os.close(os.open(other, os.O_RDWR | os.O_CREAT))

    def suspend(self) -> None:
        """Make changes while the thread that reads events is held up."""
        watch = self.scan._watch
        if watch is not None and self.random.random() < 0.2:
            with watch._inotify._lock:
                for _ in range(self.random.choice((5, 50, 500))):
                    self.change(self.PLAIN)

    def mount(self) -> None:
        """Mount an empty file system on a folder, if that is safe; one at a time is enough."""
        if enclosure.why_not() is None and not self.mounts() and self.random.random() < 0.1:
            LIBC.mount(b"none", bytes(self.existing(folders=True)), b"tmpfs", 0, b"size=1m")

    def unmount(self) -> None:
        for each in self.mounts():
            LIBC.umount2(each, DETACHED)

    def mounts(self) -> list[bytes]:
        """Return where file systems are mounted by now: folders above may have been moved."""
        top = bytes(self.root.parent) + b"/"
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
        found = [line.split(b" ")[4] for line in lines]
        return [each for each in found if each.startswith(top)]

    def prove(self) -> None:
        self.scan.prove(1000)

    PLAIN = (
        (write, 8),
        (write_in_place, 8),
        (replace, 5),
        (hold, 4),
        (append_through_old_descriptor, 4),
        (close, 5),
        (truncate, 3),
        (map, 4),
        (write_through_map, 8),
        (unmap, 5),
        (rename, 6),
        (move_folder, 4),
        (swap, 4),
        (link, 1),
        (link_from_outside, 1),
        (symlink, 2),
        (remove, 4),
        (make_folder, 5),
        (remove_folder, 1),
        (change_mode, 2),
        (set_times_back, 3),
        (change_folder_mode, 1),
        (change_rules, 1),
        (drop_rules, 1),
    )
    CHANGES = (*PLAIN, (overflow, 1), (suspend, 1), (mount, 1), (unmount, 4), (prove, 3))

    def change(self, kinds: tuple[tuple[Callable[[Fuzz], None], int], ...] = CHANGES) -> None:
        (what,) = self.random.choices([each for each, _ in kinds], [weight for _, weight in kinds])
        # What does not exist, or is of another kind, or is not empty, stays as it is.
        with contextlib.suppress(OSError, IndexError, ValueError):
            what(self)
            self.counts[what.__name__] = self.counts.get(what.__name__, 0) + 1

    # --- scans -----------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Scan, read what the scan reports, and compare everything with the witness."""
        pending = self.scan.refresh(EVERYTHING)
        known = {file.slot for file in pending}
        inodes = {inode for _, inode in self.mapped}
        table = self.scan.table
        self.require_all_that_differ(known)
        # The caller of a scan reads mapped files in any case: stat data does not show their writes.
        mapped = [
            file
            for path, file in table.files.items()
            if file.signature and file.signature.inode in inodes and file.slot not in known
        ]
        for file in [*pending, *mapped]:
            path = self.root / os.fsdecode(file.path)
            status = path.lstat()
            is_mapped = status.st_ino in inodes
            digest = digest_at(path, status)
            self.scan.remember(
                file, None if is_mapped else signature_of(status), digest, 0o100644, 0o644
            )

        if self.scan.state.reason is None:
            self.skipped += len(table.files) - self.scan.state.compared

        missed = self.differences()
        assert missed == set(), f"seed {SEED}, after {self.counts}"

    def require_all_that_differ(self, reported: set[int]) -> None:
        """Compare the report with the stat data of every file, as a full scan would."""
        for path, file in self.scan.table.files.items():
            status = os.lstat(os.path.join(os.fsencode(self.root), path))
            is_reported = file.slot in reported or file.signature == signature_of(status)
            # Another name for a symbolic link changes its times, but what it says never changes.
            is_same = file.signature is not None and file.signature.inode == status.st_ino
            is_same_link = is_same and stat.S_ISLNK(status.st_mode)
            assert is_reported or is_same_link, f"{path!r}, seed {SEED}, {self.counts}"

    def differences(self) -> set[bytes]:
        captured = {path: file.captured[2] for path, file in self.scan.table.files.items()}
        return {path for path, _ in captured.items() ^ self.witness().items()}

    def inode(self, path: bytes) -> int:
        try:
            return (self.root / os.fsdecode(path)).lstat().st_ino
        except OSError:
            return 0

    def is_link(self, path: bytes) -> bool:
        return (self.root / os.fsdecode(path)).is_symlink()

    def witness(self) -> dict[bytes, bytes]:
        """Return every file that is tracked or wanted, read anew."""
        fresh = Descent(self.root)
        other = WorkTreeScan(fresh, StatIndex())
        try:
            # What was tracked stays tracked although rules hide it by now.
            paths = {file.path for file in other.refresh(EVERYTHING)}
        finally:
            fresh.close()

        paths |= set(self.scan.table.files)
        found: dict[bytes, bytes] = {}
        for path in paths:
            there = self.root / os.fsdecode(path)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                status = there.lstat()
                if not stat.S_ISDIR(status.st_mode):
                    found[path] = digest_at(there, status)

        return found

    def end(self) -> None:
        self.unmount()
        self.scan.close()
        self.descent.close()
        for descriptor in self.held:
            os.close(descriptor)

        for view, _ in self.mapped:
            view.close()


def digest_at(path: Path, status: os.stat_result) -> bytes:
    is_link = stat.S_ISLNK(status.st_mode)
    content = os.fsencode(os.readlink(path)) if is_link else path.read_bytes()
    return hashlib.sha1(content + (b"x" if status.st_mode & 0o100 else b"")).digest()


@pytest.fixture
def fuzz(tmp_path):
    """Return a tree with some files, and end what it holds open."""
    found = Fuzz(tmp_path, SEED)
    for _ in range(60):
        with contextlib.suppress(OSError):
            found.make_folder()
            found.write()

    yield found
    found.end()


@pytest.mark.full
@pytest.mark.timeout(86_400)
def test_a_watched_scan_misses_no_change(fuzz, capsys):
    """After any number of changes, what was captured is what an independent reader finds."""
    done = 0
    while done < CHANGES:
        for _ in range(fuzz.random.choice((0, 1, 1, 2, 5, 20, 100, 1000))):
            fuzz.change()
            done += 1

        fuzz.checkpoint()
        if fuzz.random.random() < 0.2:
            time.sleep(0.025)  # Later, no stat data is racy, and more can be proven.
            fuzz.checkpoint()

        # The witness has opened every file, so that none is proven any more.
        if fuzz.random.random() < 0.8:
            fuzz.scan.prove(100_000)

        if fuzz.random.random() < 0.05:
            missed = [path for path in fuzz.scan.verify() if not fuzz.is_link(path)]
            assert missed == [], f"seed {SEED}, after {fuzz.counts}"

    state = fuzz.scan.state
    assert state.watched_scans > state.full_scans
    assert fuzz.skipped > 5 * state.watched_scans
    with capsys.disabled():
        skipped = f"{fuzz.skipped} files not compared, 0 changes missed"
        print(f"\nseed {SEED}: {done} changes, {skipped}, {state}")  # noqa: T201
