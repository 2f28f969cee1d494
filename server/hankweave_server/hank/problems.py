"""Problems of a hank, collected so that all are reported at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

JsonPath: TypeAlias = tuple[str | int, ...]
Place: TypeAlias = tuple[int, int]
"""A line and a column in characters, both counted from 1."""

COMMAND_LINE: Final[JsonPath] = ("command line",)
"""The path of a fault that is not in the file."""

UNPAIRED: Final = "The text contains an unpaired surrogate, which cannot be stored in a file."

_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$-]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault and its JSON path; line and column are looked up when all faults are known."""

    path: JsonPath
    message: str
    suggestion: str | None = None
    place: Place | None = None
    """For a fault between values, such as a comment."""


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
    """A hank or pipeline that cannot be run; `problems` has every fault, in the file's order."""

    def __init__(self, file: Path, problems: Iterable[HankProblem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        lines = [
            problem.located(file) + ("" if problem.suggestion is None else f" {problem.suggestion}")
            for problem in self.problems
        ]
        super().__init__("\n".join([f"{file} cannot be run:", *lines]))


def invalid(
    file: Path, message: str, suggestion: str | None = None, place: Place | None = None
) -> HankInvalid:
    """Return the exception for a file that has a single problem and no value."""
    return HankInvalid(file, problems([Finding((), message, suggestion, place)], {}))


def problems(
    findings: Iterable[Finding],
    places: Mapping[JsonPath, Place],
    of_the_text: Iterable[Finding] = (),
) -> tuple[HankProblem, ...]:
    """Convert findings to problems, without duplicates and in the order of the file.

    `of_the_text` are faults of the text itself; other findings about the same values are omitted.
    """
    unsound = list(of_the_text)
    paths = {found.path for found in unsound}
    kept = [*unsound, *(found for found in findings if found.path not in paths)]
    found = dict.fromkeys(_problem(each, places) for each in kept)
    return tuple(sorted(found, key=lambda each: (each.line or 0, each.column or 0)))


def _problem(found: Finding, places: Mapping[JsonPath, Place]) -> HankProblem:
    path = found.path
    if path == COMMAND_LINE:
        return HankProblem("$", None, None, found.message, found.suggestion)

    line, column = place_of(found, places) or (None, None)
    return HankProblem(path_text(path), line, column, found.message, found.suggestion)


def place_of(found: Finding, places: Mapping[JsonPath, Place]) -> Place | None:
    """Return the place of a finding: of its value, or of the nearest enclosing one."""
    path = found.path
    while path and path not in places:
        path = path[:-1]

    return found.place or places.get(path)


def read_text(file: Path, largest: int | None = None) -> str:
    """Read a file of at most `largest` bytes; raise HankInvalid if it is not text."""
    try:
        if largest is not None and file.stat().st_size > largest:
            raise invalid(file, f"The file is larger than {largest // 1024**2} MiB.")

        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        suggestion = None
        if isinstance(error, FileNotFoundError) and file.parent.is_dir():
            suggestion = did_you_mean(file.name, (item.name for item in file.parent.iterdir()))

        raise invalid(file, f"The file cannot be read: {error.strerror}.", suggestion) from None
    except UnicodeDecodeError as error:
        message = f"The file is not UTF-8 text: byte {error.start + 1} is invalid."
        raise invalid(file, message) from None


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


def has_surrogate(text: str) -> bool:
    """Return whether a text contains a surrogate without its other half."""
    return _SURROGATE.search(text) is not None
