"""The single writer keeps one order for the state, the journal and every subscriber."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server.ledger.conftest import open_ledger

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import Info, Pong, StateTransition
from hankweave_protocol.hank import SentinelEntry
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_protocol.transitions import (
    CodonStarted,
    CodonTransitioned,
    CostsIncremented,
    EditsNoticed,
    InitialCheckpointSet,
    PlanSet,
    RunStarted,
)
from hankweave_server import fsutil
from hankweave_server.domain import lifecycle
from hankweave_server.domain.lifecycle import IllegalTransition
from hankweave_server.domain.reducer import fold
from hankweave_server.ledger import journal as journal_module
from hankweave_server.ledger import writer as ledger_module
from hankweave_server.ledger.state_file import StateStore
from hankweave_server.ledger.writer import Entry, Ledger, LedgerFailed, Published
from hankweave_server.paths import Layout
from support.calls import failing, noted
from support.histories import (
    SteppingClock,
    a_plan,
    a_run,
    completed,
    legal_moves,
    preparing,
    running,
    sha,
    some_tokens,
)
from support.waiting import LIMIT, eventually, limited

RUN = a_run().run_id
OBSERVE = CodonId("observe")
TICK = CostsIncremented(run_id=RUN, codon_id=OBSERVE, cost=0.25, tokens=some_tokens(1), messages=1)


def state_in(path: Path) -> State:
    return msgspec.json.decode(path.read_bytes(), type=State)


def journal_in(layout: Layout) -> list[bytes]:
    return layout.journal.read_bytes().splitlines()


def info(text: str) -> Info:
    return Info(message=text)


async def test_a_burst_is_published_in_parts(layout: Layout):
    """A burst of thousands of events does not block the event loop.

    Other tasks run between two parts, and the order holds up to the last event.
    """
    async with open_ledger(layout) as ledger:
        parts: list[list[int]] = [[]]
        ticks = 0

        def listen(each: Published) -> None:
            parts[-1].append(each.event.seq)

        async def others() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                parts.append([])
                await anyio.lowlevel.checkpoint()

        with ledger.subscribe(listen):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(others)
                for _ in range(30):
                    ledger.leave(*(info("burst") for _ in range(100)))

                await ledger.flush()
                tasks.cancel_scope.cancel()

        batches = [part for part in parts if part]
        assert max(map(len, batches)) <= ledger_module.EVENTS_AT_ONCE
        assert [seq for part in batches for seq in part] == list(range(1, 3001))

        for _ in range(30):
            ledger.leave(*(info("the last") for _ in range(100)))

    assert len(journal_in(layout)) == 6_000


# --- recording ------------------------------------------------------------------------------------


async def test_a_record_is_on_disk_before_its_caller_continues(layout: Layout):
    """When `record` returns, journal and state.json hold the beginning or end of a run."""
    async with open_ledger(layout) as ledger:
        published = await ledger.record(RunStarted(run=a_run()), info("begun"))
        assert [each.event.seq for each in published] == [1, 2]
        assert journal_in(layout) == [each.frame for each in published]
        assert state_in(layout.state) == ledger.state == ledger.durable_state
        assert ledger.state.last_event_seq == ledger.last_seq == 2


async def test_the_edits_of_people_are_saved_after_they_were_recorded(layout: Layout):
    """`record` waits for the journal alone, as for checkpoints, and state.json follows."""
    async with open_ledger(layout) as ledger:
        await ledger.record(RunStarted(run=a_run()))
        await ledger.record(EditsNoticed(edits={"a.txt": ""}))
        assert len(journal_in(layout)) == 2
        assert state_in(layout.state).edits == {}
        await eventually(lambda: state_in(layout.state).edits == {"a.txt": ""})


async def test_a_transition_becomes_an_event_that_says_what_it_led_to(layout: Layout):
    """`state.transition` carries the type, the transition, the summary and the subject's id."""
    async with open_ledger(layout) as ledger:
        await ledger.record(RunStarted(run=a_run()))
        transition = CodonStarted(run_id=RUN, codon=preparing())
        (published,) = await ledger.record(transition, causes=("command-7", 1))

    event = codec.decode_event(published.frame)
    assert isinstance(event.data, StateTransition)
    assert event.data.transition_type == "CodonStarted"
    assert codec.decode_transition(event.data) == transition
    assert event.data.resulting_state.current_run_id == RUN
    assert (event.run_id, event.codon_id) == (RUN, OBSERVE)
    assert (event.data.run_id, event.data.codon_id) == (RUN, OBSERVE)
    assert event.causes == ("command-7", 1)
    assert event.timestamp == "2025-01-04T12:00:00.002Z"


