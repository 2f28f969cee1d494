"""The words with which the terminal tells what a rollback does."""

from __future__ import annotations

import pytest

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import Coordinate, RollbackReport, RunsAgain
from hankweave_server.cli.output.rollback_report import again_text, draw_report

HERE = Coordinate(checkpoint_sha=Sha("6dc2daae" * 5), event_seq=3, run_id=RunId("1-a-b"))


def report(again: RunsAgain | None) -> RollbackReport:
    return RollbackReport(
        target=HERE,
        source=HERE,
        safety=None,
        added=(),
        updated=(),
        removed=(),
        kept=(),
        conflicts=(),
        skipped=(),
        recovered=False,
        runs_again=again,
    )


def steps(count: int, cost: float | None = None, milliseconds: int | None = None) -> RunsAgain:
    listed = tuple(CodonId(f"s{number}") for number in range(count))
    return RunsAgain(codon_ids=listed, total=count, estimated_cost=cost, estimated_ms=milliseconds)


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        (None, ""),
        (steps(0, 0.0, 0), ""),
        (steps(1, 0.396, 720_000), "1 step runs again: s0, about $0.40 and 12 min"),
        (steps(3, 0.4, 90), "3 steps run again: s0, s1, s2, about $0.40"),
        (steps(2, 0.0, 45_000), "2 steps run again: s0, s1, about 45 s"),
        (steps(2), "2 steps run again: s0, s1"),
        (steps(7, 1.0, 0), "7 steps run again: s0, s1, s2, s3, s4 and 2 more, about $1.00"),
    ],
)
def test_a_report_says_which_steps_run_again_and_what_they_cost(
    again: RunsAgain | None, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown or negligible numbers are left out."""
    assert again_text(report(again)) == expected
    draw_report(report(again), is_preview=True)
    assert (f"  ↻  {expected}" in capsys.readouterr().out.splitlines()) == bool(expected)
