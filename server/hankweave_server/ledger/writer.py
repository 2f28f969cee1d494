"""The single writer of an execution: decide, journal, flush, save, publish, in that order.

The state of an execution is the fold of its journal, and clients follow it event by event. Many
tasks change it at the same time: the codon runner, the API handlers, the health monitor, the
sentinels. All of them go through one `Ledger`. It must guarantee four things:

1. One order. The journal, the state and every subscriber see the same events in the same order,
   with the numbers 1, 2, 3 ... and no gap.
2. No decision on an old state. A caller that checks the state and records a transition without an
   await in between is sure that no other transition came first.
3. No event is published before it is durable. A client never sees an event that the next start,
   after a power cut, knows nothing of.
4. The event loop never waits for the disk.

The second demand wants the state to change at once, the third wants it to change only after a
flush. So there are two states: `state` is the state as decided, for decisions; `durable_state` is
the state as published, for display. An event passes through five steps:

- Decide (`_decide`). `record`, `post` and `leave` remove secrets from the entries, number and
  encode them, apply them to `state` and append one batch to the queue. There is no await in
  between, so two callers cannot decide on the same state. A transition that the state does not
  allow raises `Impossible`, and nothing changes.
- Journal. The task in `run` takes whole batches off the queue, up to about `EVENTS_AT_ONCE` events,
  and appends their lines with one write. A power cut may leave a prefix of them; each prefix is a
  valid history.
- Flush. One `fdatasync` makes all of them durable, however many callers wait for it. While it runs,
  the next batches collect in the queue: the busier the disk, the more events share a flush.
- Publish (`_publish`). `durable_state` moves on, waiting callers wake up, and every subscriber is
  called with every event. This runs in the event loop without an await, so a client that reads the
  history and subscribes in one such stretch misses no event and gets none twice. A subscriber that
  raises keeps no event from the others.
- Save. `state.json` follows the journal, never ahead of it. Clients read it when an event reports
  that a codon or a run has begun or ended, so the file shows these events when they are published
  (`needs_save`). No caller waits until it is durable: that is done `SAVE_SECONDS` later, which is
  after the reply to a command; costs and similar counters, which come with every message, are
  saved after `SETTLE_SECONDS`. While transitions follow each other, the file is only shown, because
  its flushes would hold up the journal of the next command. The file can be rebuilt, and a start
  folds the journal's tail on top of it. It holds the whole plan with its prompts, so a long loop
  makes it large: it is written at `SAVED_BYTES_A_SECOND` at most, after a burst, and lags until
  then.

Journal and save block, so both run in a worker thread (`_write_down`), one call at a time. The call
is shielded from cancellation: a cancelled task stops between two writes, never within one.

`record` returns when its batch is published. `post` returns at once, but waits while more than
`PENDING_LIMIT` events are in the queue, so that a chatty agent cannot outrun the disk. `leave`
never waits. What was posted is durable when it is published, not when `post` returns.

What can go wrong:

- The disk is full. The journal truncates its fragment, and the write in hand is tried again until
  there is space (`disk_space`). The order is kept, no event is published, and callers of `record`
  wait; reading continues. `_Writing` remembers what was done: a journal that was flushed is not
  appended again because `state.json` did not fit.
- Any other write fails. After a failed flush the kernel may have dropped the data and may report
  success the next time, so the content of the disk is unknown. Nothing is written, saved or
  published any more: every caller gets `LedgerFailed`, the server ends, and the next start reads
  what is really there.
- The caller of `record` is cancelled while it waits. The batch is written all the same: a later
  decision may depend on it.
- The server ends. `aclose` takes no more entries, writes the queue, saves the state and closes the
  journal. If the disk is full at that moment, the cancellation ends the wait with `OutOfTime`.

Read `record`, `_decide`, `run`, `_write`, `_write_down` and `_publish`, in this order. `batch.py`
composes events, `journal.py` and `state_file.py` write the two files, and `open.py` brings them to
agree at a start.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

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
    needs_save,
)
from hankweave_server.ledger.digest import JournalDigest
from hankweave_server.ledger.disk_space import Pause, Reserve, Space
from hankweave_server.ledger.journal import JournalFull, JournalWriteFailed, LongJournalLine
from hankweave_server.ledger.moments import Moment, Moments
from hankweave_server.ledger.open import KnownShas, OpenedLedger, Rebuild, open_ledger
from hankweave_server.ledger.snapshots import Shortening
from hankweave_server.paths import Layout
from hankweave_server.redaction.redactor import NOTHING_KNOWN, Redactor

__all__ = ["Entry", "Ledger", "LedgerFailed", "OutOfTime", "Published"]

SETTLE_SECONDS = 0.2
"""How long state.json may lag behind the journal; at most 250 ms are promised."""

SAVE_SECONDS = 0.15
"""How long state.json lags behind other transitions."""

SAVED_BYTES_A_SECOND = 2 << 20
"""How much of state.json is written in a second of fast codons: more would cost more than they."""

BURST_SECONDS = 4.0
"""After a rest, state.json is written without regard to its size for so many seconds' worth."""

