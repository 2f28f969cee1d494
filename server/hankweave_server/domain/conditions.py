r"""Conditions: small expressions over a pipeline's variables that decide whether a step is done.

    review == 'ok' and not skip_tests          tries < 3 or {{forced}}
    'error' in log                             defined(plan) and plan != ''

| syntax | meaning |
|---|---|
| `name`, `{{name}}` | a variable; `{{name}}` inside quotes is inserted into the text |
| `3`, `-1.5`, `'text'`, `"text"` | numbers and texts; `\` escapes the next character |
| `true`, `false`, `yes`, `no` | these words, in any case |
| `==` `!=` `<` `<=` `>` `>=` | if both look like numbers they compare as numbers, else as texts |
| `in`, `not in` | the first text is a part of the second |
| `defined(name)` | the variable has a value |
| `not`, `and`, `or`, `( )` | bind in this order, `not` the tightest |

A value alone holds unless it is empty or, in any case, one of `false no 0 off none`. An undefined
variable does not hold, equals nothing, orders before and after nothing and is in nothing; a text
that contains one behaves like it. White space around compared values does not count, because an
agent's answer often ends with a newline.

Nothing is evaluated as Python or by a shell: an expression reads variables and nothing else.

`tokens` splits a text, `parse` compiles it, and `ParsedCondition.holds` evaluates it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NoReturn, TypeAlias

from hankweave_server.domain.variables import NAME, names_in, render

__all__ = ["RESERVED", "ConditionError", "ParsedCondition", "is_true", "parse"]

_NUMBER = re.compile(r"[+-]?[0-9]{1,300}(?:\.[0-9]{1,300})?")


def _compared(one: str, other: str) -> int:
    """Return -1, 0 or 1 as the first is less than, equal to or greater than the second."""
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
"""Comparisons of two values that are both defined."""

OF_NOTHING: Final = frozenset({"!=", "not in"})
"""Comparisons that hold if one of the two values is undefined."""


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
    "'": "Close the string with its opening quote.",
    '"': "Close the string with its opening quote.",
    "{{": "Put a variable name between the braces: letters, digits and '_'.",
}


class ConditionError(Exception):
    """An invalid condition: an error of its author."""

    def __init__(self, message: str, offset: int, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        """The position in the text, in characters from 0."""
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True)
class Token:
    """One word or sign, and its position."""

    kind: str
    """`braced`, `text`, `number`, `word`, `sign`, or `end`."""
    text: str
    offset: int

    def is_one_of(self, *words: str) -> bool:
        return self.kind in ("word", "sign") and self.text in words


def tokens(text: str) -> Iterator[Token]:
    """Split a text into tokens, with two `end` tokens at the end; raise ConditionError."""
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
    raise ConditionError(f"{shown!r} is not allowed here.", at, suggestion)


LONGEST: Final = 1_000
"""The most characters of a condition."""

DEEPEST: Final = 32
"""The deepest nesting of parentheses."""

FALSE_TEXTS: Final = frozenset({"", "false", "no", "0", "off", "none"})
"""Values that do not hold by themselves, in lower case."""

LITERAL_WORDS: Final = frozenset({"true", "false", "yes", "no"})
RESERVED: Final = LITERAL_WORDS | {"and", "or", "not", "in", "defined"}
"""Words that are not allowed as variable names, in any case."""

Variables: TypeAlias = Mapping[str, str]

_Test: TypeAlias = Callable[[Variables], bool]
_Value: TypeAlias = Callable[[Variables], "str | None"]

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_COMMAND = re.compile(
    r"\s*(?:[\[./~$]|(?!(?:not|defined)\b)[A-Za-z_][\w.-]*\s+(?!(?:and|or|not|in)\b)[-\w./~\"'$*])"
)
"""Beginnings of shell commands: `[ -f x`, `./check`, `test -f x`, `exit 0`."""

_NO_SHELL = (
    "A condition is an expression over variables, such as review == 'ok', not a shell command;"
    " the step's 'checks' run commands."
)


@dataclass(frozen=True, slots=True)
class ParsedCondition:
    """A valid expression: evaluating it never raises."""

    text: str
    names: frozenset[str]
    """All variables that it reads."""
    asked: frozenset[str]
    """The variables that it checks with `defined`."""
    _test: _Test

    def holds(self, variables: Variables) -> bool:
        """Return whether it holds with these variables."""
        return self._test(variables)


def parse(text: str) -> ParsedCondition:
    """Parse a condition; raise ConditionError if it is invalid."""
    if len(text) > LONGEST:
        raise ConditionError(f"A condition can have at most {LONGEST:,} characters.", LONGEST)

    try:
        return _Parser(text).condition()
    except ConditionError as error:
        if _COMMAND.match(text):
            raise ConditionError(error.message, error.offset, _NO_SHELL) from None

        raise


def is_true(value: str) -> bool:
    """Return whether a value holds by itself."""
    return value.strip().lower() not in FALSE_TEXTS


# --- parsing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """A parsed part: a value, which can be compared, or else a test."""

    test: _Test
    value: _Value | None = None
    is_word: bool = False
    """True for `true`, `false`, `yes` and `no`, which compare in any case."""


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(tokens(text))
        self._at = 0
        self._depth = 0
        self._names: set[str] = set()
        self._asked: set[str] = set()

    def condition(self) -> ParsedCondition:
        if self._next.kind == "end":
            self._refuse("The condition is empty.", "Remove it, or write an expression.")

        part = self._either()
        if self._next.kind != "end":
            self._refuse_next("Expected 'and', 'or', a comparison or the end here")

        return ParsedCondition(
            self._text, frozenset(self._names), frozenset(self._asked), part.test
        )

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


# --- evaluating ---------------------------------------------------------------------------------


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
