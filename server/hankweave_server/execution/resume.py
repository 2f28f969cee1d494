"""The plan with which work goes on: as the codons that led here would have made it.

A loop's iterations enter the plan as the ones before them end. What was pruned by a rollback, or
never written because of a crash, follows again from the thread alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hankweave_protocol.hank import Hank
from hankweave_protocol.state import PlanEntry, Run, State
from hankweave_server.domain import plan as plans
from hankweave_server.domain.history import ThreadEntry, is_done, plan_entry, thread

Plan = tuple[PlanEntry, ...]


def grown(plan: Plan, hank: Hank, entries: Iterable[ThreadEntry]) -> Plan:
    """Returns the plan with every iteration that the thread's codons lead to."""
    for entry in entries:
        planned = plan_entry(plan, entry.codon.codon_id)
        loop = None if planned is None else plans.loop_of(hank, planned)
        if planned is None or loop is None or not is_done(entry.codon, plan):
            continue

        if plans.is_loop_finished(loop, planned, entry.codon):
            plan = plans.without_rest(plan, planned)
        elif plans.ends_iteration(loop, planned):
            plan = plans.next_iteration(plan, loop, planned)

    return plan


def reentered_by(run: Run, state: State, hank: Hank) -> Plan:
    """Returns the plan for a run that goes on from an earlier point, maybe of an old timeline.

    Iterations that lie after that point leave the plan; those before it are in it.
    """
    seen = msgspec.structs.replace(state, runs=(run, *state.runs))
    entries = thread(seen)
    after = entries[-1].codon.codon_id if entries else None
    return plans.reentered(grown(state.execution_plan, hank, entries), hank, after)
