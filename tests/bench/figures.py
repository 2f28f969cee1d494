"""What was measured, against what, and whether it is good enough."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

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


Target = AtLeast | AtMost


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; value and reference are medians in the same unit."""

    bench: str
    name: str
    value: float
    unit: str
    reference_name: str
    reference: float
    target: Target | None = None

    @property
    def ratio(self) -> float:
        return self.value / self.reference

    @property
    def is_met(self) -> bool:
        """True also where nothing is demanded."""
        return self.target is None or self.target.is_met(self.value)

    def as_json(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "reference": {"name": self.reference_name, "value": self.reference},
            "ratio": self.ratio,
            "target": None if self.target is None else _in_words(self.target),
            "met": self.is_met,
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
            _number(figure.value),
            figure.unit,
            f"{figure.ratio:.2f}x",
            figure.reference_name,
            _number(figure.reference),
            "" if target is None else _in_words(target),
            "" if target is None else ("ok" if figure.is_met else "MISSED"),
        )

    # A pipe has no width; a table that is cut there would be of no use in a build's log.
    console = Console()
    console.width = max(console.width, 132)
    console.print(table)


def write_results(path: Path, figures: Sequence[Figure], seconds: float) -> None:
    """Writes the figures, and what one must know of the machine to read them."""
    content = {
        "machine": {
            "processors": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "seconds": round(seconds, 1),
        "figures": [figure.as_json() for figure in figures],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def _in_words(target: Target) -> str:
    sign = ">=" if isinstance(target, AtLeast) else "<="
    return f"{sign} {_number(target.limit)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"
