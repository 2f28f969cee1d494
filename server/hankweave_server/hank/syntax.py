"""Why a text is no JSON, in words of the person who wrote it.

Comments and commas before a closing bracket are what people write most; they are told and passed
over, so that everything else in the file is told with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from hankweave_server.hank.problems import Finding

_COMMENTS = re.compile(r'"(?:[^"\\\n]|\\.)*"|(//[^\n]*|#[^\n]*|/\*.*?\*/)', re.DOTALL)
_COMMAS = re.compile(r'"(?:[^"\\\n]|\\.)*"|(,)(?=\s*[}\]])', re.DOTALL)
_CONSTANTS = re.compile(r'"(?:[^"\\\n]|\\.)*"|(-?\b(?:NaN|Infinity)\b)', re.DOTALL)
_NOT_A_LINE_END = re.compile(r"[^\n]")

_COMMENT = "JSON has no comments."
_COMMENT_HINT = "Take it out; a 'description' is the place for what people should know."
_COMMA = "A comma stands before a closing bracket."
_COMMA_HINT = "Take it out: in JSON a comma stands between two values only."

_NEAR = 24  # Characters that are shown of what was found.

_LITERALS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}

_REASONS = (
    ("Expecting property name", "a key in double quotes is missing here", None),
    ("Expecting ':' delimiter", "a ':' is missing after a key", None),
    ("Expecting ',' delimiter", "a ',' is missing before this, or a bracket is not closed", None),
    ("Extra data", "there is something behind its end", "One file holds one object."),
    ("Unterminated string", "a text begins here that does not end", "Close it with '\"'."),
    ("Invalid control character", "a text goes over the end of its line", r"Write \n for it."),
    ("Invalid \\escape", "a text has a backslash that means nothing", r"Write \\ for one."),
    ("Invalid \\u", "a text has a \\u without four hexadecimal digits", None),
)


class NotJson(Exception):
    """A text that no JSON reader can take; `findings` have an offset where it is known."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("\n".join(finding.message for finding in findings))
        self.findings = findings


def forgiven(text: str) -> tuple[str, list[Finding]]:
    """Blanks out comments and needless commas, and tells of each; nothing else moves."""
    text, comments = _without(_COMMENTS, text, _COMMENT, _COMMENT_HINT)
    text, commas = _without(_COMMAS, text, _COMMA, _COMMA_HINT)
    return text, [*comments, *commas]


def explained(text: str, error: ValueError) -> Finding:
    """Says what is wrong where a JSON reader gave up."""
    if not isinstance(error, json.JSONDecodeError):
        if "digits" in str(error):
            return Finding((), "This is not JSON: a number has thousands of digits.")

        found = next(_outside_texts(_CONSTANTS, text), None)
        place = None if found is None else found.start(1)
        return Finding((), f"This is not JSON: {error}.", offset=place)

    if not text.strip():
        return Finding((), "The file is empty.", "`hankweave init` writes a hank to begin with.")

    message, hint = _reason(text, error)
    return Finding((), f"This is not JSON: {message}.", hint, offset=error.pos)


def _reason(text: str, error: json.JSONDecodeError) -> tuple[str, str | None]:
    rest = text[error.pos :].lstrip()
    unfinished = not error.msg.startswith(("Unterminated", "Invalid"))
    if not rest and unfinished:
        return "the file ends too early", "Close every bracket that was opened."

    if rest.startswith("'") and unfinished:
        return "a text stands in single quotes", "Write it in double quotes."

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
