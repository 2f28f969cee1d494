"""The words and signs that a condition is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from hankweave_server.domain.variables import NAME

_TOKEN = re.compile(
    rf"""\s*(?:
        \{{\{{\s*(?P<braced>{NAME})\s*\}}\}}
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<number>[+-]?[0-9]+(?:\.[0-9]+)?(?![\w.]))
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>==|!=|<=|>=|<|>|\(|\))
    )""",
    re.VERBOSE | re.DOTALL,
)
_OTHER_SIGNS = {
    "&&": "Write 'and'.",
    "||": "Write 'or'.",
    "=": "Write '==' to compare.",
    "!": "Write 'not'.",
    "'": "Close the text with the quote that opened it.",
    '"': "Close the text with the quote that opened it.",
    "{{": "Between the braces stands the name of a variable: letters, digits and '_'.",
}


class ConditionError(Exception):
    """A text that is no condition: its author's fault."""

    def __init__(self, message: str, offset: int, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        """Where in the text, in characters from 0."""
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True)
class Token:
    """One word or sign, and where it stands."""

    kind: str
    """`braced`, `text`, `number`, `word`, `sign`, or `end`."""
    text: str
    offset: int

    def is_one_of(self, *words: str) -> bool:
        return self.kind in ("word", "sign") and self.text in words


def tokens(text: str) -> Iterator[Token]:
    """Takes a text apart, with two ends behind it; raises ConditionError where that stops."""
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            _refuse_character(text, at)

        kind = found.lastgroup or ""
        yield Token(kind, found[kind], found.start(kind))
        at = found.end()

    yield Token("end", "", end)
    yield Token("end", "", end)


def _refuse_character(text: str, at: int) -> NoReturn:
    at += len(text[at:]) - len(text[at:].lstrip())
    signs = sorted(_OTHER_SIGNS, key=len, reverse=True)
    sign = next((each for each in signs if text.startswith(each, at)), None)
    shown = sign or text[at]
    suggestion = None if sign is None else _OTHER_SIGNS[sign]
    raise ConditionError(f"{shown!r} means nothing here.", at, suggestion)
