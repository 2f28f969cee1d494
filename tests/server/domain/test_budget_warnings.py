"""Warnings about valid budgets with surprising effects, each with its place."""

from __future__ import annotations

import pytest

from hankweave_protocol.hank import CodonBudget, ContainerBudget, Hank, ScriptedAgentSpec
from hankweave_server.domain.budget.allowance import NO_CEILINGS, Ceilings
from hankweave_server.domain.budget.report import warnings
from hankweave_server.domain.costs import Prices, parse, price_list
from support.budgets import a_codon, a_hank, a_loop

PRICES = price_list([parse(b'{"models": {"sonnet": {"input": 1, "output": 2}}}')])


def capped(dollars: float | None = None, seconds: float | None = None, **more) -> ContainerBudget:
    return ContainerBudget(max_dollars=dollars, max_time_seconds=seconds, **more)


def own(dollars: float | None = None, seconds: float | None = None, **more) -> CodonBudget:
    return CodonBudget(max_dollars=dollars, max_time_seconds=seconds, **more)


PROPORTIONAL = {"allocation": "proportional"}

CASES: dict[str, tuple[Hank, list[str]]] = {
    "an unreachable cap": (
        a_hank(a_codon("a", budget=own(3, 99)), budget=capped(2, 60)),
        ["$.hank[0].budget.maxDollars", "$.hank[0].budget.maxTimeSeconds"],
    ),
    "a cap above its share": (
        a_hank(a_codon("a", budget=own(3)), a_codon("b"), budget=capped(4, **PROPORTIONAL)),
        ["$.hank[0].budget.maxDollars"],
    ),
    "a loop's cap above the hank's": (
        a_hank(a_loop("l", a_codon("a"), budget=capped(3)), budget=capped(2)),
        ["$.hank[0].budget.maxDollars"],
    ),
    "a cap above its loop's": (
        a_hank(a_loop("l", a_codon("a", budget=own(9)), budget=capped(3))),
        ["$.hank[0].codons[0].budget.maxDollars"],
    ),
    "unallocated shares": (
        a_hank(
            a_codon("a"),
            a_codon("b"),
            budget=capped(4, shares={"a": 0.5, "b": 0.25}, **PROPORTIONAL),
        ),
        ["$.overrides.budget.shares"],
    ),
    "a share of nothing": (
        a_hank(a_codon("a"), a_codon("b"), budget=capped(4, shares={"a": 1.0}, **PROPORTIONAL)),
        ["$.overrides.budget.shares"],
    ),
    "zero for all": (a_hank(a_codon("a"), budget=capped(0)), ["$.overrides.budget.maxDollars"]),
    "zero for one": (a_hank(a_codon("a", budget=own(0))), ["$.hank[0].budget.maxDollars"]),
    "a model without a price": (
        a_hank(a_codon("a", model="grok"), budget=capped(4)),
        ["$.hank[0].model"],
    ),
    "a budget that fails and a policy that retries": (
        a_hank(a_codon("a", on_failure="retry", budget=own(1, on_exceeded="fail"))),
        ["$.hank[0].onFailure"],
    ),
    "a hank's budget that fails and a codon that retries": (
        a_hank(a_codon("a", on_failure="retry"), budget=capped(1, on_exceeded="fail")),
        ["$.hank[0].onFailure"],
    ),
    "a late failure in a shared pool": (
        a_hank(a_codon("a"), a_codon("b"), budget=capped(1, on_exceeded="fail")),
        ["$.overrides.budget.onExceeded"],
    ),
    "time for one that is sent on until its context is full": (
        a_hank(a_codon("a", exhaust_with_prompt="Go on.", budget=own(None, 60))),
        ["$.hank[0].exhaustWithPrompt"],
    ),
    "the same inside a loop": (
        a_hank(a_loop("l", a_codon("a", exhaust_with_prompt="Go on."), budget=capped(None, 60))),
        ["$.hank[0].codons[0].exhaustWithPrompt"],
    ),
    # Sensible budgets give no warning.
    "no budget": (a_hank(a_codon("a", model="grok", on_failure="retry")), []),
    "a sound budget": (
        a_hank(
            a_codon("a", budget=own(1)),
            a_loop("l", a_codon("b", on_failure="retry"), budget=capped(2, 60)),
            budget=capped(9, 600, shares={"a": 0.4}, **PROPORTIONAL),
        ),
        [],
    ),
    "a scripted agent needs no price": (
        a_hank(a_codon("a", model="grok", agent=ScriptedAgentSpec()), budget=capped(4)),
        [],
    ),
    "a pool of one": (a_hank(a_codon("a"), budget=capped(1, on_exceeded="fail")), []),
}


@pytest.mark.parametrize(("hank", "paths"), CASES.values(), ids=CASES.keys())
def test_surprising_settings_are_reported_with_their_place(hank: Hank, paths: list[str]) -> None:
    """Each surprising budget gives exactly its warning, with its place."""
    found = warnings(hank, PRICES)
    assert [each.path for each in found] == paths
    assert all(each.message.endswith(".") for each in found)


def test_ceilings_of_the_command_line_are_seen() -> None:
    """A ceiling can make the hank's own caps unreachable, which is reported."""
    hank = a_hank(a_codon("a", budget=own(3)))
    assert warnings(hank, PRICES, NO_CEILINGS) == ()
    assert [each.path for each in warnings(hank, PRICES, Ceilings(2.0))] == [
        "$.hank[0].budget.maxDollars"
    ]


def test_a_price_that_is_missing_names_the_model_and_the_cure() -> None:
    """The warning tells the user what to add to the price list."""
    found = warnings(a_hank(a_codon("a", budget=own(3))), Prices({}))
    assert "'sonnet'" in found[0].message
    assert "--prices" in found[0].message