async def test_an_event_is_about_the_current_run_unless_it_says_otherwise(layout: Layout):
    """The envelope names the current run wherever there is one."""
    async with open_ledger(layout) as ledger:
        (before,) = await ledger.record(info("before any run"))
        await ledger.record(RunStarted(run=a_run()))
        (within,) = await ledger.record(info("within"))
        (about,) = await ledger.record(info("about"), run_id=RunId("x"), codon_id=OBSERVE)

    assert before.event.run_id is None
    assert within.event.run_id == RUN
    assert (about.event.run_id, about.event.codon_id) == ("x", OBSERVE)


async def test_the_state_is_decided_before_the_first_await(layout: Layout):
    """A later decision sees an earlier one even before that one is written."""
    ledger = await Ledger.open(layout, SteppingClock())
    await ledger.post(RunStarted(run=a_run()))
    assert ledger.state.current_run_id == RUN
    assert ledger.durable_state == EMPTY_STATE
    assert (ledger.last_seq, ledger.read(0)) == (0, [])
    await ledger.aclose()
    assert state_in(layout.state).current_run_id == RUN


async def test_an_illegal_batch_changes_nothing(layout: Layout):
    """If one entry is illegal, the whole batch is rejected: no seq, no line, no delivery."""
    async with open_ledger(layout) as ledger:
        await ledger.record(RunStarted(run=a_run(codons=(running(),))))
        before, lines = ledger.state, journal_in(layout)
        published: list[Published] = []
        with ledger.subscribe(published.append), pytest.raises(IllegalTransition):
            await ledger.record(
                info("first"),
                CodonTransitioned(run_id=RUN, from_status="running", codon=preparing()),
            )

        assert ledger.state is before
        await ledger.flush()
        assert (journal_in(layout), published) == (lines, [])
        (after,) = await ledger.record(info("after"))
        assert after.event.seq == 2


async def test_what_answers_one_client_is_not_for_the_journal(layout: Layout):
    """A pong is refused as a journal entry and leaves no gap."""
    async with open_ledger(layout) as ledger:
        with pytest.raises(ValueError, match="pong"):
            await ledger.record(Pong(message="pong", timestamp=""))

        (after,) = await ledger.record(info("after"))
        assert after.event.seq == 1


async def test_the_state_is_made_of_what_was_written(layout: Layout):
    """Text that is not valid Unicode is written readably, and the state holds it as written."""
    async with open_ledger(layout) as ledger:
        run = msgspec.structs.replace(a_run(), run_folder="/executions/caf\udce9")
        await ledger.record(info("caf\udce9"), RunStarted(run=run))
        assert ledger.state.runs[0].run_folder == "/executions/caf\\xe9"
        assert fold(map(codec.decode_event, journal_in(layout))) == ledger.state
        await ledger.flush()
        assert state_in(layout.state) == ledger.state


