"""Keep a mirror up to date, and the lease with it, as long as the server lives.

One task makes all pushes, one after the other: when there are new events, and otherwise often
enough to keep the lease. What is waited for:

- `sync`: no event is published before it is in the mirror. The ledger waits in `written`.
- `async`: the mirror follows, at most one push a second. Nothing waits for it.
- In both modes, nothing is written to the journal while the lease has run out (`may_write`), and
  the agent is stopped meanwhile. Both go on when a push succeeds again.

A push that was given up may arrive later all the same. The remote then names a commit of ours that
we did not know to be there, and the next push is refused because of it: it is recognised and taken
for what it is. A commit that is not ours means that the lease is lost, for good.

A push that is given up although the remote can be reached has too much to send. That is uploaded
then, however long it takes, and the pushes meanwhile only renew the lease.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from hankweave_protocol.ids import Sha
from hankweave_server.clock import Clock
from hankweave_server.features.mirror.contents import Segments
from hankweave_server.features.mirror.lease import Lease, owned_until, renewal
from hankweave_server.features.mirror.record import MirrorRecord
from hankweave_server.features.mirror.remote import Pushed, Uploaded

BETWEEN_PUSHES = 1.0
"""Seconds between two pushes in `async` mode."""

PACKED_AFTER = 64
"""Pushes after which what they have sent is packed."""

CLEANED_AFTER = 512
"""Pushes after which what later ones have made superfluous is removed."""

BEFORE_RETRY = 1.0
"""Seconds before a push is repeated that did not succeed."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far the journal goes."""

    last_event_seq: int
    journal_bytes: int


@dataclass(frozen=True, slots=True)
class Composed:
    """A commit that is to be pushed."""

    sha: Sha
    lease: Lease
    segments: Segments

    @property
    def position(self) -> Position:
        return Position(self.lease.last_event_seq, self.lease.journal_bytes)


class Pushes(Protocol):
    """The remote; blocking."""

    def unblock(self, after: float, now: float) -> None:
        """Remove what keeps pushes from succeeding, if it has been there for `after` seconds."""

    def clean_up(self, *, thoroughly: bool) -> None:
        """Pack what pushes have sent, or also remove the rest; may run beside a push."""

    def push(self, new: Sha, expected: Sha | None, within: float) -> Pushed: ...

    def upload(self, commit: Sha, is_given_up: Callable[[], bool]) -> Uploaded:
        """Send what a commit leads to, so that a push of its contents has little to send."""

    def forget_upload(self, within: float) -> None:
        """Let nothing but the lease lead to what was uploaded."""


class CannotBeComposed(Exception):
    """The execution cannot be read or written for a push at the moment; the message says why."""


class MirrorSource(Protocol):
    """The execution; its methods raise CannotBeComposed."""

    async def compose(self, former: Composed, uploaded: Sha | None, *, released: bool) -> Composed:
        """Capture the execution, and write the commit of its next lease."""

    async def renew(self, former: Composed) -> Composed:
        """Write the commit of a lease that follows, with the same contents."""


@dataclass(slots=True)
class PushTally:
    """Counters and times, for people."""

    pushes: int = 0
    sent_bytes: int = 0
    pushed_at: float | None = None
    """When the last push that succeeded began, by CLOCK_BOOTTIME."""
    problem: str | None = None
    """Why the last push did not succeed; None if it did."""


async def _nothing() -> None: ...


@dataclass(slots=True)
class Reactions:
    """The acts of others when the state of the lease changes; `server_part` sets most of them."""

    lost: Callable[[Sha | None, int], Awaitable[None]]
    """The lease is lost, to the commit of another owner, which lacks so many events of ours: end
    this process."""
    lease_expired: Callable[[], Awaitable[None]] = _nothing
    """The lease has run out; another owner may or may not have taken it. Stop the agent."""
    lease_renewed: Callable[[], Awaitable[None]] = _nothing
    """It is held again: let the agent continue."""
    push_failed: Callable[[str], None] = lambda _problem: None
    """A push did not succeed."""
    push_succeeded: Callable[[], None] = lambda: None
    """One has succeeded again."""


