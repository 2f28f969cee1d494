"""Ending the plan before its last codon (`--until`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_server.domain.execution_thread import next_codon
from support.running_server import run_headless, state
from support.scripted_hank import codon, write_hank
from support.watching import on_thread


def hank_in(folder: Path) -> Path:
    names = ("one", "two", "three")
    return write_hank(
        folder / "hank", *(codon(name, {"run": f"echo {name} >> log"}) for name in names)
    )


def log(execution: Path) -> list[str]:
    return (execution / "agentRoot" / "log").read_text().split()


@pytest.mark.story(
    "`--until` ends the plan after a codon, and the next run continues with the rest."
)
async def test_the_plan_ends_after_the_named_codon(tmp_path: Path) -> None:
    """The run completes with exit code 0; the rest of the plan is left for the next run."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await run_headless(hank, execution, "--until", "two") == 0
    assert log(execution) == ["one", "two"]
    assert state(execution).runs[0].status == "completed"
    assert next_codon(state(execution)) == "three"
    assert await run_headless(hank, execution) == 0
    assert log(execution) == ["one", "two", "three"]
    assert on_thread(execution) == ["one", "two", "three"]


@pytest.mark.parametrize("until", ["one", "two"])
async def test_nothing_runs_if_the_codon_has_already_run(tmp_path: Path, until: str) -> None:
    """A repeated run with the same end, or an earlier one, runs no codon and exits with 0."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await run_headless(hank, execution, "--until", "two") == 0
    assert await run_headless(hank, execution, "--until", until) == 0
    assert log(execution) == ["one", "two"]


async def test_it_ends_a_plan_that_begins_again(tmp_path: Path) -> None:
    """`--from two --until two` runs one codon again."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    assert await run_headless(hank, execution, "--from", "two", "--until", "two") == 0
    assert log(execution) == ["one", "two", "three", "two"]