DURABLE_SECONDS = 2.0
"""How long state.json may wait to be durable while transitions follow each other."""

EVENTS_AT_ONCE = 500
"""Events that one write and one publishing stretch take, unless a single batch has more."""

PENDING_LIMIT = 2_000
"""Events that may wait for the disk before `post` makes its callers wait as well."""

LINES_AT_ONCE = 1000
"""Lines in one page of `lines_after`."""

PAGE_BYTES = 64 * 1024
"""Bytes that `page` reads at a time."""

Listener = Callable[[Published], None]


class Replica(Protocol):
    """Has what the journal has, elsewhere; called by the one task that writes."""

    async def may_write(self) -> None:
        """Return when the journal may grow."""

    async def written(self) -> None:
        """Return when what the journal has durably may be published."""


class LedgerFailed(Exception):
    """The ledger writes no more; `__cause__` is the error of the disk, or None if it was closed."""

    def __init__(self, message: str, *, unsaved: int = 0) -> None:
        super().__init__(message)
        self.unsaved = unsaved
        """Events that were decided and are not in the journal; none of them was published."""


class OutOfTime(Exception):
    """The server ended while the ledger waited for disk space."""

    def __init__(self) -> None:
        super().__init__("the server ended before disk space was available again")


@dataclass(frozen=True, slots=True)
class Decided:
    """How far the decisions have got, and what of them is not durable yet."""

    seq: int
    """Of the last event."""
    offset: int
    """Size of the journal without `lines`."""
    lines: bytes
    """Lines of the journal that may not be durable, or not even written."""


@dataclass(slots=True, eq=False)
class _Batch:
    """Events that were decided together."""

    published: tuple[Published, ...]
    state: State
    asks_for_save: bool = False
    """True if it changes more than counters."""
    must_show: bool = False
    """True if state.json must show it when it is published."""
    must_save: bool = False
    """True if it is not complete before state.json is durable."""
    urgent: bool = True
    """False if it may wait for a batch that is urgent."""
    is_written: bool = False
    done: anyio.Event | None = None
    """Created by the caller that waits, before the writer can run; most batches have none."""

    def end(self) -> None:
        if self.done is not None:
            self.done.set()


@dataclass(slots=True)
class _Writing:
    """The write in hand; completed parts are cleared, so that a retry does not repeat them."""

    lines: list[bytes]
    state: State | None
    saves: bool
    """Whether the state is to be durable, and not only shown."""
    saved_bytes: int = 0


