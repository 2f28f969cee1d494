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

Nothing is evaluated as Python or by a shell: an expression reads variables and nothing else. The
parser is our own because an error needs a column, which jinja2 does not know, and because jinja2
reserves words such as `is` and `if`, which are names here.

`parse` compiles a text, and `ParsedCondition.holds` evaluates it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NamedTuple, NoReturn, TypeAlias

from hankweave_server.domain.variables import NAME, names_in, render

__all__ = ["RESERVED", "ConditionError", "ParsedCondition", "is_true", "parse"]

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

_SIGNS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBER = re.compile(r"[+-]?[0-9]{1,300}(?:\.[0-9]{1,300})?")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TOKEN = re.compile(
    rf"""\s*(?:
        \{{\{{\s*(?P<braced>{NAME})\s*\}}\}}
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<number>[+-]?[0-9]+(?:\.[0-9]+)?(?![\w.]))
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>==|!=|<=|>=|<|>|\(|\))
      | (?P<end>\Z)
      | (?P<other>&&|\|\||\{{\{{|.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_OTHERS = {
    "&&": "Write 'and'.",
    "||": "Write 'or'.",
    "=": "Write '==' to compare.",
    "!": "Write 'not'.",
    "'": "Close the string with its opening quote.",
    '"': "Close the string with its opening quote.",
    "{{": "Put a variable name between the braces: letters, digits and '_'.",
}
"""What to write instead of something that is not allowed anywhere."""

_COMMAND = re.compile(
    r"\s*(?:[\[./~$]|(?!(?:not|defined)\b)[A-Za-z_][\w.-]*\s+(?!(?:and|or|not|in)\b)[-\w./~\"'$*])"
)
"""Beginnings of shell commands: `[ -f x`, `./check`, `test -f x`, `exit 0`."""

_NO_SHELL = (
    "A condition is an expression over variables, such as review == 'ok', not a shell command;"
    " the step's 'checks' run commands."
)


class ConditionError(Exception):
    """An invalid condition: an error of its author."""

    def __init__(self, message: str, offset: int, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        """The position in the text, in characters from 0."""
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True)
class ParsedCondition:
    """A valid expression: evaluating it never raises."""

    text: str
    names: frozenset[str]
    """All variables that it reads."""
    asked: frozenset[str]
    """The variables that it checks with `defined`."""
    _part: _Part

    def holds(self, variables: Variables) -> bool:
        """Return whether it holds with these variables."""
        return self._part.holds(variables)


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


class _Token(NamedTuple):
    kind: str
    """A group of `_TOKEN`."""
    text: str
    offset: int


class _Part(NamedTuple):
    """A parsed part: a value, which can be compared, or a test, whose value is a boolean."""

    value: Callable[[Variables], str | bool | None]
    is_test: bool = False
    is_word: bool = False
    """True for `true`, `false`, `yes` and `no`, which compare in any case."""

    def holds(self, variables: Variables) -> bool:
        found = self.value(variables)
        return found if isinstance(found, bool) else found is not None and is_true(found)


def _tokens(text: str) -> Iterator[_Token]:
    """Split a text into tokens, with two `end` tokens at the end; raise ConditionError."""
    text = text.rstrip()
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or ""
        token = _Token(kind, found[kind], found.start(kind))
        if kind == "other":
            message = f"{token.text!r} is not allowed here."
            raise ConditionError(message, token.offset, _OTHERS.get(token.text))

        yield token

    yield _Token("end", "", len(text))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
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

        return ParsedCondition(self._text, frozenset(self._names), frozenset(self._asked), part)

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

        return _Part(lambda known: together(part.holds(known) for part in parts), is_test=True)

    def _negated(self) -> _Part:
        count = 0
        while self._takes("not"):
            count += 1

        part = self._compared()
        if count == 0:
            return part

        return _Part(lambda known: part.holds(known) is (count % 2 == 0), is_test=True)

    def _compared(self) -> _Part:
        left = self._single()
        sign = self._comparison()
        if sign is None:
            return left

        at = self._next.offset
        right = self._single()
        if self._next.text in _SIGNS:
            self._refuse("Comparisons cannot be chained.", "Write 'a < b and b < c'.")

        if left.is_test or right.is_test:
            raise ConditionError("Only values can be compared.", at, "Write 'and' or 'or'.")

        return _Part(lambda known: _relates(sign, left, right, known), is_test=True)

    def _comparison(self) -> str | None:
        if self._next.text in _SIGNS:
            return self._taken().text

        if self._takes("in"):
            return "in"

        return "not in" if self._takes("not", "in") else None

    def _single(self) -> _Part:
        if self._takes("("):
            return self._parenthesised()

        if self._takes("defined", "("):
            return self._defined()

        kind, text, _ = self._next
        if kind in ("sign", "end") or (kind == "word" and text in ("and", "or", "not", "in")):
            self._refuse_next("Expected a value here")

        self._taken()
        if kind == "text":
            return self._quoted(_ESCAPED.sub(r"\1", text[1:-1]))

        is_word = kind == "word" and text.lower() in LITERAL_WORDS
        if is_word or kind == "number":
            return _Part(lambda _: text, is_word=is_word)

        self._names.add(text)
        return _Part(lambda known: known.get(text))

    def _parenthesised(self) -> _Part:
        self._depth += 1
        if self._depth > DEEPEST:
            self._at -= 1
            self._refuse("The condition is nested too deeply.")

        part = self._either()
        self._must_close()
        self._depth -= 1
        return part

    def _defined(self) -> _Part:
        kind, name, offset = self._taken()
        if kind not in ("word", "braced"):
            raise ConditionError("Expected the name of a variable here.", offset)

        self._must_close()
        self._names.add(name)
        self._asked.add(name)
        return _Part(lambda known: name in known, is_test=True)

    def _quoted(self, text: str) -> _Part:
        names = names_in(text)
        self._names |= names
        return _Part(lambda known: render(text, known) if names <= known.keys() else None)

    # --- tokens ---

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _taken(self) -> _Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _takes(self, *words: str) -> bool:
        """Take these words or signs if they come next."""
        tokens = self._tokens[self._at : self._at + len(words)]
        found = all(token.kind in ("word", "sign") for token in tokens)
        found = found and words == tuple(token.text for token in tokens)
        self._at += found * len(words)
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


def _relates(sign: str, left: _Part, right: _Part, known: Variables) -> bool:
    one, other = left.value(known), right.value(known)
    if not isinstance(one, str) or not isinstance(other, str):
        return sign in ("!=", "not in")

    if left.is_word or right.is_word:
        one, other = one.lower(), other.lower()

    if sign in ("in", "not in"):
        return (one in other) is (sign == "in")

    return _SIGNS[sign](_ordered(one.strip(), other.strip()), 0)


def _ordered(one: str, other: str) -> int:
    """Return -1, 0 or 1 as the first is less than, equal to or greater than the second."""
    if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other):
        return int(Decimal(one).compare(Decimal(other)))

    return (one > other) - (one < other)
