"""Budgets of a running server: what they end, and what follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hankweave_protocol.events import (
    BudgetSummary,
    CodonCompletedEvent,
    CodonStartedEvent,
    LoopIterationCompleted,
)
from hankweave_protocol.state import BudgetExceeded, CompletedCodon, FailedCodon
from support.git_facts import GitWitness
from support.running_server import run_headless, state
from support.scripted_hank import codon, loop, rig_command, shell, waits_for, write_hank, writes
from support.watching import events_of


def speaks(*lines: dict[str, Any], then: str = "sleep 600") -> dict[str, Any]:
    """Return an agent that prints these messages of its protocol and then runs the line."""
    echoes = "; ".join(f"echo '{json.dumps(line)}'" for line in lines)
    return shell(f"{echoes}; {then}")


BEGINS = {"type": "system", "subtype": "init", "session_id": "s", "model": "m"}


def turn(number: int, tokens_in: int, tokens_out: int) -> dict[str, Any]:
    usage = {"input_tokens": tokens_in, "output_tokens": tokens_out}
    content = [{"type": "text", "text": f"turn {number}"}]
    message = {"id": f"m{number}", "model": "m", "usage": usage, "content": content}
    return {"type": "assistant", "message": message}


async def test_an_agent_is_ended_when_its_output_is_used_up(tmp_path: Path) -> None:
    """By default a codon at its limit is complete; its files are kept, and the plan continues."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", budget={"maxOutputTokens": 100})
        | speaks(BEGINS, turn(1, 10, 60), turn(2, 10, 60), then="echo a > a.txt; sleep 600"),
        codon("two"),
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    one, two = state(execution).runs[0].codons
    assert isinstance(one, CompletedCodon)
    assert isinstance(two, CompletedCodon)
    assert one.budget_exceeded is not None
    assert (one.budget_exceeded.currency, one.budget_exceeded.used) == ("outputTokens", 120)
    assert events_of(execution, CodonCompletedEvent)[0].budget_exceeded == one.budget_exceeded


async def test_a_budget_that_fails_its_codon_says_why(tmp_path: Path, execution: Path) -> None:
    """onExceeded fail: not retriable, with the limit in the reason, and an error checkpoint."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", budget={"maxContextTokens": 1000, "onExceeded": "fail"}, onFailure="retry")
        | speaks(BEGINS, turn(1, 900, 200)),
    )
    assert await run_headless(hank, execution) == 1

    (failed,) = state(execution).runs[0].codons
    assert isinstance(failed, FailedCodon)
    assert "1,000 context tokens" in (failed.failure_reason.message or "")
    assert failed.budget_exceeded is not None


async def test_time_ends_an_agent_that_says_nothing(tmp_path: Path, execution: Path) -> None:
    """maxTimeSeconds counts from the codon's start, even without output."""
    hank = write_hank(
        tmp_path / "hank",
        codon(
            "one",
            writes("a.txt", "a"),
            waits_for(tmp_path / "never"),
            budget={"maxTimeSeconds": 2.5},
        ),
    )
    assert await run_headless(hank, execution) == 0

    (done,) = state(execution).runs[0].codons
    assert isinstance(done, CompletedCodon)
    assert done.budget_exceeded is not None
    assert done.budget_exceeded.currency == "duration"
    assert GitWitness(execution).files(done.completion_checkpoint) == {"a.txt": b"a"}


async def test_a_codon_for_which_nothing_is_left_is_complete_without_an_agent(
    tmp_path: Path, execution: Path
) -> None:
    """In a shared pool the next codons succeed with `budgetExceeded`, as in Hankweave, but spend
    nothing; the run completes, and the summary shows where the money went."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", {"cost": 2.0}),
        codon(
            "two",
            writes("b.txt", "b"),
            rigSetup=[rig_command("touch rigged.txt")],
            checks=[{"run": "false"}],
        ),
        codon("three", writes("c.txt", "c"), continuationMode="continue-previous"),
        overrides={"budget": {"maxDollars": 1.5}},
    )
    assert await run_headless(hank, execution) == 0

    [run] = state(execution).runs
    assert run.status == "completed"
    _, *unstarted = run.codons
    for each in unstarted:
        assert isinstance(each, CompletedCodon)
        assert each.budget_exceeded == BudgetExceeded(currency="cost", limit=0.0, used=0.0)
        assert (each.exit_code, each.final_cost, each.claude_session_id) == (0, 0.0, "")
        assert GitWitness(execution).files(each.completion_checkpoint) == {}

    _, two, three = events_of(execution, CodonCompletedEvent)
    for event in (two, three):
        assert (event.success, event.cost, event.exit_status.type) == (True, 0.0, "success")
        assert event.budget_exceeded is not None
        assert not event.skipped

    assert [event.codon_id for event in events_of(execution, CodonStartedEvent)] == ["one"]
    (summary,) = events_of(execution, BudgetSummary)
    assert [row.status for row in summary.rows[1:]] == ["exceeded", "exceeded"]
    assert summary.totals.actual_dollars == 2.0
    assert summary.ceiling.max_dollars == 1.5


async def test_an_empty_pool_that_fails_codons_fails_the_next_one(tmp_path: Path) -> None:
    """onExceeded fail: the codon fails before its agent starts, and so does the run."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", {"cost": 2.0}, onFailure="ignore"),
        codon("two"),
        overrides={"budget": {"maxDollars": 1.5, "onExceeded": "fail"}},
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 1

    _, two = state(execution).runs[0].codons
    assert isinstance(two, FailedCodon)
    assert two.failed_during == "preparing"


async def test_a_spent_loop_ends_at_once(tmp_path: Path, execution: Path) -> None:
    """A `contextExceeded` loop ends with its budget; the codon after it runs."""
    search = loop(
        "search",
        codon("look", {"cost": 0.4}, continuationMode="continue-previous"),
        codon("note", continuationMode="continue-previous"),
        budget={"maxDollars": 1.0},
    )
    hank = write_hank(tmp_path / "hank", codon("begin"), search, codon("report"))
    assert await run_headless(hank, execution) == 0

    codons = state(execution).runs[0].codons
    assert codons[-1].codon_id == "report"
    assert sum(each.codon_id.startswith("look#") for each in codons) == 3
    last = events_of(execution, LoopIterationCompleted)[-1]
    assert (last.is_final, last.termination_reason) == (True, "budget_exceeded")


async def test_an_agent_that_stops_at_its_own_reckoning_has_used_up_its_budget(
    tmp_path: Path, execution: Path
) -> None:
    """Claude Code computes its cost with its own prices: its limit ends the codon like ours."""
    result = {
        "type": "result",
        "subtype": "error_max_budget_usd",
        "is_error": True,
        "session_id": "s",
        "total_cost_usd": 0.4,
    }
    hank = write_hank(
        tmp_path / "hank",
        codon("one", budget={"maxDollars": 0.5}) | speaks(BEGINS, result, then="exit 1"),
        codon("two"),
    )
    assert await run_headless(hank, execution) == 0

    one, two = state(execution).runs[0].codons
    assert isinstance(one, CompletedCodon)
    assert isinstance(two, CompletedCodon)
    assert one.budget_exceeded is not None
    assert one.budget_exceeded.used == one.budget_exceeded.limit == 0.5
