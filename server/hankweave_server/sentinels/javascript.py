"""The words of JavaScript that Hankweave's templates and schemas are written in.

Only words: nothing here knows what they mean, and nothing of them is ever executed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["name", "number", "text", "mark"]

_WORD = re.compile(
    r"""
    (?P<blank>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<name>[A-Za-z_$][\w$]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)
    |(?P<mark>===|!==|=>|==|!=|<=|>=|&&|\|\||\?\?|\?\.|\+\+|--|[-+*/%=<>!?:.,;(){}\[\]&|])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}


class NotUnderstood(Exception):
    """Something that is not translated; `hint` says what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message} {hint}")
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Word:
    kind: Kind
    text: str
    """Of a text its value, without quotes and escapes."""
    source: str

    def is_mark(self, *marks: str) -> bool:
        return self.kind == "mark" and self.text in marks


class Words:
    """A text's words, taken one after the other."""

    def __init__(self, source: str, hint: str) -> None:
        self.hint = hint
        self._source = source
        self._words = list(self._split(source))
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._words)

    def peek(self, ahead: int = 0) -> Word | None:
        at = self._at + ahead
        return self._words[at] if at < len(self._words) else None

    def next(self) -> Word:
        word = self.peek()
        if word is None:
            raise self.fault("It ends too early")

        self._at += 1
        return word

    def sees(self, *marks: str, ahead: int = 0) -> bool:
        word = self.peek(ahead)
        return word is not None and word.is_mark(*marks)

    def sees_name(self, *names: str, ahead: int = 0) -> bool:
        word = self.peek(ahead)
        return word is not None and word.kind == "name" and (not names or word.text in names)

    def takes(self, mark: str) -> bool:
        """Takes a mark if it comes next."""
        if not self.sees(mark):
            return False

        self._at += 1
        return True

    def expect(self, mark: str) -> None:
        if not self.takes(mark):
            raise self.fault(f"Expected {mark!r}")

    def name(self) -> str:
        word = self.next()
        if word.kind != "name":
            raise self.fault(f"Expected a name, found {word.source!r}")

        return word.text

    def fault(self, message: str) -> NotUnderstood:
        shown = " ".join(self._source.split())
        shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
        return NotUnderstood(f"{message}: {shown!r} is not understood.", self.hint)

    def _split(self, source: str) -> list[Word]:
        words, at = [], 0
        while at < len(source):
            found = _WORD.match(source, at)
            if found is None:
                raise self.fault(f"There is {source[at]!r}")

            at = found.end()
            match found.lastgroup:
                case "name" | "number" | "mark" as kind:
                    words.append(Word(kind, found[0], found[0]))
                case "text":
                    words.append(Word("text", self._value(found[0]), found[0]))
                case _:
                    pass

        return words

    def _value(self, quoted: str) -> str:
        if quoted[0] == "`" and "${" in quoted:
            raise self.fault("There is a text with ${…} in it")

        return _ESCAPE.sub(_unescaped, quoted[1:-1])


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    if code[0] in "ux" and len(code) > 1:
        return chr(int(code[1:], 16))

    return _SIMPLE.get(code, code)


def number_of(word: Word) -> int | float:
    value = json.loads(word.text)
    assert isinstance(value, int | float)
    return value
