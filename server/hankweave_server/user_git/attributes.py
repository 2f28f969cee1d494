"""`.gitattributes` (gitattributes(5)) and the conversions of content that they control.

The attributes are parsed here because libgit2 answers differently from git for many patterns,
cannot look them up while the index is split, and reads the user's own attributes file only together
with the user's whole configuration.

The conversions between work tree and repository are line ends and `$Id$`, as in git's convert.c.
libgit2's own filters cannot be used: they cut content at its first NUL when asked for bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hankweave_server.user_git.settings import UserSettings
from hankweave_server.worktree.gitignore import Meaningless, compiled
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


RAW = Conversion()


def to_repository(content: bytes, conversion: Conversion, before: bytes) -> bytes:
    """Return the stored form of a file; `before` is the index's version of it, or empty."""
    is_kept = conversion.is_guessed and (
        _is_binary(content) or (b"\r\n" in before and not _is_binary(before))
    )
    if conversion.is_text and not is_kept:
        content = content.replace(b"\r\n", b"\n")

    return _ID.sub(b"$Id$", content) if conversion.has_ident else content


def to_work_tree(content: bytes, conversion: Conversion, digest: bytes) -> bytes:
    """Return the work tree's form of a stored blob, whose name is `digest`."""
    if conversion.has_ident:
        content = _ID.sub(lambda found: _expanded(found[0], digest), content)

    if not conversion.is_crlf_outside:
        return content

    if conversion.is_guessed and (b"\r\n" in content or _is_binary(content)):
        return content

    return content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _expanded(keyword: bytes, digest: bytes) -> bytes:
    if b" " in keyword[5:-2]:
        return keyword  # Expanded by another program; git leaves it alone.

    return b"$Id: " + digest.hex().encode() + b" $"


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

_LINE = re.compile(rb'(?:"((?:[^"\\]|\\.)*)"|([^ \t]+))(.*)', re.DOTALL)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_BINARY: tuple[tuple[str, Value], ...] = (("diff", False), ("merge", False), ("text", False))


class _Line(NamedTuple):
    folder: bytes
    is_for_names: bool
    pattern: re.Pattern[bytes]
    values: tuple[tuple[str, Value], ...]

    def means(self, path: bytes) -> bool:
        below = path[len(self.folder) + 1 :] if self.folder else path
        name = below.rpartition(b"/")[2]
        return self.pattern.fullmatch(name if self.is_for_names else below) is not None


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
        self._known: dict[bytes, list[_Line]] = {}

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
        values = self.of(path)
        encoding = values.get("working-tree-encoding")
        if isinstance(values.get("filter"), str) or (
            isinstance(encoding, str) and encoding.lower() not in ("utf-8", "utf8")
        ):
            return None

        return self._line_ends(values)

    def _line_ends(self, values: dict[str, Value]) -> Conversion:
        """Follow git's convert.c (`convert_attrs`, `output_eol`)."""
        ident = values.get("ident") is True
        text = values.get("text")
        text = values.get("crlf") if text is None else text
        eol = "lf" if text == "input" else values.get("eol")
        is_set, has_eol = text in (True, "input", "auto"), eol in ("lf", "crlf")
        is_input = (self._settings.text("core.autocrlf") or "").lower() == "input"
        is_automatic = self._settings.flag("core.autocrlf", default=False)
        if text is False or not (is_set or has_eol or is_input or is_automatic):
            return Conversion(has_ident=ident)

        is_crlf = is_automatic or (
            not is_input and (self._settings.text("core.eol") or "").lower() == "crlf"
        )
        is_guessed = text == "auto" or not (is_set or has_eol)
        return Conversion(True, is_guessed, eol == "crlf" if has_eol else is_crlf, ident)

    def _in(self, folder: bytes) -> list[_Line]:
        if folder not in self._known:
            content = self._read(joined(folder, ATTRIBUTES)) or b""
            self._known[folder] = list(self._lines(folder, content))

        return self._known[folder]

    def _lines(self, folder: bytes, content: bytes) -> Iterator[_Line]:
        for raw in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
            line = _LINE.fullmatch(raw.strip(b" \t\r"))
            if line is None or line[0].startswith(b"#"):
                continue

            if line[0].startswith(b"[attr]"):
                words = line[0][6:].decode("latin-1").split() or [""]
                self._macros[words[0]] = _values(words[1:])
                continue

            pattern = line[2] if line[1] is None else _ESCAPED.sub(rb"\1", line[1])
            if pattern.startswith(b"!") or pattern.endswith(b"/"):
                continue

            try:
                expression = compiled(pattern.removeprefix(b"/"))
            except Meaningless:
                continue

            values = _values(line[3].decode("latin-1").split())
            yield _Line(folder, b"/" not in pattern, expression, values)


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