class Ledger:
    """State, journal and subscribers of one execution. Use it in one event loop's thread only."""

    def __init__(
        self,
        opened: OpenedLedger,
        clock: Clock,
        new_id: NewId,
        space: Space,
        digest_file: Path | None = None,
        redactor: Redactor = NOTHING_KNOWN,
    ) -> None:
        """`digest_file` is where the digest of the journal is saved at the end."""
        self._journal = opened.journal
        self._digest_file = digest_file
        self.digest: JournalDigest = opened.digest
        """The facts that starts and rollbacks need from the published events."""
        self._moments = Moments(opened.journal)
        self._shortening = Shortening()
        self._store = opened.store
        self._clock = clock
        self._new_id = new_id
        self.redactor = redactor
        """Removes secrets from every entry, before it is decided."""
        self.repair = opened.repair
        """The torn tail that opening cut off, for the daemon to record."""
        self.recovery = opened.recovery
        """How the state was recovered, if it was not simply read; for the daemon to record."""
        self.state = opened.state
        """The state as decided: base decisions on it."""
        self.durable_state = opened.state
        """The state as published: show it."""
        self.failed = anyio.Event()
        self.space = space
        """The space on the disk, and the waiting for it."""

        self._pending: list[_Batch] = []
        self._pending_events = 0
        self._in_hand: list[_Batch] = []
        """What is being written now."""
        self.replica: Replica | None = None
        self.durable = opened.state.last_event_seq, opened.journal.size
        """The seq of the last durable event and the size of the journal; for any thread."""
        self._published_bytes = opened.journal.size
        """Size of the journal at the end of the last published event."""
        self._listeners: list[Listener] = []
        self._saved = opened.state
        self._save_due: float | None = None
        """When state.json is to be written; None while it lacks nothing."""
        self._throttled_until = 0.0
        """When the bytes of state.json written so far are within `SAVED_BYTES_A_SECOND`."""
        self._changed_at = 0.0
        """When the last transition was written."""
        self._unsaved_since: float | None = None
        """When the first one was written that state.json does not have durably."""
        self._failure: Exception | None = None
        self._faults: list[Exception] = []
        """What listeners raised."""
        self._unsaved = 0
        self._wake = anyio.Event()
        self._written = anyio.Event()
        self._ended = anyio.Event()
        self._is_running = self._is_closing = self._is_ending = False
        # Its own thread, so that the journal does not wait for a long git operation.
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
        redactor: Redactor = NOTHING_KNOWN,
    ) -> Ledger:
        """Open the ledger of an execution; start `run` before you await anything on it.

        `rebuild` is called, in a worker thread, if neither journal nor state files are left;
        `known_shas` likewise, if Hankweave wrote the state. `pause` sleeps between attempts to
        write to a full disk.
        Raises JournalCorrupt, NewerState and OSError.
        """
        work = functools.partial(
            open_ledger, layout, clock, rebuild=rebuild, new_id=new_id, known_shas=known_shas
        )
        opened = await anyio.to_thread.run_sync(work)
        space = Space(Reserve(layout.reserve), pause=pause)
        return cls(opened, clock, new_id, space, layout.journal_digest, redactor)

    def replicate(self, replica: Replica | None) -> None:
        """Let every write wait for a replica, from now on; None to wait no more."""
        self.replica = replica

    # --- deciding ---------------------------------------------------------------------------------

    async def record(
        self,
        *entries: Entry,
        run_id: RunId | None = None,
        codon_id: CodonId | None = None,
        causes: tuple[int | str, ...] = (),
    ) -> tuple[Published, ...]:
        """Write entries as one batch, and return when they are durable and published.

        Transitions become `state.transition` events. Raises LedgerFailed, and Impossible, with
        nothing changed, for a transition that the state does not allow. Cancelling the caller
        while it waits does not take back what it recorded.
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
        urgent: bool = True,
    ) -> None:
        """Queue chatty entries in the same order; wait only while the queue is too long.

        They are durable once they are published. `urgent` is as in `leave`. Raises as `record`.
        """
        self.leave(*entries, run_id=run_id, codon_id=codon_id, causes=causes, urgent=urgent)
        await self.settle()

    def leave(
        self,
        *entries: Entry,
        run_id: RunId | None = None,
        codon_id: CodonId | None = None,
        causes: tuple[int | str, ...] = (),
        urgent: bool = True,
    ) -> None:
        """Queue entries without waiting, even if the queue is too long: for rare events.

        Unless `urgent`, they are written with what comes next: the caller records the outcome
        of what they announce a moment later, and one flush is enough for both. A caller that fails
        before that calls `write_now`.
        """
        self._decide(entries, About(run_id, codon_id, causes), urgent=urgent)

    def write_now(self) -> None:
        """Let what was decided be written now."""
        for batch in self._pending:
            batch.urgent = True
            self._wake.set()

    def decided(self) -> Decided:
        """Return what another file has to make durable to be in step with the decisions.

        Raises LedgerFailed.
        """
        self._require_working()
        batches = (*self._in_hand, *self._pending)
        lines = [each.line + b"\n" for batch in batches for each in batch.published]
        return Decided(self.state.last_event_seq, self._published_bytes, b"".join(lines))

    async def settle(self) -> None:
        """Wait until the queue is short enough; raise LedgerFailed."""
        while self._pending_events > PENDING_LIMIT:
            await self._written.wait()

        if self._failure is not None:
            raise self._refusal() from self._failure

    async def flush(self) -> None:
        """Wait until all decided events are durable, saved and published; raise LedgerFailed."""
        self._require_working()
        await self._wait_for(self._queue(_Batch((), self.state, must_save=True)))

    async def catch_up(self, *, waits_for_space: bool) -> int:
        """Wait until all decided events are durable and published; return the seq of the last one.

        Without `waits_for_space`, wait only while the disk has space. Raises LedgerFailed.
        """
        self._require_working()
        if self.state.last_event_seq > self.last_seq:
            wait = functools.partial(self._wait_for, self._queue(_Batch((), self.state)))
            await (wait() if waits_for_space else self.space.wait_while_not_full(wait))

        return self.last_seq

    def _decide(self, entries: tuple[Entry, ...], about: About, *, urgent: bool = True) -> _Batch:
        self._require_working()
        published, state = self._composed(entries, about)
        if self.redactor.is_needed(b"\n".join(each.frame for each in published)):
            # State and journal must agree, so the entries are changed and not their encoding.
            entries = tuple(map(self.redactor.value, entries))
            published, state = self._composed(entries, about)

        published = tuple(map(self._as_stored, published))
        self.state = state
        return self._queue(
            _Batch(
                published,
                state,
                asks_for_save=any(map(asks_for_save, entries)),
                must_show=any(map(needs_save, entries)),
                urgent=urgent,
            )
        )

    def _composed(
        self, entries: tuple[Entry, ...], about: About
    ) -> tuple[tuple[Published, ...], State]:
        return compose(self.state, entries, about, clock=self._clock, new_id=self._new_id)

    def _as_stored(self, each: Published) -> Published:
        line = self._shortening.stored(each.event.seq, each.frame)
        return each if line is each.frame else replace(each, stored=line)

    def _queue(self, batch: _Batch) -> _Batch:
        self._pending.append(batch)
        self._pending_events += len(batch.published)
        if batch.urgent:
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
        """Replace the state by the fold of the journal, and save it; raise LedgerFailed.

        For a start that finds state.json in conflict with the journal, before any decision is
        based on it. Raises JournalCorrupt.
        """
        await self.flush()
        seq = self.last_seq
        state = await self.state_at(seq)
        assert self.state.last_event_seq == seq, "nobody decides before the start is over"
        self.state = state
        await self.flush()

    # --- writing ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until `aclose`; raise LedgerFailed if the disk fails.

        A cancellation ends it too, but only after all decided events are written and published; so
        does an exception of a listener, which is then raised.
        """
        self._is_running = True
        try:
            while not self._faults and await self._has_work():
                self._require_trusted()
                await self._write(settle=self._is_due())
        finally:
            await self._end()

    def report_broken_disk(self, error: Exception) -> None:
        """Stop all writing and saving, because another part of the server found the disk broken."""
        if self._failure is None:
            self._fail(error, [], unsaved=0)
            self._wake.set()

    async def aclose(self) -> None:
        """Accept nothing more, write what was decided, save the state and close the journal."""
        self._is_closing = True
        self._wake.set()
        if self._is_running:
            await self._ended.wait()
        else:
            await self._end()

    async def _has_work(self) -> bool:
        """Wait until a batch or a save is due; return False once all is written and closed."""
        if any(each.urgent for each in self._pending):
            self._wake = anyio.Event()
            return True

        if self._is_closing:
            return False

        rest = None
        if self._save_due is not None:
            rest = max(0.0, self._save_due - anyio.current_time())

        with anyio.move_on_after(rest):
            await self._wake.wait()

        self._wake = anyio.Event()
        return True

    def _is_due(self) -> bool:
        """Return whether state.json is to be written now."""
        return self._save_due is not None and anyio.current_time() >= self._save_due

    async def _write(self, *, settle: bool) -> None:
        """Write, flush, save and publish the queue; a cancellation cannot come in between."""
        batches = self._in_hand = self._taken()
        state = batches[-1].state if batches else self.durable_state
        is_due = settle and self._is_behind(state)
        saves = any(each.must_save for each in batches) and state is not self._saved
        saves = saves or (is_due and not self._is_in_burst())
        is_paid = anyio.current_time() >= self._throttled_until
        shows = saves or is_due or (is_paid and any(each.must_show for each in batches))
        lines = [each.line for batch in batches for each in batch.published]
        work = _Writing(lines, state if shows else None, saves)
        try:
            if self.replica is not None:
                await self.replica.may_write()

            await self.space.retry(
                functools.partial(self._try, work), is_short=_is_out_of_space, is_vital=True
            )
            if batches:
                self.durable = batches[-1].state.last_event_seq, self._journal.size

            if self.replica is not None:
                await self.replica.written()
        except Exception as error:
            self._fail(error, batches, unsaved=len(work.lines))
            raise self._refusal() from error
        except BaseException:  # Cancelled while it waited for space: there is no time left.
            self._fail(OutOfTime(), batches, unsaved=len(work.lines))
            raise

        if self._failure is not None:  # The disk was found broken meanwhile.
            for batch in batches:
                batch.end()

        self._require_trusted()
        self._saved = state if saves else self._saved
        self._throttle_saves(work.saved_bytes)
        self._save_due = None if is_due else self._save_due
        self._set_save_due(state, any(each.asks_for_save for each in batches))
        self._publish(batches)

    def _taken(self) -> list[_Batch]:
        """Take whole batches from the queue, about EVENTS_AT_ONCE events at most.

        All of them are published in one stretch, which holds the event loop: a burst of thousands
        is written and published in parts, so that other tasks run in between. Batches that are not
        urgent stay until one is, also while state.json is written.
        """
        taken: list[_Batch] = []
        if not any(each.urgent for each in self._pending):
            return taken

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
        """Do the blocking part, in the worker thread, one call at a time."""
        if work.lines:
            self._journal.append(work.lines)
            work.lines = []

        if work.state is not None:
            work.saved_bytes = self._store.save(work.state, durable=work.saves)

    def _throttle_saves(self, saved_bytes: int) -> None:
        since = max(self._throttled_until, anyio.current_time() - BURST_SECONDS)
        self._throttled_until = since + saved_bytes / SAVED_BYTES_A_SECOND

    def _set_save_due(self, state: State, has_transition: bool) -> None:
        """Decide when state.json is written next, if it lags behind the state."""
        now = anyio.current_time()
        if has_transition:
            self._changed_at = now

        if not self._is_behind(state):
            self._save_due = self._unsaved_since = None
            return

        if self._unsaved_since is None:
            self._unsaved_since = now

        due = now + (SAVE_SECONDS if has_transition else SETTLE_SECONDS)
        due = due if self._save_due is None else min(self._save_due, due)
        self._save_due = max(due, self._throttled_until)

    def _is_in_burst(self) -> bool:
        """Return whether transitions follow each other, so that flushes would hold one up."""
        now, since = anyio.current_time(), self._unsaved_since
        is_new = since is not None and now - since < DURABLE_SECONDS
        return is_new and now - self._changed_at < SAVE_SECONDS

    def _is_behind(self, state: State) -> bool:
        """Return whether state.json lacks more than the seq of the last event."""
        fields = (name for name in state.__struct_fields__ if name != "last_event_seq")
        return any(getattr(state, name) is not getattr(self._saved, name) for name in fields)

    def _publish(self, batches: list[_Batch]) -> None:
        """Wake waiting callers and call the subscribers, without an await in between."""
        self._in_hand, self._published_bytes = [], self._journal.size
        for batch in batches:
            batch.is_written = True
            batch.end()

        self._written.set()
        self._written = anyio.Event()
        for batch in batches:
            self.durable_state = batch.state
            for each in batch.published:
                self.digest.add(each.line)
                for listener in tuple(self._listeners):
                    try:
                        listener(each)
                    except Exception as fault:  # `_end` raises it, when the others know everything.
                        self._faults.append(fault)
                        self._forget(listener)

    def _forget(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _require_trusted(self) -> None:
        """Raise LedgerFailed if the disk was found broken meanwhile."""
        if self._failure is not None:
            raise self._refusal() from self._failure

    def _fail(self, error: Exception, batches: list[_Batch], *, unsaved: int) -> None:
        """Give up: waiting callers learn that their batch was not written; nothing follows it."""
        self._failure = error
        self._unsaved = unsaved + self._pending_events
        for batch in (*batches, *self._pending):
            batch.end()

        self._pending, self._pending_events = [], 0
        self._written.set()
        self.failed.set()

    async def _end(self) -> None:
        """Write the rest, once, whether `run` or `aclose` gets here first."""
        if self._is_ending:
            return await self._ended.wait()

        self._is_closing = self._is_ending = True
        try:
            if self._failure is None:
                self._queue(_Batch((), self.state, must_save=True))
                while self._pending:
                    await self._write(settle=True)

                if self._digest_file is not None:
                    self.digest.save(self._digest_file, self._journal)
        finally:
            self._journal.close()
            self._ended.set()

        if self._faults:
            raise self._faults[0]

    # --- publishing -------------------------------------------------------------------------------

    @contextmanager
    def subscribe(self, listener: Listener) -> Iterator[None]:
        """Call the listener with every event from now on, in journal order.

        It runs in the publishing stretch: it must neither block nor raise. An exception in it is a
        bug: it is called no more, the others are called all the same, and the writer ends.
        """
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._forget(listener)

    @property
    def last_seq(self) -> int:
        """The seq of the last published event; the history ends with it."""
        return self.durable_state.last_event_seq

    def read(self, since: int, limit: int | None = None) -> list[bytes]:
        """Return the frames of the published events after a seq, oldest first.

        Like `page`, it reads from the disk: only for worker threads, or before the server serves.
        """
        count = max(0, self.last_seq - max(since, 0))
        return self._journal.read(since, count if limit is None else min(limit, count))

    async def lines(self, since: int, limit: int | None = None) -> list[bytes]:
        """Return what `read` does, but in a worker thread: the event loop waits for no disk."""
        return await anyio.to_thread.run_sync(self.read, since, limit)

    async def lines_after(self, since: int) -> AsyncIterator[bytes]:
        """Yield the frames after a seq, oldest first, read in pages by a worker thread."""
        while lines := await self.lines(since, LINES_AT_ONCE):
            since += len(lines)
            for line in lines:
                yield line

    def page(self, since: int) -> list[bytes | LongJournalLine]:
        """Return frames after a seq, oldest first: about 64 KiB of them, at least one if any."""
        return self._journal.page(since, self.last_seq, PAGE_BYTES)

    def tail(self, count: int) -> list[bytes]:
        """Return the newest frames, oldest first."""
        return self.read(max(0, self.last_seq - count))

    async def state_at(self, seq: int) -> State:
        """Return the state at a seq, folded from the journal. Raises JournalCorrupt."""
        return (await self.moment_at(seq)).state

    async def moment_at(self, seq: int) -> Moment:
        """Return the state right after a published event, and where its run began.

        Recent answers are cached. Raises JournalCorrupt.
        """
        until = min(seq, self.last_seq)
        known = self._moments.known(until)
        if known is not None:
            return known

        return await anyio.to_thread.run_sync(self._moments.at, until)


def _is_out_of_space(error: Exception) -> bool:
    """Return whether a write can be retried; not if the journal's fragment is still there."""
    return isinstance(error, JournalFull) or (
        is_full(error) and not isinstance(error, JournalWriteFailed)
    )
