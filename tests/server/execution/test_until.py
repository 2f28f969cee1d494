"""Ending the plan before its last codon (`--until`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_protocol.events import ServerReady
from hankweave_server.domain.execution_thread import next_codon, thread
from support.command_line import hankweave
from support.running_server import journal, run_headless, state
from support.scripted_hank import codon, write_hank


def hank_in(folder: Path) -> Path:
    names = ("one", "two", "three")
    return write_hank(
        folder / "hank", *(codon(name, {"run": f"echo {name} >> log"}) for name in names)
    )


async def ran(hank: Path, execution: Path, *flags: str) -> int:
    return await run_headless(hank, execution, *flags)


def log(execution: Path) -> list[str]:
    return (execution / "agentRoot" / "log").read_text().split()


@pytest.mark.story(
    "`--until` ends the plan after a codon, and the next run continues with the rest."
)
async def test_the_plan_ends_after_the_named_codon(tmp_path: Path) -> None:
    """The run completes with exit code 0; the rest of the plan is left for the next run."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await ran(hank, execution, "--until", "two") == 0
    assert log(execution) == ["one", "two"]
    assert state(execution).runs[0].status == "completed"
    assert next_codon(state(execution)) == "three"
    assert await ran(hank, execution) == 0
    assert log(execution) == ["one", "two", "three"]
    assert [each.codon.codon_id for each in thread(state(execution))] == ["one", "two", "three"]


@pytest.mark.parametrize("until", ["one", "two"])
async def test_nothing_runs_if_the_codon_has_already_run(tmp_path: Path, until: str) -> None:
    """A repeated run with the same end, or an earlier one, runs no codon and exits with 0."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await ran(hank, execution, "--until", "two") == 0
    assert await ran(hank, execution, "--until", until) == 0
    assert log(execution) == ["one", "two"]


async def test_it_ends_a_plan_that_begins_again(tmp_path: Path) -> None:
    """`--from two --until two` runs one codon again."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    assert await ran(hank, execution) == 0
    assert await ran(hank, execution, "--from", "two", "--until", "two") == 0
    assert log(execution) == ["one", "two", "three", "two"]


def test_an_unknown_end_is_a_usage_error(tmp_path: Path) -> None:
    """The error lists the known codons; nothing is served; the exit code is 2."""
    hank, execution = hank_in(tmp_path), tmp_path / "execution"
    command = ("run", str(hank), "--execution", str(execution), "--headless", "--until", "tow")
    done = hankweave(*command)
    assert done.returncode == 2
    assert "Codon tow is not in the execution plan." in done.stderr
    assert "Codons in the plan: one, two, three." in done.stderr
    assert not [each for each in journal(execution) if isinstance(each.data, ServerReady)]
