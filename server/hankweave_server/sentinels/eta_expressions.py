"""Eta's expressions to jinja's: paths, literals, comparisons and a few calls.

What has no counterpart is refused with a hint; it is never guessed at, and never executed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NoReturn

from hankweave_server.sentinels.javascript import Words

_BINARY = {
    "??": (1, "??"),
    "||": (1, "or"),
    "&&": (2, "and"),
    "===": (3, "=="),
    "!==": (3, "!="),
    "==": (3, "=="),
    "!=": (3, "!="),
    "<": (4, "<"),
    ">": (4, ">"),
    "<=": (4, "<="),
    ">=": (4, ">="),
    "+": (5, "+"),
    "-": (5, "-"),
    "*": (6, "*"),
    "/": (6, "/"),
    "%": (6, "%"),
}
"""How tightly it binds, and jinja's word for it."""

_CONSTANTS = {"true": "true", "false": "false", "null": "none", "undefined": "none"}
_FILTERS = {"toUpperCase": "upper", "toLowerCase": "lower", "trim": "trim"}


class Expressions:
    """Reads expressions from words, and writes jinja's."""

    def __init__(self, words: Words, known: Collection[str]) -> None:
        self._words = words
        self._known = known
        """The names that mean something here."""

    def whole(self) -> str:
        """Reads one expression that nothing may follow."""
        expression = self.one()
        self._words.takes(";")
        if self._words:
            self._refuse("There is more than one expression")

        return expression

    def one(self) -> str:
        """Reads one expression."""
        condition = self._binary(0)
        if not self._words.takes("?"):
            return condition

        yes = self.one()
        self._words.expect(":")
        no = self.one()
        return f"({yes} if {condition} else {no})"

    def _binary(self, least: int) -> str:
        left, is_text = self._unary()
        while (word := self._words.peek()) is not None and word.kind == "mark":
            strength, operator = _BINARY.get(word.text, (0, ""))
            if strength <= least:
                break

            self._words.next()
            starts_text = (following := self._words.peek()) and following.kind == "text"
            right = self._binary(strength)
            if operator == "??":
                left = f"({left} if {left} is not none else {right})"
                continue

            is_text = operator == "+" and (is_text or bool(starts_text))
            left = f"({left} {'~' if is_text else operator} {right})"

        return left

    def _unary(self) -> tuple[str, bool]:
        """Reads an operand, and says whether it is certainly a text."""
        if self._words.takes("!"):
            return f"(not {self._unary()[0]})", False

        if self._words.takes("-"):
            return f"(-{self._unary()[0]})", False

        word = self._words.peek()
        return self._postfix(self._primary()), word is not None and word.kind == "text"

    def _primary(self) -> str:
        words = self._words
        if words.takes("("):
            inner = self.one()
            words.expect(")")
            return f"({inner})"

        if words.takes("["):
            return f"[{', '.join(self._list(']', self.one))}]"

        if words.takes("{"):
            return f"{{{', '.join(self._list('}', self._pair))}}}"

        word = words.next()
        match word.kind:
            case "number":
                return word.text
            case "text":
                return repr(word.text)
            case "name":
                return self._named(word.text)
            case _:
                self._refuse(f"There is {word.source!r}")

    def _named(self, name: str) -> str:
        if name in _CONSTANTS:
            return _CONSTANTS[name]

        if name == "JSON":
            return self._json()

        if name in ("String", "Number") and self._words.takes("("):
            inner = self.one()
            self._words.expect(")")
            return f"({inner}|{'string' if name == 'String' else 'float'})"

        if name not in self._known:
            self._refuse(f"There is no {name!r}")

        return name

    def _json(self) -> str:
        self._words.expect(".")
        if self._words.name() != "stringify":
            self._refuse("Of JSON only 'stringify' is known")

        self._words.expect("(")
        arguments = list(self._list(")", self.one))
        if len(arguments) not in (1, 2, 3) or (len(arguments) > 1 and arguments[1] != "none"):
            self._refuse("JSON.stringify takes a value, null and a number")

        indent = arguments[2] if len(arguments) == 3 else ""
        return f"({arguments[0]}|tojson{f'({indent})' if indent else ''})"

    def _list(self, end: str, item: Callable[[], str]) -> list[str]:
        found: list[str] = []
        while not self._words.takes(end):
            found.append(item())
            if not self._words.sees(end):
                self._words.expect(",")

        return found

    def _pair(self) -> str:
        word = self._words.next()
        if word.kind == "mark":
            self._refuse(f"There is {word.source!r} in an object")

        if not self._words.takes(":"):
            return f"{word.text!r}: {self._named(word.text)}"

        return f"{word.text!r}: {self.one()}"

    # --- what follows a value -----------------------------------------------------------------

    def _postfix(self, value: str) -> str:
        words = self._words
        while True:
            if words.takes("["):
                index = self.one()
                words.expect("]")
                value = f"{value}[{index}]"
            elif words.takes(".") or words.takes("?."):
                name = words.name()
                value = self._call(value, name) if words.takes("(") else self._member(value, name)
            else:
                return value

    def _member(self, value: str, name: str) -> str:
        # A subscript, never an attribute: `data.items` is a field, not a method of dictionaries.
        return f"({value}|length)" if name == "length" else f"{value}[{name!r}]"

    def _call(self, value: str, name: str) -> str:
        if name in ("map", "filter", "some"):
            return self._with_arrow(value, name)

        arguments = self._list(")", self.one)
        match name, arguments:
            case (("toUpperCase" | "toLowerCase" | "trim"), []):
                return f"({value}|{_FILTERS[name]})"
            case "toString", []:
                return f"({value}|string)"
            case "slice", [start]:
                return f"{value}[{start}:]"
            case "slice", [start, end]:
                return f"{value}[{start}:{end}]"
            case "join", [between]:
                return f"({value}|join({between}))"
            case "includes", [part]:
                return f"({part} in {value})"
            case "toFixed", [digits]:
                return f"({value}|fixed({digits}))"
            case _:
                self._refuse(f"The call of {name!r} is not known")

    def _with_arrow(self, value: str, name: str) -> str:
        """The simple forms: `e => e.path`, and with filter and some `e => e.path === literal`."""
        words = self._words
        in_brackets = words.takes("(")
        variable = words.name()
        if in_brackets:
            words.expect(")")

        words.expect("=>")
        path = self._path_of(variable)
        test = ""
        if name != "map" and words.sees("===", "==", "!==", "!="):
            same = words.next().text in ("===", "==")
            test = f", {'equalto' if same else 'ne'!r}, {self._primary()}"

        words.expect(")")
        if name == "map":
            return f"({value}|map(attribute={path!r})|list)"

        found = f"({value}|selectattr({path!r}{test})|list)"
        return found if name == "filter" else f"({found}|length > 0)"

    def _path_of(self, variable: str) -> str:
        words = self._words
        if words.name() != variable or not words.sees("."):
            self._refuse(f"Of {variable!r} only a field can be taken here")

        steps: list[str] = []
        while words.takes(".") or words.takes("?."):
            steps.append(words.name())

        if words.sees("("):
            self._refuse("No call can stand in it")

        return ".".join(steps)

    def _refuse(self, message: str) -> NoReturn:
        raise self._words.fault(message)
