"""Run the gate, the tests that every commit on main has passed: `scripts/test` calls this.

The static checks run beside the tests. Tests that fail run again, alone, at the end. One that
passes then is printed as FLAKY, with both outputs, and the gate passes: it is a bug, to be fixed
before other work. After a run without failures, in a clean work tree, the commit's hash is written
to `.gate-passed`, or to the file that the environment variable GATE_PASSED_FILE names.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
MOST_TO_REPEAT = 20
"""More failures than this are not chance, and are not repeated."""
IDLE_SECONDS = 0.05
"""The time that `python -c pass` takes on an idle machine."""
SLOWEST = 10
LONG_SECONDS = 1.0
"""Tests that take longer begin first; see tests/support/results.py."""
RECORD = "HANKWEAVE_TEST_RECORD"
"""The environment variable that makes pytest write its results to a file, as JSON lines."""


@dataclass
class Outcome:
    """A test, over all of its phases."""

    seconds: float = 0.0
    counts: bool = False
    """True if it was run, and not skipped."""
    failure: str = ""
    """The failure and the captured output; empty if the test passed."""
    output: str = ""


@dataclass
class Phases:
    """The duration of each part of a run."""

    rows: list[tuple[str, float]] = field(default_factory=list)
    begin: float = field(default_factory=time.monotonic)

    def end(self, name: str, begin: float | None = None) -> None:
        now = time.monotonic()
        self.rows.append((name, now - (self.begin if begin is None else begin)))
        self.begin = now


def read(record: Path) -> dict[str, Outcome]:
    """Return the outcomes by node id, from the file that tests/conftest.py wrote."""
    outcomes: dict[str, Outcome] = {}
    for line in record.read_text("utf-8").splitlines() if record.exists() else ():
        report = json.loads(line)
        outcome = outcomes.setdefault(report["test"], Outcome())
        outcome.seconds += report["seconds"]
        outcome.counts |= report["when"] == "call" and report["outcome"] != "skipped"
        outcome.output += report["output"]
        if report["outcome"] == "failed":
            outcome.failure += report["failure"] + report["output"]

    return outcomes


def slowness() -> float:
    """Return the factor by which this machine is slower than an idle one of today, at least 1."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
    return max(1.0, (time.monotonic() - begin) / IDLE_SECONDS)


Run = Callable[[Sequence[str], Path], int]
"""Runs tests and writes their results to a file; returns pytest's exit code."""


def pytest(arguments: Sequence[str], record: Path) -> int:
    """Run pytest with these arguments, and as `scripts/test` runs it; return its exit code."""
    words = shlex.split(os.environ.get("GATE_PYTEST", f"{sys.executable} -m pytest"))
    variables = os.environ | {RECORD: str(record)}
    return subprocess.run([*words, "-q", *arguments], cwd=TOP, env=variables).returncode


def print_flaky(test: str, first: Outcome, second: Outcome) -> None:
    print(f"\nFLAKY {test}\n--- failed at first:\n{first.failure}")
    print(f"--- passed alone:\n{second.output.strip() or '(no output)'}")


def git(*words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def note_that_it_passed() -> None:
    """Write the commit's hash, unless the work tree has changes or there is no git repository."""
    try:
        changes, commit = git("status", "--porcelain"), git("rev-parse", "HEAD")
    except FileNotFoundError:
        return

    if changes == "" and commit:
        file = Path(os.environ.get("GATE_PASSED_FILE", TOP / ".gate-passed"))
        file.write_text(f"{commit}\n")


def record_durations(outcomes: Mapping[str, Outcome]) -> None:
    rows = {test: round(outcome.seconds, 1) for test, outcome in sorted(outcomes.items())}
    worth = {test: seconds for test, seconds in rows.items() if seconds >= LONG_SECONDS}
    Path(TOP, "tests", "durations.json").write_text(json.dumps(worth, indent=0) + "\n")


def main(
    arguments: Sequence[str], run: Run = pytest, checks: Sequence[str] = ("scripts/check",)
) -> int:
    """Run the gate with these arguments for pytest; return the exit code."""
    phases = Phases()
    renews_durations = os.environ.pop("GATE_DURATIONS", None) is not None
    if began := os.environ.pop("GATE_BEGAN", None):
        phases.rows.append(("environment", time.time() - float(began)))

    os.environ.setdefault("HANKWEAVE_TEST_SCALE", f"{slowness():.2f}")
    begin = phases.begin
    checking = subprocess.Popen(
        checks, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with tempfile.TemporaryDirectory(prefix=".gate-", dir=TOP) as folder:  # /tmp may differ inside
        status = run(arguments, Path(folder, "first"))
        outcomes = read(Path(folder, "first"))
        phases.end("tests")
        said, _ = checking.communicate()
        phases.end("static checks, beside the tests", begin)
        failed = [test for test, outcome in outcomes.items() if outcome.failure]
        second: dict[str, Outcome] = {}
        if (
            status == 1
            and 0 < len(failed) <= MOST_TO_REPEAT
            and all("::" in test for test in failed)
        ):
            print(f"\nRunning {len(failed)} failed tests again, alone.", flush=True)
            status = run(failed, Path(folder, "second"))
            second = read(Path(folder, "second"))
            phases.end("failed tests again")

    flaky = [test for test in failed if test in second and not second[test].failure]
    failed = [test for test in failed if test not in flaky]
    print("\nThe slowest tests:")
    slowest = sorted(outcomes.items(), key=lambda item: -item[1].seconds)[:SLOWEST]
    for test, outcome in slowest:
        print(f"{outcome.seconds:8.1f} s  {test}")

    print("The phases:")
    for name, seconds in phases.rows:
        print(f"{seconds:8.1f} s  {name}")

    if checking.returncode != 0:
        print(f"The static checks failed:\n{said}")
        status = status or 1

    for test in flaky:
        print_flaky(test, outcomes[test], second[test])

    for test in failed:
        print(f"FAILED {test}")

    passed = sum(outcome.counts for outcome in outcomes.values()) - len(failed)
    print(f"{passed} passed, {len(failed)} failed", flush=True)
    if status == 0:
        note_that_it_passed()
        if renews_durations:
            record_durations(outcomes)

    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
