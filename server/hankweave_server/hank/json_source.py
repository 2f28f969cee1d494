"""The text of a JSON file: its value, and where in the text each part of it stands."""

from __future__ import annotations

import bisect
import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from hankweave_server.hank.problems import Finding, JsonPath
from hankweave_server.hank.syntax import NotJson, explained, forgiven

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_LONG_NUMBER = re.compile(r"[0-9]{19}|[0-9][eE]\+?[0-9]{3}")
_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed JSON text."""

    text: str
    """With blanks for what had to be passed over: each offset is one of the file's."""
    value: Any
    findings: tuple[Finding, ...]
    """What a reader can pass over and an author should not write."""
    is_plain: bool
    """True where nothing is in it that a JSON value does not show, such as a key twice."""


def parse(text: str) -> Source:
    """Parses; raises NotJson for a text that has no value even with its comments passed over."""
    try:
        return _parsed(text, ())
    except NotJson as first:
        cleaned, findings = forgiven(text)
        if not findings:
            raise first from None

    try:
        return _parsed(cleaned, tuple(findings))
    except NotJson as error:
        # What looks like a comment behind the fault may be inside a text that was not closed.
        end = error.findings[0].offset
        before = [found for found in findings if end is None or (found.offset or 0) < end]
        raise NotJson(*before, *error.findings) from None


def _parsed(text: str, findings: tuple[Finding, ...]) -> Source:
    repeats: list[str] = []

    def object_of(items: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(items)
        if len(value) != len(items):
            repeats.append("")

        return value

    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=object_of)
    except ValueError as error:
        raise NotJson(explained(text, error)) from None
    except RecursionError:
        raise NotJson(Finding((), "This is nested too deeply.")) from None

    is_plain = not (repeats or findings or _LONG_NUMBER.search(text) or _HALF_A_PAIR.search(text))
    return Source(text, value, findings, is_plain)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


class Lines:
    """Where the lines of a text begin."""

    def __init__(self, text: str) -> None:
        self._ends = [match.start() for match in re.finditer("\n", text)]

    def place(self, offset: int) -> tuple[int, int]:
        """Returns line and column of a character, both counted from 1."""
        line = bisect.bisect_left(self._ends, offset)
        begin = self._ends[line - 1] + 1 if line else 0
        return line + 1, offset - begin + 1


class Places:
    """Walks the tokens of a valid text, and knows then where each value begins."""

    def __init__(self, text: str) -> None:
        self.findings: list[Finding] = []
        self._offsets: dict[JsonPath, int] = {}
        self._path: list[str | int] = []
        self._is_object: list[bool] = []
        self._awaits_key = False
        for token in _TOKEN.finditer(text):
            self._take(token.group(), token.start())

    def offset_of(self, finding: Finding) -> int | None:
        """Returns where a finding is: at its value, or at the nearest one around it."""
        path, offset = finding.path, finding.offset
        while offset is None and path:
            offset = self._offsets.get(path)
            path = path[:-1]

        return offset

    def _take(self, token: str, offset: int) -> None:
        match token[0]:
            case "{" | "[":
                self._note(offset)
                self._is_object.append(token == "{")
                self._path.append(0)
                self._awaits_key = token == "{"
            case "}" | "]":
                self._is_object.pop()
                self._path.pop()
                self._awaits_key = False
            case ",":
                self._awaits_key = self._is_object[-1]
                self._advance()
            case ":":
                self._awaits_key = False
            case '"':
                self._take_text(token, offset)
            case _:
                self._take_word(token, offset)

    def _take_text(self, token: str, offset: int) -> None:
        if not self._awaits_key:
            self._note(offset)
            self._check_characters(token)
            return

        text = json.loads(token)
        self._path[-1] = text
        if tuple(self._path) in self._offsets:
            message = f"The key {text!r} is there twice; only the last one would count."
            self._found(message, "Take one of them out.", offset)
            self._forget_below()

        self._note(offset)
        self._check_characters(token)

    def _check_characters(self, token: str) -> None:
        if not _HALF_A_PAIR.search(token):
            return

        if any("\ud800" <= character <= "\udfff" for character in json.loads(token)):
            self._found("The text holds half a surrogate pair, which no file can hold.")

    def _take_word(self, token: str, offset: int) -> None:
        self._note(offset)
        if not _LONG_NUMBER.search(token):
            return

        number = json.loads(token)
        is_finite = not isinstance(number, float) or math.isfinite(number)
        if not is_finite or (isinstance(number, int) and not -(2**63) <= number < 2**63):
            self._found("The number is too large to be kept.")

    def _advance(self) -> None:
        index = self._path[-1]
        if isinstance(index, int):
            self._path[-1] = index + 1

    def _note(self, offset: int) -> None:
        self._offsets.setdefault(tuple(self._path), offset)

    def _forget_below(self) -> None:
        """What the second value holds is not there twice because the whole of it is."""
        here = tuple(self._path)
        below = [path for path in self._offsets if path[: len(here)] == here]
        for path in below:
            del self._offsets[path]

    def _found(
        self, message: str, suggestion: str | None = None, offset: int | None = None
    ) -> None:
        self.findings.append(Finding(tuple(self._path), message, suggestion, offset))
