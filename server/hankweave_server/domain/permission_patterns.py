"""Patterns of `permissions`: which tool calls they match.

`Tool` matches every call of that tool, and a name may end in `*` (`mcp__server__*`).
`Tool(argument)` matches the calls whose main argument fits: a command line, one or more paths, or a
text. In all of them `*` matches anything; in a path it stops at `/`, and `**` matches any number of
folders. There is no other special character.

A pattern answers two questions, strictly the one and broadly the other:

- *Does it allow this call?* It must match the whole call. No `Bash(...)` matches a command line
  with more than one plain command: in `git status; rm -rf .` the second command is not git's.
- *Does it deny this call?* A part is enough: one command of a chain, the command that a wrapper
  such as `sudo` runs, text in quotes, the place a link leads to. A call without a readable main
  argument matches every pattern of its tool.

A shell has endless ways to write one command, so a deny pattern only stops an agent that writes it
plainly. To stop more than that, deny the whole tool, or allow only what is listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from hankweave_server.domain.effects.tools import PATH_KEYS


class Kind(Enum):
    """The kinds of a tool's main argument."""

    COMMAND = auto()
    PATH = auto()
    TEXT = auto()


_ARGUMENTS: Mapping[str, tuple[Kind, tuple[str, ...]]] = {
    "Bash": (Kind.COMMAND, ("command",)),
    **dict.fromkeys(
        ("Edit", "Glob", "Grep", "LS", "MultiEdit", "NotebookEdit", "Read", "Write"),
        (Kind.PATH, PATH_KEYS),
    ),
    "WebFetch": (Kind.TEXT, ("url",)),
    "WebSearch": (Kind.TEXT, ("query",)),
}
"""The tools whose main argument a pattern can name, and the keys that hold it."""

_MOREPATH_KEYS = "file_paths"
"""The key of a list, for a call with more than one path."""

DECIDING = frozenset(key for _, keys in _ARGUMENTS.values() for key in keys) | {_MOREPATH_KEYS}
"""Every key of a main argument: code that shortens a call must not shorten these."""

_SEARCH_FROM_HERE = frozenset({"Glob", "Grep", "LS"})
"""Without a path these search the whole work tree."""

_WRITTEN = re.compile(r"(?P<tool>[^()]*)(?:\((?P<argument>.*)\))?", re.DOTALL)
_NAME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_.:/-]*)?\*?")


