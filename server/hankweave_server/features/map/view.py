"""The output of `hankweave map`: lines, JSON lines, or a table of what runs above a progress bar.

The table is redrawn in place twice a second. A line for each item that has failed stays above it;
without a terminal every item gets a line when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import anyio
import anyio.to_thread
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hankweave_protocol import codec, instants
from hankweave_server.cli.live.frame import Terminal, duration, line
from hankweave_server.cli.output.server_lines import LineWriter
from hankweave_server.cli.output.text import map_totals, span
from hankweave_server.clock import Clock
from hankweave_server.features.map.plan import (
    Figures,
    Item,
    ItemEnded,
    MapBegun,
    MapEnded,
    MapRecord,
)
from hankweave_server.features.map.results import ItemCourse
from hankweave_server.features.map.supervisor import Supervisor
from hankweave_server.plain_text import one_line

REDRAW_SECONDS = 0.5
_MOST_ROWS = 12
_BAR = 40
_STYLES = {"completed": "green", "failed": "red", "crashed": "yellow", "stopped": "yellow"}


class MapDisplay(Protocol):
    """An output of `hankweave map`."""

    def report(self, record: MapRecord, counted: Figures, /) -> None:
        """Report a record that is durable, and the figures that follow from it."""

    def notify(self, sentence: str, /) -> None:
        """Report something that is not in the journal, for people."""

    async def follow(self, supervisor: Supervisor, /) -> None:
        """Show what runs, until cancelled."""

    def writing(self) -> AbstractContextManager[None]:
        """Return a context in which output is written; leaving it writes the rest."""


class _LineDisplay:
    """An output of lines, in order."""

    def __init__(self, greeting: str = "") -> None:
        self._greeting = greeting
        self._lines = LineWriter()
        self._is_open = False

    def _put(self, text: str) -> None:
        if self._is_open:
            self._lines.write(text)
        else:
            self._is_open = True
            self._lines.open(text)

    async def follow(self, _supervisor: Supervisor) -> None:
        await anyio.sleep_forever()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._lines.writing():
            if self._greeting:
                self._put(self._greeting)

            yield


class JsonMapDisplay(_LineDisplay):
    """Output of every record of the journal as a JSON line."""

    def report(self, record: MapRecord, _counted: Figures) -> None:
        self._put(codec.encode(record).decode())

    def notify(self, _sentence: str) -> None:
        """Leave it out: stdout has nothing but records."""


class PlainMapDisplay(_LineDisplay):
    """Output of a line for each item that ends."""

    def report(self, record: MapRecord, counted: Figures) -> None:
        if isinstance(record, MapBegun):
            self._put(
                f"{counted.total} items: {counted.completed} completed before, "
                f"{counted.failed} failed before"
            )
        elif isinstance(record, ItemEnded):
            ended = counted.completed + counted.failed
            count = f"{ended:>{len(str(counted.total))}}/{counted.total}"
            self._put("  ".join(filter(None, (count, line_of(record), forecast(counted)))))

    def notify(self, sentence: str) -> None:
        self._put(sentence)


def line_of(ended: ItemEnded) -> str:
    """Return the end of an item as a line."""
    time = duration(ended.duration_ms / 1000)
    message = "" if ended.message is None else f"  {ended.message}"
    return one_line(f"{ended.item}  {ended.outcome}  {time}  ${ended.cost:.4f}{message}")


def forecast(counted: Figures) -> str:
    """Return the time and the cost that are still to be expected; empty if that is not known."""
    if not counted.seconds_left or counted.cost_at_end is None:
        return ""

    return f"{span(counted.seconds_left)} left, about ${counted.cost_at_end:.2f} in all"


def summary_lines(ended: MapEnded, items: Sequence[Item]) -> Iterator[str]:
    """Yield the lines below the output at the end of a command."""
    words = [f"{ended.completed} completed", f"{ended.failed} failed"]
    if ended.waiting:
        words.append(f"{ended.waiting} not finished")

    yield f"{len(items)} items: {', '.join(words)}; ${ended.cost:.4f}"
    moved = [item.ended for item in items if item.ended is not None and item.ended.moves]
    if moved:
        lost = span(sum(each.lost_ms for each in moved) / 1000)
        yield f"{len(moved)} resumed elsewhere after a machine or a worker had died; {lost} lost"

    failed = [item for item in items if item.status == "failed"]
    for item in failed[:_MOST_ROWS]:
        message = "" if item.ended is None else item.ended.message or ""
        yield f"  failed: {one_line(item.name)}  {one_line(message)}".rstrip()

    if len(failed) > _MOST_ROWS:
        yield f"  and {len(failed) - _MOST_ROWS} more"


# --- the table ------------------------------------------------------------------------------------


class LiveMapDisplay:
    """A table of the items that run, and a progress bar, redrawn in place."""

    def __init__(self, clock: Clock, greeting: str) -> None:
        self._clock = clock
        self._greeting = greeting
        self._live = Live(
            console=Terminal(highlight=False),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._note = ""

    def report(self, record: MapRecord, _counted: Figures) -> None:
        if isinstance(record, ItemEnded) and record.outcome != "completed":
            self._live.console.print(line(line_of(record), _STYLES[record.outcome]))

    def notify(self, sentence: str) -> None:
        self._note = sentence

    async def follow(self, supervisor: Supervisor) -> None:
        while True:
            shown = supervisor.running[:_MOST_ROWS]
            rows = await anyio.to_thread.run_sync(self._rows, supervisor, shown)
            width = self._live.console.width
            picture = map_frame(rows, supervisor.figures, supervisor.max_cost, self._note, width)
            self._live.update(picture, refresh=True)
            await anyio.sleep(REDRAW_SECONDS)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._live.console.print(line(one_line(self._greeting), ""))
        with self._live:
            yield

    def _rows(self, supervisor: Supervisor, items: Sequence[Item]) -> list[MapRow]:
        return [self._row(item, supervisor.course_of(item.name)) for item in items]

    def _row(self, item: Item, course: ItemCourse | None) -> MapRow:
        assert item.started is not None
        since = instants.from_text(item.started.at)
        return MapRow(
            item.name,
            (course and course.codon) or "starting",
            max(0.0, (self._clock.now() - since).total_seconds()),
            0.0 if course is None else course.cost,
        )


@dataclass(frozen=True, slots=True)
class MapRow:
    """An item that runs."""

    item: str
    codon: str
    seconds: float
    cost: float


def map_frame(
    rows: Sequence[MapRow], counted: Figures, max_cost: float | None, note: str, width: int
) -> Group:
    """Return the view as renderable lines, none wider than `width` columns."""
    parts: list[Table | Text] = []
    if rows:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("item", no_wrap=True, overflow="ellipsis", max_width=max(8, width // 2))
        table.add_column("codon", no_wrap=True, overflow="ellipsis", max_width=24)
        table.add_column("time", justify="right", no_wrap=True)
        table.add_column("cost", justify="right", no_wrap=True)
        for row in rows:
            words = (one_line(row.item), row.codon, duration(row.seconds), f"${row.cost:.4f}")
            table.add_row(*map(Text, words))

        parts.append(table)

    if counted.running > len(rows):
        parts.append(line(f"  and {counted.running - len(rows)} more", "dim"))

    parts.append(line(_bar(counted, min(_BAR, max(8, width - 60))), "bold"))
    parts.append(line(map_totals(counted.progress, counted.cost, max_cost), ""))
    if note:
        parts.append(line(note, "bold yellow"))

    return Group(*parts)


def _bar(counted: Figures, width: int) -> str:
    ended = counted.completed + counted.failed
    full = width * ended // max(1, counted.total)
    bar = "━" * full + "─" * (width - full)
    return f"{bar} {ended} of {counted.total}   {forecast(counted)}".rstrip()
