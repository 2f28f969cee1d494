"""How a start handles the journal and state files that it finds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hankweave_protocol import codec
from hankweave_protocol.events import Event, Info, StateRecovered
from hankweave_protocol.ids import CodonId, EventSeq
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_protocol.transitions import (
    CodonStarted,
    CodonTransitioned,
    CostsIncremented,
    InitialCheckpointSet,
    PlanSet,
    RunCompleted,
    RunStarted,
)
from hankweave_server.domain.reducer import fold
from hankweave_server.ledger.journal import JournalCorrupt
from hankweave_server.ledger.open import open_ledger
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout
from support.crashes import crash_after
from support.histories import (
    LATER,
    SteppingClock,
    a_plan,
    a_run,
    initializing,
    preparing,
    running,
    sha,
    some_tokens,
    starting,
)

RUN = a_run().run_id
OBSERVE = CodonId("observe")


async def opened(layout: Layout, rebuild: Callable[[], State] | None = None) -> Ledger:
    """Open and close the ledger, and return it; its findings stay available."""
    ledger = await Ledger.open(layout, SteppingClock(), rebuild=rebuild)
    await ledger.aclose()
    return ledger


async def with_history(layout: Layout) -> State:
    """Write a history with a server that ends in good order, and return its state."""
    ledger = await Ledger.open(layout, SteppingClock())
    await ledger.post(PlanSet(execution_plan=a_plan("observe", "review#0")))
    await ledger.post(RunStarted(run=a_run()), InitialCheckpointSet(checkpoint_sha=sha(1)))
    await ledger.post(CodonStarted(run_id=RUN, codon=preparing()))
    await ledger.aclose()
    ledger = await Ledger.open(layout, SteppingClock())
    for before, to in (
        ("preparing", starting()),
        ("starting", initializing()),
        ("initializing", running()),
    ):
        await ledger.post(CodonTransitioned(run_id=RUN, from_status=before, codon=to))  # type: ignore[arg-type]

    for _ in range(5):
        await ledger.post(
            CostsIncremented(run_id=RUN, codon_id=OBSERVE, cost=0.1, tokens=some_tokens()),
            Info(message="Erdbeben 🌏"),
        )

    await ledger.aclose()
    return ledger.state


def names(layout: Layout) -> list[str]:
    return sorted(os.listdir(layout.state_directory))


def recovery_of(ledger: Ledger) -> StateRecovered:
    assert ledger.recovery is not None
    return ledger.recovery


def truncated(layout: Layout, lines: int) -> None:
    kept = layout.journal.read_bytes().splitlines(keepends=True)[:-lines]
    layout.journal.write_bytes(b"".join(kept))


def fold_of(layout: Layout) -> State:
    return fold(map(codec.decode_event, layout.journal.read_bytes().splitlines()))


async def test_a_new_directory_begins_empty_and_reports_nothing(layout: Layout):
    """An empty directory has nothing to recover and nothing to report."""
    ledger = await opened(layout)
    assert (ledger.state, ledger.recovery, ledger.repair) == (EMPTY_STATE, None, None)
    assert names(layout) == ["events", "state.json"]


async def test_a_start_after_an_orderly_end_continues_silently(layout: Layout):
    """After an orderly end, the next start has the same state and nothing to report."""
    state = await with_history(layout)
    ledger = await opened(layout)
    assert (ledger.state, ledger.recovery, ledger.repair) == (state, None, None)
    assert fold_of(layout) == state


async def test_the_tail_is_replayed_over_an_older_state(layout: Layout):
    """If a server died before it saved, the journal's tail is folded onto the older state."""
    state = await with_history(layout)
    layout.state_backup.replace(layout.state)
    ledger = await opened(layout)
    assert (ledger.state, ledger.recovery) == (state, None)


async def test_a_torn_tail_is_cut_and_reported(layout: Layout):
    """The repair names the file with the cut bytes, and the state is that of the whole lines."""
    state = await with_history(layout)
    with layout.journal.open("ab") as journal:
        journal.write(b'{"id":"torn","seq":17,"ty')

    ledger = await opened(layout)
    assert ledger.state == state
    assert ledger.repair is not None
    quarantine = layout.journal.with_name(ledger.repair.quarantine)
    assert quarantine.read_bytes() == b'{"id":"torn","seq":17,"ty'
    assert ledger.repair.bytes == 25


async def test_zeros_in_the_state_give_way_to_the_backup_and_the_tail(layout: Layout):
    """The backup is older; the journal's tail brings it up to date."""
    state = await with_history(layout)
    layout.state.write_bytes(b"\0" * 2048)
    ledger = await opened(layout)
    assert ledger.state == state
    assert recovery_of(ledger).source == "backup"
    assert [error.type for error in recovery_of(ledger).errors] == ["corrupted_data"]
    assert [name for name in names(layout) if "corrupt" in name] == list(recovery_of(ledger).kept)
    assert (await opened(layout)).recovery is None


