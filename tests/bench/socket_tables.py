"""Markdown tables of the bench of the socket, for the README, from the file of results.

`scripts/bench socket --markdown` measures and prints them; `scripts/bench --markdown` prints those
of the last complete run. With `--into README.md` they are written there, between the lines `BEGIN`
and `END`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.figures import Figure
from bench.over_socket import BENCH, IDLE, OURS, ROWS, TARGETS, UNWATCHED
from bench.peers import GIT, LEGEND

BEGIN, END = "<!-- bench: socket -->", "<!-- end of bench -->"

Row = Mapping[str, Any]
"""A figure as it is in the file of results."""


def of_file(path: Path) -> str:
    """Return the tables of a file; raise FileNotFoundError."""
    return of_rows(msgspec.json.decode(path.read_bytes())["figures"])


def put_into(path: Path, tables: str) -> None:
    """Replace what stands between `BEGIN` and `END`; raise ValueError if they are not there."""
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} has no lines {BEGIN} and {END}")

    path.write_text(f"{before}{BEGIN}\n\n{tables}\n{END}{after}")


def of_figures(figures: Iterable[Figure]) -> str:
    return of_rows([figure.as_json() for figure in figures])


def of_rows(rows: Iterable[Row]) -> str:
    """Return a table for each size of the tree and each disk, and what the names mean."""
    tables: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in rows:
        if row["bench"] == BENCH:
            what, files, place = _parts(row["name"])
            tables.setdefault((files, place), {}).setdefault(what, []).append(row)

    parts = [_table(files, place, found) for (files, place), found in tables.items()]
    names = {
        row["reference"]["name"]
        for found in tables.values()
        for each in found.values()
        for row in each
    }
    return "\n\n".join([*parts, "\n".join(_legend(names))]) + "\n"


def _parts(name: str) -> tuple[str, str, str]:
    """Split "one file, 1,000 files, idle disk"."""
    what, _, place = name.rpartition(", ")
    row = next(each for each in ROWS if what.startswith(f"{each}, "))
    return row, what.removeprefix(f"{row}, "), place


def _table(files: str, place: str, found: Mapping[str, Sequence[Row]]) -> str:
    others = list(dict.fromkeys(r["reference"]["name"] for each in found.values() for r in each))
    others = [name for name in (UNWATCHED, *LEGEND) if name in others]
    heading = [f"{files}, {place}", "ms", "p95", "flushes", "lstats"]
    heading += [_heading(name) for name in others]
    heading += ["to git", "target"]
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)]]
    lines += [_line(row, files, place, found[row], others) for row in ROWS if row in found]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _heading(name: str) -> str:
    return "watch off" if name == UNWATCHED else name


def _line(
    row: str, files: str, place: str, found: Sequence[Row], others: Sequence[str]
) -> list[str]:
    beside = {each["reference"]["name"]: each for each in found}
    first, details = found[0], found[0]["details"]
    cells = [row, _number(first["value"]), _number(details["p95"])]
    cells += [f"{details['flushes']:g}", f"{details['lstats']:,.0f}"]
    if not details["flushes"] and not details["lstats"]:
        cells[-2:] = ["", ""]

    for name in others:
        cells.append(_number(beside[name]["reference"]["value"]) if name in beside else "")

    target = TARGETS.get(row, {}).get(int(files.split()[0].replace(",", "")))
    ratio = beside[GIT]["ratio"] if GIT in beside else None
    cells.append("" if ratio is None else f"{ratio:.2g} x")
    cells.append("" if target is None or place != IDLE else f"{target:g} x")
    return cells


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _legend(names: Iterable[str]) -> Iterator[str]:
    yield (
        f"Milliseconds, medians; {OURS} with `--watch auto`, durable, from the command over the "
        'socket to its reply. "flushes" and "lstats" are counted in all threads of the server.'
    )
    present = set(names)
    for name, meaning in LEGEND.items():
        yield f"- **{name}**: {meaning}." if name in present else f"- {name}: not measured here."
