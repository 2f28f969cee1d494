"""Terminal detection, messages on stderr, and human-readable ages, sizes and times.

Ages and sizes are parsed from forms such as `30d` and `500MB`. Times are shown in the local time
zone, with its name. `--json` output does not use this module: it keeps the protocol's UTC
timestamps.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO, TypeVar

import click

from hankweave_protocol import instants
from hankweave_protocol.errors import ErrorCode
from hankweave_server.domain.checkpoints.titles import title_of
from hankweave_server.plain_text import counted, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from hankweave_protocol.executions import MapProgress
    from hankweave_protocol.records import CheckpointRecord
    from hankweave_protocol.replies import ConfinementStatus, Forecast
    from hankweave_server.domain.budget.spending import Costs
    from hankweave_server.hank.problems import HankInvalid
    from hankweave_server.local.eta import Eta

PIPE_WIDTH = 10_000
"""Wider than any screen: in a pipe, no line is wrapped and no name truncated."""


def can_be_drawn_on(stream: TextIO | None = None) -> bool:
    """Return whether a stream (default: stdout) is a terminal with cursor control."""
    is_terminal = (stream or sys.stdout).isatty()
    return is_terminal and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def console() -> Console:
    """Return a console for stdout: coloured on a terminal unless NO_COLOR is set."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, highlight=False, soft_wrap=True)


def print_line(text: str, style: str = "") -> None:
    """Print a line; the style applies only on a terminal."""
    if style and sys.stdout.isatty():
        from rich.text import Text

        console().print(Text(text, style), soft_wrap=True)
    else:
        click.echo(text)


def title_text(record: CheckpointRecord) -> str:
    """Return the title of a checkpoint as `encodable` does."""
    return encodable(title_of(record))


def encodable(title: str) -> str:
    """Return a title on one line, in signs that stdout can encode and a terminal may get."""
    text, encoding = one_line(title), sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        plain = text.translate(_PLAIN_SIGNS)
        return plain.encode(encoding, "backslashreplace").decode(encoding)

    return text


_PLAIN_SIGNS = str.maketrans(
    {"−": "-", "·": ":", "…": "...", "↩": "~", "●": "*", "↻": "@", "✓": "+", "✗": "x", "▸": ">"}
)


def print_error(message: str, hint: str | None = None, code: str | None = None) -> None:
    """Print an error on stderr; a terminal also gets the section of the reference on its code."""
    click.echo(f"hankweave: {message}", err=True)
    if hint:
        click.echo(f"  hint: {hint}", err=True)

    if sys.stderr.isatty() and (section := section_on(code)):
        click.echo(f"  see docs: {section}", err=True)


def section_on(code: str | None) -> str:
    """Return the page and section of docs/reference on an error code; empty if there is none."""
    known = ErrorCode.__members__.get(code or "")
    return "" if known is None else f"errors#{known.anchor}"


def print_problems(invalid: HankInvalid) -> None:
    """Print all problems of a hank or a pipeline, each with its location."""
    for problem in invalid.problems:
        print_error(problem.located(invalid.file), problem.suggestion)


T = TypeVar("T")

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([a-z]*)", re.ASCII | re.IGNORECASE)


class Parsed(click.ParamType[T]):
    """A value that a function reads from a text; it raises ValueError with a sentence."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> T:
        try:
            return self._parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _amount(name: str, units: dict[str, int], example: str) -> Parsed[int]:
    """Return the type of a number with a unit, converted to an integer of the smallest unit."""

    def parse(text: str) -> int:
        found = _AMOUNT.fullmatch(text)
        factor = None if found is None else units.get(found[2].lower())
        if found is None or factor is None:
            raise ValueError(f"{text!r} is not a valid {name}; use a form like {example}.")

        return round(float(found[1]) * factor) if "." in found[1] else int(found[1]) * factor

    return Parsed(name, parse)


AGE = _amount("age", _SECONDS, "30d, 12h, 90m or 45s")
AGE_IN_DAYS = _amount("age", _SECONDS | {"": 86_400}, "30 for days, or 30d, 12h, 45s")
SIZE = _amount("size", _BYTES, "500MB, 2GiB or 1000000")


def size_text(count: int) -> str:
    """Format a number of bytes with a suitable unit: `1.5 MiB`."""
    if count < 1024:
        return counted(count, "byte")

    amount = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"

    return f"{amount / 1024:.1f} TiB"


def span(seconds: float) -> str:
    """Return `45 s`, `12 min`, `2 h 10 min` or `3 d 4 h`; no less than `0 s`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"

    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"

    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def dollars(amount: float) -> str:
    """Return `$5.19`, `$25`, or for less than a cent `$0.0042`."""
    if 0 < amount < 0.01:
        return f"${amount:.4f}"

    return f"${amount:.2f}".removesuffix(".00") if amount >= 1 else f"${amount:.2f}"


