"""Markdown tables of the bench of the socket, for the page of figures (see `page`)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.over_socket import BENCH, OURS, PACES, ROWS, UNWATCHED
from bench.peers import GIT, LEGEND

WIDTH = 120
"""Columns of a line of text on the page."""

Row = Mapping[str, Any]
"""A figure as it is in the file of results."""


def of_rows(rows: Iterable[Row]) -> str:
    """Return a table for each size of the tree and each disk, and what the names mean."""
    tables: dict[tuple[str, str], _Table] = {}
    names: set[str] = set()
    for row in rows:
        if row["bench"] == BENCH:
            what, files, pace, disk = _parts(row["name"])
            name = row["reference"]["name"]
            tables.setdefault((files, disk), {}).setdefault(what, {})[pace, name] = row
            names.add(name)

    parts = [_table(files, disk, found) for (files, disk), found in tables.items()]
    return "\n\n".join([*parts, "\n".join(_legend(names))]) + "\n"


_Table = dict[str, dict[tuple[str, str], Row]]
"""The figures of each row by pace and reference."""


def _parts(name: str) -> tuple[str, str, str, str]:
    """Split "one file, 1,000 files, settled, idle disk"."""
    what, pace, disk = name.rsplit(", ", 2)
    row = next(each for each in ROWS if what.startswith(f"{each}, "))
    return row, what.removeprefix(f"{row}, "), pace, disk


def _table(files: str, disk: str, found: _Table) -> str:
    measured = {name for each in found.values() for _, name in each}
    others = [name for name in (UNWATCHED, *LEGEND) if name in measured and name != GIT]
    heading = [f"{files}, {disk}"]
    for pace in PACES:
        heading += [f"{pace.name}, ms", "p95", "git", "to git"]

    heading += ["flushes", "a flush, ms", *map(_heading, others)]
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)]]
    lines += [_line(row, found[row], others) for row in ROWS if row in found]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _heading(name: str) -> str:
    return "watch off" if name == UNWATCHED else name


def _line(row: str, found: Mapping[tuple[str, str], Row], others: Sequence[str]) -> list[str]:
    cells = [row]
    for pace in PACES:
        beside = found.get((pace.name, GIT))
        if beside is None:
            cells += [""] * 4
            continue

        cells += [_number(beside["value"]), _number(beside["details"]["p95"])]
        cells += [_number(beside["reference"]["value"]), f"{beside['ratio']:.2g} x"]

    first, *_ = found.values()
    details = first["details"]
    cells.append(f"{details['flushes']:g}" if details["flushes"] else "")
    cells.append(_number(details["flush"]))
    for name in others:
        of_it = (found.get((pace.name, name)) for pace in PACES)
        measured = next((each for each in of_it if each is not None), None)
        cells.append("" if measured is None else _number(measured["reference"]["value"]))

    return cells


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _legend(names: Iterable[str]) -> Iterator[str]:
    yield textwrap.fill(
        f"Milliseconds, medians; {OURS} with `--watch auto`, durable, from the command over the "
        "socket to its reply. Settled: two seconds pass between acts; busy: they follow each "
        'other. "flushes" are counted in all threads of the server, and "a flush" is how long the '
        "disk took for one then. Other programs are settled, where they can be.",
        WIDTH,
    )
    present = set(names)
    yield ""
    for name, meaning in LEGEND.items():
        if name in present:
            yield f"- **{name}**: {meaning}."
