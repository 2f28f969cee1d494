"""Decide what `.gitignore` files hide, exactly as git does (gitignore(5)).

Patterns are compiled to regular expressions over bytes. git compares bytes and not letters: `?` is
one of the two bytes of `é`, and `[é]` either of them. Libraries that read such patterns differ
from git in that, in `**`, in classes, and in what a folder pattern means for the files below it; a
checkpoint would hold what git ignores, or lack what it does not. Source: git, gitignore(5) and its
`wildmatch`; the tests compare with the git program.

Matching takes no excessive time, whatever the pattern and the name. If a star is followed by
another one of its kind, the first place at which the text between them matches is as good as any
other, so the expression need not backtrack (atomic groups).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from hankweave_server.worktree.names import joined

IGNORE_FILE = b".gitignore"


class _Star(Enum):
    NAME = auto()
    """`*`: anything within one name."""
    DEEP = auto()
    """`**` at the end: anything at all."""
    FOLDERS = auto()
    """`**/`: any number of folders, or none."""


_SLASH = b"/"
_ANY = b"[^/]"

_Token = _Star | bytes
"""A star, or the expression of one byte."""

_Span = tuple[_Star | None, list[_Token]]

_WILD = frozenset(b"*?[\\")

_CLASSES: Mapping[bytes, Callable[[bytes], bool]] = {
    b"alnum": bytes.isalnum,
    b"alpha": bytes.isalpha,
    b"blank": lambda one: one in b" \t",
    b"cntrl": lambda one: one < b" " or one == b"\x7f",
    b"digit": bytes.isdigit,
    b"graph": lambda one: b" " < one < b"\x7f",
    b"lower": bytes.islower,
    b"print": lambda one: b" " <= one < b"\x7f",
    b"punct": lambda one: b" " < one < b"\x7f" and not one.isalnum(),
    b"space": lambda one: one in b" \t\n\r",
    b"upper": bytes.isupper,
    b"xdigit": lambda one: one in b"0123456789abcdefABCDEF",
}


class Meaningless(ValueError):
    """A pattern that matches nothing, such as an unterminated class."""


def compiled(pattern: bytes) -> re.Pattern[bytes]:
    """Compile a pattern, for `fullmatch` with a path below the folder of its rules.

    A pattern without a slash must be matched with names alone. Raises Meaningless.
    """
    tokens = list(_Reader(pattern).tokens())
    return re.compile(b"".join(_expressed(tokens)), re.DOTALL)


# --- reading --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reader:
    pattern: bytes
    at: int = 0

    def tokens(self) -> Iterator[_Token]:
        literal = next((i for i, byte in enumerate(self.pattern) if byte in _WILD), None)
        while self.at < len(self.pattern):
            byte = self.pattern[self.at : self.at + 1]
            match byte:
                case b"*":
                    yield self._star(first_wild=self.at == literal)
                case b"?":
                    self.at += 1
                    yield _ANY
                case b"[":
                    yield self._class()
                case b"\\":
                    self.at += 1
                    yield re.escape(self._take())
                case _:
                    self.at += 1
                    yield re.escape(byte)

    def _take(self) -> bytes:
        """Consume and return the next byte."""
        if self.at >= len(self.pattern):
            raise Meaningless(self.pattern)

        self.at += 1
        return self.pattern[self.at - 1 : self.at]

    def _star(self, *, first_wild: bool) -> _Star:
        """Consume stars. Two or more are deep if they are a whole name.

        As in git, stars that are the first wildcard of the pattern count as well.
        """
        begins = first_wild or self.pattern[self.at - 1 : self.at] == _SLASH
        stars = len(self.pattern) - self.at - len(self.pattern[self.at :].lstrip(b"*"))
        self.at += stars
        rest = self.pattern[self.at :]
        if stars == 1 or not begins or not (rest == b"" or rest.startswith((b"/", b"\\/"))):
            return _Star.NAME

        if not rest.startswith(_SLASH):
            return _Star.DEEP

        self.at += 1
        return _Star.FOLDERS

    def _class(self) -> bytes:
        self.at += 1
        is_negated = self.pattern[self.at : self.at + 1] in (b"!", b"^")
        self.at += is_negated
        members = set(self._members())
        chosen = (set(range(256)) - members if is_negated else members) - {_SLASH[0]}
        if not chosen:
            raise Meaningless(self.pattern)

        return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(chosen)) + b"]"

    def _members(self) -> Iterator[int]:
        """Yield the bytes of a class; a `]` that comes first is one of them."""
        before: int | None = None
        is_first = True
        while (byte := self._take()) != b"]" or is_first:
            is_first = False
            if byte == b"-" and before is not None and self._has_end_of_range():
                yield from range(before, self._member(self._take()) + 1)
                before = None
            elif byte == b"[" and (named := self._named()) is not None:
                yield from named
                before = None
            else:
                before = self._member(byte)
                yield before

    def _has_end_of_range(self) -> bool:
        return self.pattern[self.at : self.at + 1] not in (b"", b"]")

    def _member(self, byte: bytes) -> int:
        return (self._take() if byte == b"\\" else byte)[0]

    def _named(self) -> list[int] | None:
        """Return the bytes of `[:name:]`; None if the bracket only looks like one."""
        if self.pattern[self.at : self.at + 1] != b":":
            return None

        end = self.pattern.find(b"]", self.at + 1)
        if end < 0:
            raise Meaningless(self.pattern)

        if end == self.at + 1 or self.pattern[end - 1 : end] != b":":
            return None

        belongs = _CLASSES.get(self.pattern[self.at + 1 : end - 1])
        if belongs is None:
            raise Meaningless(self.pattern)

        self.at = end + 1
        return [code for code in range(256) if belongs(bytes((code,)))]


# --- writing --------------------------------------------------------------------------------------


def _expressed(tokens: Sequence[_Token]) -> Iterator[bytes]:
    spans = list(_spans(tokens))
    for number, (star, span) in enumerate(spans):
        is_last = number == len(spans) - 1
        within = b"".join(_names(span))
        match star:
            case _Star.DEEP:
                yield b".*" + within if is_last else b"(?>.*?" + within + b")"
            case _Star.FOLDERS:
                yield b"(?:.*/)?" + within if is_last else b"(?>(?:.*?/)??" + within + b")"
            case _:
                yield within


def _spans(tokens: Sequence[_Token]) -> Iterator[_Span]:
    """Split the tokens before each star that matches across folders."""
    star: _Star | None = None
    span: list[_Token] = []
    for token in tokens:
        if token in (_Star.DEEP, _Star.FOLDERS):
            yield star, span
            assert isinstance(token, _Star)
            star, span = token, []
        else:
            span.append(token)

    yield star, span


def _names(span: Sequence[_Token]) -> Iterator[bytes]:
    """Yield the expressions of names; text between two stars matches where it first occurs."""
    at = 0
    while at < len(span):
        token = span[at]
        at += 1
        if isinstance(token, bytes):
            yield token
            continue

        end = at
        while end < len(span) and span[end] not in (_Star.NAME, _SLASH):
            end += 1

        found = b"".join(each for each in span[at:end] if isinstance(each, bytes))
        at = end
        has_another = end < len(span) and span[end] is _Star.NAME
        yield b"(?>[^/]*?" + found + b")" if has_another else b"[^/]*" + found


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line of a `.gitignore`."""

    hides: bool
    """False if it re-includes what an earlier line hides."""
    of_folders: bool
    of_names: bool
    """True if it matches names in any folder instead of paths."""
    pattern: re.Pattern[bytes]

    def matches(self, path: bytes, name: bytes, *, is_folder: bool) -> bool:
        if self.of_folders and not is_folder:
            return False

        return self.pattern.fullmatch(name if self.of_names else path) is not None


