"""How the money of a hank or a loop is divided among its members.

*shared*: whoever comes may use all that is left. *proportional-strict*: each has its share, and
what it leaves is gone. *proportional*: what those that are done have left, or have used beyond
their part, is divided among those that are still to come, in the ratio of their shares. A member
without a share has an even part of what the shares leave. Whatever the rule, nobody is allotted
more than there is (Hankweave, budgets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from hankweave_protocol.hank import ContainerBudget, IterationLimit, Loop
from hankweave_protocol.state import PlanEntry


def shares_of(budget: ContainerBudget, members: Sequence[str]) -> dict[str, float]:
    """Each member's part of the whole, from 0 to 1."""
    named = budget.shares or {}
    others = [name for name in members if name not in named]
    left = max(0.0, 1.0 - sum(named[name] for name in members if name in named))
    even = left / len(others) if others else 0.0
    return {name: named.get(name, even) for name in members}


def still_to_come(
    members: Sequence[str], me: str, entry: PlanEntry, loop: Loop | None
) -> tuple[str, ...]:
    """The members that may use anything from now on, the one about to start among them.

    In a loop these are all until its last iteration; without a limit nobody knows which that is.
    """
    if me not in members:
        return (me,)

    if loop is not None and not _is_last_iteration(loop, entry):
        return tuple(members)

    return tuple(members[members.index(me) :])


def allotted_dollars(
    budget: ContainerBudget,
    members: Sequence[str],
    me: str,
    coming: Sequence[str],
    used: Mapping[str, float],
) -> float:
    """What a member may use from now on, in USD; `used` has what each used until now."""
    assert budget.max_dollars is not None, "money that is not limited is not divided"
    left = max(0.0, budget.max_dollars - sum(used.values()))
    if me not in members:
        return left

    shares = shares_of(budget, members)
    mine = used.get(me, 0.0)
    match budget.allocation:
        case "shared":
            return left
        case "proportional-strict":
            part = budget.max_dollars * shares[me]
        case "proportional":
            part = _part_of_what_is_left(budget.max_dollars, shares, me, coming, used)
        case other:
            assert_never(other)

    return min(left, max(0.0, part - mine))


def _part_of_what_is_left(
    dollars: float,
    shares: Mapping[str, float],
    me: str,
    coming: Sequence[str],
    used: Mapping[str, float],
) -> float:
    """A member's part, with what others left flowing back; what no share names stays unused."""
    of_all_to_come = sum(shares[name] for name in coming)
    if not of_all_to_come:
        return 0.0

    gone = sum(amount for name, amount in used.items() if name not in coming)
    return (dollars * sum(shares.values()) - gone) * shares[me] / of_all_to_come


def _is_last_iteration(loop: Loop, entry: PlanEntry) -> bool:
    if not isinstance(loop.terminate_on, IterationLimit) or entry.loop_context is None:
        return False

    return entry.loop_context.iteration + 1 >= loop.terminate_on.limit
