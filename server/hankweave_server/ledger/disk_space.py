"""Whether the disk has room, who waits for it, and how long.

Whoever meets a full disk says so here. What must not be lost waits and is tried again (`insist`,
and the ledger's own writes); what was merely asked for is refused by whoever asks `is_short`. The
shortage is over when nobody waits any more and the reserve stands again.

Nothing waits before `be_patient`: a server that does not serve yet can tell nobody, and ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread

from hankweave_server.background_tasks import alongside
from hankweave_server.fsutil import is_full
from hankweave_server.ledger.reserve import Reserve

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