def short_age(timestamp: str, now: datetime) -> str:
    """Return the age of a moment in its largest unit, such as `6 min`, or `now`."""
    try:
        seconds = int((now - instants.from_text(timestamp)).total_seconds())
    except ValueError:
        return timestamp

    units = ((86_400, "d"), (3_600, "h"), (60, "min"))
    return next((f"{seconds // size} {unit}" for size, unit in units if seconds >= size), "now")


def cut(text: str, width: int) -> str:
    """Return a text in at most `width` characters, with `…` at the end of one that was longer."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def fitted(line: str) -> str:
    """Return a line as it fits the terminal; unchanged in a pipe."""
    width = width_of_lines()
    return line if width is None else cut(line, width)


def width_of_lines() -> int | None:
    """Return the columns of the terminal; None in a pipe, where no line is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def aligned(
    rows: Sequence[Sequence[str]], *, flexible: int, right: Container[int] = ()
) -> Iterator[str]:
    """Yield rows as lines of aligned columns that fit the terminal.

    The column `flexible` is cut as far as is necessary, and then the line. The columns of `right`
    are aligned at the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = width_of_lines()
    if room is not None:
        others = sum(widths) - widths[flexible] + 2 * (len(widths) - 1)
        widths[flexible] = min(widths[flexible], max(8, room - others))

    for row in rows:
        cells = (
            (cell.rjust if number in right else cell.ljust)(width)
            for number, width in enumerate(widths)
            for cell in [cut(row[number], width)]
        )
        line = "  ".join(cells).rstrip()
        yield line if room is None else cut(line, room)


class Days:
    """Times of lines that follow each other: on a terminal the time of day, below a date."""

    def __init__(self) -> None:
        self._day = ""
        self._is_drawn = sys.stdout.isatty()

    def heading(self, timestamp: str) -> str | None:
        """Return the date and zone of a timestamp if the last one was of another day."""
        day = date(timestamp)
        if not self._is_drawn or day == self._day:
            return None

        self._day = day
        return f"{day} ({zone(timestamp)})"

    def time(self, timestamp: str) -> str:
        return (clock if self._is_drawn else precise_moment)(timestamp)


def ago(timestamp: str, now: datetime) -> str:
    """Return `12 min ago`, or `now` for what has just been."""
    try:
        seconds = (now - instants.from_text(timestamp)).total_seconds()
    except ValueError:
        return timestamp

    if seconds < 5:
        return "now"

    return f"{span(seconds)} ago" if seconds < 172_800 else f"{int(seconds // 86_400)} d ago"


def money_and_time(cost: float | None, milliseconds: int | None) -> str:
    """Return `$0.40 and 12 min`, without what is unknown or too little to be counted."""
    money = f"${cost:.2f}" if cost is not None and cost >= 0.005 else ""
    time = span(milliseconds / 1000) if milliseconds is not None and milliseconds >= 500 else ""
    return " and ".join(filter(None, (money, time)))


def costs_text(paid: Costs) -> str:
    """Return `$0.1029 of $5.00, of it $0.0181 rolled back and $0.0300 for attempts`."""
    budget = "" if paid.budget is None else f" of ${paid.budget:.2f}"
    parts = ((paid.rolled_back, "rolled back"), (paid.attempts, "for attempts"))
    unused = " and ".join(f"${dollars:.4f} {what}" for dollars, what in parts if dollars > 0)
    return f"${paid.total:.4f}{budget}{unused and f', of it {unused}'}"


def forecast_text(seen: Forecast, paid: float) -> str:
    """Return `about 12 min and $0.40 more, $1.24 at the end (from 3 earlier rounds)`."""
    if seen.remaining_ms is None or seen.cost_at_end is None:
        return f"unknown: a step that is left has not run before ({seen.basis})"

    more = money_and_time(seen.cost_at_end - paid, seen.remaining_ms) or "less than a second"
    return f"about {more} more, ${seen.cost_at_end:.4f} at the end ({seen.basis})"


def eta_text(eta: Eta | None) -> str:
    """Return how long a plan still takes: `12 min to 25 min, probably 18 min`."""
    if eta is None:
        return "unknown: no codon that is left has finished before"

    shortest = span(eta.shortest_ms / 1000)
    if eta.longest_ms is None or eta.likely_ms is None:
        missing = f"how long {', '.join(eta.unknown)} will take is unknown"
        return missing if eta.shortest_ms < 1000 else f"at least {shortest}; {missing}"

    longest = span(eta.longest_ms / 1000)
    is_exact = shortest == longest
    likely = span(eta.likely_ms / 1000)
    text = f"about {likely}" if is_exact else f"{shortest} to {longest}, probably {likely}"
    if eta.earliest is None or eta.latest is None:
        return text

    is_one_day = date(eta.earliest) == date(eta.latest) == date(instants.to_text(datetime.now(UTC)))
    first, last = (clock, clock_with_zone) if is_one_day else (moment, moment)
    begin = "at" if is_exact else f"between {first(eta.earliest)} and"
    return f"{text} (done {begin} {last(eta.latest)})"


def moment(timestamp: str) -> str:
    """Return `2026-11-21 15:44:34 CET`; return a text that is not a timestamp unchanged."""
    at = _local(timestamp)
    return timestamp if at is None else f"{at:%Y-%m-%d %H:%M:%S %Z}"


def precise_moment(timestamp: str) -> str:
    """Return `2026-11-21 15:44:34.123 CET`; return a text that is not a timestamp unchanged."""
    at = _local(timestamp)
    if at is None:
        return timestamp

    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} {at:%Z}"


def date(timestamp: str) -> str:
    """Return `2026-11-21`."""
    at = _local(timestamp)
    return timestamp[:10] if at is None else f"{at:%Y-%m-%d}"


def clock(timestamp: str) -> str:
    """Return `15:44:34`, for lines under a heading that names the zone."""
    at = _local(timestamp)
    return timestamp[11:19] if at is None else f"{at:%H:%M:%S}"


def clock_with_zone(timestamp: str) -> str:
    """Return `15:44:34 CET`."""
    at = _local(timestamp)
    return timestamp[11:19] if at is None else f"{at:%H:%M:%S %Z}"


def zone(timestamp: str) -> str:
    """Return the local time zone at an instant: `CET, UTC+01:00`, or `UTC`."""
    at = _local(timestamp)
    if at is None:
        return "UTC"

    name, offset = at.tzname() or "", f"{at:%z}"
    if name == "UTC":
        return name

    sign = f"UTC{offset[:3]}:{offset[3:5]}"
    return f"{name}, {sign}" if name[:1].isalpha() else sign


def _local(timestamp: str) -> datetime | None:
    try:
        return instants.from_text(timestamp).astimezone()
    except (ValueError, OverflowError):
        return None


def confinement_text(status: ConfinementStatus) -> str:
    """Return what confines agents, without what that does not cover."""
    if status.level == "none":
        return "none, because this machine offers no way to confine agents"

    landlock = f", Landlock ABI {status.landlock_abi}" if status.landlock_abi else ""
    return f"{status.profile}, level {status.level}{landlock}"


def map_totals(counted: MapProgress, cost: float, max_cost: float | None) -> str:
    """Return how many items are in which state, and what they have cost of how much."""
    of = "" if max_cost is None else f" of ${max_cost:.2f}"
    words = [f"{counted.completed} completed"]
    if counted.failed:
        words.append(f"{counted.failed} failed")

    words += [f"{counted.running} running", f"{counted.waiting} waiting"]
    return f"{', '.join(words)}   ${cost:.4f}{of}"
