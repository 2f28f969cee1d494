"""The one writer: state, journal and what is told move here, in one order.

`record` and `post` decide at once: seqs are given and the state is changed before the caller's next
statement, so two callers can never decide on the same state. What was decided waits in one queue;
the writer takes all that waits, appends it by one write, syncs it, saves state.json where it must
not lag, and then tells everybody, in the journal's order. Writing happens in a worker thread, so
the loop never waits for a disk; telling happens in the loop, in one stretch without an await, so
whoever subscribes and reads the history in one such stretch misses nothing and gets nothing twice.

What survives a power cut: all that anybody was told, and so all that `record` returned. What was
posted survives once it is told; nobody can have heard an event that a start then knows nothing of.

A disk without room is waited for (`space`): the write in hand is taken back and tried again, order
is kept, nobody is told, and whoever records waits; reading goes on. After any other write that
failed nobody knows what the disk holds, so nothing is written, saved or told any more: every caller
gets `LedgerFailed`, and the next start reads what is really there.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
import anyio.to_thread

from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import State
from hankweave_server.clock import Clock
from hankweave_server.fsutil import is_full
from hankweave_server.ledger.batch import (
    About,
    Entry,
    NewId,
    Published,
    asks_for_save,
    compose,
)
from hankweave_server.ledger.disk_space import Pause, Reserve, Space
from hankweave_server.ledger.history import Moment, Moments
from hankweave_server.ledger.journal import JournalFull, JournalWriteFailed, LongLine
from hankweave_server.ledger.open import KnownShas, Opened, Rebuild, open_ledger
from hankweave_server.paths import Layout

__all__ = ["Entry", "Ledger", "LedgerFailed", "OutOfTime", "Published"]

SETTLE_SECONDS = 0.2
"""How long state.json may lag behind costs (DESIGN 5: 250 ms)."""

EVENTS_AT_ONCE = 500
"""Events that are written by one call and told in one stretch, unless one batch has more."""

PENDING_LIMIT = 2_000
"""Events that may wait for the disk before `post` makes its callers wait as well."""

PAGE_BYTES = 64 * 1024
"""What `page` reads at once."""

Listener = Callable[[Published], None]


class LedgerFailed(Exception):
    """The ledger writes no more; `__cause__` is what the disk said, None where it was closed."""

    def __init__(self, message: str, *, unsaved: int = 0) -> None:
        super().__init__(message)
        self.unsaved = unsaved
        """Events that were decided and are not in the journal; nobody was told of them."""


class OutOfTime(Exception):
    """The server ended while the ledger waited for room."""

    def __init__(self) -> None:
        super().__init__("the server ended before the disk had room again")


@dataclass(slots=True, eq=False)
class _Batch:
    """What was decided together."""

    published: tuple[Published, ...]
    state: State
    asks_for_save: bool
    is_written: bool = False
    done: anyio.Event | None = None
    """Made by who waits, before the writer can have run: most batches are posted, nobody does."""

    def end(self) -> None:
        if self.done is not None:
            self.done.set()


@dataclass(slots=True)
class _Writing:
    """What is being written; what is done of it is not done again when the rest is tried again."""

    lines: list[bytes]
    state: State | None


class Ledger:
    """State, journal and subscribers of one execution. To be used in one event loop's thread."""

    def __init__(self, opened: Opened, clock: Clock, new_id: NewId, space: Space) -> None:
        self._journal = opened.journal
        self._moments = Moments(opened.journal)
        self._store = opened.store
        self._clock = clock
        self._new_id = new_id
        self.repair = opened.repair
        """The torn tail that opening cut off, for the daemon to record."""
        self.recovery = opened.recovery
        """How the state was come by, where it was not simply read; for the daemon to record."""
        self.state = opened.state
        """The state as decided: the one to decide on."""
        self.durable_state = opened.state
        """The state as told: the one to show."""
        self.failed = anyio.Event()
        self.space = space
        """Whether the disk has room."""

        self._pending: list[_Batch] = []
        self._pending_events = 0
        self._listeners: list[Listener] = []
        self._saved = opened.state
        self._unsettled_since: float | None = None
        self._failure: Exception | None = None
        self._unsaved = 0
        self._wake = anyio.Event()
        self._written = anyio.Event()
        self._ended = anyio.Event()
        self._is_running = self._is_closing = self._is_ending = False
        # A thread of our own: the disk must not wait for somebody's long git work.
        self._thread = anyio.CapacityLimiter(1)

    @classmethod
    async def open(
        cls,
        layout: Layout,
        clock: Clock,
        *,
        rebuild: Rebuild | None = None,
        known_shas: KnownShas = tuple,
        new_id: NewId = lambda: str(uuid.uuid4()),
        pause: Pause = anyio.sleep,
    ) -> Ledger:
        """Opens the ledger of an execution; `run` must be started before anything is awaited.

        `rebuild` is called, in a worker thread, where neither journal nor state files are left;
        `known_shas` likewise, where Hankweave wrote the state. `pause` is how time passes for who
        waits for room on the disk.
        Raises JournalCorrupt, NewerState and OSError.
        """
        work = functools.partial(
            open_ledger, layout, clock, rebuild=rebuild, new_id=new_id, known_shas=known_shas
        )
        opened = await anyio.to_thread.run_sync(work)
        return cls(opened, clock, new_id, Space(Reserve(layout.reserve), pause=pause))

    # --- deciding ---------------------------------------------------------------------------------

    async def record(
        self,
        *entries: Entry,
        run_id: RunId | None = None,
        codon_id: CodonId | None = None,
        causes: tuple[int | str, ...] = (),
    ) -> tuple[Published, ...]:
        """Writes entries as one batch, and returns when they are on the disk and told.

        Transitions become `state.transition` events. Raises Impossible, with nothing changed, for
        a transition that the state does not allow, and LedgerFailed. A caller that is cancelled
        while it waits cannot take back what it recorded.
        """
        about = About(run_id, codon_id, causes)
        batch = self._decide(entries, about)
        await self._wait_for(batch)
        return batch.published

    async def post(
        self,
        *entries: Entry,
        run_id: RunId | None = None,
        codon_id: CodonId | None = None,
        causes: tuple[int | str, ...] = (),
    ) -> None:
        """Hands over chatty entries in the same order, and waits only where too much is waiting.

        They are durable when they are told. Raises as `record`.
        """
        self.leave(*entries, run_id=run_id, codon_id=codon_id, causes=causes)
        await self.settle()

    def leave(
        self,
        *entries: Entry,
        run_id: RunId | None = None,
        codon_id: CodonId | None = None,
        causes: tuple[int | str, ...] = (),
    ) -> None:
        """Posts, and does not even wait where too much is waiting: for what is rare."""
        self._decide(entries, About(run_id, codon_id, causes))

    async def settle(self) -> None:
        """Waits until the queue has room; raises LedgerFailed."""
        while self._pending_events > PENDING_LIMIT:
            await self._written.wait()

        if self._failure is not None:
            raise self._refusal() from self._failure

    async def flush(self) -> None:
        """Waits until all that was decided is durable, saved and told; raises LedgerFailed."""
        self._require_working()
        await self._wait_for(self._queue((), self.state, saves=True))

    async def catch_up(self, *, insists: bool) -> int:
        """Waits until all that was decided is durable and told; gives the seq of the last event.

        Who does not insist waits only while the disk has room. Raises LedgerFailed.
        """
        self._require_working()
        if self.state.last_event_seq > self.last_seq:
            told = functools.partial(self._wait_for, self._queue((), self.state, saves=False))
            await (told() if insists else self.space.while_roomy(told))

        return self.last_seq

    def _decide(self, entries: tuple[Entry, ...], about: About) -> _Batch:
        self._require_working()
        published, state = compose(
            self.state, entries, about, clock=self._clock, new_id=self._new_id
        )
        self.state = state
        saves = any(map(asks_for_save, entries))
        return self._queue(published, state, saves=saves)

    def _queue(self, published: tuple[Published, ...], state: State, *, saves: bool) -> _Batch:
        batch = _Batch(published, state, asks_for_save=saves)
        self._pending.append(batch)
        self._pending_events += len(published)
        self._wake.set()
        return batch

    async def _wait_for(self, batch: _Batch) -> None:
        batch.done = anyio.Event()
        await batch.done.wait()
        if not batch.is_written:
            raise self._refusal() from self._failure

    def _require_working(self) -> None:
        if self._failure is not None or self._is_closing:
            raise self._refusal() from self._failure

    def _refusal(self) -> LedgerFailed:
        if self._failure is None:
            return LedgerFailed("The ledger is closed.")

        message = f"The ledger cannot be written: {self._failure}"
        return LedgerFailed(message, unsaved=self._unsaved)

    async def refold(self) -> None:
        """Take the fold of the journal for the state, and save it; raises LedgerFailed.

        For a start that finds state.json in conflict with the journal, before anything is decided
        on it. Raises JournalCorrupt.
        """
        await self.flush()
        seq = self.last_seq
        state = await self.state_at(seq)
        assert self.state.last_event_seq == seq, "nobody decides before the start is over"
        self.state = state
        await self.flush()

    # --- writing ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Writes until `aclose`; raises LedgerFailed where the disk fails.

        A cancellation ends it too, but only after all that was decided is written and told.
        """
        self._is_running = True
        try:
            while await self._has_work():
                self._require_trusted()
                await self._write(settle=self._is_due())
        finally:
            await self._end()

    def distrust(self, error: Exception) -> None:
        """Writes and saves nothing any more: the disk is broken, and somebody else has met it."""
        if self._failure is None:
            self._fail(error, [], unsaved=0)
            self._wake.set()

    async def aclose(self) -> None:
        """Takes nothing more, writes what was decided, saves the state and closes the journal."""
        self._is_closing = True
        self._wake.set()
        if self._is_running:
            await self._ended.wait()
        else:
            await self._end()

    async def _has_work(self) -> bool:
        """Waits until something is decided or due; False when all is written and none may come."""
        if self._pending:
            return True

        if self._is_closing:
            return False

        rest = None
        if self._unsettled_since is not None:
            rest = max(0.0, self._unsettled_since + SETTLE_SECONDS - anyio.current_time())

        with anyio.move_on_after(rest):
            await self._wake.wait()

        self._wake = anyio.Event()
        return True

    def _is_due(self) -> bool:
        since = self._unsettled_since
        return since is not None and anyio.current_time() >= since + SETTLE_SECONDS

    async def _write(self, *, settle: bool) -> None:
        """Writes, syncs, saves and tells all that waits; a cancellation cannot come in between."""
        batches = self._taken()
        state = batches[-1].state if batches else self.durable_state
        saves = any(each.asks_for_save for each in batches) and state is not self._saved
        saves = saves or (settle and self._lags(state))
        lines = [each.frame for batch in batches for each in batch.published]
        work = _Writing(lines, state if saves else None)
        try:
            await self.space.insist(
                functools.partial(self._try, work), is_short=_is_for_want_of_room, is_vital=True
            )
        except Exception as error:
            self._fail(error, batches, unsaved=len(work.lines))
            raise self._refusal() from error
        except BaseException:  # Cancelled while it waited for room: there is no time left.
            self._fail(OutOfTime(), batches, unsaved=len(work.lines))
            raise

        if self._failure is not None:  # The disk was found broken meanwhile.
            for batch in batches:
                batch.end()

        self._require_trusted()
        self._saved = state if saves else self._saved
        self._note_unsettled(state)
        self._tell(batches)

    def _taken(self) -> list[_Batch]:
        """Take what waits, whole batches of not many more than EVENTS_AT_ONCE events.

        All that is taken is told in one stretch, which holds the event loop: a burst of thousands
        is written and told in parts, so that others have their turn in between.
        """
        taken: list[_Batch] = []
        events = 0
        for batch in self._pending:
            if taken and events + len(batch.published) > EVENTS_AT_ONCE:
                break

            taken.append(batch)
            events += len(batch.published)

        self._pending = self._pending[len(taken) :]
        self._pending_events -= events
        return taken

    async def _try(self, work: _Writing) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._write_down, work, limiter=self._thread)

    def _write_down(self, work: _Writing) -> None:
        """The part that blocks: runs in the worker thread, one call at a time."""
        if work.lines:
            self._journal.append(work.lines)
            work.lines = []

        if work.state is not None:
            self._store.save(work.state)

    def _note_unsettled(self, state: State) -> None:
        """Starts the clock where something is not yet as durable as it must become."""
        if not self._lags(state):
            self._unsettled_since = None
        elif self._unsettled_since is None:
            self._unsettled_since = anyio.current_time()

    def _lags(self, state: State) -> bool:
        """Tells whether state.json lacks more than the seq; only what changes is made anew."""
        return state.runs is not self._saved.runs

    def _tell(self, batches: list[_Batch]) -> None:
        """Wakes who waits and tells who listens, in one stretch: nobody runs before its end."""
        for batch in batches:
            batch.is_written = True
            batch.end()

        self._written.set()
        self._written = anyio.Event()
        for batch in batches:
            self.durable_state = batch.state
            for each in batch.published:
                for listener in tuple(self._listeners):
                    listener(each)

    def _require_trusted(self) -> None:
        """Raises LedgerFailed where the disk was found broken meanwhile."""
        if self._failure is not None:
            raise self._refusal() from self._failure

    def _fail(self, error: Exception, batches: list[_Batch], *, unsaved: int) -> None:
        """Gives up: what waits is told that it was not written, and nothing comes after it."""
        self._failure = error
        self._unsaved = unsaved + self._pending_events
        for batch in (*batches, *self._pending):
            batch.end()

        self._pending, self._pending_events = [], 0
        self._written.set()
        self.failed.set()

    async def _end(self) -> None:
        """Writes the last of it, once, whoever asks first: `run` at its end, or `aclose`."""
        if self._is_ending:
            return await self._ended.wait()

        self._is_closing = self._is_ending = True
        try:
            if self._failure is None:
                self._queue((), self.state, saves=True)
                while self._pending:
                    await self._write(settle=True)

        finally:
            self._journal.close()
            self._ended.set()

    # --- telling ----------------------------------------------------------------------------------

    @contextmanager
    def subscribe(self, listener: Listener) -> Iterator[None]:
        """Calls the listener with every event from now on, in journal order.

        It runs in the writer's stretch: it must neither block nor raise; an exception in it is a
        defect, and ends the writer.
        """
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    @property
    def last_seq(self) -> int:
        """The seq of the last event that was told; the history ends with it."""
        return self.durable_state.last_event_seq

    def history(self, since: int, limit: int | None = None) -> list[bytes]:
        """Returns the frames of the told events after a seq, oldest first."""
        count = max(0, self.last_seq - max(since, 0))
        return self._journal.read(since, count if limit is None else min(limit, count))

    def page(self, since: int) -> list[bytes | LongLine]:
        """Return frames after a seq, oldest first: about 64 KiB of them, at least one if any."""
        return self._journal.page(since, self.last_seq, PAGE_BYTES)

    def tail(self, count: int) -> list[bytes]:
        """Returns the newest frames, oldest first."""
        return self.history(max(0, self.last_seq - count))

    async def state_at(self, seq: int) -> State:
        """Folds the journal up to a seq: the state as it was then. Raises JournalCorrupt."""
        return (await self.moment_at(seq)).state

    async def moment_at(self, seq: int) -> Moment:
        """The state as it was right after a told event, and where its run began.

        What was asked for lately is remembered. Raises JournalCorrupt.
        """
        until = min(seq, self.last_seq)
        known = self._moments.known(until)
        if known is not None:
            return known

        return await anyio.to_thread.run_sync(self._moments.at, until)


def _is_for_want_of_room(error: Exception) -> bool:
    """Tells whether a write can be tried again: a journal that could not be taken back cannot."""
    return isinstance(error, JournalFull) or (
        is_full(error) and not isinstance(error, JournalWriteFailed)
    )