class Mirroring:
    """The pushes of one server, and its `ledger.replica`; for the event loop's thread."""

    def __init__(
        self,
        begun: Composed,
        began_at: float,
        *,
        record: MirrorRecord,
        remote: Pushes,
        source: MirrorSource,
        reactions: Reactions,
        clock: Clock,
        newest: Callable[[], Position],
        nap: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """`begun` was pushed at `began_at` and gave us the lease; `newest` is what is durable.

        `nap` sleeps, some seconds, before a push is repeated.
        """
        self.record = record
        self._remote = remote
        self._source = source
        self.reactions = reactions
        self._clock = clock
        self._newest = newest
        self._nap = nap
        self._tip = begun
        self._unsettled: dict[Sha, tuple[Composed, float]] = {}
        """Commits that were pushed and may be in the remote, with when each push began."""
        self.tally = PushTally(pushes=1, pushed_at=began_at)
        self._until = owned_until(began_at, begun.lease.ttl)
        self._is_expired = False
        self._is_ending = False
        self.has_ended = False
        """Whether the mirror was ended, while the server goes on."""
        self._tasks: TaskGroup | None = None
        self._upload: threading.Event | None = None
        """Set to give up the upload that is being made; None if there is none."""
        self._uploaded: Sha | None = None
        """The commit that the remote has from an upload."""
        self._is_over = anyio.Event()
        """Set when no push is made any more."""
        self._wants_push = False
        self._wake = anyio.Event()
        self._advanced = anyio.Event()
        self._thread = anyio.CapacityLimiter(1)

    @property
    def lease(self) -> Lease:
        """The lease as it is in the remote."""
        return self._tip.lease

    @property
    def mirrored(self) -> Position:
        """The journal in the mirror."""
        return self._tip.position

    @property
    def events_behind(self) -> int:
        """Return how many durable events are not in the mirror."""
        return max(0, self._newest().last_event_seq - self.mirrored.last_event_seq)

    @property
    def is_held(self) -> bool:
        """Return whether the lease is held without doubt."""
        return self._clock.boottime() < self._until

    @property
    def seconds_left(self) -> float:
        """Return for how long the lease is held without doubt, unless a push succeeds."""
        return max(0.0, self._until - self._clock.boottime())

    # --- the ledger waits ------------------------------------------------------------------------

    async def may_write(self) -> None:
        """Wait while the lease has run out."""
        while not (self.has_ended or self.is_held):
            await self._next_advance()

    async def written(self) -> None:
        """Wait, in `sync` mode, until everything that is durable is in the mirror too."""
        if self.record.mode == "async":
            self._wake.set()
            return

        wanted = self._newest()
        while not self.has_ended and (
            self.mirrored.journal_bytes < wanted.journal_bytes or not self.is_held
        ):
            await self._next_advance()

    async def push_now(self) -> None:
        """Wait until everything that is durable now is in the mirror, or the mirror is ended."""
        wanted = self._newest()
        while not self.has_ended and self.mirrored.journal_bytes < wanted.journal_bytes:
            await self._next_advance()

    async def push_while_held(self) -> None:
        """Wait until everything that is durable now is in the mirror, or the lease has run out."""
        wanted = self._newest()
        while (
            self.is_held
            and not self.has_ended
            and self.mirrored.journal_bytes < wanted.journal_bytes
        ):
            await self._next_advance()

    async def release(self) -> None:
        """Push what is left, and let the lease be free; for the end of the server."""
        self._is_ending = True
        while not (self.has_ended or self._tip.lease.released):
            await self._next_advance()

    async def end(self, within: float) -> bool:
        """End the mirror of a server that goes on: nothing is pushed, and nothing waits any more.

        The lease is released if that can be done within some seconds; return whether it was. A push
        that is being made is waited for in any case.
        """
        with anyio.move_on_after(within):
            await self.release()

        self.has_ended = True
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
            await self._is_over.wait()

        self._signal_advance()
        if self._is_expired:
            self._is_expired = False
            await self.reactions.lease_renewed()

        return self._tip.lease.released

    async def _next_advance(self) -> None:
        self._wants_push = True
        self._wake.set()
        await self._advanced.wait()

    # --- pushes ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Push until the lease is released or lost, or until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._watch_expiry)
                tasks.start_soon(self._pack_regularly)
                while not self._tip.lease.released:
                    await self._wait_for_reason()
                    if not await self._pushed():
                        break

                tasks.cancel_scope.cancel()
        finally:
            self._is_over.set()

    async def _wait_for_reason(self) -> None:
        """Return when the lease is to be renewed, or something is to be pushed."""
        assert self.tally.pushed_at is not None
        due = self.tally.pushed_at + renewal(self.lease.ttl)
        while True:
            now = self._clock.boottime()
            if now >= due or (self._wants_push and self._upload is None):
                self._wants_push = False
                return

            is_behind = self._newest().journal_bytes > self.mirrored.journal_bytes
            if is_behind and self._upload is None:
                due = min(due, self.tally.pushed_at + BETWEEN_PUSHES)

            with anyio.move_on_after(max(0.0, due - now)):
                await self._wake.wait()

            self._wake = anyio.Event()

    async def _pushed(self) -> bool:
        """Push once; return whether the lease is still ours."""
        is_renewal = self._upload is not None
        try:
            composed = await (
                self._source.renew(self._tip)
                if is_renewal
                else self._source.compose(self._tip, self._uploaded, released=self._is_ending)
            )
        except CannotBeComposed as problem:
            await self._try_again(str(problem))
            return True

        began = self._clock.boottime()
        self._unsettled[composed.sha] = composed, began
        within = renewal(composed.lease.ttl)
        push = partial(self._remote.push, composed.sha, self._tip.sha, within)
        done = await anyio.to_thread.run_sync(push, limiter=self._thread)
        self.tally.sent_bytes += done.sent_bytes
        if done.outcome == "done":
            await self._advance(composed, began)
            if not is_renewal:
                self._uploaded = None
                forget = partial(self._remote.forget_upload, within)
                await anyio.to_thread.run_sync(forget, limiter=self._thread)
        elif done.outcome == "refused" and done.found in self._unsettled:
            await self._advance(*self._unsettled[done.found])
            self._wants_push = True
        elif done.outcome == "refused":
            await self.reactions.lost(done.found, self.events_behind)
            return False
        elif done.is_slow and not is_renewal:
            assert self._tasks is not None, "it is set before the first push"
            self._upload = threading.Event()
            self._tasks.start_soon(self._upload_all, composed.sha, self._upload)
            return await self._pushed()
        else:
            self._remote.unblock(composed.lease.ttl, self._clock.boottime())
            await self._try_again(done.problem)

        return True

    async def _upload_all(self, commit: Sha, given_up: threading.Event) -> None:
        """Upload what a commit leads to; what fails is repeated after the next push."""
        upload = partial(self._remote.upload, commit, given_up.is_set)
        try:
            done = await anyio.to_thread.run_sync(upload, abandon_on_cancel=True)
            self.tally.sent_bytes += done.sent_bytes
            self._uploaded = commit if done.problem is None else None
        finally:
            given_up.set()

        self._upload = None
        self._wants_push = True
        self._wake.set()

    async def _try_again(self, problem: str) -> None:
        self.tally.problem = problem
        self.reactions.push_failed(problem)
        await self._nap(BEFORE_RETRY)
        self._wants_push = True

    async def _advance(self, composed: Composed, began: float) -> None:
        self._tip = composed
        self._unsettled.clear()
        self.tally.pushes += 1
        self.tally.pushed_at = began
        self._until = owned_until(began, composed.lease.ttl)
        if self.tally.problem is not None:
            self.tally.problem = None
            self.reactions.push_succeeded()

        if self._is_expired and self.is_held:
            self._is_expired = False
            await self.reactions.lease_renewed()

        self._signal_advance()

    def _signal_advance(self) -> None:
        self._advanced.set()
        self._advanced = anyio.Event()

    async def _pack_regularly(self) -> None:
        """Pack what pushes have sent, again and again."""
        packed = cleaned = 0
        while True:
            await self._advanced.wait()
            pushes = self.tally.pushes
            if pushes - packed < PACKED_AFTER or self._upload is not None:
                continue

            packed, is_due = pushes, pushes - cleaned >= CLEANED_AFTER
            cleaned = pushes if is_due else cleaned
            work = partial(self._remote.clean_up, thoroughly=is_due)
            await anyio.to_thread.run_sync(work, abandon_on_cancel=True)

    async def _watch_expiry(self) -> None:
        """Stop the agent when the lease has run out."""
        while True:
            left = math.inf if self._is_expired else self._until - self._clock.boottime()
            if left <= 0:
                self._is_expired = True
                self._signal_advance()
                await self.reactions.lease_expired()
                continue

            with anyio.move_on_after(min(left, 1.0)):
                await self._advanced.wait()
