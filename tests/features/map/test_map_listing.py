"""Maps among the executions of a user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hankweave_protocol.executions import ListedExecution, MapProgress
from hankweave_server.features.map.directory import MapDirectory, MapJournal
from hankweave_server.features.map.listing import grouped
from hankweave_server.features.map.plan import (
    ItemAdded,
    ItemEnded,
    ItemOutcome,
    ItemStarted,
    MapBegun,
)

AT = "2026-01-01T00:00:00.000Z"


def a_map(root: Path, **outcomes: ItemOutcome | None) -> MapDirectory:
    """Write a map whose items have these outcomes; None has been started and runs."""
    journal = MapJournal(MapDirectory(root))
    names = tuple(outcomes)
    begun = MapBegun(at=AT, hank="/h", hank_hash="h", items=names, parallel=2, max_cost=9.0)
    journal.append([begun])
    for name, outcome in outcomes.items():
        given = {"item": name, "execution": f"items/{name}", "input_hash": "1", "hank_hash": "h"}
        added = ItemAdded(at=AT, item=name, key=name, kind="file", path=f"/{name}")
        journal.append([added, ItemStarted(at=AT, **given, reserved=2.0)])
        if outcome is not None:
            journal.append([ItemEnded(at=AT, item=name, outcome=outcome, cost=1.0)])

    journal.close()
    return journal.directory


def row(path: Path, **facts: Any) -> ListedExecution:
    known: dict[str, Any] = {"state": "completed", "last_used": AT, "cost": 1.0}
    return ListedExecution(path=str(path), **(known | facts))


def test_a_map_is_a_row_before_those_of_its_items(tmp_path: Path) -> None:
    """Wherever the map is, as long as one of its items is known."""
    directory = a_map(tmp_path / "elsewhere" / "map", a="completed", b="failed")
    items = [row(directory.items / name, map_of=str(directory.root)) for name in "ab"]
    alone = row(tmp_path / "alone", last_used="2000-01-01T00:00:00.000Z")
    (whole, *rest) = grouped([items[0], alone, items[1]], tmp_path)
    assert [*rest] == [*items, alone]
    assert whole.map == MapProgress(inputs=2, completed=1, failed=1, running=0)
    assert (whole.path, whole.state) == (str(directory.root), "failed")
    assert (whole.codons_done, whole.codons_planned, whole.cost) == (1, 2, 2.0)
    assert (whole.step, whole.steps) == (1, 2)
    assert whole.failure is not None


def test_an_item_that_runs_counts_with_its_present_cost(tmp_path: Path) -> None:
    """And its question is that of the map."""
    directory = a_map(tmp_path / "map", a="completed", b=None)
    asks = {"waits_for": "Bash ls", "cost": 0.25, "state": "running", "hank_name": "Review"}
    items = [row(directory.items / "b", map_of=str(directory.root), **asks)]
    whole = grouped(items, tmp_path)[0]
    assert (whole.cost, whole.max_dollars) == (1.25, 9.0)
    assert (whole.waits_for, whole.hank_name) == ("b: Bash ls", "Review")
    assert whole.state == "stopped"


def test_a_damaged_map_is_listed_with_its_problem(tmp_path: Path) -> None:
    """Other rows do not suffer."""
    directory = a_map(tmp_path / "map", a="completed")
    with directory.journal.open("ab") as file:
        file.write(b"nothing\n")

    (whole,) = grouped([], tmp_path)
    assert whole.state == "unreadable"
    assert "map.jsonl" in (whole.problem or "")


def test_attempts_stay_below_their_execution(tmp_path: Path) -> None:
    """Without maps, the order is as it was."""
    parent = row(tmp_path / "parent", last_used="2000-01-01T00:00:00.000Z")
    rows = [row(tmp_path / "first"), parent, row(tmp_path / "try", attempt_of=parent.path)]
    assert grouped(rows, tmp_path) == rows
