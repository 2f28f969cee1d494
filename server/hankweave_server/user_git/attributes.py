"""`.gitattributes` (gitattributes(5)) and the conversions of content that they control.

The attributes are parsed here because libgit2 cannot look them up while the index is split, and
reads the user's own attributes file only together with the user's whole configuration.

The conversions between work tree and repository are line ends and `$Id$`, as in git's convert.c.
libgit2's own filters cannot be used: they cut content at its first NUL when asked for bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import NamedTuple

from hankweave_server.user_git.settings import UserSettings
from hankweave_server.worktree.names import joined, parents_of

_PLAIN = bytes(
    code for code in range(256) if (code >= 0x20 and code != 0x7F) or code in b"\b\t\033\014"
)
_ID = re.compile(rb"\$Id(?::[^$\n]*)?\$")


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of one path's content."""

    is_text: bool = False
    """Line ends in the repository are LF."""
    is_guessed: bool = False
    """Convert only if the content looks like text."""
    is_crlf_outside: bool = False
    """Line ends in the work tree are CRLF."""
    has_ident: bool = False

    @property
    def does_nothing(self) -> bool:
        return not self.is_text and not self.has_ident


RAW = Conversion()


def to_repository(content: bytes, conversion: Conversion, before: bytes | None) -> bytes:
    """Return the stored form of a file; `before` is the index's version of it, if any."""
    if conversion.is_text and b"\r\n" in content:
        looks = not conversion.is_guessed or (
            not _is_binary(content) and not _had_crlf(before or b"")
        )
        if looks:
            content = content.replace(b"\r\n", b"\n")

    if conversion.has_ident:
        content = _ID.sub(b"$Id$", content)

    return content


def to_work_tree(content: bytes, conversion: Conversion, digest: bytes) -> bytes:
    """Return the work tree's form of a stored blob, whose name is `digest`."""
    if conversion.has_ident:
        content = _ID.sub(lambda found: _expanded(found[0], digest), content)

    if not conversion.is_text or not conversion.is_crlf_outside:
        return content

    crlf = content.count(b"\r\n")
    if content.count(b"\n") == crlf:
        return content

    if conversion.is_guessed and (crlf or _is_binary(content)):
        return content

    return content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _expanded(keyword: bytes, digest: bytes) -> bytes:
    if b" " in keyword[5:-2]:
        return keyword  # Expanded by another program; git leaves it alone.

    return b"$Id: " + digest.hex().encode() + b" $"


def _had_crlf(before: bytes) -> bool:
    return b"\r\n" in before and not _is_binary(before)


def _is_binary(content: bytes) -> bool:
    """Classify content as git does: a NUL, a lone CR, or more than one odd byte in 128."""
    if b"\0" in content or content.count(b"\r") != content.count(b"\r\n"):
        return True

    odd = len(content.translate(None, _PLAIN + b"\r\n")) - content.endswith(b"\032")
    printable = len(content) - content.count(b"\r") - content.count(b"\n") - odd
    return printable >> 7 < odd


ATTRIBUTES = b".gitattributes"

Value = bool | str | None
"""Set, unset, a text, or explicitly unspecified."""

_CLASSES = {
    "[:space:]": " \t\r\n\v\f",
    "[:blank:]": " \t",
    "[:digit:]": "0-9",
    "[:alpha:]": "a-zA-Z",
    "[:alnum:]": "a-zA-Z0-9",
    "[:upper:]": "A-Z",
    "[:lower:]": "a-z",
}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"(.*)', re.DOTALL)
_BINARY: tuple[tuple[str, Value], ...] = (("diff", False), ("merge", False), ("text", False))


class _Line(NamedTuple):
    folder: bytes
    parts: tuple[str, ...]
    is_for_names: bool
    values: tuple[tuple[str, Value], ...]

    def means(self, path: bytes) -> bool:
        below = _text(path[len(self.folder) + 1 :] if self.folder else path).split("/")
        if self.is_for_names:
            return _fits(self.parts[0], below[-1])

        return _lead(self.parts, below)