def bad(layout: Layout) -> None:
    layout.state.write_bytes(b"{}")
    layout.state_backup.write_bytes(b"")


def missing(layout: Layout) -> None:
    layout.state.unlink()
    layout.state_backup.unlink()


def of_another_history(layout: Layout) -> None:
    """Write a state that the journal's tail contradicts."""
    other = msgspec.structs.replace(EMPTY_STATE, last_event_seq=3)
    layout.state.write_bytes(codec.encode(other))


@pytest.mark.parametrize(
    ("damage", "kept"),
    [(bad, 2), (missing, 0), (of_another_history, 0)],
    ids=["bad", "missing", "of another history"],
)
async def test_a_lost_state_is_folded_from_the_journal(
    layout: Layout, damage: Callable[[Layout], None], kept: int
):
    """It is preferred to the repository, because it holds more than the commits do.

    Files that cannot be read are kept.
    """
    state = await with_history(layout)
    damage(layout)

    def rebuild() -> State:
        raise AssertionError("the journal is there")

    ledger = await opened(layout, rebuild)
    assert ledger.state == state
    assert recovery_of(ledger).source == "journal"
    assert len(recovery_of(ledger).kept) == kept


@pytest.mark.parametrize(
    ("lost", "source", "kept"),
    [(5, "backup", 1), (15, "journal", 2)],
    ids=["the state", "the state and its backup"],
)
async def test_what_is_ahead_of_the_journal_is_not_believed(
    layout: Layout, lost: int, source: str, kept: int
):
    """Events that the journal lost did not happen; the state is the fold of the remaining ones."""
    await with_history(layout)
    truncated(layout, lost)
    expected = fold_of(layout)
    assert expected.last_event_seq == 17 - lost
    ledger = await opened(layout)
    assert ledger.state == expected
    assert recovery_of(ledger).source == source
    assert f"ends at {17 - lost}" in recovery_of(ledger).errors[0].message
    assert len(recovery_of(ledger).kept) == kept
    assert (await opened(layout)).recovery is None


async def test_a_new_journal_begins_with_the_state_of_a_lost_one(layout: Layout):
    """After the loss of its journal, a state is written as the first events of a new one."""
    state = await with_history(layout)
    layout.journal.unlink()
    ledger = await opened(layout)
    assert recovery_of(ledger).source == "primary"
    assert "journal is missing" in recovery_of(ledger).errors[0].message
    assert ledger.state.runs == state.runs
    assert ledger.state.execution_plan == state.execution_plan
    assert fold_of(layout) == ledger.state
    assert (await opened(layout)).recovery is None


async def test_with_everything_lost_the_repository_is_asked(layout: Layout):
    """The shadow repository's history becomes the past of a new journal."""
    past = msgspec.structs.replace(
        EMPTY_STATE, runs=(a_run(codons=(running(),)),), initial_checkpoint=sha(1)
    )
    ledger = await opened(layout, lambda: past)
    assert recovery_of(ledger).source == "repository"
    assert ledger.state.runs == past.runs
    assert ledger.state.current_run_id == RUN
    assert fold_of(layout) == ledger.state


async def test_a_fresh_start_over_damaged_files_is_never_silent(layout: Layout):
    """With neither journal nor repository the state is empty, and this is reported."""
    layout.state_directory.mkdir(parents=True)
    layout.state.write_bytes(b"garbage")
    ledger = await opened(layout, lambda: EMPTY_STATE)
    assert ledger.state == EMPTY_STATE
    assert recovery_of(ledger).source == "fresh"
    assert recovery_of(ledger).errors
    assert len(recovery_of(ledger).kept) == 1


async def test_a_damaged_journal_stops_the_start(layout: Layout):
    """A bad line before good ones needs a person's decision; no file is changed."""
    await with_history(layout)
    content = layout.journal.read_bytes().replace(b'"seq":3', b'"seq":x', 1)
    layout.journal.write_bytes(content)
    with pytest.raises(JournalCorrupt) as caught:
        await opened(layout)

    assert caught.value.line == 3
    assert layout.journal.read_bytes() == content


async def test_a_history_that_contradicts_itself_stops_the_start(layout: Layout):
    """A transition that cannot be folded is reported with its line number."""
    await with_history(layout)
    layout.state.unlink()
    layout.state_backup.unlink()
    with layout.journal.open("ab") as journal:
        first = layout.journal.read_bytes().splitlines()[1]
        count = len(layout.journal.read_bytes().splitlines())
        journal.write(first.replace(b'"seq":2', b'"seq":%d' % (count + 1), 1) + b"\n")

    with pytest.raises(JournalCorrupt, match="already") as caught:
        await opened(layout)

    assert caught.value.line == count + 1


