"""Claims of examples/README.md, "A pipeline": it runs in a copy, and rolls back to any step."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hankweave_protocol.commands import RollbackToCodon
from hankweave_protocol.events import RollbackCompleted
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CompletedCodon
from support.command_line import Done, hankweave
from support.running_server import environment, served, state, tree
from support.waiting import LIMIT

pytestmark = pytest.mark.feature("architect")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pipeline"
STEPS = ["implement", "measure", "optimize", "note"]


def pipeline(folder: Path, *options: str) -> Done:
    return hankweave("pipeline", "pipeline.yaml", *options, cwd=folder, code=0)


def marks(done: Done) -> list[str]:
    """Return the summary's mark for each step."""
    steps = done.stdout.splitlines()[:-1]
    assert [line.split()[1] for line in steps] == STEPS
    return [line.split()[0].strip("[]") for line in steps]


def lines_of_python(project: Path) -> int:
    """Return the result of the example's own measurement of the current primes.py."""
    words = [sys.executable, "-B", "measure.py", "5000"]
    return int(subprocess.check_output(words, cwd=project, env=environment(), timeout=LIMIT))


@pytest.fixture(name="project")
def _project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "try"))


def test_the_example_runs_and_goes_back_by_step_from_the_command_line(project: Path) -> None:
    """The example runs, rolls back to the first step, undoes, rolls back, and completes again."""
    done = pipeline(project)
    assert marks(done) == ["PASS"] * 4
    assert "check passed: python3 -B -m unittest -q" in done.stderr
    answer = state(project).runs[0].codons[1]
    assert isinstance(answer, CompletedCodon)
    before, after = int(answer.captured.value), lines_of_python(project)
    assert before > 10_000 > after
    note = (project / "NOTES.md").read_text()
    assert note == f"Before it was made faster, primes_up_to(5000) ran {before} lines of Python.\n"
    fast = (project / "primes.py").read_bytes()
    assert fast == (project / "stand_in" / "sieve.py").read_bytes()

    history = hankweave("history", cwd=project).stdout.splitlines()[1:]
    assert [line.split()[0] for line in history] == ["note", "optimize", "implement"]
    hankweave("rollback", "--to-step", "implement", "--yes", cwd=project, code=0)
    assert lines_of_python(project) == before
    assert not (project / "NOTES.md").exists()
    hankweave("undo", "--yes", cwd=project, code=0)
    assert (project / "primes.py").read_bytes() == fast
    assert (project / "NOTES.md").read_text() == note

    hankweave("rollback", "--to-step", "implement", "--yes", cwd=project, code=0)
    again = pipeline(project)
    assert "Resuming at measure" in again.stderr
    assert marks(again) == ["PASS"] * 4
    assert (project / "primes.py").read_bytes() == fast
    assert (project / "NOTES.md").read_text() == note


async def test_the_example_goes_back_by_step_from_the_socket_and_goes_on(project: Path) -> None:
    """As on the web page, the socket rolls back to a step, and the plan continues."""
    pipeline(project, "--quiet")
    async with served(None, project, "--no-autostart", place="--workspace", since_seq=0) as (
        _,
        client,
    ):
        await client.send(
            RollbackToCodon(codon_id=CodonId("implement"), checkpoint_type="completed")
        )
        await client.until(RollbackCompleted, timeout=LIMIT)
        simple = (project / "stand_in" / "simple.py").read_bytes()
        assert (project / "primes.py").read_bytes() == simple

    again = pipeline(project)
    assert "step 1/4" not in again.stderr
    assert "step 2/4" in again.stderr
    assert (project / "NOTES.md").exists()


@pytest.mark.story(
    "The pipeline of the examples runs, and skips what its condition does not ask for.",
    of="examples/README.md",
)
def test_the_example_skips_what_its_condition_does_not_ask_for(project: Path) -> None:
    """If the simple code stays within the budget, no step optimizes or records anything."""
    done = pipeline(project, "--var", "budget=1000000")
    assert marks(done) == ["PASS", "PASS", "SKIP", "SKIP"]
    simple = (project / "stand_in" / "simple.py").read_bytes()
    assert (project / "primes.py").read_bytes() == simple
    assert not (project / "NOTES.md").exists()


def test_the_example_begins_at_a_step_with_the_answers_before_it(project: Path) -> None:
    """--from-step optimize has the measured values; a misspelled name is an error."""
    pipeline(project, "--var", "budget=1000000")
    assert marks(pipeline(project, "--from-step", "optimize")) == ["PASS"] * 4
    assert "ran 4" in (project / "NOTES.md").read_text()
    wrong = hankweave("pipeline", "pipeline.yaml", "--from-step", "optimise", cwd=project, code=3)
    assert "Did you mean 'optimize'?" in wrong.stderr


def test_the_example_writes_nothing_where_it_was_copied_from(project: Path, tmp_path: Path) -> None:
    """With --workspace the pipeline may be anywhere: its own folder is unchanged."""
    before = tree(EXAMPLE)
    elsewhere = Path(shutil.copytree(EXAMPLE, tmp_path / "elsewhere"))
    words = ("pipeline", str(project / "pipeline.yaml"), "--workspace", str(elsewhere))
    hankweave(*words, cwd=tmp_path, code=0)
    assert (elsewhere / "primes.py").exists()
    assert tree(project) == before == tree(EXAMPLE)
