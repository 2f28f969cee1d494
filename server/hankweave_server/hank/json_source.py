"""JSON text with positions: its value, and where in the text each part is.

Syntax errors are explained in terms of the text. Comments and trailing commas, the most common
mistakes, are reported and skipped, so that all other problems of the file are reported too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from hankweave_server.hank.problems import UNPAIRED, Finding, JsonPath, Place, has_surrogate

_TEXT = r'"(?:[^"\\\n]|\\.)*"'
_COMMENTS = re.compile(rf"{_TEXT}|(//[^\n]*|#[^\n]*|/\*.*?\*/)", re.DOTALL)
_COMMAS = re.compile(rf"{_TEXT}|(,)(?=\s*[}}\]])", re.DOTALL)
_CONSTANTS = re.compile(rf"{_TEXT}|(-?\b(?:NaN|Infinity)\b)", re.DOTALL)

_DESCRIPTION = "Remove it; use 'description' for notes to readers."
_BETWEEN = "Remove it: JSON allows commas only between values."
_LENIENT_SYNTAX = (
    (_COMMENTS, "JSON does not allow comments.", _DESCRIPTION),
    (_COMMAS, "There is a comma before a closing bracket.", _BETWEEN),
)
"""Mistakes that can be skipped: for each its pattern, outside of strings, a message and a hint."""

_NEAR = 24  # Length limit of quoted input, in characters.

_LITERALS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}

_REASONS = (
    ("Expecting property name", "a key in double quotes is missing here", None),
    ("Expecting ':' delimiter", "a ':' is missing after a key", None),
    ("Expecting ',' delimiter", "a ',' is missing before this, or a bracket is not closed", None),
    ("Extra data", "there is text after its end", "A file must contain exactly one object."),
    ("Unterminated string", "the string that begins here is not closed", "Close it with '\"'."),
    ("Invalid control character", "a string contains a line break", r"Write \n instead."),
    (
        "Invalid \\escape",
        "a string contains an invalid escape sequence",
        r"Write \\ for a backslash.",
    ),
    ("Invalid \\u", "a string contains \\u without four hexadecimal digits", None),
)


class NotJson(Exception):
    """A text that cannot be parsed; `findings` have a place if it is known."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("\n".join(finding.message for finding in findings))
        self.findings = findings


def strict_json(text: str) -> tuple[str, list[Finding]]:
    """Blank out comments and trailing commas, with a finding for each; places are kept."""
    findings: list[Finding] = []
    for pattern, message, hint in _LENIENT_SYNTAX:
        found = [match for match in pattern.finditer(text) if match[1] is not None]
        findings += (Finding((), message, hint, _place(text, each.start())) for each in found)
        text = pattern.sub(_blanked, text)

    return text, findings


