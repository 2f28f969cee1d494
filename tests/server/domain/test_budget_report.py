"""Budget tables: before the plan runs, and after."""

from __future__ import annotations

from msgspec.structs import replace

from hankweave_protocol import codec
from hankweave_protocol.events import BudgetFigures, BudgetSummary, BudgetTotals, SpentFigures
from hankweave_protocol.hank import CodonBudget, ContainerBudget
from hankweave_protocol.state import BudgetExceeded, CompletedCodon
from hankweave_server.domain.budget.allowance import Ceilings
from hankweave_server.domain.budget.report import is_budgeted, planned_budgets, summary
from support.budgets import NO_CODONS, a_codon, a_hank, a_loop, a_state, entry_of, spent
from support.histories import a_run, running, skipped

HANK = a_hank(
    a_codon("a", budget=CodonBudget(max_dollars=1, max_output_tokens=500, on_exceeded="fail")),
    a_loop(
        "loop",
        a_codon("r", budget=CodonBudget(max_dollars=3, max_context_tokens=9)),
        a_codon("m"),
        budget=ContainerBudget(
            max_dollars=4, max_time_seconds=60, allocation="proportional", shares={"r": 0.25}
        ),
    ),
    budget=ContainerBudget(max_dollars=10, allocation="proportional", shares={"a": 0.5}),
)


def test_each_codon_has_the_tightest_of_its_limits() -> None:
    """A row has the tightest of the codon's caps, shares and ceilings before anything has run."""
    rows = planned_budgets(HANK, Ceilings(max_time_seconds=600))
    found = [
        (row.codon_id, row.loop_id, row.max_dollars, row.max_time_seconds, row.max_output_tokens)
        for row in rows
    ]
    assert found == [
        ("a", None, 1, 600, 500),
        ("r", "loop", 1, 60, None),
        ("m", "loop", 3, 60, None),
    ]
    assert [row.on_exceeded for row in rows] == ["fail", "complete", "complete"]
    assert rows[1].max_context_tokens == 9
    assert all(row.is_limited for row in rows)


def test_a_hank_without_budgets_limits_nothing() -> None:
    """Without budgets the rows exist but are empty."""
    row = planned_budgets(a_hank(a_codon("a")))[0]
    assert not row.is_limited
    assert row.figures == BudgetFigures()


def test_a_summary_lists_what_each_codon_used() -> None:
    """Each started codon has a row, all attempts combined; totals and ceiling are included."""
    over = replace(
        spent(HANK, "r#0", 1.25, seconds=10),
        budget_exceeded=BudgetExceeded(currency="cost", limit=1, used=1.25),
    )
    assert isinstance(over, CompletedCodon)
    state = a_state(
        spent(HANK, "a", 0.5, seconds=5, output=40, status="failed", number=2),
        spent(HANK, "a", 0.25, seconds=2.5, output=7, number=3),
        over,
    )
    report = summary(HANK, state, Ceilings(max_dollars=8))
    assert report.ceiling == BudgetFigures(max_dollars=8)
    assert report.allocation == "proportional"
    assert [(row.codon_id, row.status) for row in report.rows] == [
        ("a", "completed"),
        ("r#0", "exceeded"),
    ]
    assert report.rows[0].budget == BudgetFigures(max_dollars=1, max_output_tokens=500)
    assert report.rows[0].actual == SpentFigures(dollars=0.75, time_seconds=7.5, output_tokens=47)
    assert report.rows[1].budget == BudgetFigures(max_dollars=1, max_time_seconds=60)
    assert report.rows[1].loop_context == entry_of(HANK, "r#0").loop_context
    assert report.totals == BudgetTotals(
        budget_dollars=8, actual_dollars=2.0, actual_time_seconds=17.5
    )
    assert codec.decode_value(BudgetSummary, codec.encode(report)) == report


def test_every_status_of_a_codon_has_its_label() -> None:
    """Failed, skipped, running and budget-failed codons each have a status word."""
    exceeded = BudgetExceeded(currency="duration", limit=1, used=1)
    failed = spent(HANK, "a", status="failed")
    assert _status(a_state(failed)) == "failed"
    assert _status(a_state(replace(failed, budget_exceeded=exceeded))) == "exceeded"
    assert _status(a_state(skipped("observe"))) == "skipped"
    working = replace(NO_CODONS, runs=(a_run("run-1", codons=(running("observe"),)),))
    assert _status(working) == "running"
    assert summary(HANK, NO_CODONS).rows == ()


def _status(state) -> str:
    return summary(HANK, state).rows[0].status


def test_where_nothing_is_limited_there_is_nothing_to_report() -> None:
    """There is a report if any limit or command line ceiling is set."""
    assert is_budgeted(HANK)
    assert is_budgeted(a_hank(a_loop("l", a_codon("a", budget=CodonBudget(max_context_tokens=1)))))
    free = a_hank(a_codon("a"), a_loop("l", a_codon("b")))
    assert not is_budgeted(free)
    assert is_budgeted(free, Ceilings(max_dollars=0))
