"""What must hold in the budgets of a hank beyond their shape (Hankweave, container budgets)."""

from __future__ import annotations

from collections.abc import Iterator

from hankweave_server.hank.nodes import Node, codons_of, is_loop, object_at
from hankweave_server.hank.problems import Finding, did_you_mean
from hankweave_server.hank.shape import is_finite


def budget_findings(root: Node, steps: list[Node]) -> Iterator[Finding]:
    overrides = object_at(root, "overrides")
    whole = None if overrides is None else object_at(overrides, "budget")
    if whole is not None:
        yield from _of_dollars(whole)
        yield from _of_shares(whole, steps)

    for step in steps:
        for node in {id(each): each for each in (step, *codons_of(step))}.values():
            if (budget := object_at(node, "budget")) is not None:
                yield from _of_dollars(budget)
                if is_loop(node):
                    yield from _of_shares(budget, list(codons_of(node)))


def _of_dollars(budget: Node) -> Iterator[Finding]:
    if budget.raw.get("maxDollars") == 0:
        yield Finding((*budget.path, "maxDollars"), "Must be more than 0; found 0.")


def _of_shares(budget: Node, members: list[Node]) -> Iterator[Finding]:
    is_proportional = budget.raw.get("allocation") in ("proportional", "proportional-strict")
    shares = object_at(budget, "shares")
    if shares is None:
        if is_proportional and budget.raw.get("maxDollars") is None:
            yield Finding(
                (*budget.path, "allocation"),
                "A proportional allocation needs a 'maxDollars' to divide.",
                "Set 'maxDollars', or take 'allocation' out.",
            )

        return

    if budget.raw.get("allocation", "shared") == "shared":
        yield Finding(
            shares.path,
            "Shares need an 'allocation' that is proportional.",
            "Say 'allocation': 'proportional' or 'proportional-strict'.",
        )

    if budget.raw.get("maxDollars") is None:
        yield Finding(shares.path, "Shares need a 'maxDollars' to be shares of.")

    yield from _of_members(shares, members)
    numbers = (share for share in shares.raw.values() if isinstance(share, int | float))
    total = sum(share for share in numbers if is_finite(share) and share <= 1)
    if total > 1 + 1e-9:
        yield Finding(shares.path, f"The shares add up to {total:g}, which is more than 1.")


def _of_members(shares: Node, members: list[Node]) -> Iterator[Finding]:
    known = [str(member.raw.get("id")) for member in members]
    for name in shares.raw:
        path = (*shares.path, name)
        if name not in known:
            message = f"There is no {name!r} to have a share."
            yield Finding(path, message, did_you_mean(name, known))
