"""What runs again after a rollback, and what it cost and took the last time.

These are the steps of the plan after the target, up to the newest one that has begun; an iteration
of a loop counts for itself. A target in the middle of a step lets the whole step run again. After a
rollback that goes forward, such as the undo of another one, nothing runs again.

The last time is the newest execution that was whole, on any timeline, because most failures are
early. Of a step that never was, the newest execution counts, as far as it got.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from hankweave_protocol.ids import CodonId
from hankweave_protocol.instants import from_text, milliseconds_between, to_text
from hankweave_protocol.records import RunsAgain
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    PlanEntry,
    Run,
    SkippedCodon,
    State,
)
from hankweave_server.domain.budget.spending import Execution, Spending, spent_by
from hankweave_server.domain.execution_thread import places, thread
from hankweave_server.domain.lifecycle import waited_ms_at


def runs_again(state: State, after: CodonId | None, now: datetime) -> RunsAgain | None:
    """Return what runs again if work continues after a codon; None means from the beginning.

    Returns None if that codon is no longer in the plan, because the hank was changed.
    """
    plan, place = state.execution_plan, places(state.execution_plan)
    first = 0 if after is None else _place_after(after, plan)
    if first is None:
        return None

    begun = (place.get(entry.codon.codon_id, -1) for entry in thread(state))
    steps = tuple(entry.codon_id for entry in plan[first : max(begun, default=-1) + 1])
    spent = _last_times(state, steps, now)
    is_known = len(spent) == len(steps)
    return RunsAgain(
        codon_ids=steps,
        total=len(steps),
        estimated_cost=sum(each.dollars for each in spent.values()) if is_known else None,
        estimated_ms=sum(round(each.seconds * 1000) for each in spent.values())
        if is_known
        else None,
    )


def was_whole(codon: CodonExecution) -> bool:
    """Return whether an execution came to its own end, so that the next one will be similar.

    Not if a failure, a person, a spent budget or the end of the server cut it short.
    """
    match codon:
        case CompletedCodon(claude_log_path=log):
            return bool(log)
        case SkippedCodon(condition=condition):
            return condition is not None
        case _:
            return False


def _place_after(codon_id: CodonId, plan: tuple[PlanEntry, ...]) -> int | None:
    """Return the place of the first step after a codon.

    Iterations that a rollback has removed from the plan come after those that are left.
    """
    at = places(plan).get(codon_id)
    if at is None:
        name = codon_id.partition("#")[0]
        looped = (i for i, entry in enumerate(plan) if entry.loop_context is not None)
        at = max((i for i in looped if plan[i].codon.id == name), default=None)

    return None if at is None else at + 1


def _last_times(state: State, steps: Iterable[CodonId], now: datetime) -> dict[CodonId, Spending]:
    """Return what the last time of each step used; nothing for a step that has never begun."""
    wanted, found = set(steps), dict[CodonId, Spending]()
    for run in state.runs:
        for codon in reversed(run.codons):
            if codon.codon_id not in wanted:
                continue

            is_last_time = was_whole(codon)
            if is_last_time or codon.codon_id not in found:
                found[codon.codon_id] = spent_until(run, codon, now)

            if is_last_time:
                wanted.remove(codon.codon_id)

        if not wanted:
            break

    return found


def spent_until(run: Run, codon: CodonExecution, now: datetime) -> Spending:
    """Return what an execution has used, until now if it has not ended."""
    if isinstance(codon, CompletedCodon | FailedCodon | SkippedCodon):
        return Execution(run, codon).spent

    lasted = milliseconds_between(from_text(codon.start_time), now)
    worked = max(0, lasted - waited_ms_at(codon, to_text(now)))
    return spent_by(codon, seconds=worked / 1000)