async def test_a_transition_that_could_not_be_read_again_changes_nothing(layout: Layout):
    """A transition that the next start could not fold is refused when it is recorded."""
    deep: dict[str, object] = {}
    for _ in range(100):
        deep = {"deeper": deep}

    entry = a_plan("observe")[0]
    codon = msgspec.structs.replace(entry.codon, sentinels=(SentinelEntry(sentinel_config=deep),))
    plan = (msgspec.structs.replace(entry, codon=codon),)
    async with open_ledger(layout) as ledger:
        with pytest.raises(Refused, match="deep"):
            await ledger.record(info("first"), PlanSet(execution_plan=plan))

        assert ledger.state == EMPTY_STATE


# --- durability -----------------------------------------------------------------------------------


class Saves:
    """The virtual time of a ledger, and whether each of its saves was durable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.durable: list[bool] = []
        save = StateStore.save

        def noted(store: StateStore, state: State, *, durable: bool = True) -> int:
            self.durable.append(durable)
            return save(store, state, durable=durable)

        monkeypatch.setattr(StateStore, "save", noted)
        monkeypatch.setattr(ledger_module.anyio, "current_time", lambda: self.now)

    async def record(self, ledger: Ledger, number: int) -> None:
        """Record a transition, two thirds of `SAVE_SECONDS` after the last one."""
        self.now += ledger_module.SAVE_SECONDS * 2 / 3
        await ledger.record(RunStarted(run=a_run(RunId(f"run-{number}"))))


async def test_state_json_is_flushed_when_transitions_pause(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While they follow each other it is only shown: its flushes would hold up the journal."""
    async with open_ledger(layout) as ledger:
        saves = Saves(monkeypatch)
        for number in range(5):
            await saves.record(ledger, number)

        assert len(saves.durable) >= 5
        assert not any(saves.durable)
        saves.now += 2 * ledger_module.SAVE_SECONDS
        await eventually(lambda: saves.durable[-1])


