"""What the rigs of codons leave in the work tree, for a rollback that goes back through them.

A rig replaces what lies at its target, so all that is there afterwards is the rig's, or was put
there later. Hankweave removes the targets of the codons that a rollback passes, whatever tracks
them. A target that a codon which stays has filled as well, or that lies inside such a one or around
it, is left alone: what is in it may be that codon's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from hankweave_protocol.hank import RigCopy
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import PlanEntry, State
from hankweave_server.domain.history import plan_entry, thread


def leftovers(state: State, passed: Collection[CodonId]) -> tuple[str, ...]:
    """Return the rig targets that go when a rollback passes these codons, as plain paths."""
    plan = state.execution_plan
    stays = [e.codon.codon_id for e in thread(state) if e.codon.codon_id not in passed]
    kept = set(_targets(plan, stays))
    found = dict.fromkeys(_targets(plan, passed))
    return tuple(path for path in found if not any(_overlap(path, other) for other in kept))


def _targets(plan: tuple[PlanEntry, ...], codon_ids: Iterable[CodonId]) -> Iterator[str]:
    for codon_id in codon_ids:
        entry = plan_entry(plan, codon_id)
        for item in () if entry is None else entry.codon.rig_setup:
            if isinstance(item, RigCopy):
                yield "/".join(step for step in item.copy.to.split("/") if step not in ("", "."))


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
