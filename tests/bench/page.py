"""The figures as Markdown, for the page `docs/figures.md`.

`scripts/bench NAME... --into PAGE` measures and writes; `scripts/bench --into PAGE` writes the last
complete results. Each table replaces what stands between the line `<!-- bench: NAME -->` and the
next `<!-- end of bench -->`, except tables of other sizes; what the page has of other benches, and
between them, stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from bench import over_socket, socket_tables
from bench.figures import number
from bench.socket_tables import Row

_PART = re.compile(
    r"(?P<begin><!-- bench: (?P<name>[\w-]+) -->\n)(?P<old>.*?)(?P<end><!-- end of bench -->)",
    re.DOTALL,
)


def rows_of(results: Path) -> list[Row]:
    """Return the figures of a file of results; raise FileNotFoundError."""
    found: list[Row] = msgspec.json.decode(results.read_bytes())["figures"]
    return found


def markdown(rows: Iterable[Row]) -> str:
    """Return the tables of all benches that have figures."""
    return "\n".join(_tables(rows).values())


def put_into(path: Path, rows: Iterable[Row]) -> None:
    """Renew the tables of a page; raise ValueError if it has no place for any of them."""
    tables, text = _tables(rows), path.read_text()
    if not tables.keys() & {part["name"] for part in _PART.finditer(text)}:
        wanted = ", ".join(f"<!-- bench: {name} -->" for name in tables)
        raise ValueError(f"{path} has none of the lines {wanted}, or no end of it")

    def renewed(part: re.Match[str]) -> str:
        table = tables.get(part["name"])
        if table is None:
            return part[0]

        return f"{part['begin']}\n{_with_other_sizes(part['old'], table)}\n{part['end']}"

    path.write_text(_PART.sub(renewed, text))


_SIZE = re.compile(r"\| ([\d,]+) files, ")


def _with_other_sizes(old: str, new: str) -> str:
    """Add the old tables of sizes that the new text has no table of, ordered by size."""
    blocks = new.strip().split("\n\n")
    tables = {size[1]: block for block in blocks if (size := _SIZE.match(block))}
    before = {size[1]: block for block in old.split("\n\n") if (size := _SIZE.match(block.strip()))}
    ordered = sorted((before | tables).items(), key=lambda each: int(each[0].replace(",", "")))
    rest = [block for block in blocks if not _SIZE.match(block)]
    return "\n\n".join([*(block.strip() for _, block in ordered), *rest]) + "\n"


def _tables(rows: Iterable[Row]) -> dict[str, str]:
    by_bench: dict[str, list[Row]] = {}
    for row in rows:
        by_bench.setdefault(row["bench"], []).append(row)

    return {
        name: socket_tables.of_rows(found) if name == over_socket.BENCH else _table(found)
        for name, found in by_bench.items()
    }


def _table(rows: Sequence[Row]) -> str:
    lines = ["| what | measured | beside | target |", "|---|---:|---|---|"]
    for row in rows:
        beside, target = row["reference"], row["target"]
        compared = "" if beside is None else f"{row['ratio']:.2g} x {beside['name']}"
        measured = f"{number(row['value'])} {row['unit']}"
        lines.append(f"| {row['name']} | {measured} | {compared} | {target or ''} |")

    return "\n".join(lines) + "\n"
