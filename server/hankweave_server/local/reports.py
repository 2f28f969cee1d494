"""Read the report of an execution from its files, next to a running server or without one.

The journal is read in pages of a few megabytes, and only events that the report needs are decoded:
a journal of a million events takes seconds, and no more memory than a short one. The state is
state.json, with the rest of the journal on top of it.

The time that a plan still takes also depends on earlier executions of the same hank: those in the
folder of executions, and those beside this one. Of one that cannot be read, nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import Event, StateTransition
from hankweave_protocol.hank import Hank
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import ExecutionMeta
from hankweave_protocol.state import State
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.domain.execution_thread import run_named
from hankweave_server.domain.reports.eta import NO_DURATIONS, Durations, Eta, durations_in, eta
from hankweave_server.domain.reports.report import ExecutionReport, ReportFacts, report_of
from hankweave_server.domain.reports.summary import SUMMED_UP, EventSummary
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.load import load_unchecked
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from hankweave_server.ledger.moments import saved_state, state_at_end
from hankweave_server.ledger.searched_journal import of_types
from hankweave_server.local.executions import executions_root
from hankweave_server.local.journals import reading_journal
from hankweave_server.local.living import living_server
from hankweave_server.local.register import executions_in
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted
from hankweave_server.worktree.data_source import known_meta, layout_of, read_meta

PAGE_BYTES = 4 << 20

MOST_EARLIER = 10
"""Earlier executions that an estimate uses: the newest ones."""

MOST_EXAMINED = 300
"""Executions of which the metadata is read to find them."""

_HEAD = 4 << 10
"""Bytes of a long event that are searched for its type."""

_needed = of_types({*SUMMED_UP, CheckpointCreated.TYPE}).search


def read_report(
    root: Path, run_id: RunId | None, page: str | None, now: datetime
) -> ExecutionReport:
    """Return the report of an execution, or of one run; raise Stop if it cannot be read.

    `page` is the address of the web page, if a server is running.
    """
    layout = layout_of(root)
    meta = read_meta(layout)
    saved = saved_state(layout)
    has_server = living_server(layout) is not None
    with reading_journal(layout) as journal:
        state = state_at_end(journal, saved)
        if run_id is not None:
            run_id = _run_of(state, run_id)

        summary = EventSummary(run_id)
        for event in _events(journal):
            _take(summary, event)

    facts = ReportFacts(
        execution=str(root),
        hank=None if meta is None else meta.hank_path,
        page=page if has_server else None,
        now=now,
        has_server=has_server,
        eta=None if run_id is not None else eta_of(root, state, now, is_running=has_server),
    )
    return report_of(state, summary, facts)


def eta_of(root: Path, state: State, now: datetime, *, is_running: bool) -> Eta | None:
    """Return how long the plan of an execution still takes; None if nothing is known about it."""
    meta = known_meta(Layout.of_execution(root))
    earlier = _earlier(root, meta)
    return eta(state, now, hank=_hank_of(meta), earlier=earlier, is_running=is_running)


def _run_of(state: State, given: str) -> RunId:
    """Return the run that an id, or its beginning, names; raise Stop."""
    found = [run.run_id for run in state.runs if run.run_id.startswith(given)]
    exact = run_named(state, RunId(given))
    if exact is not None:
        return exact.run_id

    if len(found) == 1 and given:
        return found[0]

    several = (
        f"{counted(len(found), 'run')} have an id that begins with" if found else "There is no run"
    )
    raise Stop(
        f"{several} {given!r}.",
        ExitCode.NO_INPUT,
        hint="`hankweave runs` lists the runs of an execution.",
    )


# --- state and events -----------------------------------------------------------------------------


def _events(journal: Journal) -> Iterator[Event]:
    """Yield the events that a report needs; raise JournalCorrupt for one that is damaged."""
    seq = 0
    while seq < journal.last_seq:
        page = journal.page(seq, journal.last_seq, PAGE_BYTES)
        for line in page:
            seq += 1
            head = line if isinstance(line, bytes) else line.read(0, _HEAD)
            if not _needed(head):
                continue

            try:
                whole = line if isinstance(line, bytes) else line.read(0, line.size)
                yield codec.decode_event(whole)
            except Refused as error:
                reason = f"the event cannot be read: {error}"
                raise JournalCorrupt(journal.path, seq, reason) from error


def _take(summary: EventSummary, event: Event) -> None:
    match event.data:
        case StateTransition(transition_type=CheckpointCreated.TYPE) as moved:
            made = codec.decode_transition(moved)
            assert isinstance(made, CheckpointCreated)
            summary.add_checkpoint(event, made.checkpoint)
        case _:
            summary.add(event)


# --- the hank and its earlier executions ----------------------------------------------------------


def _hank_of(meta: ExecutionMeta | None) -> Hank | None:
    """Return the hank that an execution runs; None if its file is gone, or is another one now."""
    if meta is None or meta.hank_path is None:
        return None

    return load_unchecked(Path(meta.hank_path), meta.hank_hash)


def _earlier(root: Path, meta: ExecutionMeta | None) -> Durations:
    """Return what codons took in the newest other executions of the same hank."""
    if meta is None or (meta.hank_path is None and meta.hank_hash is None):
        return NO_DURATIONS

    others = map(Layout.of_execution, _others(root))
    states = (saved_state(other) for other in others if _runs_same_hank(other, meta))
    return durations_in(islice(filter(None, states), MOST_EARLIER))


def _others(root: Path) -> list[Path]:
    """Return the executions that may be earlier ones, the last saved first."""
    own = root.resolve()
    saved: dict[Path, float] = {}
    for folder in (executions_root().resolve(), own.parent):
        with suppress(OSError):  # Its contents may not be listed.
            for place in executions_in(folder):
                with suppress(OSError):  # Nothing was ever saved there.
                    saved[place] = Layout.of_execution(place).state.stat().st_mtime

    saved.pop(own, None)
    return sorted(saved, key=lambda place: saved[place], reverse=True)[:MOST_EXAMINED]


def _runs_same_hank(layout: Layout, meta: ExecutionMeta) -> bool:
    other = known_meta(layout)
    if other is None:
        return False

    is_same_file = meta.hank_path is not None and other.hank_path == meta.hank_path
    return is_same_file or (bool(meta.hank_hash) and other.hank_hash == meta.hank_hash)
