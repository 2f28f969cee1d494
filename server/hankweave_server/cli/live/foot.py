"""The lines below the table: what is asked, how the connection is, and which keys there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from rich.cells import chop_cells

from hankweave_protocol.records import CheckpointRecord
from hankweave_server.cli.live.frame import Said
from hankweave_server.cli.live.keys import (
    Choosing,
    Confirming,
    Mode,
    Reading,
    Sight,
    Waiting,
    Watching,
)
from hankweave_server.cli.output.local_time import clock
from hankweave_server.plain_text import one_line

_CHOICES = 7
"""Lines of a list."""

_WIDE = 76


def foot(mode: Mode, sight: Sight, *, is_connected: bool, width: int) -> tuple[Said, ...]:
    """Gives the lines; the last one is never missing."""
    lines = _of_mode(mode)
    if not isinstance(mode, Choosing):
        lines = _whole(lines, width)

    return (*lines, _connection(sight, is_connected), _keys(mode, sight, width))


def _whole(lines: Iterable[Said], width: int) -> Iterator[Said]:
    """Goes on in the next line where one is too long: half a question is none."""
    for line in lines:
        pieces = chop_cells(line.text, max(1, width)) or [""]
        yield from (Said(piece, line.style) for piece in pieces)


def _of_mode(mode: Mode) -> Iterator[Said]:
    match mode:
        case Watching(note=""):
            return
        case Watching(note=note, is_complaint=is_complaint, hint=hint):
            yield Said(note, "bold red" if is_complaint else "bold")
            yield from [Said(f"  {hint}")] * bool(hint)
        case Waiting(what=what):
            yield Said(what, "dim")
        case Confirming(question=question, lines=lines):
            yield from map(Said, lines)
            yield Said(question, "bold yellow")
        case Choosing():
            yield from _choices(mode)
        case Reading(lines=lines):
            yield from map(Said, lines)
        case _:
            assert_never(mode)


def _choices(mode: Choosing) -> Iterator[Said]:
    start = max(0, min(mode.at - _CHOICES // 2, len(mode.records) - _CHOICES))
    for place, record in enumerate(mode.records[start : start + _CHOICES], start):
        is_chosen = place == mode.at
        mark = "›" if is_chosen else " "
        yield Said(f"{mark} {_line_of(record)}", "bold reverse" if is_chosen else "")

    yield Said(f"{mode.at + 1} of {len(mode.records)}, newest first", "dim")


def _line_of(record: CheckpointRecord) -> str:
    codon = record.coordinate.codon_id or "-"
    pin = f"  [{record.name or 'pinned'}]" if record.pinned else ""
    told = f"{record.sha[:12]}  {clock(record.timestamp)}  {record.kind:<10} {codon}{pin}"
    return one_line(f"{told}  {record.label or record.codon_name}")


def _connection(sight: Sight, is_connected: bool) -> Said:
    if not is_connected:
        return Said("○ connection lost; looking for the server. What it does is not missed.", "red")

    return Said(f"● connected{'' if sight.may_change else ', readonly'}", "green")


def _keys(mode: Mode, sight: Sight, width: int) -> Said:
    if isinstance(mode, Confirming):
        return Said("y yes   any other key no", "dim")

    if isinstance(mode, Choosing):
        return Said("↑ ↓ choose   enter look   esc back", "dim")

    words = ["? keys", "q quit"]
    if sight.may_change and sight.asking:
        words = ["a allow", "d deny", *words]
    elif sight.may_change and width >= _WIDE:
        words = ["n next", "s skip", "x stop", "r redo", "p go back", "u undo", *words]
    elif width >= _WIDE:
        words = ["p look back", *words]

    return Said("   ".join(words), "dim")
