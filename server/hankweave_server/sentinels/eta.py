"""Hankweave's templates (Eta) to jinja: `<%= … %>`, loops, conditions and constants.

Eta compiles a template to JavaScript and runs it. Here the part of it that prompts are made of is
translated, and the rest is refused when the sentinel loads, with what to write instead.
"""

from __future__ import annotations

import re
from typing import NoReturn

from hankweave_server.sentinels.eta_expressions import Expressions
from hankweave_server.sentinels.javascript import NotUnderstood, Words

OPENING = "<%"
_TAG = re.compile(r"<%[-_]?(?P<kind>[=~]?)(?P<code>.*?)[-_]?%>(?P<newline>\n?)", re.DOTALL)
_RESERVED = frozenset({"and", "or", "not", "in", "is", "if", "else", "none", "loop", "self"})
_BRACE = re.compile(r"\{(?=[{%#]|\Z)")

HINT = (
    "Known are <%= it.codon.id %>, <%= JSON.stringify(it.events, null, 2) %>,"
    " <% it.events.forEach(e => { %> … <% }) %>, <% for (const e of it.events) { %> … <% } %>,"
    " <% if (a === b) { %> … <% } else { %> … <% } %>;"
    " or write the whole template in jinja: {% for e in events %}{{ e.data.path }}{% endfor %}."
)


def is_eta(template: str) -> bool:
    """Tells whether a template is Eta's; any other is jinja's."""
    return OPENING in template


def to_jinja(template: str) -> str:
    """Translates a template; raises NotUnderstood, which says what to write instead."""
    return _Translation(template).text


class _Translation:
    def __init__(self, template: str) -> None:
        self._parts: list[str] = []
        self._known = {"it"}
        self._open: list[tuple[str, str]] = []
        """Blocks that are open: jinja's end of each, and how Eta's is written."""
        at = 0
        for tag in _TAG.finditer(template):
            self._literal(template[at : tag.start()])
            if tag["kind"]:
                words = Words(tag["code"], HINT)
                self._parts.append(
                    f"{{{{ {Expressions(words, self._known).whole()} }}}}{tag['newline']}"
                )
            else:
                self._statements(Words(tag["code"], HINT))

            at = tag.end()

        rest = template[at:]
        if OPENING in rest:
            raise NotUnderstood("A '<%' has no '%>'.", HINT)

        if self._open:
            raise NotUnderstood(f"A block is not closed by '<% {self._open[-1][1]} %>'.", HINT)

        self._literal(rest)
        self.text = "".join(self._parts)

    def _literal(self, text: str) -> None:
        """What is no tag says what it says, even where jinja would see one."""
        self._parts.append(_BRACE.sub("{{ '{' }}", text))

    def _statements(self, words: Words) -> None:
        while words:
            if words.takes(";"):
                continue

            if words.sees("}"):
                self._close(words)
            elif words.sees_name("if"):
                words.next()
                self._emit("if", self._in_brackets(words))
                self._opened(words, "endif", "}")
            elif words.sees_name("for"):
                self._for(words)
            elif words.sees_name("const", "let", "var"):
                self._constant(words)
            else:
                self._for_each(words)

    def _emit(self, word: str, rest: str = "") -> None:
        self._parts.append(f"{{% {word} {rest} %}}" if rest else f"{{% {word} %}}")

    def _opened(self, words: Words, ending: str, written: str) -> None:
        words.expect("{")
        self._open.append((ending, written))

    def _in_brackets(self, words: Words) -> str:
        words.expect("(")
        expression = Expressions(words, self._known).one()
        words.expect(")")
        return expression

    def _close(self, words: Words) -> None:
        words.expect("}")
        if not self._open:
            self._refuse(words, "There is a '}' too many")

        ending, written = self._open.pop()
        if written == "})":
            words.expect(")")
            self._emit(ending)
            return

        if ending != "endif" or not words.sees_name("else"):
            self._emit(ending)
            return

        words.next()
        if words.sees_name("if"):
            words.next()
            self._emit("elif", self._in_brackets(words))
        else:
            self._emit("else")

        self._opened(words, "endif", "}")

    def _for(self, words: Words) -> None:
        words.next()
        words.expect("(")
        if not words.sees_name("const", "let", "var"):
            self._refuse(words, "A loop needs a variable of its own")

        words.next()
        variable = self._named(words)
        if not words.sees_name("of"):
            self._refuse(words, "Of the loops with 'for' only 'for (const e of …)' is known")

        words.next()
        self._emit("for", f"{variable} in {Expressions(words, self._known).one()}")
        words.expect(")")
        self._opened(words, "endfor", "}")

    def _constant(self, words: Words) -> None:
        words.next()
        name = self._named(words)
        words.expect("=")
        self._emit("set", f"{name} = {Expressions(words, self._known).one()}")

    def _named(self, words: Words) -> str:
        """Reads the name of a new variable; jinja's own words cannot be one."""
        name = words.name()
        if name in _RESERVED:
            self._refuse(words, f"{name!r} cannot be a name in a template")

        self._known.add(name)
        return name

    def _for_each(self, words: Words) -> None:
        """`path.forEach(function (e, i) {` or `path.forEach((e, i) => {`."""
        path = words.name()
        if path not in self._known:
            self._refuse(words, "The statement is not known")

        while words.takes("."):
            name = words.name()
            if name == "forEach":
                break

            path += f"[{name!r}]"
        else:
            self._refuse(words, "The statement is not known")

        words.expect("(")
        names = self._parameters(words)
        self._emit("for", f"{names[0]} in {path}")
        if len(names) > 1:
            self._emit("set", f"{names[1]} = loop.index0")

        self._opened(words, "endfor", "})")

    def _parameters(self, words: Words) -> list[str]:
        is_function = words.sees_name("function")
        if is_function:
            words.next()

        in_brackets = words.takes("(")
        names = [self._named(words)]
        while in_brackets and words.takes(","):
            names.append(self._named(words))

        if in_brackets:
            words.expect(")")

        if not is_function:
            words.expect("=>")

        return names

    def _refuse(self, words: Words, message: str) -> NoReturn:
        raise words.fault(message)
