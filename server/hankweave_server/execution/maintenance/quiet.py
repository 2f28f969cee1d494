"""Let background work run while nobody waits, and in time all the same.

A command, and a checkpoint that an agent's call waits for, share the interpreter with the work that
follows earlier ones: verification, packing, the index, the search for secrets. A thread that
computes gives the interpreter up only after 5 ms, so each step of a command next to one takes that
much longer. Therefore such work asks here before every piece of it:

- While something is served, and for `QUIET_SECONDS` afterwards, it waits.
- When it is quiet, it works for `SLICE_SECONDS`, rests as long, and stops at the next command.
- Work that has waited until its deadline is done in any case, but spread: while something is
  served and soon afterwards, it rests for `LATE_RESTS` times as long as it worked.

What waits is listed in `server.status`. When the server ends, nothing waits any more (`expedite`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from hankweave_protocol.replies import BackgroundTask, BackgroundWork
from hankweave_server.clock import Clock, SystemClock

QUIET_SECONDS = 0.5
"""Seconds after a command before background work begins: the next one may follow at once."""

SLICE_SECONDS = 0.005
"""Seconds that background work takes at once."""

LATE_RESTS = 19
"""Rests of late work beside commands, in multiples of what it worked: 5 % of a processor."""

LONGEST_REST = 2.0
_SERVING_SECONDS = 0.05
"""Seconds between two looks whether a command is still being served."""


class Quiet:
    """The commands being served, and the work that waits for a pause.

    `serving` and `expedite` are for the event loop's thread; work may ask in any thread.
    """

    def __init__(self, clock: Clock | None = None, *, seconds: float = QUIET_SECONDS) -> None:
        """`seconds` pass after a command before it is quiet."""
        self._clock = SystemClock() if clock is None else clock
        self._seconds = seconds
        self._serving = 0
        self._quiet_from = self.now()
        self._waiting: list[Work] = []
        self.is_expedited = False
        """True if nothing waits any more."""
        self.expedited = anyio.Event()

    def now(self) -> float:
        return self._clock.monotonic()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Keep background work away while the block runs, and for a moment afterwards."""
        self._serving += 1
        try:
            yield
        finally:
            self._serving -= 1
            self._quiet_from = self.now() + self._seconds

    @contextmanager
    def work(self, name: BackgroundTask, *, within: float) -> Iterator[Work]:
        """Announce work that has to be done, with the seconds until it is late."""
        work = Work(self, name, within)
        self._waiting.append(work)
        try:
            yield work
        finally:
            self._waiting.remove(work)

    def expedite(self) -> None:
        """Let all work be done at once, because the server ends."""
        self.is_expedited = True
        self.expedited.set()

    @property
    def is_serving(self) -> bool:
        """Return whether a command or a checkpoint is under way; may be asked in any thread."""
        return self._serving > 0

    def remaining(self, now: float) -> float:
        """Return after how many seconds to look again; 0.0 if it is quiet."""
        return _SERVING_SECONDS if self._serving else max(0.0, self._quiet_from - now)

    @property
    def behind(self) -> tuple[BackgroundWork, ...]:
        """Return the work to be done, and since when it waits."""
        now = self.now()
        return tuple(work.described(now) for work in self._waiting)


class Work:
    """One piece of background work, from the moment that it is needed until it is done."""

    def __init__(self, quiet: Quiet, name: BackgroundTask, within: float) -> None:
        self._quiet = quiet
        self._name = name
        self._since = quiet.now()
        self._due = self._since + within
        self._began: float | None = None
        """When the present slice began; None while the work waits or rests."""

    def described(self, now: float) -> BackgroundWork:
        waiting_ms = round((now - self._since) * 1000)
        return BackgroundWork(name=self._name, waiting_ms=waiting_ms, late=now >= self._due)

    @property
    def must_wait(self) -> bool:
        """Return whether something is served that this work has to make way for."""
        now, quiet = self._quiet.now(), self._quiet
        return not quiet.is_expedited and now < self._due and quiet.remaining(now) > 0

    def delay(self) -> float:
        """Return how many seconds to wait before asking again; 0.0 to work now."""
        quiet = self._quiet
        if quiet.is_expedited:
            return 0.0

        now = quiet.now()
        rest = quiet.remaining(now)
        if rest and now < self._due:
            self._began = None
            return min(rest, self._due - now)

        if self._began is None:
            self._began = now
            return 0.0

        worked = now - self._began
        if worked < SLICE_SECONDS:
            return 0.0

        self._began = None
        return min(worked * (LATE_RESTS if rest else 1), LONGEST_REST)

    async def turn(self) -> None:
        """Wait until the work may go on."""
        while seconds := self.delay():
            with anyio.move_on_after(seconds):
                await self._quiet.expedited.wait()

    def turn_in_thread(self, is_given_up: threading.Event) -> None:
        """Wait in a worker thread until the work may go on or is given up."""
        while (seconds := self.delay()) and not is_given_up.wait(seconds):
            pass
