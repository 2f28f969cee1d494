"""The benches at their smallest: their figures mean nothing here, but they must come."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

import bench.__main__ as program
from bench.__main__ import BENCHES, MISSED, USAGE, main
from bench.figures import (
    RESULTS,
    AtLeast,
    AtMost,
    Figure,
    Target,
    print_table,
    write_results,
)
from bench.scale import SMALLEST, Scale

EXPECTED: dict[str, list[tuple[str, str, type[Target] | None]]] = {
    "journal": [
        ("journal, durable each", "/s", None),
        ("ledger, durable each", "/s", None),
        ("journal, batched", "/s", AtLeast),
        ("ledger, batched", "/s", AtLeast),
    ],
    "fanout": [("events to 1 client", "deliveries/s", None)],
    "startup": [("start with", "s", AtMost)],
    "memory": [("idle server", "MB", AtMost), ("idle server,", "MB", AtMost)],
}


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_bench_yields_its_figures(name: str, tmp_path: Path) -> None:
    """Every bench measures what issue 2 asks for, each figure beside a reference."""
    figures = await BENCHES[name](tmp_path, SMALLEST)

    assert len(figures) == len(EXPECTED[name])
    for figure, (begins, unit, target) in zip(figures, EXPECTED[name], strict=True):
        assert figure.bench == name
        assert figure.name.startswith(begins)
        assert figure.unit == unit
        assert figure.value > 0
        assert figure.ratio > 0
        assert (None if figure.target is None else type(figure.target)) is target


async def test_the_bench_of_checkpoints_measures_every_row(tmp_path: Path) -> None:
    """Each row of issue 3's table comes out beside git's own time for the same work."""
    figures = await BENCHES["checkpoints"](tmp_path, SMALLEST)
    rows = " ".join(figure.name for figure in figures)
    for row in ("first", "no change", "one", "100", "rollback"):
        assert row in rows

    assert all(figure.value > 0 and figure.ratio > 0 for figure in figures)


@pytest.mark.parametrize(
    ("value", "target", "is_met"),
    [
        (49_999, AtLeast(50_000), False),
        (50_000, AtLeast(50_000), True),
        (80, AtMost(80), True),
        (80.1, AtMost(80), False),
        (0, None, True),
    ],
)
def test_a_target_is_met_up_to_its_limit(value: float, target: Target | None, is_met: bool) -> None:
    """A figure that is on the good side of its target, or has none, is met; any other is missed."""
    assert a_figure(value, target).is_met is is_met


def test_the_table_tells_a_missed_target(capsys: pytest.CaptureFixture[str]) -> None:
    """The table shows value, ratio, target and verdict uncut, however narrow the terminal is."""
    print_table([a_figure(25_000, AtLeast(50_000)), a_figure(60_000, AtLeast(50_000))])

    missed, met = (line for line in capsys.readouterr().out.splitlines() if "appends" in line)
    assert " ".join(missed.split()) == (
        "journal appends 25,000 /s 0.25x raw 100,000 >= 50,000 MISSED"
    )
    assert met.split()[-1] == "ok"


def test_the_figures_can_be_read_by_programs(tmp_path: Path) -> None:
    """The results are one JSON object with the machine, the time taken and every figure."""
    write_results(tmp_path / "results.json", [a_figure(25_000, AtLeast(50_000))], seconds=1.25)

    written = json.loads((tmp_path / "results.json").read_bytes())
    assert written["machine"]["processors"] > 0
    assert written["figures"] == [
        {
            "bench": "journal",
            "name": "appends",
            "value": 25_000,
            "unit": "/s",
            "reference": {"name": "raw", "value": 100_000},
            "ratio": 0.25,
            "target": ">= 50,000",
            "met": False,
        }
    ]


def test_an_unknown_bench_is_a_mistake_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that no bench has measures nothing, and the names that there are are told."""
    assert main(["journal", "speed"]) == USAGE
    assert "'speed'; there are: journal, fanout, startup, memory" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "exit_code"), [(50_000, 0), (49_999, MISSED)])
def test_a_missed_target_fails_the_run(
    value: float, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 1 if a target is missed and 0 if none is; the results are written anyway."""

    async def measure(folder: Path, scale: Scale) -> list[Figure]:
        return [a_figure(value, AtLeast(50_000))]

    monkeypatch.setattr(program, "BENCHES", {"journal": measure})
    monkeypatch.setattr(program, "CHECKOUT", tmp_path)
    assert main([]) == exit_code
    assert (tmp_path / RESULTS).exists()


def test_the_run_is_bounded_in_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bench that does not end is cut off, and the run has failed."""

    async def measure(folder: Path, scale: Scale) -> list[Figure]:
        await anyio.sleep_forever()
        return []

    monkeypatch.setattr(program, "BENCHES", {"journal": measure})
    monkeypatch.setattr(program, "DEADLINE", 0.01)
    assert main([]) == MISSED
    assert "more than" in capsys.readouterr().err


def a_figure(value: float, target: Target | None) -> Figure:
    return Figure("journal", "appends", value, "/s", "raw", 100_000, target)
