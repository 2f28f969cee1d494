"""What can be wrong with a hank, told all at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

JsonPath: TypeAlias = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$-]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault and where it lies in the JSON; the line is looked up when all are known."""

    path: JsonPath
    message: str
    suggestion: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault as a person is told it."""

    path: str
    """JSON path, `$` being the whole file."""
    line: int | None
    """Counted from 1; null where the file as a whole is meant."""
    message: str
    suggestion: str | None = None

    def __str__(self) -> str:
        place = self.path if self.line is None else f"line {self.line}, {self.path}"
        hint = "" if self.suggestion is None else f" {self.suggestion}"
        return f"{place}: {self.message}{hint}"


class HankInvalid(Exception):
    """A hank that cannot be run; `problems` names every fault of it, in the order of the file."""

    def __init__(self, file: Path, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        super().__init__("\n".join([f"{file} cannot be run:", *map(str, self.problems)]))


def path_text(path: JsonPath) -> str:
    parts = ["$"]
    for step in path:
        if isinstance(step, str) and _PLAIN_KEY.fullmatch(step):
            parts.append(f".{step}")
        else:
            parts.append(f"[{step!r}]")

    return "".join(parts)


def did_you_mean(name: object, known: Iterable[str]) -> str | None:
    """Suggests the nearest of the known names, if one is near."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"Did you mean {close[0]!r}?" if close else None
