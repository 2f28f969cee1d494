"""Apply the rules to everything that is written: bytes, texts, lines of a stream, values.

There is one `Redactor` for each server. It knows the rules and the values of secret variables, and
replaces both by a marker such as `[redacted:anthropic-key]` or `[redacted:SERVICE_TOKEN]`. It keeps
valid JSON valid: a match never contains a quotation mark that is not escaped, and a marker contains
no character that needs an escape. Redacting twice changes nothing more.

A stream needs more than that, because a secret can be split. A line is put together before it is
redacted (`agents/process/stdio.py`), so the pieces in which a program writes it do not matter.
`LineRedactor` remembers that a block of lines (a private key) has begun. A line that was cut at a
limit may end within a key; `cut_off` removes what is left of it.

Every byte that is written to a log or the journal goes through a search for the literals of all
rules, so the cost of this search matters more than anything else here: about 1 ms for a MiB with
the optional helper in C, 20 times as much with `re`.

A value (an event, a transition) is redacted field by field. Fields that name something, such as
paths, ids and shas, stay as they are: a rollback, a client or the next start looks for what they
name. So a secret in the name of a file is not removed.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from hankweave_protocol import codec
from hankweave_server.redaction.rules import (
    BLOCK_BEGIN,
    BLOCK_END,
    CUT_OFF,
    RULES,
    SHORTEST_SECRET,
    Rule,
)

native: ModuleType | None
try:
    from hankweave_server.redaction import _literals as native
except ImportError:
    native = None

T = TypeVar("T")

_SHORTEST_LINE = 16
"""Minimum length of a line of a value of several lines that is a secret by itself."""

_SHORTEST_CUT = 4
"""Minimum length of the beginning of a value that is removed from the end of a cut text."""

_LONGEST_CUT = 4096
"""Bytes at the end of a cut text in which the beginning of a key is looked for."""

_LONGEST_BLOCK = 500
"""Lines after which a block without an end is over."""

_BEGIN = re.compile(BLOCK_BEGIN)
_END = re.compile(BLOCK_END)
_IN_A_BLOCK = re.compile(rb"[^A-Za-z]{0,12}(?:[A-Za-z0-9+/=]+|[A-Za-z-]+: .*)?\s*")
"""A line of a private key: base64 or a header, perhaps behind a line number or a `+`."""

_NAMES = re.compile(
    r"(?:^|[a-z_])(?:[Pp]aths?|[Ff]iles?|[Dd]irectory|[Nn]ame|[Ii]ds?|[Ss]has?|[Hh]ash)$"
    r"|^(?:type|kind|ref|model|commit|parent|tree|safety|transitionType|timestamp|checkpoint)$"
)
"""Fields whose value names something that is looked for."""

_FOR_PEOPLE = frozenset({("variant", "name"), ("variants", "name")})
"""Such fields by which nothing is found; each with the field in which its object is."""

_FREE = frozenset({"toolInput", "input", "env", "variables"})
"""Fields with content of agents and people, in which no field names anything of ours."""

_STYLE = re.compile(rb"(?:\x1b|\\+(?:u001[bB]|x1[bB]|033))\[[0-9;:?]{0,40}[A-Za-z]")
"""A colour or another control sequence of a terminal, also as JSON and shells write it.

