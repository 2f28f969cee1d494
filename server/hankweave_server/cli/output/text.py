"""What the program's streams are: terminals that can be drawn on, or files and pipes.

Ages and sizes as people write them: `30d`, `500MB`; and sizes as people read them.

Times as a person reads them: in the zone of this machine, with the zone's name.

Only text for people goes through here. `--json` keeps the protocol's UTC timestamps.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console
import re
from datetime import datetime

from hankweave_protocol import instants

PIPE_WIDTH = 10_000
"""Nobody's screen: in a pipe no line is folded and no name cut."""


def can_be_drawn_on(stream: TextIO | None = None) -> bool:
    """Tells whether a stream (stdout if it is none else) is a terminal that can be drawn on."""
    is_terminal = (stream or sys.stdout).isatty()
    return is_terminal and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def console() -> Console:
    """Makes what draws on stdout: in colour on a terminal, if NO_COLOR does not say otherwise."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, highlight=False, soft_wrap=True)


def say(text: str, style: str = "") -> None:
    """Prints a line; its style is for a terminal alone."""
    if style and sys.stdout.isatty():
        from rich.text import Text

        console().print(Text(text, style), soft_wrap=True)
    else:
        click.echo(text)


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


class _Amount(click.ParamType[int]):
    """A number with a unit, as a whole number of the smallest."""

    def __init__(self, name: str, units: dict[str, int], example: str) -> None:
        self.name = name
        self._units = units
        self._example = example

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        found = _AMOUNT.fullmatch(str(value))
        factor = None if found is None else self._units.get(found[2].lower())
        if found is None or factor is None:
            self.fail(f"{value!r} is no {self.name}; write it like {self._example}.", param, ctx)

        return round(float(found[1]) * factor) if "." in found[1] else int(found[1]) * factor


AGE = _Amount("age", _SECONDS, "30d, 12h, 90m or 45s")
AGE_IN_DAYS = _Amount("age", _SECONDS | {"": 86_400}, "30 for days, or 30d, 12h, 45s")
SIZE = _Amount("size", _BYTES, "500MB, 2GiB or 1000000")


def size_text(count: int) -> str:
    """Writes a number of bytes in the unit that suits it: `1.5 MiB`."""
    if count < 1024:
        return f"{count} bytes"

    amount = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"

    return f"{amount / 1024:.1f} TiB"


def moment(timestamp: str) -> str:
    """Return `2026-11-21 15:44:34 CET`; a text that is no timestamp is returned as it is."""
    at = _local(timestamp)
    return timestamp if at is None else f"{at:%Y-%m-%d %H:%M:%S %Z}"


def precise_moment(timestamp: str) -> str:
    """Return the same with milliseconds."""
    at = _local(timestamp)
    if at is None:
        return timestamp

    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} {at:%Z}"


def date(timestamp: str) -> str:
    """Return `2026-11-21`."""
    at = _local(timestamp)
    return timestamp[:10] if at is None else f"{at:%Y-%m-%d}"


def clock(timestamp: str) -> str:
    """Return `15:44:34`, for lines whose heading names the zone."""
    at = _local(timestamp)
    return timestamp[11:19] if at is None else f"{at:%H:%M:%S}"


def clock_with_zone(timestamp: str) -> str:
    """Return `15:44:34 CET`."""
    at = _local(timestamp)
    return timestamp[11:19] if at is None else f"{at:%H:%M:%S %Z}"


def zone(timestamp: str) -> str:
    """Return the zone that an instant has here: `CET, UTC+01:00`, or `UTC`."""
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
