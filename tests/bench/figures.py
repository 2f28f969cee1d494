"""Measurements with their references and targets."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, assert_never

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from hankweave_protocol.instants import to_text

RESULTS = "bench-results.json"


@dataclass(frozen=True, slots=True)
class AtLeast:
    limit: float

    def is_met(self, value: float) -> bool:
        return value >= self.limit


@dataclass(frozen=True, slots=True)
class AtMost:
    limit: float

    def is_met(self, value: float) -> bool:
        return value <= self.limit


@dataclass(frozen=True, slots=True)
class Within:
    """Within the tolerance of the wanted value."""

    wanted: float
    tolerance: float

    def is_met(self, value: float) -> bool:
        return abs(value - self.wanted) <= self.tolerance


Target = AtLeast | AtMost | Within


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; value and reference are medians in the same unit."""

    bench: str
    name: str
    value: float
    unit: str
    reference_name: str = ""
    reference: float | None = None
    """None if the figure has no reference; its target is then no ratio."""
    target: Target | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    """More about the same measurement, for programs."""

    @property
    def ratio(self) -> float | None:
        return None if self.reference is None else self.value / self.reference

    @property
    def is_met(self) -> bool:
        """Return True also if there is no target."""
        return self.target is None or self.target.is_met(self.value)

    def as_json(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "reference": None
            if self.reference is None
            else {"name": self.reference_name, "value": self.reference},
            "ratio": self.ratio,
            "target": None if self.target is None else _in_words(self.target),
            "met": self.is_met,
            **({"details": dict(self.details)} if self.details else {}),
        }


def print_table(figures: Sequence[Figure]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("bench", "what", "measured", "unit", "ratio", "to", "reference", "target", ""):
        is_number = heading in {"measured", "ratio", "reference", "target"}
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)

    for figure in figures:
        target = figure.target
        table.add_row(
            figure.bench,
            figure.name,
            number(figure.value),
            figure.unit,
            "" if figure.ratio is None else _times(figure.ratio),
            figure.reference_name,
            "" if figure.reference is None else number(figure.reference),
            "" if target is None else _in_words(target),
            "" if target is None else ("ok" if figure.is_met else "MISSED"),
        )

    # A pipe has no width, and a table that is cut there would be useless in a build's log.
    console = Console()
    console.width = max(console.width, 170)
    console.print(table)


def write_results(path: Path, figures: Sequence[Figure], seconds: Mapping[str, float]) -> None:
    """Write the figures, and the facts about the machine that are needed to read them.

    `seconds` has the duration of each benchmark; the file's figures of other benchmarks stay.
    """
    kept = _read(path)
    run = {"machine": _machine(), "at": to_text(datetime.now(UTC))}
    benches = kept.benches | {name: run | {"seconds": round(s, 1)} for name, s in seconds.items()}
    others = [figure for figure in kept.figures if figure["bench"] not in seconds]
    results = _Results(benches, others + [figure.as_json() for figure in figures])
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")


class _Results(msgspec.Struct):
    """The results file; one that another version wrote counts as empty."""

    benches: dict[str, dict[str, Any]] = {}
    figures: list[dict[str, Any]] = []


def _read(path: Path) -> _Results:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Results)
    except (FileNotFoundError, msgspec.DecodeError):
        return _Results()

    return _Results(found.benches, [f for f in found.figures if f["bench"] in found.benches])


def _machine() -> dict[str, Any]:
    return {
        "processors": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _in_words(target: Target) -> str:
    match target:
        case AtLeast(limit):
            return f">= {number(limit)}"
        case AtMost(limit):
            return f"<= {number(limit)}"
        case Within(wanted, tolerance):
            return f"{number(wanted)} +- {number(tolerance)}"
        case _:
            assert_never(target)


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio >= 0.1 else f"{ratio:.2g}x"


def number(value: float) -> str:
    """Return a number with as many digits as mean something."""
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"
