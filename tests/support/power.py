"""A machine whose power can be cut: its disk is an image, and unwritten data is lost.

`FS_IOC_SHUTDOWN` stops a file system at once and drops the part of its journal that is not written.
It is then unmounted and mounted again, as at a boot. Two faults are not modelled: disks that
misreport what they have flushed, and torn sectors.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from support import enclosure
from support.waiting import eventually

_SHUTDOWN, _WITHOUT_ITS_LOG = 0x8004587D, 2

_NOTHING_IS_FLUSHED = """
#define _GNU_SOURCE
#include <sys/types.h>
int fsync(int file) { return 0; }
int fdatasync(int file) { return 0; }
int syncfs(int file) { return 0; }
int sync_file_range(int file, off_t from, off_t size, unsigned int how) { return 0; }
void sync(void) {}
"""


class NotHere(Exception):
    """A program or privilege is missing here; the message names it."""


@dataclass(frozen=True)
class FileSystem:
    """A kind of file system that can be shut down."""

    name: str
    made_by: tuple[str, ...]

    size = 512 << 20
    """Of an image that is nearly all hole; XFS requires at least 300 MiB."""


EXT4 = FileSystem("ext4", ("mkfs.ext4", "-q", "-F", "-e", "remount-ro"))
XFS = FileSystem("XFS", ("mkfs.xfs", "-q", "-f"))


class Disk:
    """A file system of its own, mounted below a folder.

    Raises NotHere where it cannot be made.
    """

    def __init__(self, folder: Path, kind: FileSystem) -> None:
        self.place = folder / "disk"
        self.kind = kind
        self.cuts = 0
        self._image = folder / "image"
        self._kept = folder / "kept"
        if (reason := enclosure.why_not()) is not None:
            raise NotHere(reason)

        for program in (kind.made_by[0], "losetup", "mount", "umount"):
            if shutil.which(program) is None:
                raise NotHere(f"there is no {program} program")

        self.place.mkdir(parents=True)
        with self._image.open("wb") as stream:
            stream.truncate(kind.size)

        subprocess.run([*kind.made_by, self._image], check=True, capture_output=True)
        self._mount()

    def cut(self) -> None:
        """Cut the power: nothing more reaches the disk."""
        self.cuts += 1
        descriptor = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_ITS_LOG))
        finally:
            os.close(descriptor)

    def turn_read_only(self) -> None:
        """Make the kernel find a fault of an ext4, after which it writes nothing more to it.

        Raises NotHere where the kernel cannot be asked to.
        """
        device = self.place.stat().st_dev
        name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
        trigger = Path("/sys/fs/ext4", name, "trigger_fs_error")
        try:
            trigger.write_text("1")
        except OSError as error:
            raise NotHere(f"{trigger} cannot be written: {error}") from None

    async def reboot(self) -> None:
        """Mount the disk as it was left, once every process that had files open on it is dead."""
        await self._unmount()
        self._mount()

    async def keep(self) -> None:
        """Save a copy of the disk's present content."""
        await self._unmount()
        _copy(self._image, self._kept)
        self._mount()

    async def lay_out(self) -> None:
        """Restore the disk from the saved copy."""
        if self.place.is_mount():
            await self._unmount()

        _copy(self._kept, self._image)
        self._mount()

    def discard(self) -> None:
        """Unmount it even if processes still use it: its device is freed with the last of them."""
        if self.place.is_mount():
            subprocess.run(["umount", "--lazy", self.place], check=True)

        self._image.unlink()
        self._kept.unlink(missing_ok=True)

    def _mount(self) -> None:
        words = ["mount", "-o", "loop", str(self._image), str(self.place)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise NotHere(f"{self.kind.name} cannot be mounted here: {done.stderr.strip()}")

    async def _unmount(self) -> None:
        """Unmount the disk, and wait until the kernel has let go of the image.

        Another process that copied the mount namespace, such as a confined agent, may still hold
        the file system. Then umount succeeds here, but the kernel keeps the loop device and the
        superblock. A mount of the image would reuse both, and if the superblock has been shut down,
        every read would fail with EIO.
        """
        await eventually(self._is_unmounted)
        await eventually(self._is_let_go)

    def _is_unmounted(self) -> bool:
        words, plainly = ["umount", str(self.place)], os.environ | {"LC_ALL": "C"}
        done = subprocess.run(words, capture_output=True, text=True, env=plainly)
        assert done.returncode == 0 or "busy" in done.stderr, done.stderr
        return done.returncode == 0

    def _is_let_go(self) -> bool:
        words = ["losetup", "--associated", str(self._image)]
        return not subprocess.run(words, check=True, capture_output=True).stdout


def freeze(pid: int) -> None:
    """Stop a process; when this returns, no thread of it can say anything any more.

    A call that waits for the disk is not waited for: power fails in the middle of it. If the
    process ran on after the cut, it would go on to acknowledge what it cannot have done: ext4 may
    report success to a flush that a shutdown overtakes.
    """
    with suppress(ProcessLookupError, FileNotFoundError):  # It has ended by itself.
        os.kill(pid, signal.SIGSTOP)
        while any(state not in "TtDZX" for state in _states_of_threads(pid)):
            pass


def _states_of_threads(pid: int) -> Iterator[str]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            yield (thread / "stat").read_text().rpartition(")")[2].split()[0]


async def kernel_that_commits(disk: Disk, chance: random.Random) -> None:
    """Make the file system write its journal now and then, until the power fails.

    A kernel does so every few seconds: names reach the disk before the content that they name. A
    flush by another process has the same effect within a short life.
    """
    try:
        with (disk.place / "stranger").open("wb", buffering=0) as stranger:
            while True:
                await anyio.sleep(chance.uniform(0, 0.1))
                stranger.write(b"x")
                await anyio.to_thread.run_sync(os.fsync, stranger.fileno())
    except OSError:
        return


def without_flushes(folder: Path) -> list[str]:
    """Return the words before a command whose flushes all succeed without effect.

    Raises NotHere where there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NotHere("there is no C compiler")

    source, built = folder / "nothing_is_flushed.c", folder / "nothing_is_flushed.so"
    source.write_text(_NOTHING_IS_FLUSHED)
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", built], check=True)
    return ["env", f"LD_PRELOAD={built}"]


def _copy(image: Path, to: Path) -> None:
    subprocess.run(["cp", "--sparse=always", image, to], check=True)
