"""Results of tests as JSON lines for tools/gate.py, and the order that recorded durations give."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

DURATIONS = Path(__file__).resolve().parents[1] / "durations.json"
"""Seconds of the tests that take longest, by node id; `scripts/test --durations` renews it."""


class ResultFile:
    """A plugin that appends a line to a file for each phase of a test that took time or failed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed or report.duration >= 0.01:
            self._append(
                test=report.nodeid,
                when=report.when,
                outcome=report.outcome,
                seconds=report.duration,
                failure=report.longreprtext if report.failed else "",
                output="".join(f"\n{title}:\n{text}" for title, text in report.sections),
            )

    def fault_of_the_run(self, failure: str) -> None:
        """Record a failure that belongs to no single test."""
        self._append(
            test="the end of the run",
            when="call",
            outcome="failed",
            seconds=0.0,
            failure=failure,
            output="",
        )

    def _append(self, **line: object) -> None:
        with self._path.open("a", encoding="utf-8", errors="surrogatepass") as file:
            file.write(json.dumps(line) + "\n")


def recorded_durations() -> dict[str, float]:
    known: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return known


def longest_first(tests: Sequence[str], seconds: Mapping[str, float], workers: int) -> list[int]:
    """Return the order of the tests, as indices, for `--dist worksteal`.

    Each worker begins with an equal, contiguous part of the tests. The tests with a known duration
    are dealt out to the beginnings of these parts, the longest first; all others keep their order,
    so that tests of a module stay together.
    """
    known = sorted(
        (index for index, test in enumerate(tests) if test in seconds),
        key=lambda index: -seconds[tests[index]],
    )
    others = [index for index, test in enumerate(tests) if test not in seconds]
    order: list[int] = []
    for worker in range(workers):
        size = (len(tests) - len(order)) // (workers - worker)
        part = known[worker::workers][:size]
        filler = size - len(part)
        order += part + others[:filler]
        del others[:filler]

    missing = set(range(len(tests))) - set(order)
    return order + sorted(missing)