class GitAttributes:
    """The current attributes of one work tree."""

    def __init__(
        self, settings: UserSettings, info: bytes, read: Callable[[bytes], bytes | None]
    ) -> None:
        """Load the outermost rules.

        `info` is the content of the repository's own file; `read` returns a file of the work tree
        or index.
        """
        self._settings = settings
        self._read = read
        self._macros = {"binary": _BINARY}
        usual = settings.file("core.attributesfile", "attributes")
        self._first = [*self._lines(b"", usual), *self._lines(b"", read(ATTRIBUTES) or b"")]
        self._last = list(self._lines(b"", info))
        self._known: dict[bytes, list[_Line]] = {b"": []}

    def of(self, path: bytes) -> dict[str, Value]:
        """Return the attributes of a path; the last matching line wins, so it is checked first."""
        found: dict[str, Value] = {}
        folders = [self._in(folder) for folder in parents_of(path)]
        for lines in (self._last, *folders, self._first):
            for line in reversed(lines):
                if line.means(path):
                    self._take(found, line.values)

        return found

    def _take(self, found: dict[str, Value], values: Iterable[tuple[str, Value]]) -> None:
        for name, value in reversed(tuple(values)):
            if name not in found:
                found[name] = value
                # A macro's expansion counts only where the macro itself was not overridden.
                if value is True and name in self._macros:
                    self._take(found, self._macros[name])

    def conversion(self, path: bytes) -> Conversion | None:
        """Return the conversion of a path; None if only an external program can convert it."""
        said = self.of(path)
        encoding = said.get("working-tree-encoding")
        if isinstance(said.get("filter"), str) or (
            isinstance(encoding, str) and encoding.lower() not in ("utf-8", "utf8")
        ):
            return None

        return self._line_ends(said)

    def _line_ends(self, said: dict[str, Value]) -> Conversion:
        """Follow git's convert.c (`convert_attrs`, `output_eol`)."""
        ident = said.get("ident") is True
        text = said.get("text")
        text = said.get("crlf") if text is None else text
        automatic = (self._settings.text("core.autocrlf") or "").lower()
        converts_all = automatic == "input" or self._settings.flag("core.autocrlf", default=False)
        if text is False:
            return Conversion(has_ident=ident)

        eol = said.get("eol")
        eol = "lf" if text == "input" else eol
        is_guessed = text == "auto"
        if text not in (True, "input", "auto"):
            if eol not in ("lf", "crlf") and not converts_all:
                return Conversion(has_ident=ident)

            is_guessed = eol not in ("lf", "crlf")

        crlf = eol == "crlf" or (eol != "lf" and self._writes_crlf(automatic))
        return Conversion(True, is_guessed, crlf, ident)

    def _writes_crlf(self, automatic: str) -> bool:
        if automatic == "input":
            return False

        if self._settings.flag("core.autocrlf", default=False):
            return True

        return (self._settings.text("core.eol") or "").lower() == "crlf"

    def _in(self, folder: bytes) -> list[_Line]:
        if folder not in self._known:
            content = self._read(joined(folder, ATTRIBUTES)) or b""
            self._known[folder] = list(self._lines(folder, content))

        return self._known[folder]

    def _lines(self, folder: bytes, content: bytes) -> Iterator[_Line]:
        for raw in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
            line = raw.strip(b" \t\r")
            if not line or line.startswith(b"#"):
                continue

            if line.startswith(b"[attr]"):
                name, *words = _text(line[6:]).split()
                self._macros[name] = _values(words)
                continue

            pattern, rest = _apart(line)
            if not pattern.startswith("!") and not pattern.endswith("/"):
                is_for_names = "/" not in pattern
                parts = tuple(pattern.lstrip("/").split("/"))
                yield _Line(folder, parts, is_for_names, _values(rest))


def _text(raw: bytes) -> str:
    """Decode one character per byte: in git, `?` matches one byte of a name, not one letter."""
    return raw.decode("latin-1")


def _values(words: Iterable[str]) -> tuple[tuple[str, Value], ...]:
    found: list[tuple[str, Value]] = []
    for word in words:
        name, equals, text = word.lstrip("-!").partition("=")
        value: Value = text if equals else True
        if word.startswith("-"):
            value = False
        elif word.startswith("!"):
            value = None

        found.append((name, value))

    return tuple(found)


def _apart(line: bytes) -> tuple[str, list[str]]:
    quoted = _QUOTED.fullmatch(line)
    if quoted is not None:
        return _ESCAPED.sub(r"\1", _text(quoted[1])), _text(quoted[2]).split()

    pattern, *words = re.split(r"[ \t]+", _text(line))
    return pattern, words


def _fits(pattern: str, name: str) -> bool:
    return _expression(pattern).match(name) is not None


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for one name; `fnmatch` never backtracks exponentially (bpo-40480)."""
    pattern = _ESCAPED.sub(lambda found: f"[{found[1]}]", pattern)
    for name, characters in _CLASSES.items():
        pattern = pattern.replace(name, characters)

    try:
        return re.compile(translate(pattern.replace("[^", "[!")))
    except re.error:
        return re.compile(r"(?!)")


def _lead(parts: tuple[str, ...], names: list[str]) -> bool:
    """Match a pattern with folders part by part; `**` stands for any number of folders."""
    reached = {0}
    for name in [*names, None]:
        for position in sorted(reached):
            at = position
            while at < len(parts) - 1 and parts[at] == "**":
                at += 1
                reached.add(at)

        if name is None:
            break

        reached = {
            position if parts[position] == "**" else position + 1
            for position in reached
            if position < len(parts) and (parts[position] == "**" or _fits(parts[position], name))
        }
        if parts[-1] == "**" and len(parts) - 1 in reached:
            return True

    return len(parts) in reached