# --- Hankweave's directories ----------------------------------------------------------------------


def hankweave_wrote(layout: Layout) -> None:
    run = a_run(codons=(running(),))
    ended = msgspec.structs.replace(run, status="completed", end_time=LATER)
    state = json.loads(
        codec.encode(
            msgspec.structs.replace(
                EMPTY_STATE, runs=(ended,), execution_plan=a_plan("observe"), schema_version=0
            )
        )
    )
    event = {"id": "x", "timestamp": LATER, "type": "info", "data": {"message": "old"}}
    layout.journal.parent.mkdir(parents=True)
    layout.journal.write_text(f"{json.dumps(event)}\n" * 3, encoding="utf-8")
    layout.state.write_text(json.dumps(state), encoding="utf-8")


async def test_an_execution_of_hankweave_is_taken_over(layout: Layout):
    """Hankweave's events and state become the past of a new journal; its own files are kept."""
    hankweave_wrote(layout)
    old, theirs = layout.journal.read_bytes(), layout.state.read_bytes()
    ledger = await opened(layout)
    assert recovery_of(ledger).source == "primary"
    assert recovery_of(ledger).errors == ()
    assert recovery_of(ledger).kept == ("events.hankweave-1.jsonl", "state.hankweave-1.json")
    assert layout.state.with_name("state.hankweave-1.json").read_bytes() == theirs
    lines = layout.journal.read_bytes().splitlines()
    assert [codec.decode_event(line).data for line in lines[:3]] == [Info(message="old")] * 3
    assert layout.journal.with_name("events.hankweave-1.jsonl").read_bytes() == old
    assert ledger.state.runs[0].codons == (running(),)
    assert ledger.state.current_run_id is None
    assert fold_of(layout) == ledger.state
    assert (await opened(layout)).recovery is None


async def test_a_start_continues_a_takeover_that_died_before_its_save(layout: Layout):
    """Once the journal has the past, Hankweave's own state file is ignored."""
    hankweave_wrote(layout)
    theirs = layout.state.read_bytes()
    state = (await opened(layout)).state
    layout.state.write_bytes(theirs)
    layout.state_backup.unlink()
    ledger = await opened(layout)
    assert (ledger.state, ledger.recovery) == (state, None)


# --- compound faults ------------------------------------------------------------------------------


NAMES = ("rename", "replace", "unlink", "fsync", "ftruncate", "link", "open")
CHANGES = [(os, name) for name in NAMES]


def both_bad(layout: Layout) -> None:
    layout.state.write_bytes(b"{}")
    layout.state_backup.write_bytes(b"\0\0")
    with layout.journal.open("ab") as journal:
        journal.write("torn 🌏".encode()[:-1])


def ahead(layout: Layout) -> None:
    truncated(layout, 5)


def no_journal(layout: Layout) -> None:
    layout.journal.unlink()


@pytest.mark.parametrize("damage", [both_bad, ahead, no_journal], ids=lambda each: each.__name__)
async def test_a_recovery_that_dies_at_any_step_is_done_again(
    tmp_path: Path, damage: Callable[[Layout], None]
):
    """However often the recovery is interrupted, the next start reaches the same runs."""
    clock = SteppingClock()
    for number in range(60):
        layout = Layout.of_execution(tmp_path / str(number))
        state = await with_history(layout)
        damage(layout)
        with crash_after(number, *CHANGES) as crash:
            open_ledger(layout, clock, rebuild=None, new_id=lambda: "id").journal.close()

        ledger = await opened(layout)
        assert [run.run_id for run in ledger.state.runs] == [RUN]
        assert ledger.state.execution_plan == state.execution_plan
        assert fold_of(layout) == ledger.state
        if not crash.happened:
            return

    raise AssertionError("the recovery never came to its end")


async def test_what_was_found_can_be_recorded(layout: Layout):
    """The daemon can record repair and recovery like any other event."""
    await with_history(layout)
    both_bad(layout)
    ledger = await Ledger.open(layout, SteppingClock())
    assert ledger.repair is not None
    assert ledger.recovery is not None
    await ledger.post(ledger.repair, ledger.recovery, RunCompleted(run_id=RUN, end_time=LATER))
    await ledger.aclose()
    events: list[Event] = [
        codec.decode_event(line) for line in layout.journal.read_bytes().splitlines()[-3:]
    ]
    assert [event.type for event in events] == [
        "journal.repaired",
        "state.recovered",
        "state.transition",
    ]
    assert events[-1].seq == EventSeq(ledger.last_seq)
