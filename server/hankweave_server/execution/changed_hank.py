"""The plan of an execution whose hank.json is another one now (seed 001, hankHash).

What has run stays as it ran; what comes after is the new hank's: codons that were added at the end
enter the plan, those that were taken out leave it, prompts and budgets are the new ones. That is
possible only where the new hank would have led through the same codons to here.
"""

from __future__ import annotations

from itertools import zip_longest

from hankweave_protocol.hank import Hank
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import PlanEntry, State
from hankweave_server.domain import plan as plans
from hankweave_server.domain.history import is_done, thread, thread_before
from hankweave_server.execution.resume import grown

Plan = tuple[PlanEntry, ...]


class PlanConflict(Exception):
    """The new hank differs in what has already run; nothing was changed."""

    def __init__(self, ran: CodonId, now: CodonId | None) -> None:
        instead = "nothing" if now is None else now
        super().__init__(f"where {ran} has run, the hank has {instead} now")
        self.ran = ran
        self.now = now


def begun_again(state: State, hank: Hank, codon_id: CodonId) -> Plan:
    """Returns another hank's plan for an execution that begins it again at one of its codons."""
    whole = plans.initial_plan(hank)
    return grown(whole, hank, thread_before(state, whole, codon_id))


def replanned(state: State, hank: Hank) -> Plan:
    """Returns the plan with which an execution goes on by another hank; raises PlanConflict.

    A codon that has yet to succeed runs as the new hank says.
    """
    entries = thread(state)
    whole = grown(plans.initial_plan(hank), hank, entries)
    if not entries:
        return whole

    newest = entries[-1].codon
    former = state.execution_plan
    reached = [index for index, entry in enumerate(former) if entry.codon_id == newest.codon_id]
    if not reached:
        raise PlanConflict(newest.codon_id, None)

    ran = former[: reached[0] + 1]
    for old, new in zip_longest(ran, whole[: len(ran)]):
        if new is None or old.codon_id != new.codon_id:
            raise PlanConflict(old.codon_id, None if new is None else new.codon_id)

    kept = len(ran) if is_done(newest, former) else len(ran) - 1
    return (*former[:kept], *whole[kept:])
