"""Format the live view for a terminal width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from hankweave_server.cli.live.model import (
    LiveState,
    StepRow,
)
from hankweave_server.cli.output.text import costs_text
from hankweave_server.plain_text import counted


@dataclass(frozen=True, slots=True)
class StyledText:
    """One line below the table."""

    text: str
    style: str = ""


_STYLES = {
    "completed": "green",
    "reused": "green",
    "failed": "red",
    "skipped": "yellow",
    "running": "bold cyan",
}


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    from_width: int
    """Minimum terminal width at which the column is shown."""
    text: Callable[[StepRow], str]
    right: bool = False


_COLUMNS = (
    _Column("codon", 0, lambda row: row.codon_id),
    _Column("state", 0, lambda row: row.state),
    _Column("time", 34, lambda row: "" if row.seconds is None else duration(row.seconds), True),
    _Column("cost", 44, lambda row: f"${row.cost:.4f}" if row.attempt else "", True),
    _Column("tokens", 56, lambda row: amount(row.tokens) if row.attempt else "", True),
    _Column("try", 62, lambda row: str(row.attempt or ""), True),
    _Column("left", 80, lambda row: row.left, True),
    _Column("last file", 96, lambda row: row.last_file),
)


def frame(seen: LiveState, width: int, address: str, foot: tuple[StyledText, ...] = ()) -> Group:
    """Return a view as renderable lines, none wider than `width` columns."""
    parts: list[Table | Text] = []
    if seen.above:
        parts.append(line(f"  {counted(seen.above, 'codon')} before", "dim"))

    if seen.rows:
        parts.append(_table(seen, width))

    if seen.below:
        parts.append(line(f"  {counted(seen.below, 'codon')} to go", "dim"))

    totals = (
        f"{seen.step} of {counted(seen.steps, 'step')}",
        duration(seen.seconds),
        costs_text(seen.paid),
        f"{amount(seen.tokens)} tokens",
    )
    parts.append(line("  ".join(totals), "bold"))
    if address:
        asked = [(text, "bold yellow") for text in seen.asking]
        said = [(seen.words, "italic"), (seen.sentinel, "magenta"), *asked, (address, "dim")]
        parts += [line(text, style) for text, style in said if text]

    parts += [line(each.text, each.style) for each in foot]
    return Group(*parts)


def line(text: str, style: str) -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _table(seen: LiveState, width: int) -> Table:
    columns = [column for column in _COLUMNS if column.from_width <= width]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        longest = {"codon": max(8, width // 3), "state": 16, "last file": 40}.get(column.title)
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            max_width=longest,
        )

    for row in seen.rows:
        style = _STYLES.get(row.state, "" if row.state else "dim")
        table.add_row(*(Text(column.text(row), style) for column in columns))

    return table


def duration(seconds: float) -> str:
    """Format a duration: `9.5 s`, `3:07`, `2:00:05`."""
    if seconds < 60:
        return f"{seconds:.1f} s"

    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def amount(count: int) -> str:
    """Format a count in few characters: `950`, `12.3k`, `4.5M`."""
    if count < 1_000:
        return str(count)

    return f"{count / 1e3:.1f}k" if count < 1_000_000 else f"{count / 1e6:.1f}M"


class Terminal(Console):
    """A console that never hides the cursor."""

    def show_cursor(self, show: bool = True) -> bool:
        return False
