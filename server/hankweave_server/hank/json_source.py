"""JSON text with positions: its value, and where in the text each part is.

Syntax errors are explained in terms of the text. Comments and trailing commas, the most common
mistakes, are reported and skipped, so that all other problems of the file are reported too.
"""

from __future__ import annotations

import bisect
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from hankweave_server.hank.problems import Finding, JsonPath

_COMMENTS = re.compile(r'"(?:[^"\\\n]|\\.)*"|(//[^\n]*|#[^\n]*|/\*.*?\*/)', re.DOTALL)
_COMMAS = re.compile(r'"(?:[^"\\\n]|\\.)*"|(,)(?=\s*[}\]])', re.DOTALL)
_CONSTANTS = re.compile(r'"(?:[^"\\\n]|\\.)*"|(-?\b(?:NaN|Infinity)\b)', re.DOTALL)
_NOT_A_LINE_END = re.compile(r"[^\n]")

_COMMENT = "JSON does not allow comments."
_COMMENT_HINT = "Remove it; use 'description' for notes to readers."
_COMMA = "There is a comma before a closing bracket."
_COMMA_HINT = "Remove it: JSON allows commas only between values."

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
    """A text that cannot be parsed; `findings` have an offset if it is known."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("\n".join(finding.message for finding in findings))
        self.findings = findings


def forgiven(text: str) -> tuple[str, list[Finding]]:
    """Blank out comments and trailing commas, with a finding for each; offsets are kept."""
    text, comments = _without(_COMMENTS, text, _COMMENT, _COMMENT_HINT)
    text, commas = _without(_COMMAS, text, _COMMA, _COMMA_HINT)
    return text, [*comments, *commas]


def explained(text: str, error: ValueError) -> Finding:
    """Return a finding that explains a parser's error."""
    if not isinstance(error, json.JSONDecodeError):
        if "digits" in str(error):
            return Finding((), "This is not JSON: a number has thousands of digits.")

        found = next(_outside_texts(_CONSTANTS, text), None)
        place = None if found is None else found.start(1)
        return Finding((), f"This is not JSON: {error}.", offset=place)

    if not text.strip():
        return Finding((), "The file is empty.", "`hankweave init` writes a hank to start from.")

    message, hint = _reason(text, error)
    return Finding((), f"This is not JSON: {message}.", hint, offset=error.pos)


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


def _without(
    pattern: re.Pattern[str], text: str, message: str, hint: str
) -> tuple[str, list[Finding]]:
    found = list(_outside_texts(pattern, text))
    pieces: list[str] = []
    end = 0
    for match in found:
        pieces += text[end : match.start(1)], _NOT_A_LINE_END.sub(" ", match[1])
        end = match.end(1)

    findings = [Finding((), message, hint, offset=match.start(1)) for match in found]
    return "".join([*pieces, text[end:]]), findings


def _outside_texts(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    return (match for match in pattern.finditer(text) if match[1] is not None)


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_LONG_NUMBER = re.compile(r"[0-9]{19}|[0-9][eE]\+?[0-9]{3}")
_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed JSON text."""

    text: str
    """The text with skipped parts blanked out; offsets are those of the file."""
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
        cleaned, findings = forgiven(text)
        if not findings:
            raise first from None

    try:
        return _parsed(cleaned, tuple(findings))
    except NotJson as error:
        # Apparent comments after the error may be inside a string that was not closed.
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
    raise ValueError(f"{name} is not a valid number")


class LineNumbers:
    """The positions of the lines of a text."""

    def __init__(self, text: str) -> None:
        self._ends = [match.start() for match in re.finditer("\n", text)]

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of a character, both counted from 1."""
        line = bisect.bisect_left(self._ends, offset)
        begin = self._ends[line - 1] + 1 if line else 0
        return line + 1, offset - begin + 1


class JsonPlaces:
    """The offsets of all values of a valid text, found by walking its tokens."""

    def __init__(self, text: str) -> None:
        self.findings: list[Finding] = []
        self._offsets: dict[JsonPath, int] = {}
        self._path: list[str | int] = []
        self._is_object: list[bool] = []
        self._awaits_key = False
        for token in _TOKEN.finditer(text):
            self._take(token.group(), token.start())

    def offset_of(self, finding: Finding) -> int | None:
        """Return the offset of a finding: of its value, or of the nearest enclosing one."""
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
            message = f"The key {text!r} appears twice; only the last one would be used."
            self._found(message, "Remove one of them.", offset)
            self._forget_below()

        self._note(offset)
        self._check_characters(token)

    def _check_characters(self, token: str) -> None:
        if not _HALF_A_PAIR.search(token):
            return

        if any("\ud800" <= character <= "\udfff" for character in json.loads(token)):
            self._found(
                "The text contains an unpaired surrogate, which cannot be stored in a file."
            )

    def _take_word(self, token: str, offset: int) -> None:
        self._note(offset)
        if not _LONG_NUMBER.search(token):
            return

        number = json.loads(token)
        is_finite = not isinstance(number, float) or math.isfinite(number)
        if not is_finite or (isinstance(number, int) and not -(2**63) <= number < 2**63):
            self._found("The number is too large to be stored.")

    def _advance(self) -> None:
        index = self._path[-1]
        if isinstance(index, int):
            self._path[-1] = index + 1

    def _note(self, offset: int) -> None:
        self._offsets.setdefault(tuple(self._path), offset)

    def _forget_below(self) -> None:
        """Forget the first value's keys: the second value's keys are not duplicates of them."""
        here = tuple(self._path)
        below = [path for path in self._offsets if path[: len(here)] == here]
        for path in below:
            del self._offsets[path]

    def _found(
        self, message: str, suggestion: str | None = None, offset: int | None = None
    ) -> None:
        self.findings.append(Finding(tuple(self._path), message, suggestion, offset))