Within a key, it hides the key from the rules and from nobody who looks at the text.
"""

_STYLE_SIGNS = (b"\x1b[", b"1b[", b"1B[", b"033[")
"""One of them is in each text with a style."""

_SHORTEST_LITERAL = 3
_MOST_LITERALS = 512


def _tables(literals: tuple[bytes, ...]) -> bytes:
    """Return the helper's tables: in which of eight groups a byte is at each of three places."""
    tables = bytearray(_SHORTEST_LITERAL * 256)
    for number, each in enumerate(sorted(literals)):
        group = 1 << (number * 8 // len(literals))
        for place in range(_SHORTEST_LITERAL):
            tables[place * 256 + each[place]] |= group

    return bytes(tables)


class LiteralSearch:
    """A search for several byte strings, each of `_SHORTEST_LITERAL` bytes or more."""

    def __init__(self, literals: tuple[bytes, ...], helper: ModuleType | None = native) -> None:
        self._literals = literals
        self._helper = helper if len(literals) <= _MOST_LITERALS else None
        self._pattern = re.compile(b"|".join(map(re.escape, literals)))
        self._tables = _tables(literals)

    def find(self, text: bytes, start: int = 0) -> int:
        """Return where the first literal at or after `start` begins; -1 if there is none."""
        if not self._literals:
            return -1

        if self._helper is None:
            return self.find_in_python(text, start)

        found: int = self._helper.find(text, start, self._tables, self._literals)
        return found

    def find_in_python(self, text: bytes, start: int = 0) -> int:
        """Return the same without the helper."""
        found = self._pattern.search(text, start)
        return -1 if found is None else found.start()


@dataclass(frozen=True, slots=True)
class FoundSecret:
    """One secret in a text; its value is not kept."""

    rule: str
    line: int


def marker(name: str) -> bytes:
    """Return the text that takes the place of a secret."""
    return b"[redacted:" + re.sub(rb"[^A-Za-z0-9_.-]", b"_", name.encode())[:60] + b"]"


class Redactor:
    """The rules, and the values that are known to be secret."""

    def __init__(
        self,
        known: Mapping[str, str] | None = None,
        *,
        rules: tuple[Rule, ...] = RULES,
        shortest: int = SHORTEST_SECRET,
    ) -> None:
        """`known` are secret values, by the names that markers show; a shorter one is ignored."""
        self._known: list[tuple[bytes, bytes]] = []
        self._rules = rules
        self._shortest = shortest
        self._prepare()
        for name, value in (known or {}).items():
            self.add(name, value)

    def add(self, name: str, value: str) -> None:
        """Redact a value from now on; one that is too short is ignored."""
        if len(value) < self._shortest:
            return

        seen = {form for form, _ in self._known}
        forms = [form for form in _forms(value) if form not in seen]
        self._known += [(form, marker(name)) for form in forms]
        # A value may be a part of another one: the longer one counts.
        self._known.sort(key=lambda item: len(item[0]), reverse=True)
        self._prepare()

    def _prepare(self) -> None:
        """Build the quick search for everything that is to be found."""
        forms = [form for form, _ in self._known]
        literals = dict.fromkeys(each for rule in self._rules for each in rule.literals)
        openings = [*map(re.escape, forms), *(rule.opening for rule in self._rules)]
        self._search = LiteralSearch((*forms, *literals))
        self._opening = re.compile(b"|".join(openings) or rb"(?!)")

    def is_needed(self, data: bytes) -> bool:
        """Return, quickly, whether there may be a secret in a text."""
        return self._may_hold(data) or (_has_styles(data) and self._may_hold(_plain(data)))

    def _may_hold(self, data: bytes) -> bool:
        at = self._search.find(data)
        while at >= 0:
            if self._opening.match(data, at):
                return True

            at = self._search.find(data, at + 1)

        return False

    def data(self, data: bytes) -> bytes:
        """Return a text or a JSON document without secrets."""
        if _has_styles(data):
            # First: of a key with a style in it, the other rules might find only one half.
            data = self._redacted_beneath_styles(data)

        return self._redacted(data) if self._may_hold(data) else data

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        data = text.encode("utf-8", "surrogatepass")
        redacted = self.data(data)
        return text if redacted is data else redacted.decode("utf-8", "surrogatepass")

    def cut_off(self, data: bytes) -> bytes:
        """Return a text that was cut at its end without secrets, nor the beginning of one."""
        data = self.data(data)
        for form, mark in self._known:
            longest = min(len(form), len(data))
            for size in range(longest, _SHORTEST_CUT - 1, -1):
                if data.endswith(form[:size]):
                    return data[: len(data) - size] + mark

        if not self._rules:
            return data

        # Only the end matters; a search of all of it would take quadratic time.
        start = max(0, len(data) - _LONGEST_CUT)
        return data[:start] + CUT_OFF.sub(_replaced_by(marker("cut")), data[start:])

    def masked(self, data: bytes) -> bytes:
        """Return a text of the same length, with an asterisk for each byte of a secret."""
        for form, _ in self._known:
            data = data.replace(form, b"*" * len(form))

        for rule in self._rules:
            data = rule.pattern.sub(_starred, data)

        return data

    def findings(self, data: bytes, *, most: int = 20) -> tuple[FoundSecret, ...]:
        """Return the secrets of a file: the rules that match, and where."""
        data = _plain(data)
        if not self._may_hold(data):
            return ()

        found: dict[int, str] = {}
        for form, mark in self._known:
            if (at := data.find(form)) >= 0:
                found.setdefault(at, mark[len(b"[redacted:") : -1].decode())

        for rule in self._rules:
            for match in rule.pattern.finditer(data):
                found.setdefault(match.start(), rule.name)

        places = sorted(found.items())[:most]
        return tuple(FoundSecret(name, data.count(b"\n", 0, at) + 1) for at, name in places)

    def value(self, value: T) -> T:
        """Return an event, a transition or another value of the protocol without secrets."""
        encoded = codec.encode(value)
        if not self.is_needed(encoded):
            return value

        tree = self._in_tree(msgspec.json.decode(encoded), None, is_free=False)
        return codec.decode_value(type(value), msgspec.json.encode(tree))

    def _in_tree(self, tree: Any, field: str | None, *, is_free: bool) -> Any:
        match tree:
            case str():
                return self.text(tree)
            case list():
                return [self._in_tree(each, field, is_free=is_free) for each in tree]
            case dict():
                return {
                    name: below
                    if not is_free and _NAMES.search(name) and (field, name) not in _FOR_PEOPLE
                    else self._in_tree(below, name, is_free=is_free or name in _FREE)
                    for name, below in tree.items()
                }
            case _:
                return tree

    def _redacted(self, data: bytes) -> bytes:
        for form, mark in self._known:
            data = data.replace(form, mark)

        for rule in self._rules:
            data = rule.pattern.sub(_replaced_by(marker(rule.name)), data)

        return data

    def _redacted_beneath_styles(self, data: bytes) -> bytes:
        """Return a text without the secrets that only show when it is on a screen."""
        plain = _plain(data)
        if not self._may_hold(plain):
            return data

        # Where in the plain text a style was, and how many bytes of styles there are until then.
        places, lengths, length = [], [0], 0
        for style in _STYLE.finditer(data):
            places.append(style.start() - length)
            length += len(style[0])
            lengths.append(length)

        kept, done = [], 0
        for begin, end, mark in self._secrets_in(plain):
            begin += lengths[bisect_right(places, begin)]
            end += lengths[bisect_left(places, end)]
            if begin >= done:
                kept += [data[done:begin], mark]
                done = end

        return b"".join((*kept, data[done:]))

    def _secrets_in(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Return the beginning, the end and the marker of each secret; they may overlap."""
        found = [
            (match.start(), match.end(), mark)
            for form, mark in self._known
            for match in re.finditer(re.escape(form), data)
        ]
        for rule in self._rules:
            for match in rule.pattern.finditer(data):
                begin = max(match.start(), *(match.end(name) for name in match.groupdict()), -1)
                found.append((begin, match.end(), marker(rule.name)))

        return sorted(found, key=lambda each: (each[0], -each[1]))


def _has_styles(data: bytes) -> bool:
    return any(sign in data for sign in _STYLE_SIGNS)


def _plain(data: bytes) -> bytes:
    """Return a text as a terminal shows it: without colours and other styles."""
    return _STYLE.sub(b"", data) if _has_styles(data) else data


def _replaced_by(mark: bytes) -> Any:
    def replace(found: re.Match[bytes]) -> bytes:
        kept: list[bytes | None] = list(found.groupdict().values())
        return b"".join(filter(None, kept)) + mark

    return replace


def _starred(found: re.Match[bytes]) -> bytes:
    kept: bytes = found.groupdict().get("keep") or b""
    return kept + b"*" * (len(found[0]) - len(kept))


def _forms(value: str) -> Iterable[bytes]:
    """Return the spellings of a value: as it is, within JSON, within JSON in JSON, in a URL."""
    lines = [line for line in value.splitlines() if len(line) >= _SHORTEST_LINE]
    forms: dict[bytes, None] = {}
    for each in (value, *(lines if len(lines) > 1 else ())):
        once, ascii_once = json.dumps(each, ensure_ascii=False)[1:-1], json.dumps(each)[1:-1]
        twice = json.dumps(once, ensure_ascii=False)[1:-1]
        for form in (each, once, ascii_once, twice, quote(each, safe="")):
            forms[form.encode("utf-8", "surrogatepass")] = None

    return forms


NOTHING_KNOWN = Redactor()
"""A redactor of the rules alone."""


class LineRedactor:
    """The redaction of one stream of lines, in which a private key takes several."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._left = 0
        """Lines that may still belong to a block; 0 outside of one."""

    def redact(self, line: bytes, *, is_cut: bool = False) -> bytes:
        """Return a line without its end; a line of a block becomes a marker."""
        if self._left:
            line = self._within(line)

        redacted = self._redactor.cut_off(line) if is_cut else self._redactor.data(line)
        if redacted is not line and _opens(line):
            self._left = _LONGEST_BLOCK

        return redacted

    def _within(self, line: bytes) -> bytes:
        plain = _plain(line)
        if end := _END.search(plain):
            self._left = 0
            return marker("private-key") + plain[end.end() :]

        if not _IN_A_BLOCK.fullmatch(plain):
            self._left = 0
            return line

        self._left -= 1
        return marker("private-key") if plain.strip() else line


def _opens(line: bytes) -> bool:
    """Return whether a line has the beginning of a block and not its end."""
    line = _plain(line)
    begun = list(_BEGIN.finditer(line))
    return bool(begun) and _END.search(line, begun[-1].end()) is None
