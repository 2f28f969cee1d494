"""Money and time limits of a whole server: ceilings, price lists and wrong totals."""

from __future__ import annotations

import json
from pathlib import Path

import anyio

from hankweave_protocol.events import BudgetSummary, CodonCompletedEvent, StateRecovered
from hankweave_server.errors import ExitCode
from support.running_server import command, environment, run_headless
from support.scripted_hank import codon, write_hank, writes
from support.watching import events_of

DEAR = ({"say": "One."}, {"cost": 0.4})


async def test_a_ceiling_of_the_command_line_ends_codons(tmp_path: Path, execution: Path) -> None:
    """A spent ceiling stays spent for the following codons, and the summary says so; it counts
    before a higher budget of the hank."""
    codons = (codon(name, *DEAR) for name in ("one", "two", "three"))
    high = {"budget": {"maxDollars": 100}}
    hank = write_hank(tmp_path / "hank", *codons, overrides=high)
    await run_headless(hank, execution, "--max-cost", "0.5")
    (summary,) = events_of(execution, BudgetSummary)
    assert summary.ceiling.max_dollars == 0.5
    assert summary.totals.budget_dollars == 0.5
    assert summary.totals.actual_dollars == 0.8
    third = events_of(execution, CodonCompletedEvent)[2]
    assert third.cost == 0
    assert third.budget_exceeded is not None
    assert third.budget_exceeded.currency == "cost"


async def test_a_sum_that_the_journal_does_not_confirm_is_corrected(tmp_path: Path) -> None:
    """Seed 002: a cached cost that differs from the recomputed one is replaced by it, in the state
    and in state.json, and one event reports it."""
    hank = write_hank(tmp_path / "hank", codon("one", *DEAR), codon("two", writes("b", "2")))
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    file = execution / ".hankweave" / "state.json"
    state = json.loads(file.read_bytes())
    assert state["runs"][0]["codons"][0]["finalCost"] == 0.4
    state["runs"][0]["codons"][0]["finalCost"] = 4.0
    file.write_text(json.dumps(state))
    assert await run_headless(hank, execution) == 0
    (event,) = events_of(execution, StateRecovered)
    assert [warning.type for warning in event.warnings] == ["cost_mismatch"]
    assert "$4.000000, but recomputed it is $0.400000" in event.warnings[0].message
    assert "recomputed value is used from now on" in event.warnings[0].message
    assert event.source == "journal"
    mended = json.loads(file.read_bytes())
    assert mended["runs"][-1]["codons"][0]["finalCost"] == 0.4
    assert await run_headless(hank, execution) == 0
    assert len(events_of(execution, StateRecovered)) == 1


async def test_a_price_list_that_cannot_be_read_is_no_start(tmp_path: Path) -> None:
    """A broken price list gives a message and an exit code before anything is created."""
    hank, prices = write_hank(tmp_path / "hank", codon("one", *DEAR)), tmp_path / "prices.json"
    prices.write_text('{"models": {"m": {"input": -3, "output": 1}}}')
    execution = tmp_path / "execution"
    words = ["run", str(hank), "--execution", str(execution), "--prices", str(prices)]
    done = await anyio.run_process(command(*words), env=environment(), check=False)
    assert done.returncode == ExitCode.CONFIGURATION
    assert f"The prices in {prices} are invalid" in done.stderr.decode()
    assert not (execution / ".hankweave" / "state.json").exists()
