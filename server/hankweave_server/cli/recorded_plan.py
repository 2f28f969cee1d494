"""The plan on record in place of a hank: for a server that runs nothing, and only goes back.

The hank may be gone, broken, or another one by now: none of it matters to where the execution
stands. Loops are put together again from the iterations that the plan knows, so that a rollback
takes the right ones away.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from hankweave_protocol.hank import Codon, Hank, IterationLimit, Loop
from hankweave_protocol.state import PlanEntry, State
from hankweave_server.hank.load import LoadedHank, no_hank
from hankweave_server.ledger.history import Moments
from hankweave_server.ledger.journal import JournalCorrupt
from hankweave_server.ledger.reading import has_past
from hankweave_server.local.reader import reading_journal
from hankweave_server.paths import Layout
from hankweave_server.worktree.data_source import read_meta


def plan_on_record(layout: Layout) -> LoadedHank:
    """Gives a hank that leads to the plan as it stands; it has no prompts, so nothing can run."""
    meta = read_meta(layout)
    try:
        plan = _plan_of(layout) if has_past(layout) else ()
    except JournalCorrupt:
        plan = ()  # The ledger says so, and nothing is served.

    if meta is None or not plan:
        return no_hank(layout.work_tree)

    directory = layout.work_tree if meta.hank_path is None else Path(meta.hank_path).parent
    steps = tuple(_steps(plan))
    return LoadedHank(Hank(hank=steps), directory, hank_hash=meta.hank_hash or "", prompts={})


def _plan_of(layout: Layout) -> tuple[PlanEntry, ...]:
    with reading_journal(layout) as journal:
        state: State | None = None
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            state = msgspec.json.decode(layout.state.read_bytes(), type=State)

        if state is None or state.last_event_seq != journal.last_seq:
            state = Moments(journal).at(journal.last_seq).state  # What a crash did not let save.

        return state.execution_plan


def _steps(plan: tuple[PlanEntry, ...]) -> list[Codon | Loop]:
    found: list[Codon | Loop] = []
    seen: set[str] = set()
    for entry in plan:
        if entry.loop_context is None:
            found.append(entry.codon)
        elif entry.loop_context.loop_id not in seen:
            seen.add(entry.loop_context.loop_id)
            found.append(_loop(plan, entry.loop_context.loop_id))

    return found


def _loop(plan: tuple[PlanEntry, ...], name: str) -> Loop:
    own = [(e.codon, c) for e in plan if (c := e.loop_context) is not None and c.loop_id == name]
    known = max(context.iteration for _, context in own) + 1
    first = min(context.iteration for _, context in own)
    return Loop(
        id=name,
        name=name,
        terminate_on=IterationLimit(limit=known),
        codons=tuple(codon for codon, context in own if context.iteration == first),
        budget=own[0][1].loop_budget,
    )
