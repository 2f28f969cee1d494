"""Ages and sizes as people write them: `30d`, `500MB`; and sizes as people read them."""

from __future__ import annotations

import re

import click

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
