"""The cost of an execution is one number, whoever shows it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from hankweave_protocol.commands import GetServerStatus, GetState
from hankweave_server.cli.live.frame import frame
from hankweave_server.cli.live.model import NOTHING, view
from hankweave_server.cli.output.text import costs_text
from hankweave_server.domain.budget.spending import Costs
from support.command_line import aside
from support.scripted_hank import codon, write_hank, writes
from support.showing import NOW
from support.watching import after_plan, to_end_of


async def test_status_attach_report_and_wire_show_the_same_cost(tmp_path: Path) -> None:
    """All that was paid, what of it was rolled back, and the budget of the hank."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a"), {"cost": 0.25}),
        codon("two", writes("b.txt", "b"), {"cost": 0.5}),
    )
    execution = tmp_path / "execution"
    async with after_plan(hank, execution, "--max-cost", "5", since_seq=0) as (_, client):
        await client.send(to_end_of("one"))
        status = await client.send(GetServerStatus())
        seen = view(await client.send(GetState()), NOTHING, NOW, 10, budget=status.budget_usd)
        shown = await aside("status", "-v", "-e", str(execution))
        report = await aside("report", "-e", str(execution), "--json")

    assert (status.total_cost, status.rolled_back_cost, status.budget_usd) == (0.75, 0.5, 5.0)
    words = "$0.7500 of $5.00, of it $0.5000 rolled back"
    assert "$0.75 of $5" in shown.stdout.splitlines()[0]
    assert f"  cost        {words}\n" in shown.stdout
    assert "\n  forecast    about " in shown.stdout
    assert " at the end (from 1 earlier run of a step)\n" in shown.stdout
    assert [each.codon_id for each in status.forecast.steps] == ["two"]
    out = io.StringIO()
    Console(file=out, width=100).print(frame(seen, 100, ""))
    assert words in out.getvalue()
    found = json.loads(report.stdout)
    assert (found["cost"], found["abandonedCost"]) == (0.75, 0.5)


def test_rolled_back_costs_and_those_of_attempts_are_distinguished() -> None:
    paid = Costs(total=1.75, rolled_back=0.0, budget=5.0, attempts=0.25)
    assert costs_text(paid) == "$1.7500 of $5.00, of it $0.2500 for attempts"
    both = replace(paid, rolled_back=0.5, budget=None)
    assert costs_text(both) == "$1.7500, of it $0.5000 rolled back and $0.2500 for attempts"
