"""Tests of tools/gate.py and of the order of the tests: what makes a run green, flaky or red."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import gate
from support.results import longest_first

PASSES, FAILS = ["true"], ["sh", "-c", "echo E501; exit 1"]


class Results:
    """A stand-in for pytest: each run takes the next of the planned outcomes of each test."""

    def __init__(self, **planned: str) -> None:
        self.planned = {name.replace("__", "::"): [*plan.split()] for name, plan in planned.items()}
        self.runs: list[list[str]] = []

    def __call__(self, arguments: Sequence[str], record: Path) -> int:
        self.runs.append([*arguments])
        chosen = self.planned if len(self.runs) == 1 else arguments
        outcomes = {test: self.planned[test].pop(0) for test in chosen}
        lines = [
            {
                "test": test,
                "when": "call",
                "outcome": outcome,
                "seconds": 1.0,
                "failure": f"why {test} {outcome}" if outcome == "failed" else "",
                "output": f" said in run {len(self.runs)}",
            }
            for test, outcome in outcomes.items()
        ]
        record.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return int("failed" in outcomes.values())


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, as the checkout."""
    for words in ("init -q", "-c user.name=n -c user.email=e commit -q --allow-empty -m first"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)

    monkeypatch.setattr(gate, "TOP", tmp_path)
    monkeypatch.delenv("GATE_PASSED_FILE", raising=False)
    monkeypatch.delenv("GATE_BEGAN", raising=False)
    monkeypatch.setenv("HANKWEAVE_TEST_SCALE", "1")
    return tmp_path


def test_a_green_run_notes_the_commit(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line counts the tests, without those that were skipped."""
    assert gate.main(["--gate"], Results(a__one="passed", a__two="skipped"), PASSES) == 0
    assert (place / ".gate-passed").read_text().strip() == gate.git("rev-parse", "HEAD")
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"


def test_the_commit_is_noted_in_a_file_of_ones_choice(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATE_PASSED_FILE", str(place / "elsewhere"))
    assert gate.main([], Results(a__one="passed"), PASSES) == 0
    assert (place / "elsewhere").exists()
    assert not (place / ".gate-passed").exists()


def test_a_changed_work_tree_notes_no_commit(place: Path) -> None:
    (place / "changed").touch()
    assert gate.main([], Results(a__one="passed"), PASSES) == 0
    assert not (place / ".gate-passed").exists()


def test_a_failure_that_does_not_repeat_is_flaky(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the failed test runs again; the run passes and ends with both outputs."""
    run = Results(a__one="passed", a__two="failed passed")
    assert gate.main(["--gate"], run, PASSES) == 0
    assert run.runs == [["--gate"], ["a::two"]]
    output = capsys.readouterr().out
    assert "FLAKY a::two\n--- failed at first:\nwhy a::two failed said in run 1" in output
    assert "--- passed alone:\nsaid in run 2" in output
    assert output.splitlines()[-1] == "2 passed, 0 failed"


def test_a_failure_that_repeats_fails_the_run(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A test that is flaky does not change that, and no commit is noted."""
    assert gate.main([], Results(a__one="failed failed", a__two="failed passed"), PASSES) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["FAILED a::one", "1 passed, 1 failed"]
    assert not (place / ".gate-passed").exists()


def test_a_fault_of_the_whole_run_cannot_be_repeated() -> None:
    run = Results(**{"the end of the run": "failed", "a__one": "failed"})
    assert gate.main([], run, PASSES) == 1
    assert len(run.runs) == 1


def test_many_failures_are_not_repeated() -> None:
    run = Results(**{f"a__{number}": "failed" for number in range(gate.MOST_TO_REPEAT + 1)})
    assert gate.main([], run, PASSES) == 1
    assert len(run.runs) == 1


def test_static_checks_that_fail_fail_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate.main([], Results(a__one="passed"), FAILS) == 1
    assert "The static checks failed:\nE501" in capsys.readouterr().out


def test_a_run_without_results_keeps_pytests_exit_code() -> None:
    def interrupted(arguments: Sequence[str], record: Path) -> int:
        return 2

    assert gate.main([], interrupted, PASSES) == 2


def test_slow_tests_begin_first_on_every_worker() -> None:
    """The parts are equal, as the workers divide them, and the other tests keep their order."""
    tests = [*"abcdefgh"]
    order = longest_first(tests, {"c": 9.0, "g": 5.0, "h": 4.0, "gone": 7.0}, 2)
    assert [tests[index] for index in order] == [*"chabgdef"]
    assert longest_first(tests, {}, 3) == [*range(8)]
    assert longest_first([], {}, 4) == []