def _blanked(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else re.sub(r"[^\n]", " ", match[0])


def _place(text: str, offset: int) -> Place:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def explained(text: str, error: ValueError) -> Finding:
    """Return a finding that explains a parser's error."""
    if not isinstance(error, json.JSONDecodeError):
        if "digits" in str(error):
            return Finding((), "This is not JSON: a number has thousands of digits.")

        offsets = (match.start() for match in _CONSTANTS.finditer(text) if match[1] is not None)
        place = _place(text, next(offsets, 0))
        return Finding((), f"This is not JSON: {error}.", place=place)

    if not text.strip():
        return Finding((), "The file is empty.", "`hankweave init` writes a hank to start from.")

    message, hint = _reason(text, error)
    return Finding((), f"This is not JSON: {message}.", hint, (error.lineno, error.colno))


def _reason(text: str, error: json.JSONDecodeError) -> tuple[str, str | None]:
    rest = text[error.pos :].lstrip()
    unfinished = not error.msg.startswith(("Unterminated", "Invalid"))
    if not rest and unfinished:
        return "the file ends too early", "Close every open bracket."

    if rest.startswith("'") and unfinished:
        return "a string is in single quotes", "Use double quotes."

    for beginning, message, hint in _REASONS:
        if error.msg.startswith(beginning):
            return message, hint

    word = re.match(r"[\w.+-]+", rest)
    shown = word[0] if word else rest[:1]
    instead = _LITERALS.get(shown)
    return f"a value is missing here; found {shown[:_NEAR]!r}", (
        None if instead is None else f"Write {instead!r} without quotes."
    )


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{\[]|[^\s{}\[\]:,"]+', re.DOTALL)
"""The beginning of each value and key."""
_LONG_NUMBER = re.compile(r"[0-9]{19}|[0-9][eE]\+?[0-9]{3}")
_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed JSON text."""

    text: str
    """The text with skipped parts blanked out; places are those of the file."""
    value: Any
    findings: tuple[Finding, ...]
    """Mistakes that a reader can skip but an author should fix."""
    is_plain: bool
    """True if the value shows everything in the text; false for a duplicate key, for example."""


def parse(text: str) -> Source:
    """Parse a text; raise NotJson if it has no value even without its comments."""
    try:
        return _parsed(text, ())
    except NotJson as first:
        cleaned, findings = strict_json(text)
        if not findings:
            raise first from None

    try:
        return _parsed(cleaned, tuple(findings))
    except NotJson as error:
        # Apparent comments after the error may be inside a string that was not closed.
        end = error.findings[0].place
        before = [each for each in findings if end is None or (each.place or end) < end]
        raise NotJson(*before, *error.findings) from None


def _parsed(text: str, findings: tuple[Finding, ...]) -> Source:
    is_repeated = False

    def object_of(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal is_repeated
        value = dict(items)
        is_repeated = is_repeated or len(value) != len(items)
        return value

    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=object_of)
    except ValueError as error:
        raise NotJson(explained(text, error)) from None
    except RecursionError:
        raise NotJson(Finding((), "This is nested too deeply.")) from None

    is_odd = is_repeated or findings or _LONG_NUMBER.search(text) or _HALF_A_PAIR.search(text)
    return Source(text, value, findings, is_plain=not is_odd)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a valid number")


class JsonPlaces:
    """The places of all values of a valid text, and the faults that its value does not show."""

    def __init__(self, text: str) -> None:
        self.findings: list[Finding] = []
        self.at: dict[JsonPath, Place] = {}
        """The place of each item, and of each key."""
        self._walk(json.loads(text, object_pairs_hook=tuple), _token_places(text))

    def _walk(self, value: Any, tokens: Iterator[Place]) -> None:
        """Visit all values in the order of the text; before a member's token is that of its key."""
        waiting: list[_Part] = [((), value, None)]
        while waiting:
            path, value, is_repeated = waiting.pop()
            place = next(tokens)
            if path:
                self.at[path] = place

            if is_repeated is not None:
                next(tokens)

            if is_repeated:
                message = f"The key {path[-1]!r} appears twice; only the last one would be used."
                self.findings.append(Finding(path, message, "Remove one of them.", place))

            fault = _fault_of(path[-1]) if path else None
            if (fault := fault or _fault_of(value)) is not None:
                self.findings.append(Finding(path, fault))

            waiting += reversed(list(_parts_of(value, path)))


_Part: TypeAlias = tuple[JsonPath, Any, "bool | None"]
"""A path, its value, and whether the key appeared before; None for an item of a list."""


def _parts_of(value: Any, path: JsonPath) -> Iterator[_Part]:
    match value:
        case list():
            yield from (((*path, index), item, None) for index, item in enumerate(value))
        case tuple():  # The members of an object.
            seen = set()
            for key, item in value:
                yield (*path, key), item, key in seen
                seen.add(key)


def _fault_of(value: Any) -> str | None:
    match value:
        case str() if has_surrogate(value):
            return UNPAIRED
        case bool():
            return None
        case float() if not math.isfinite(value):
            return "The number is too large to be stored."
        case int() if not -(2**63) <= value < 2**63:
            return "The number is too large to be stored."
        case _:
            return None


def _token_places(text: str) -> Iterator[Place]:
    line, begin, before = 1, 0, 0
    for token in _TOKEN.finditer(text):
        at = token.start()
        line += text.count("\n", before, at)
        begin = text.rfind("\n", before, at) + 1 or begin
        before = at
        yield line, at - begin + 1
