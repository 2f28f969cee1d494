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
    """A fault and where it lies in the JSON; line and column are looked up when all are known."""

    path: JsonPath
    message: str
    suggestion: str | None = None
    offset: int | None = None
    """Where it stands in the text, for what lies between values, such as a comment."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault as a person is told it."""

    path: str
    """JSON path, `$` being the whole file."""
    line: int | None
    """Counted from 1; null where the file as a whole is meant."""
    column: int | None
    """Counted from 1, in characters; null where the line is."""
    message: str
    suggestion: str | None = None

    def located(self, file: Path) -> str:
        """Tells it with its place as compilers do, so that editors find the way there."""
        place = "" if self.line is None else f":{self.line}:{self.column}"
        return f"{file}{place}: {self.path}: {self.message}"


class HankInvalid(Exception):
    """A hank that cannot be run; `problems` names every fault of it, in the order of the file."""

    def __init__(self, file: Path, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        lines = [
            problem.located(file) + ("" if problem.suggestion is None else f" {problem.suggestion}")
            for problem in self.problems
        ]
        super().__init__("\n".join([f"{file} cannot be run:", *lines]))


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