async def test_state_json_is_flushed_in_time_although_transitions_do_not_pause(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal that a start folds on top of it stays short."""
    async with open_ledger(layout) as ledger:
        saves = Saves(monkeypatch)
        begun, number = saves.now, 0
        while saves.now < begun + ledger_module.DURABLE_SECONDS + 1:
            await saves.record(ledger, number)
            number += 1

        assert saves.durable.count(True) == 1


async def test_a_published_event_survives_a_power_cut(layout: Layout, monkeypatch):
    """Posted events, too, are delivered only after a sync; one sync covers many of them."""
    synced, real = 0, os.fdatasync

    def flushed(descriptor: int) -> None:
        nonlocal synced
        real(descriptor)
        synced = len(journal_in(layout))

    monkeypatch.setattr(journal_module.os, "fdatasync", flushed)
    syncs, early = noted(monkeypatch, os, "fdatasync"), list[int]()

    def handle(published: Published) -> None:
        if published.event.seq > synced:
            early.append(published.event.seq)

    async with open_ledger(layout) as ledger:
        with ledger.subscribe(handle):
            for number in range(50):
                await ledger.post(info(str(number)))

            with limited():
                while ledger.last_seq < 50:
                    await anyio.lowlevel.checkpoint()

        assert early == []
        assert len(syncs) == 1


async def test_costs_reach_the_state_file_without_a_save_each(layout: Layout, monkeypatch):
    """A hundred ticks cost a few saves, and the last tick is saved without another event."""
    async with open_ledger(layout) as ledger:
        await ledger.record(RunStarted(run=a_run(codons=(running(),))))
        saves = noted(monkeypatch, fsutil, "write_private")
        for _ in range(100):
            await ledger.post(TICK)

        with limited():
            while state_in(layout.state).last_event_seq < 101:
                await anyio.lowlevel.checkpoint()

        assert 1 <= len(saves) < 20


async def test_a_posted_transition_is_saved_at_once(layout: Layout):
    """state.json never lags behind a delivered transition of a codon or run."""
    async with open_ledger(layout) as ledger:
        saved: list[int] = []

        def save_seq(published: Published) -> None:
            saved.append(state_in(layout.state).last_event_seq)

        with ledger.subscribe(save_seq):
            await ledger.post(RunStarted(run=a_run()))
            await ledger.flush()

        assert saved == [1]


async def test_a_transition_is_shown_without_a_flush_and_made_durable_later(
    layout: Layout, monkeypatch
):
    """Callers wait for the journal's flush alone."""
    async with open_ledger(layout) as ledger:
        await ledger.record(RunStarted(run=a_run()))
        await ledger.flush()
        flushed = noted(monkeypatch, fsutil, "sync_directory")
        await ledger.record(InitialCheckpointSet(checkpoint_sha=sha(1)))
        assert state_in(layout.state).initial_checkpoint == sha(1)
        assert not flushed
        await eventually(lambda: bool(flushed))


async def test_a_large_state_is_written_at_a_bounded_rate(layout: Layout, monkeypatch):
    """Until its last bytes are paid for, state.json lags; no event does, and the end saves it."""
    async with open_ledger(layout) as ledger:
        await ledger.record(RunStarted(run=a_run()))
        monkeypatch.setattr(ledger_module, "SAVED_BYTES_A_SECOND", 1e-9)
        await ledger.record(CodonStarted(run_id=RUN, codon=preparing()))
        shown = state_in(layout.state)
        assert shown == ledger.state
        moved = lifecycle.start_agent(preparing())
        published = await ledger.record(
            CodonTransitioned(run_id=RUN, from_status="preparing", codon=moved)
        )
        assert state_in(layout.state) == shown
        assert journal_in(layout)[-1] == published[-1].frame

    assert state_in(layout.state) == ledger.state != shown


async def test_what_does_not_hurry_is_written_with_what_comes_next(layout: Layout):
    """It has its place in the order, and one flush is enough for both."""
    async with open_ledger(layout) as ledger:
        await ledger.flush()
        ledger.leave(info("the beginning"), urgent=False)
        await anyio.wait_all_tasks_blocked()
        assert journal_in(layout) == []
        await ledger.record(info("the end"))
        assert [codec.decode_event(line).seq for line in journal_in(layout)] == [1, 2]


async def test_what_does_not_hurry_is_not_written_with_the_state(layout: Layout, monkeypatch):
    """When state.json is due, an act may be under way whose outcome shares the flush."""
    monkeypatch.setattr(ledger_module, "SAVE_SECONDS", 0.0)
    async with open_ledger(layout) as ledger:
        await ledger.record(RunStarted(run=a_run()))
        recorded = ledger.state
        ledger.leave(info("the beginning"), urgent=False)
        await eventually(lambda: state_in(layout.state) == recorded)
        await anyio.wait_all_tasks_blocked()
        assert len(journal_in(layout)) == 1
        await ledger.record(info("the end"))
        assert len(journal_in(layout)) == 3


async def test_a_flush_leaves_nothing_to_replay(layout: Layout):
    """After a flush, state.json is at the journal's last event."""
    async with open_ledger(layout) as ledger:
        await ledger.record(RunStarted(run=a_run(codons=(running(),))))
        await ledger.post(TICK, info("a"))
        await ledger.flush()
        assert state_in(layout.state) == ledger.state
        assert len(journal_in(layout)) == ledger.last_seq == 3


async def test_catching_up_delivers_all_events_that_were_decided(layout: Layout):
    """Catching up waits for the journal only; state.json may lag.

    With nothing pending it is a no-op.
    """
    async with open_ledger(layout) as ledger:
        await ledger.record(RunStarted(run=a_run(codons=(running(),))))
        await ledger.flush()
        ledger.leave(TICK, TICK)
        assert ledger.last_seq == 1
        assert await ledger.catch_up(waits_for_space=True) == 3
        assert len(journal_in(layout)) == ledger.last_seq == 3
        assert state_in(layout.state).last_event_seq == 1
        assert await ledger.catch_up(waits_for_space=True) == 3

    with pytest.raises(LedgerFailed, match="closed"):
        await ledger.catch_up(waits_for_space=True)


async def test_a_cancelled_caller_has_recorded_all_the_same(layout: Layout):
    """A recorded batch is written even if its caller is cancelled."""
    async with open_ledger(layout) as ledger:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await ledger.record(info("decided"))

        await ledger.flush()
        assert len(journal_in(layout)) == 1


async def test_a_cancelled_writer_writes_what_was_decided(layout: Layout):
    """An orderly end loses no event whose caller has been given a seq."""
    ledger = await Ledger.open(layout, SteppingClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        await ledger.record(RunStarted(run=a_run()))
        for number in range(20):
            await ledger.post(info(str(number)))

        tasks.cancel_scope.cancel()

    assert len(journal_in(layout)) == 21
    assert state_in(layout.state).last_event_seq == 21
    with pytest.raises(LedgerFailed, match="closed"):
        await ledger.post(info("too late"))


async def test_closing_twice_or_before_running_is_harmless(layout: Layout):
    """Closing is idempotent, and closing a ledger that never ran is harmless."""
    ledger = await Ledger.open(layout, SteppingClock())
    await ledger.post(info("one"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.aclose)
        tasks.start_soon(ledger.run)
        tasks.start_soon(ledger.aclose)

    assert len(journal_in(layout)) == 1


async def test_posting_waits_for_a_disk_that_cannot_keep_up(layout: Layout, monkeypatch):
    """The queue is bounded: an agent that prints too fast is held back, and no event is lost."""
    monkeypatch.setattr(ledger_module, "PENDING_LIMIT", 10)
    most = 0
    async with open_ledger(layout) as ledger:
        for number in range(500):
            await ledger.post(info(str(number)))
            most = max(most, ledger.state.last_event_seq - ledger.last_seq)

        await ledger.flush()

    assert len(journal_in(layout)) == 500
    assert most <= 11


# --- one order ------------------------------------------------------------------------------------


async def test_all_subscribers_receive_the_same_events_in_the_journals_order(layout: Layout):
    """With many concurrent writers there is one order, without gaps."""
    frames: list[list[bytes]] = [[], [], []]
    async with open_ledger(layout) as ledger:

        async def talk(name: int) -> None:
            for number in range(20):
                if number % 3:
                    await ledger.post(info(f"{name}/{number}"))
                else:
                    await ledger.record(info(f"{name}/{number}"), info("and more"))

                await anyio.lowlevel.checkpoint()

        with (
            ledger.subscribe(lambda each: frames[0].append(each.frame)),
            ledger.subscribe(lambda each: frames[1].append(each.frame)),
            ledger.subscribe(lambda each: frames[2].append(each.frame)),
        ):
            async with anyio.create_task_group() as tasks:
                for name in range(8):
                    tasks.start_soon(talk, name)

            await ledger.flush()

    lines = journal_in(layout)
    assert frames == [lines, lines, lines]
    assert [codec.decode_event(line).seq for line in lines] == list(range(1, len(lines) + 1))
    for name in range(8):
        own = [line for line in lines if f'"{name}/'.encode() in line]
        numbers = [int(line.split(b'"')[-2].rpartition(b"/")[2]) for line in map(_message, own)]
        assert numbers == list(range(20))


def _message(line: bytes) -> bytes:
    data = codec.decode_event(line).data
    assert isinstance(data, Info)
    return b'"' + data.message.encode() + b'"'


async def test_a_late_joiner_has_no_gap_and_no_duplicate(layout: Layout):
    """History and subscription, taken in one step at any moment, add up to the whole journal."""
    async with open_ledger(layout) as ledger:
        joined: list[list[bytes]] = []

        async def join() -> None:
            frames: list[bytes] = []
            joined.append(frames)
            with ledger.subscribe(lambda each: frames.append(each.frame)):
                frames.extend(ledger.read(0))
                with limited():
                    while len(frames) < 200:
                        await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                await ledger.post(info(str(number)))
                if number % 20 == 0:
                    tasks.start_soon(join)
                    await anyio.lowlevel.checkpoint()

        lines = journal_in(layout)
        assert joined == [lines] * 10


async def test_the_history_is_read_in_pages(layout: Layout):
    """`history` pages forward, `tail` returns the newest events."""
    async with open_ledger(layout) as ledger:
        for number in range(10):
            await ledger.post(info(str(number)))

        await ledger.flush()
        lines = journal_in(layout)
        assert ledger.read(3, 4) == lines[3:7]
        assert ledger.read(8) == lines[8:]
        assert ledger.read(10) == ledger.read(11, 5) == []
        assert ledger.tail(3) == lines[-3:]
        assert ledger.tail(99) == lines


async def test_the_history_is_read_beside_the_event_loop(layout: Layout, monkeypatch):
    """`lines` returns what `history` does, and no read of the disk holds up the loop."""
    async with open_ledger(layout) as ledger:
        await ledger.record(*(info(str(number)) for number in range(5)))
        readers: list[threading.Thread] = []
        real = os.pread

        def noted(descriptor: int, size: int, offset: int) -> bytes:
            readers.append(threading.current_thread())
            return real(descriptor, size, offset)

        monkeypatch.setattr(journal_module.os, "pread", noted)
        assert await ledger.lines(1, 2) == journal_in(layout)[1:3]
        assert await ledger.lines(3) == journal_in(layout)[3:]
        assert readers
        assert threading.main_thread() not in readers


async def test_a_subscription_that_has_ended_delivers_nothing(layout: Layout):
    """A subscription ends with its block."""
    published: list[Published] = []
    async with open_ledger(layout) as ledger:
        with ledger.subscribe(published.append):
            await ledger.record(info("one"))

        await ledger.record(info("two"))

    assert [each.event.seq for each in published] == [1]


async def test_a_listener_that_raises_keeps_no_event_from_the_others(layout: Layout):
    """The others hear what was decided, up to the last event; then the writer ends with its error.

    It is called no more.
    """
    seqs: list[int] = []
    faults: list[int] = []
    ledger = await Ledger.open(layout, SteppingClock())

    def fail(each: Published) -> None:
        faults.append(each.event.seq)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with ledger.subscribe(fail), ledger.subscribe(lambda each: seqs.append(each.event.seq)):
        for number in range(ledger_module.EVENTS_AT_ONCE + 1):  # Two stretches of publishing.
            ledger.leave(info(str(number)))

        with pytest.raises(OSError, match="Input/output"):
            await ledger.run()

    assert faults == [1]
    assert seqs == [codec.decode_event(line).seq for line in journal_in(layout)]
    assert len(seqs) == ledger_module.EVENTS_AT_ONCE + 1
    with pytest.raises(LedgerFailed, match="closed"):
        await ledger.post(info("too late"))


async def test_the_event_loop_runs_while_the_disk_hangs(layout: Layout, monkeypatch):
    """A sync that hangs delays only the callers that wait for it."""
    release, real = threading.Event(), os.fdatasync

    def slow(descriptor: int) -> None:
        assert release.wait(LIMIT)
        real(descriptor)

    async with open_ledger(layout) as ledger:
        await ledger.record(RunStarted(run=a_run(codons=(running(),))))
        monkeypatch.setattr(journal_module.os, "fdatasync", slow)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ledger.record, info("waits"))
            for _ in range(100):
                await ledger.post(TICK)
                await anyio.lowlevel.checkpoint()

            assert ledger.state.last_event_seq == 102
            assert ledger.last_seq < 102
            release.set()

        await ledger.flush()
        assert ledger.last_seq == 102


# --- failure --------------------------------------------------------------------------------------


STATE_FAULTS = [
    (fsutil, "write_private", errno.ENOSPC),
    (fsutil, "sync_directory", errno.EIO),
]
FAULTS = [
    (journal_module.os, "fdatasync", errno.EIO),
    (fsutil, "write_all", errno.ENOSPC),
    (fsutil, "write_private", errno.ENOSPC),
]


@dataclass
class Downfall:
    """Observations of callers and subscribers of a ledger whose disk failed."""

    seqs: list[int] = field(default_factory=list)
    failures: list[LedgerFailed] = field(default_factory=list)

    async def attempt(self, ledger: Ledger, *entries: Entry) -> None:
        try:
            await ledger.record(*entries)
        except LedgerFailed as failure:
            self.failures.append(failure)


async def fail_under(
    layout: Layout,
    downfall: Downfall,
    break_disk: Callable[[], None],
    entry: Callable[[int], Entry] = lambda number: InitialCheckpointSet(checkpoint_sha=sha(number)),
) -> None:
    """Break the disk under a working ledger while several callers use it."""
    ledger = await Ledger.open(layout, SteppingClock())
    with ledger.subscribe(lambda each: downfall.seqs.append(each.event.seq)):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ledger.run)
            with anyio.CancelScope(shield=True):
                await ledger.record(RunStarted(run=a_run()))
                await ledger.flush()
                break_disk()
                async with anyio.create_task_group() as callers:
                    for number in range(3):
                        callers.start_soon(downfall.attempt, ledger, entry(number), info("and"))

                await ledger.failed.wait()
                await downfall.attempt(ledger, info("later"))


@pytest.mark.parametrize(("place", "name", "number"), FAULTS, ids=lambda each: str(each))
async def test_after_a_failed_write_nothing_is_published_or_written(
    layout: Layout, monkeypatch, place, name: str, number: int
):
    """After a failed write the writer ends and every pending and later caller gets the reason.

    The next start reads a journal without a torn line.
    """
    downfall = Downfall()
    with pytest.raises(ExceptionGroup) as ended:
        await fail_under(
            layout, downfall, lambda: monkeypatch.setattr(place, name, failing(number))
        )

    monkeypatch.undo()
    assert ended.group_contains(LedgerFailed)
    assert len(downfall.failures) == 4
    assert all(failure.__cause__ is not None for failure in downfall.failures)
    assert downfall.seqs == [1]
    again = await Ledger.open(layout, SteppingClock())
    assert again.repair is None
    assert again.state == fold(map(codec.decode_event, journal_in(layout)))
    assert again.state.current_run_id == RUN
    await again.aclose()


@pytest.mark.parametrize(("place", "name", "number"), STATE_FAULTS, ids=lambda each: str(each))
async def test_a_failed_save_ends_the_writer_and_takes_nothing_back(
    layout: Layout, monkeypatch, place, name: str, number: int
):
    """state.json follows the journal: what was published before it failed is durable and stays."""
    downfall = Downfall()
    with pytest.raises(ExceptionGroup) as ended:
        await fail_under(
            layout,
            downfall,
            lambda: monkeypatch.setattr(place, name, failing(number)),
            lambda each: EditsNoticed(edits={"a.txt": str(each)}),
        )

    monkeypatch.undo()
    assert ended.group_contains(LedgerFailed)
    assert len(downfall.failures) == 1, "only the caller that came after the failure"
    assert downfall.seqs == list(range(1, 8))
    again = await Ledger.open(layout, SteppingClock())
    assert again.state == fold(map(codec.decode_event, journal_in(layout)))
    assert again.state.last_event_seq == 7
    await again.aclose()


async def test_a_journal_that_failed_ends_with_its_last_published_event(
    layout: Layout, monkeypatch
):
    """The failed batch leaves no byte in the journal."""
    fault = failing(errno.EIO)
    with pytest.raises(ExceptionGroup):
        await fail_under(
            layout, Downfall(), lambda: monkeypatch.setattr(journal_module.os, "fdatasync", fault)
        )

    assert [codec.decode_event(line).seq for line in journal_in(layout)] == [1]


# --- the fold -------------------------------------------------------------------------------------


walks = st.lists(
    st.tuples(st.integers(min_value=0, max_value=10_000), st.sampled_from("rpb")),
    min_size=1,
    max_size=25,
)


@given(walks)
@settings(max_examples=40)
def test_the_state_is_the_fold_of_the_journal_at_every_prefix(choices: list[tuple[int, str]]):
    """Each prefix of the file folds to the state of that time, for any legal history."""
    with tempfile.TemporaryDirectory() as directory:
        anyio.run(_assert_every_prefix_folds, Layout.of_execution(Path(directory)), choices)


async def _assert_every_prefix_folds(layout: Layout, choices: list[tuple[int, str]]) -> None:
    states = {0: EMPTY_STATE}
    async with open_ledger(layout) as ledger:
        for number, (choice, how) in enumerate(choices, start=1):
            moves = legal_moves(ledger.state, number)
            move = moves[choice % len(moves)]
            if how == "r":
                await ledger.record(move)
            elif how == "p":
                await ledger.post(move)
            else:
                await ledger.post(info("before"))
                states[ledger.state.last_event_seq] = ledger.state
                await ledger.post(move)

            states[ledger.state.last_event_seq] = ledger.state

        await ledger.flush()
        assert await ledger.state_at(len(choices)) == states[len(choices)]

    lines = journal_in(layout)
    assert sorted(states) == list(range(len(lines) + 1))
    for seq in range(len(lines) + 1):
        assert fold(map(codec.decode_event, lines[:seq])) == states[seq]

    assert state_in(layout.state) == states[len(lines)]


async def test_many_events_are_written_in_few_writes(layout: Layout, monkeypatch):
    """Fifty thousand posted events are written in order, with far fewer writes than events."""
    async with open_ledger(layout) as ledger:
        writes = noted(monkeypatch, fsutil, "write_all")
        for number in range(50_000):
            await ledger.post(info(str(number)))

        await ledger.flush()
        assert ledger.last_seq == 50_000
        assert len(writes) < 500
        assert codec.decode_event(ledger.read(41_999, 1)[0]).data == info("41999")


async def test_a_terminal_record_ends_what_can_be_counted(layout: Layout):
    """Costs that arrive after a codon's end are refused and not added to another record."""
    async with open_ledger(layout) as ledger:
        await ledger.record(RunStarted(run=a_run(codons=(running(),))))
        await ledger.record(CodonTransitioned(run_id=RUN, from_status="running", codon=completed()))
        with pytest.raises(Exception, match="not active"):
            await ledger.post(TICK)


async def test_what_is_not_durable_yet_is_known_to_the_byte(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queued or being written: the journal is the durable part followed by these lines."""
    async with open_ledger(layout) as ledger:
        await ledger.record(Info(message="first"))
        durable = layout.journal.read_bytes()
        assert ledger.decided() == ledger_module.Decided(ledger.last_seq, len(durable), b"")

        is_writing, may_write = threading.Event(), threading.Event()
        real = os.fdatasync

        def held(descriptor: int) -> None:
            is_writing.set()
            assert may_write.wait(LIMIT)
            real(descriptor)

        monkeypatch.setattr(os, "fdatasync", held)
        await ledger.post(Info(message="being written"))
        await anyio.to_thread.run_sync(is_writing.wait)
        ledger.leave(Info(message="queued"), urgent=False)
        found = ledger.decided()
        monkeypatch.undo()
        may_write.set()
        ledger.write_now()
        await ledger.catch_up(waits_for_space=True)

    assert (found.seq, found.offset) == (ledger.last_seq, len(durable))
    assert layout.journal.read_bytes() == durable + found.lines
