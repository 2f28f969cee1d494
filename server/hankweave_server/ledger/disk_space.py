"""Disk space: detect a full disk, wait for space, and keep a small reserve.

Code that meets a full disk reports it to `Space`. Work that must not be lost waits and is retried
(`retry`, and the ledger's own writes); commands that would need space are refused by callers that
check `is_short`. The shortage is over when no work waits any more and the reserve exists again.

Nothing waits before `allow_waiting`: a server that does not serve yet cannot tell a client why it
hangs, so it ends.

`Reserve` is a file that only occupies space: it is removed when the disk is full, so that the
write in hand can finish, and created again when there is space. Nothing depends on it: without it,
a full disk only makes the ledger wait sooner.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from hankweave_server.background_tasks import alongside
from hankweave_server.fsutil import PRIVATE_FILE, held_open, is_full

RESERVE_BYTES = 1 << 20
"""More than a batch of events and a state file of a thousand codons need together."""

ROOM_BYTES = 2 << 20
"""Bytes that must be free besides the reserve before the shortage ends."""

ROOM_FILES = 16
"""The same in files: about as many as a checkpoint creates."""


class Reserve:
    """The reserve file of one execution; all calls block, and only the ledger's owner may call."""

    def __init__(self, path: Path) -> None:
        self._path = held_open(path.parent, self) / path.name

    def make(self) -> bool:
        """Create the reserve if it is missing; return False if the disk has too little space.

        A file system that cannot preallocate counts as having space as long as it reports some.
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
        """Free the reserve; return False if there was none."""
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
"""Seconds between two attempts to write: rare enough to cost nothing."""

LONGEST_PAUSE = 8.0
"""Most seconds between two attempts of work that costs more than a write."""


class Space:
    """The free space on one execution's disk. Use it in one event loop's thread only."""

    def __init__(self, reserve: Reserve, *, pause: Pause = anyio.sleep) -> None:
        self._reserve = reserve
        self._pause = pause
        self._may_wait = False
        self._given_up = anyio.Event()
        self._short = anyio.Event()
        self._recovered = anyio.Event()
        self._waiting = 0
        self._on_shortage: Callable[[BaseException], None] = lambda error: None
        self._on_recovery: Callable[[], None] = lambda: None

    def subscribe(
        self,
        *,
        on_shortage: Callable[[BaseException], None] = lambda error: None,
        on_recovery: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `on_shortage` with the error when space runs out, `on_recovery` when there is space.

        Both are called in the event loop, must not block, and replace those given before.
        """
        self._on_shortage = on_shortage
        self._on_recovery = on_recovery

    @property
    def is_short(self) -> bool:
        return self._short.is_set()

    @property
    def is_waited_for(self) -> bool:
        """True while work that must not be lost waits for space."""
        return self._waiting > 0

    def note(self, error: BaseException) -> None:
        """Record that the disk is full."""
        if not self.is_short:
            self._short.set()
            self._on_shortage(error)

    def allow_waiting(self) -> None:
        """From now on, let work that needs space wait for it."""
        self._may_wait = True

    def give_up(self) -> None:
        """End all waiting, because the server ends."""
        self._given_up.set()

    async def shortage(self) -> None:
        """Return when the disk is found full; at once if it is."""
        await self._short.wait()

    async def wait_for_recovery(self) -> None:
        """Return when the next shortage is over."""
        await self._recovered.wait()

    async def retry(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        is_short: Callable[[Exception], bool] = is_full,
        is_vital: bool = False,
        longest_pause: float = LONGEST_PAUSE,
    ) -> T:
        """Repeat work until the disk takes it; raise errors that are not about disk space.

        Vital work gets the space of the reserve at once. Raises the shortage itself if waiting is
        not allowed. May be cancelled while it waits, and between two attempts.
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

    async def wait_while_not_full(self, wait: Callable[[], Awaitable[object]]) -> None:
        """Wait, but only while the disk is not full."""
        await _wait_unless(self._short, wait)

    async def watch(self) -> None:
        """Create the reserve, and after each shortage detect its end; run until cancelled."""
        await anyio.to_thread.run_sync(self._reserve.make)
        while True:
            await self._short.wait()
            await self._pause(RETRY_SECONDS)
            if self._waiting or not await anyio.to_thread.run_sync(self._reserve.make):
                continue

            if not self._waiting:  # Work that began to wait in the meantime keeps it short.
                self._short = anyio.Event()
                self._on_recovery()
                self._recovered.set()
                self._recovered = anyio.Event()

    async def release(self) -> None:
        """Free the reserve at the end: an execution at rest does not need it."""
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
        if not self._may_wait or self._given_up.is_set():
            return False

        await _wait_unless(self._given_up, partial(self._pause, seconds))
        return not self._given_up.is_set()


async def _wait_unless(event: anyio.Event, wait: Callable[[], Awaitable[object]]) -> None:
    """Wait for `wait` or for the event, whichever comes first."""
    with anyio.CancelScope() as scope:

        async def end() -> None:
            await event.wait()
            scope.cancel()

        async with alongside(end):
            await wait()