class IgnoreRules:
    """The `.gitignore` of one folder, on top of those of the folders above it."""

    def __init__(
        self, outer: IgnoreRules | None, folder: bytes, content: bytes, *, above: bytes = b""
    ) -> None:
        """Parse `content`; `above`, for rules from outside, is the work tree's path below them."""
        self._outer = outer
        self._above = above
        self._below = len(folder) + 1 if folder else 0
        self._newest_first = tuple(reversed(tuple(_rules(content))))

    def hide(self, path: bytes, *, is_folder: bool) -> bool:
        """Return whether the path is ignored; the nearest matching `.gitignore` decides.

        Only the path itself is tested. A walk that never enters an ignored folder implements the
        rule that nothing below one can be re-included.
        """
        own = path[self._below :]
        verdict = self._verdict(joined(self._above, own) if self._above else own, is_folder)
        if verdict is not None:
            return verdict

        return self._outer is not None and self._outer.hide(path, is_folder=is_folder)

    def hide_the_root(self) -> bool:
        """Return whether rules from outside ignore the work tree itself, and so all of it."""
        above = self._above.split(b"/")
        folders = (b"/".join(above[:depth]) for depth in range(1, len(above) + 1))
        if any(self._verdict(folder, is_folder=True) for folder in folders):
            return True

        return self._outer is not None and self._outer.hide_the_root()

    def _verdict(self, path: bytes, is_folder: bool) -> bool | None:
        name = path.rpartition(b"/")[2]
        for rule in self._newest_first:
            if rule.matches(path, name, is_folder=is_folder):
                return rule.hides

        return None


class FolderRules:
    """The ignore rules in the folders of one tree, each read when it is first needed."""

    def __init__(
        self, read: Callable[[bytes], bytes | None], outermost: IgnoreRules | None = None
    ) -> None:
        """`read` returns the content of the `.gitignore` of that path; None if there is none."""
        self._read = read
        self._outermost = outermost
        self._known: dict[bytes, IgnoreRules | None] = {}

    def hide(self, path: bytes, *, is_folder: bool) -> bool:
        """Return whether a path is ignored, provided that no folder above it is."""
        rules = self._in(path.rpartition(b"/")[0])
        return rules is not None and rules.hide(path, is_folder=is_folder)

    def _in(self, folder: bytes) -> IgnoreRules | None:
        if folder not in self._known:
            outer = self._in(folder.rpartition(b"/")[0]) if folder else self._outermost
            content = self._read(joined(folder, IGNORE_FILE))
            self._known[folder] = IgnoreRules(outer, folder, content) if content else outer

        return self._known[folder]


def _rules(content: bytes) -> Iterator[_Rule]:
    """Parse the lines; skip patterns that match nothing, as git does silently."""
    for line in content.removeprefix(_BYTE_ORDER_MARK).split(b"\n"):
        pattern = _without_trailing_spaces(line.removesuffix(b"\r").partition(b"\0")[0])
        if not pattern or pattern.startswith(b"#"):
            continue

        takes_back = pattern.startswith(b"!")
        pattern = pattern[takes_back:]
        of_folders = pattern.endswith(b"/")
        pattern = pattern.removesuffix(b"/")
        try:
            expression = compiled(pattern.removeprefix(b"/"))
        except Meaningless:
            continue

        yield _Rule(not takes_back, of_folders, b"/" not in pattern, expression)


def _without_trailing_spaces(line: bytes) -> bytes:
    """Strip trailing spaces, except one that a backslash escapes."""
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return line[: len(kept) + 1] if backslashes % 2 and len(kept) < len(line) else kept
