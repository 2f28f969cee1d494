"""How the values of a condition compare: as numbers where both look like some, else as texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

_NUMBER = re.compile(r"[+-]?[0-9]{1,300}(?:\.[0-9]{1,300})?")


def _compared(one: str, other: str) -> int:
    """Gives -1, 0 or 1 as the first is less, the same or more."""
    one, other = one.strip(), other.strip()
    if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other):
        return int(Decimal(one).compare(Decimal(other)))

    return (one > other) - (one < other)


RELATIONS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "==": lambda one, other: _compared(one, other) == 0,
    "!=": lambda one, other: _compared(one, other) != 0,
    "<": lambda one, other: _compared(one, other) < 0,
    "<=": lambda one, other: _compared(one, other) <= 0,
    ">": lambda one, other: _compared(one, other) > 0,
    ">=": lambda one, other: _compared(one, other) >= 0,
    "in": lambda one, other: one in other,
    "not in": lambda one, other: one not in other,
}
"""What is asked of two values that are both there."""

OF_NOTHING: Final = frozenset({"!=", "not in"})
"""What holds where one of the two is not there."""
