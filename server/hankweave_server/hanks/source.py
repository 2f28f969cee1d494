"""The text of a JSON file: its values, and the lines on which they stand."""

from __future__ import annotations

import bisect
import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from hankweave_server.hanks.problems import Finding, JsonPath

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


class NotJson(Exception):
    """A text that is no JSON; the line is None where the parser does not tell it."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed JSON text."""

    value: Any
    lines: dict[JsonPath, int]
    findings: tuple[Finding, ...]
    """What the text says that its value does not show, such as a key that is there twice."""

    def line_of(self, path: JsonPath) -> int | None:
        """Returns the line of a value, or of the nearest one around it that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]

        return self.lines.get(path) if path else None


def parse(text: str) -> Source:
    """Parses strictly: raises NotJson for everything that RFC 8259 does not know."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        message = f"This is not JSON: {error.msg} (column {error.colno})."
        raise NotJson(message, error.lineno) from None
    except RecursionError:
        raise NotJson("This is nested too deeply.") from None
    except ValueError as error:
        raise NotJson(f"This is not JSON: {error}.") from None

    scan = _Scan(text)
    return Source(value, scan.lines, tuple(scan.findings))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


class _Scan:
    """Walks the tokens of a valid text and notes where each value begins."""

    def __init__(self, text: str) -> None:
        self.lines: dict[JsonPath, int] = {}
        self.findings: list[Finding] = []
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._path: list[str | int] = []
        self._is_object: list[bool] = []
        self._awaits_key = False
        for token in _TOKEN.finditer(text):
            self._take(token.group(), bisect.bisect_left(self._ends, token.start()) + 1)

    def _take(self, token: str, line: int) -> None:
        match token[0]:
            case "{" | "[":
                self._note(line)
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
                self._take_text(token, line)
            case _:
                self._note(line)

    def _take_text(self, token: str, line: int) -> None:
        text = json.loads(token)
        if self._awaits_key:
            self._path[-1] = text
            if tuple(self._path) in self.lines:
                self._found(f"The key {text!r} is there twice; only the last one would count.")

        self._note(line)
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._found("The text holds half a surrogate pair, which no file can hold.")

    def _advance(self) -> None:
        index = self._path[-1]
        if isinstance(index, int):
            self._path[-1] = index + 1

    def _note(self, line: int) -> None:
        self.lines.setdefault(tuple(self._path), line)

    def _found(self, message: str) -> None:
        self.findings.append(Finding(tuple(self._path), message))
