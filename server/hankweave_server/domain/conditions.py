"""Conditions: small expressions over a pipeline's variables that say whether a step is done.

    review == 'ok' and not skip_tests          tries < 3 or {{forced}}
    'error' in log                             defined(plan) and plan != ''

| what | means |
|---|---|
| `name`, `{{name}}` | a variable; `{{name}}` inside quotes is put into the text |
| `3`, `-1.5`, `'text'`, `"text"` | numbers and texts; `\\` takes the next character as it is |
| `true`, `false`, `yes`, `no` | these words, in any case |
| `==` `!=` `<` `<=` `>` `>=` | two that look like numbers compare as numbers, others as texts |
| `in`, `not in` | the first text is a part of the second |
| `defined(name)` | somebody has said what the variable is |
| `not`, `and`, `or`, `( )` | bind in this order, `not` the tightest |

A value by itself holds unless it is empty or, in any case, one of `false no 0 off none`. A variable
that nobody has defined does not hold, equals nothing, orders before and after nothing and is in
nothing; a text with such a variable in it is like it. White space around what is compared does not
count, because an agent's answer often ends with a line end.

Nothing here is Python and nothing is a shell: an expression reads variables, and that is all.

How the values of a condition compare: as numbers where both look like some, else as texts.

The words and signs that a condition is made of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NoReturn, TypeAlias

from hankweave_server.domain.variables import NAME, names_in, render

_NUMBER = re.compile(r"[+-]?[0-9]{1,300}(?:\.[0-9]{1,300})?")


def _compared(one: str, other: str) -> int:
    """Gives -1, 0 or 1 as the first is less, the same or more."""
    one, other = one.strip(), other.strip()
    if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other):
        return int(Decimal(one).compare(Decimal(other)))

    return (one > other) - (one < other)


RELATIONS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "==": lambda one, other: _compared(one, other) == 0,
    "!=": lambda one, other: _compared(one, other) != 0,
    "<": lambda one, other: _compared(one, other) < 0,
    "<=": lambda one, other: _compared(one, other) <= 0,
    ">": lambda one, other: _compared(one, other) > 0,
    ">=": lambda one, other: _compared(one, other) >= 0,
    "in": lambda one, other: one in other,
    "not in": lambda one, other: one not in other,
}
"""What is asked of two values that are both there."""

OF_NOTHING: Final = frozenset({"!=", "not in"})
"""What holds where one of the two is not there."""


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


__all__ = ["RESERVED", "Condition", "ConditionError", "is_true", "parse"]

LONGEST: Final = 1_000
"""Characters of one condition."""

DEEPEST: Final = 32
"""Parentheses inside of each other."""

FALSE_TEXTS: Final = frozenset({"", "false", "no", "0", "off", "none"})
"""What does not hold by itself, in lower case."""

LITERAL_WORDS: Final = frozenset({"true", "false", "yes", "no"})
RESERVED: Final = LITERAL_WORDS | {"and", "or", "not", "in", "defined"}
"""No variable has such a name, in whatever case."""

Variables: TypeAlias = Mapping[str, str]

_Test: TypeAlias = Callable[[Variables], bool]
_Value: TypeAlias = Callable[[Variables], "str | None"]

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_COMMAND = re.compile(
    r"\s*(?:[\[./~$]|(?!(?:not|defined)\b)[A-Za-z_][\w.-]*\s+(?!(?:and|or|not|in)\b)[-\w./~\"'$*])"
)
"""How lines of a shell begin: `[ -f x`, `./check`, `test -f x`, `exit 0`."""

_NO_SHELL = (
    "A condition is an expression over variables, such as review == 'ok', and no shell command;"
    " the step's 'checks' run commands."
)


@dataclass(frozen=True, slots=True)
class Condition:
    """An expression that is known to be sound: asking it never raises."""

    text: str
    names: frozenset[str]
    """All variables that it reads."""
    asked: frozenset[str]
    """Those of them that it asks about with `defined`."""
    _test: _Test

    def holds(self, variables: Variables) -> bool:
        """Tells whether it holds with these variables."""
        return self._test(variables)


def parse(text: str) -> Condition:
    """Reads a condition; raises ConditionError for a text that is none."""
    if len(text) > LONGEST:
        raise ConditionError(f"A condition has at most {LONGEST:,} characters.", LONGEST)

    try:
        return _Parser(text).condition()
    except ConditionError as error:
        if _COMMAND.match(text):
            raise ConditionError(error.message, error.offset, _NO_SHELL) from None

        raise


def is_true(value: str) -> bool:
    """Tells whether a value by itself holds."""
    return value.strip().lower() not in FALSE_TEXTS


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """What was read so far: a value, which can be compared, or else a test."""

    test: _Test
    value: _Value | None = None
    is_word: bool = False
    """True for `true` and its like, which compare in any case."""


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(tokens(text))
        self._at = 0
        self._depth = 0
        self._names: set[str] = set()
        self._asked: set[str] = set()

    def condition(self) -> Condition:
        if self._next.kind == "end":
            self._refuse("The condition is empty.", "Take it out, or say when it holds.")

        part = self._either()
        if self._next.kind != "end":
            self._refuse_next("Expected the end, 'and', 'or' or a comparison here")

        return Condition(self._text, frozenset(self._names), frozenset(self._asked), part.test)

    def _either(self) -> _Part:
        return self._joined("or", self._both, any)

    def _both(self) -> _Part:
        return self._joined("and", self._negated, all)

    def _joined(
        self, word: str, read: Callable[[], _Part], together: Callable[[Iterator[bool]], bool]
    ) -> _Part:
        parts = [read()]
        while self._takes(word):
            parts.append(read())

        if len(parts) == 1:
            return parts[0]

        tests = tuple(part.test for part in parts)
        return _Part(lambda variables: together(test(variables) for test in tests))

    def _negated(self) -> _Part:
        is_negated = seen = False
        while self._takes("not"):
            is_negated, seen = not is_negated, True

        part = self._compared()
        if not seen:
            return part

        return _Part(lambda variables: part.test(variables) is not is_negated)

    def _compared(self) -> _Part:
        left = self._single()
        sign = self._comparison()
        if sign is None:
            return left

        at = self._next.offset
        right = self._single()
        if self._next.is_one_of("==", "!=", "<", "<=", ">", ">="):
            self._refuse("Comparisons cannot be chained.", "Write 'a < b and b < c'.")

        if left.value is None or right.value is None:
            raise ConditionError("Only values can be compared.", at, "Write 'and' or 'or'.")

        return _Part(_comparing(sign, left.value, right.value, left.is_word or right.is_word))

    def _comparison(self) -> str | None:
        if self._next.kind == "sign" and self._next.text not in ("(", ")"):
            return self._taken().text

        if self._takes("in"):
            return "in"

        if self._next.is_one_of("not") and self._tokens[self._at + 1].is_one_of("in"):
            self._at += 2
            return "not in"

        return None

    def _single(self) -> _Part:
        token = self._next
        if token.is_one_of("("):
            return self._parenthesised()

        if token.is_one_of("defined") and self._tokens[self._at + 1].is_one_of("("):
            return self._defined()

        if token.kind not in ("braced", "text", "number", "word") or token.is_one_of(
            "and", "or", "not", "in"
        ):
            self._refuse_next("Expected a value here")

        self._at += 1
        if token.kind == "text":
            return self._quoted(token)

        if token.kind == "number" or (token.kind == "word" and token.text.lower() in LITERAL_WORDS):
            return _part(lambda _: token.text, is_word=token.kind == "word")

        return self._named(token.text)

    def _parenthesised(self) -> _Part:
        self._depth += 1
        if self._depth > DEEPEST:
            self._refuse("The condition is nested too deeply.")

        self._at += 1
        part = self._either()
        self._must_close()
        self._depth -= 1
        return part

    def _defined(self) -> _Part:
        self._at += 2
        token = self._taken()
        if token.kind not in ("word", "braced"):
            raise ConditionError("Expected the name of a variable here.", token.offset)

        self._must_close()
        self._names.add(token.text)
        self._asked.add(token.text)
        return _Part(lambda variables: token.text in variables)

    def _named(self, name: str) -> _Part:
        self._names.add(name)
        return _part(lambda variables: variables.get(name))

    def _quoted(self, token: Token) -> _Part:
        text = _ESCAPED.sub(r"\1", token.text[1:-1])
        names = names_in(text)
        self._names |= names

        def value(variables: Variables) -> str | None:
            return render(text, variables) if names <= variables.keys() else None

        return _part(value)

    # --- tokens ---

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _taken(self) -> Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _takes(self, word: str) -> bool:
        found = self._next.is_one_of(word)
        self._at += found
        return found

    def _must_close(self) -> None:
        if not self._takes(")"):
            self._refuse_next("Expected ')' here")

    def _refuse_next(self, message: str) -> NoReturn:
        found = "the end" if self._next.kind == "end" else repr(self._next.text)
        self._refuse(f"{message}; found {found}.")

    def _refuse(self, message: str, suggestion: str | None = None) -> NoReturn:
        raise ConditionError(message, self._next.offset, suggestion)


# --- asking -------------------------------------------------------------------------------------


def _part(value: _Value, *, is_word: bool = False) -> _Part:
    def test(variables: Variables) -> bool:
        found = value(variables)
        return found is not None and is_true(found)

    return _Part(test, value, is_word)


def _comparing(sign: str, left: _Value, right: _Value, in_any_case: bool) -> _Test:
    relation = RELATIONS[sign]

    def test(variables: Variables) -> bool:
        one, other = left(variables), right(variables)
        if one is None or other is None:
            return sign in OF_NOTHING

        return relation(one.lower(), other.lower()) if in_any_case else relation(one, other)

    return test