class MalformedPattern(ValueError):
    """An invalid pattern, with the fault and a hint."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class PatternPlace:
    """A path as written and after resolving links.

    Each is relative to the work tree, with `.` for the tree itself, and absolute outside of it.
    """

    written: str
    real: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that an agent requests, reduced to the parts that patterns match."""

    tool: str
    texts: tuple[str, ...] = ()
    """The command line or the text."""
    places: tuple[PatternPlace, ...] = ()
    """The places of a tool that takes paths."""

    @property
    def is_unreadable(self) -> bool:
        return not self.texts and not self.places


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern."""

    text: str
    tool: str
    argument: str | None

    def allows(self, call: Call) -> bool:
        """Return whether it matches the whole call."""
        if not _fits(self.tool, call.tool):
            return False

        if self.argument is None:
            return True

        if call.is_unreadable:
            return False

        return all(self._covers(text) for text in call.texts) and all(
            _leads_below(self.argument, path, strict=True)
            for place in call.places
            for path in (place.written, place.real)
        )

    def denies(self, call: Call) -> bool:
        """Return whether it matches any part of a call."""
        if not _fits(self.tool, call.tool):
            return False

        if self.argument is None or call.is_unreadable:
            return True

        return any(self._matches_any_command(text) for text in call.texts) or any(
            _leads_below(self.argument, path, strict=False)
            for place in call.places
            for path in (place.written, place.real)
        )

    def would_allow_but_for_a_chain(self, call: Call) -> bool:
        """Return whether a command line begins with an allowed command but does not end there."""
        return (
            self.tool == call.tool == "Bash"
            and self.argument is not None
            and any(
                not is_plain(text) and _fits_command(self.argument, text.strip())
                for text in call.texts
            )
        )

    def _covers(self, text: str) -> bool:
        assert self.argument is not None
        if self.tool != "Bash":
            return _fits(self.argument, text)

        return is_plain(text) and _fits_command(self.argument, text.strip())

    def _matches_any_command(self, text: str) -> bool:
        assert self.argument is not None
        if self.tool != "Bash":
            return _fits(self.argument, text)

        return any(_fits_command(self.argument, each) for each in commands_in(text))


def parse(text: str) -> Pattern:
    """Parse a pattern; raise MalformedPattern."""
    written = _WRITTEN.fullmatch(text)
    if written is None:
        raise MalformedPattern(
            f"{text!r} is not a pattern: its parentheses do not match.",
            "Write the name of a tool, optionally with its argument, as in 'Bash(git *)'.",
        )

    tool, argument = written["tool"], written["argument"]
    if not tool or _NAME.fullmatch(tool) is None:
        raise MalformedPattern(
            f"{tool!r} is not a valid tool name.",
            "Names look like Bash or mcp__server__tool and may end with '*'.",
        )

    if argument is not None:
        _examine(tool, argument)

    return Pattern(text, tool, argument)


def arguments_of(tool: str, given: Mapping[str, object]) -> tuple[Kind, tuple[str, ...]] | None:
    """Return the kind and the main arguments of a call; no arguments if they cannot be read.

    None for a tool whose arguments patterns do not support.
    """
    known = _ARGUMENTS.get(tool)
    if known is None:
        return None

    kind, keys = known
    values = [given[key] for key in keys if key in given]
    if kind is Kind.PATH:
        more = given.get(_MOREPATH_KEYS, [])
        values += more if isinstance(more, list) else [more]

    if tool in _SEARCH_FROM_HERE and "path" not in given:
        values.append(".")

    texts = tuple(value for value in values if isinstance(value, str) and "\0" not in value)
    return kind, texts if len(texts) == len(values) else ()


# --- checking patterns ----------------------------------------------------------------------------


def _examine(tool: str, argument: str) -> None:
    if tool not in _ARGUMENTS:
        listed = ", ".join(sorted(_ARGUMENTS))
        raise MalformedPattern(
            f"The arguments of {tool} are not known.",
            f"Write {tool} alone; only these tools can have an argument: {listed}.",
        )

    if not argument or argument != argument.strip():
        raise MalformedPattern(
            "The text in parentheses is empty, or begins or ends with a space.",
            f"To match every call, write {tool} alone.",
        )

    if any(ord(letter) < 0x20 or letter == "\x7f" for letter in argument):
        raise MalformedPattern("The pattern contains a control character.")

    if _ARGUMENTS[tool][0] is Kind.PATH:
        _examine_path(argument)
    elif tool == "Bash":
        _examine_command(argument)


def _examine_path(path: str) -> None:
    if special := sorted(set(path) & set("?[]{}\\~")):
        raise MalformedPattern(
            f"{special[0]!r} is not allowed in a path pattern.",
            "The only wildcards are '*' and '**': write one pattern for each path.",
        )

    parts = path.removeprefix("/").split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise MalformedPattern(
            f"{path!r} has a part that is empty, '.' or '..'.",
            "Write paths relative to the work tree, as in 'src/**', or absolute paths.",
        )

    if any("**" in part and part != "**" for part in parts):
        raise MalformedPattern("'**' must stand alone between slashes.", "Write 'src/**/*.py'.")


def _examine_command(command: str) -> None:
    if not is_plain(command):
        raise MalformedPattern(
            "A command pattern must be one plain command: no chain, no redirection, no '$'.",
            "Write one pattern for each command; every command in a chain is checked.",
        )


# --- texts and paths ------------------------------------------------------------------------------


def _fits(pattern: str, text: str) -> bool:
    """Match a text with `*` for anything at all, in time proportional to the text."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern

    *middle, last = rest
    if not text.startswith(first) or len(text) < len(first) + len(last):
        return False

    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False

        at = found + len(part)

    return text.endswith(last)


