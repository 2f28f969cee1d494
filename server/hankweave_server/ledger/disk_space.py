"""Whether the disk has room, who waits for it, and how long.

Whoever meets a full disk says so here. What must not be lost waits and is tried again (`insist`,
and the ledger's own writes); what was merely asked for is refused by whoever asks `is_short`. The
shortage is over when nobody waits any more and the reserve stands again.

Nothing waits before `be_patient`: a server that does not serve yet can tell nobody, and ends.

A file that holds nothing but room: given up when the disk has none, made again when it has.

It lets the write that met the full disk come to its end. Nothing depends on it: where it cannot be
made, a full disk only makes the ledger wait sooner.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from hankweave_server.background_tasks import alongside
from hankweave_server.fsutil import PRIVATE_FILE, is_full

RESERVE_BYTES = 1 << 20
"""More than a batch of events and a state file of a thousand codons need together."""

ROOM_BYTES = 2 << 20
"""What has to be free beside the reserve before a disk counts as having room again."""

ROOM_FILES = 16
"""The same in files: a checkpoint makes about so many."""


class Reserve:
    """The reserve file of one execution; all calls block, and only the ledger's owner may call."""

    def __init__(self, path: Path) -> None:
        # The folder as it is now: if another one takes its path, nothing is touched there.
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        self._path = Path(f"/proc/self/fd/{descriptor}") / path.name

    def make(self) -> bool:
        """Sees to it that the reserve stands; False where the disk has no room for it and more.

        A file system that cannot reserve has room as long as it says so.
        """
        try:
            stands = self._path.exists()
            if not self._has_room(ROOM_BYTES + (0 if stands else RESERVE_BYTES)):
                return False

            if not stands:
                self._allocate()
        except OSError as error:
            self.spend()
            return not is_full(error)

        return True

    def spend(self) -> bool:
        """Gives the room back to the disk; False where there was none to give."""
        try:
            # Truncated first: some file systems free an unlinked file only later.
            os.truncate(self._path, 0)
            self._path.unlink()
        except OSError:
            return False

        return True

    def _has_room(self, size: int) -> bool:
        status = os.statvfs(self._path.parent)
        files_free = status.f_favail if status.f_files else ROOM_FILES
        return status.f_bavail * status.f_frsize >= size and files_free >= ROOM_FILES

    def _allocate(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, PRIVATE_FILE)
        with contextlib.closing(os.fdopen(descriptor, "wb", buffering=0)):
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)


T = TypeVar("T")

Pause = Callable[[float], Awaitable[None]]

RETRY_SECONDS = 1.0
"""Between two tries to write what waits: rare enough to cost nothing."""

LONGEST_PAUSE = 8.0
"""Between two tries of work that costs more than a write."""


class Space:
    """The room on one execution's disk. To be used in one event loop's thread."""

    def __init__(self, reserve: Reserve, *, pause: Pause = anyio.sleep) -> None:
        self._reserve = reserve
        self._pause = pause
        self._is_patient = False
        self._given_up = anyio.Event()
        self._short = anyio.Event()
        self._relieved = anyio.Event()
        self._waiting = 0
        self.on_shortage: Callable[[BaseException], None] = lambda error: None
        """Called when the disk is first found full."""
        self.on_relief: Callable[[], None] = lambda: None
        """Called when it has room again."""

    @property
    def is_short(self) -> bool:
        return self._short.is_set()

    @property
    def is_waited_for(self) -> bool:
        """Tells whether something that must not be lost waits until there is room."""
        return self._waiting > 0

    def note(self, error: BaseException) -> None:
        """Takes down that the disk is full."""
        if not self.is_short:
            self._short.set()
            self.on_shortage(error)

    def be_patient(self) -> None:
        """From here on whoever must have room waits for it."""
        self._is_patient = True

    def give_up(self) -> None:
        """Lets nobody wait any longer: the server ends."""
        self._given_up.set()

    async def shortage(self) -> None:
        """Returns when the disk is found full; at once where it is."""
        await self._short.wait()

    async def relief(self) -> None:
        """Returns when the next shortage is over."""
        await self._relieved.wait()

    async def insist(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        is_short: Callable[[Exception], bool] = is_full,
        is_vital: bool = False,
        longest_pause: float = LONGEST_PAUSE,
    ) -> T:
        """Does work again and again until the disk takes it; raises what is not for want of room.

        What is vital gets what the reserve held, at once. Raises the shortage itself where nobody
        is to wait. May be cancelled while it waits, and between two tries.
        """
        seconds, is_counted = RETRY_SECONDS, False
        with ExitStack() as waiting:
            while True:
                try:
                    return await work()
                except Exception as error:
                    if not is_short(error):
                        raise

                    self.note(error)
                    if not is_counted:
                        is_counted = True
                        waiting.enter_context(self._waited_for())

                    if not (is_vital and await self._spend()) and not await self._wait(seconds):
                        raise

                seconds = RETRY_SECONDS if is_vital else min(2 * seconds, longest_pause)

    async def while_roomy(self, wait: Callable[[], Awaitable[object]]) -> None:
        """Waits for something, but not where the disk is full, or is found to be."""
        await _wait_unless(self._short, wait)

    async def watch(self) -> None:
        """Makes the reserve, and after each shortage finds out when it is over; until cancelled."""
        await anyio.to_thread.run_sync(self._reserve.make)
        while True:
            await self._short.wait()
            await self._pause(RETRY_SECONDS)
            if self._waiting or not await anyio.to_thread.run_sync(self._reserve.make):
                continue

            if not self._waiting:  # Who has begun to wait while we looked keeps it short.
                self._short = anyio.Event()
                self.on_relief()
                self._relieved.set()
                self._relieved = anyio.Event()

    async def release(self) -> None:
        """Gives the reserve back at the end: no execution at rest needs it."""
        await self._spend()

    async def _spend(self) -> bool:
        with anyio.CancelScope(shield=True):
            spent = await anyio.to_thread.run_sync(self._reserve.spend)

        return spent

    @contextmanager
    def _waited_for(self) -> Iterator[None]:
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def _wait(self, seconds: float) -> bool:
        if not self._is_patient or self._given_up.is_set():
            return False

        await _wait_unless(self._given_up, partial(self._pause, seconds))
        return not self._given_up.is_set()


async def _wait_unless(event: anyio.Event, wait: Callable[[], Awaitable[object]]) -> None:
    """Waits until something holds, or the event is set."""
    with anyio.CancelScope() as scope:

        async def end() -> None:
            await event.wait()
            scope.cancel()

        async with alongside(end):
            await wait()
