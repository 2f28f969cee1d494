"""Problems of a hank, collected so that all are reported at once."""

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
    """A fault and its JSON path; line and column are looked up when all faults are known."""

    path: JsonPath
    message: str
    suggestion: str | None = None
    offset: int | None = None
    """Position in the text, for a fault between values, such as a comment."""


@dataclass(frozen=True, slots=True)
class HankProblem:
    """A fault as it is shown to the user."""

    path: str
    """JSON path; `$` is the whole file."""
    line: int | None
    """Counted from 1; null if the fault concerns the whole file."""
    column: int | None
    """Counted from 1, in characters; null if the line is."""
    message: str
    suggestion: str | None = None

    def located(self, file: Path) -> str:
        """Return the problem with its position in compilers' format, which editors recognise."""
        place = "" if self.line is None else f":{self.line}:{self.column}"
        return f"{file}{place}: {self.path}: {self.message}"


class HankInvalid(Exception):
    """A hank that cannot be run; `problems` lists every fault, in the order of the file."""

    def __init__(self, file: Path, problems: Iterable[HankProblem]) -> None:
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
    """Return a suggestion of the most similar known name, if one is similar enough."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"Did you mean {close[0]!r}?" if close else None