def _leads_below(pattern: str, path: str, *, strict: bool) -> bool:
    """Match a path; `folder/**` is all below a folder, and unless strict the folder itself."""
    if pattern.startswith("/") != path.startswith("/"):
        return False

    wanted = pattern.removeprefix("/").split("/")
    if strict and wanted != ["**"] and wanted[-1] == "**":
        wanted.append("*")

    return _fits_parts(wanted, [part for part in path.split("/") if part not in ("", ".")])


def _fits_parts(wanted: list[str], parts: list[str]) -> bool:
    """Match a path by tracking every position of the pattern that it could have reached."""
    standing = _with_skips({0}, wanted)
    for part in parts:
        onward = {at for at in standing if at < len(wanted) and wanted[at] == "**"}
        onward |= {
            at + 1
            for at in standing
            if at < len(wanted) and wanted[at] != "**" and _fits(wanted[at], part)
        }
        standing = _with_skips(onward, wanted)

    return len(wanted) in standing


def _with_skips(standing: set[int], wanted: list[str]) -> set[int]:
    """Add the positions reached by letting `**` match nothing."""
    reached = set(standing)
    for at in sorted(standing):
        while at < len(wanted) and wanted[at] == "**":
            at += 1
            reached.add(at)

    return reached


# --- command lines --------------------------------------------------------------------------------

_CHAINS = frozenset(";&|<>()`$\n\r")
_SPLIT = re.compile(r"[;&|<>()`$\n\r{}]+|\s-(?:exec|ok)(?:dir)?\s")
_QUOTES = re.compile(r"[\"']")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")

_WRAPPERS = frozenset(
    (
        *("!", "bash", "builtin", "command", "dash", "do", "doas"),
        *("elif", "else", "env", "eval", "exec", "if", "ionice"),
        *("nice", "nohup", "setsid", "sh", "stdbuf", "sudo", "then"),
        *("time", "timeout", "until", "watch", "while", "xargs", "zsh"),
    )
)
"""Words that may be followed by another command."""

_FAR_BEHIND = 8
"""The most words between a wrapper and its command: options and their values."""


def is_plain(command: str) -> bool:
    """Return whether a command line is certainly one command with its arguments.

    Quotes are read as a POSIX shell reads them. Anything that a shell might expand, and newlines
    even in quotes, make it not plain: a comment would hide the quote before them.
    """
    quote, escaped = "", False
    for letter in command:
        if letter != "\t" and (letter < " " or letter == "\x7f"):
            return False

        if escaped:
            escaped = False
        elif quote == "'":
            quote = "" if letter == "'" else quote
        elif letter == "\\":
            escaped = True
        elif letter in "$`":
            return False
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in _CHAINS:
            return False

    return not quote and not escaped


def commands_in(line: str) -> Iterator[str]:
    """Yield every part of a command line that may be a command; too many rather than too few."""
    without_quotes = line.replace("\\\n", "").replace("\\", "")
    yield line.strip()
    for text in (line, _QUOTES.sub("", without_quotes), _QUOTES.sub(";", without_quotes)):
        for piece in _SPLIT.split(text):
            yield from _unwrapped(piece.split())


def _unwrapped(words: list[str]) -> Iterator[str]:
    """Yield a command, and its variants without wrapper, assignments and directory."""
    start = next((i for i, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    yield " ".join(words)
    if start == len(words):
        return

    is_wrapped = _base(words[start]) in _WRAPPERS
    for at in range(start, min(len(words), start + _FAR_BEHIND) if is_wrapped else start + 1):
        yield " ".join(words[at:])
        yield " ".join([_base(words[at]), *words[at + 1 :]])


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _fits_command(pattern: str, command: str) -> bool:
    """Match a command line; `git *` also matches `git` alone, but never `gitk`."""
    return _fits(pattern, command) or (pattern.endswith(" *") and command == pattern[:-2])
