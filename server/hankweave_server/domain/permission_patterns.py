"""The patterns of `permissions`: which calls of a tool they mean.

`Tool` means every call of that tool, and a name may end in `*` (`mcp__server__*`). `Tool(argument)`
means the calls whose main argument fits: a command line, one or more paths, or a text. In all of
them `*` stands for anything; in a path it stops at `/`, and `**` is any number of folders. Nothing
else is special.

A pattern is asked in one of two ways, and is strict in the one, suspicious in the other:

- *Does it allow this call?* Then all of the call has to be meant. A command line that holds more
  than one plain command is meant by no `Bash(…)`: what comes after `git status; ` is not git's.
- *Does it deny this call?* Then a part is enough: one command of a chain, what a wrapper such as
  `sudo` runs, what stands in quotes, the place where a link leads. A call without a readable main
  argument fits every pattern of its tool.

A shell can say one thing in endlessly many ways: what is denied here is denied to an agent that
speaks plainly. Whoever has to stop more than that denies the whole tool, or allows only what is
listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """How the main argument of a tool is read."""

    COMMAND = auto()
    PATH = auto()
    TEXT = auto()


_PATHS = ("file_path", "notebook_path", "path", "filePath", "abs_path")

_ARGUMENTS: Mapping[str, tuple[Kind, tuple[str, ...]]] = {
    "Bash": (Kind.COMMAND, ("command",)),
    **dict.fromkeys(
        ("Edit", "Glob", "Grep", "LS", "MultiEdit", "NotebookEdit", "Read", "Write"),
        (Kind.PATH, _PATHS),
    ),
    "WebFetch": (Kind.TEXT, ("url",)),
    "WebSearch": (Kind.TEXT, ("query",)),
}
"""The tools whose main argument a pattern can name, and the keys by which they are given it."""

_MORE_PATHS = "file_paths"
"""Here stands a list, where a call has more paths than one."""

DECIDING = frozenset(key for _, keys in _ARGUMENTS.values() for key in keys) | {_MORE_PATHS}
"""Every key of a main argument: who shortens a call must not shorten these."""

_SEARCH_FROM_HERE = frozenset({"Glob", "Grep", "LS"})
"""Without a path these look at the whole work tree."""

_WRITTEN = re.compile(r"(?P<tool>[^()]*)(?:\((?P<argument>.*)\))?", re.DOTALL)
_NAME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_.:/-]*)?\*?")


class MalformedPattern(ValueError):
    """A pattern that means nothing; says what is wrong with it, and what to write instead."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads, as it is written and as it is after links.

    Each is relative to the work tree, and `.` for the tree itself; absolute outside of it.
    """

    written: str
    real: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that an agent wants to call, and what of it a pattern can ask about."""

    tool: str
    texts: tuple[str, ...] = ()
    """The command line, or the text."""
    places: tuple[Place, ...] = ()
    """Of a tool that has paths."""

    @property
    def is_unreadable(self) -> bool:
        return not self.texts and not self.places


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern, read."""

    text: str
    tool: str
    argument: str | None

    def allows(self, call: Call) -> bool:
        """Tells whether it means all of a call."""
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
        """Tells whether it means any part of a call."""
        if not _fits(self.tool, call.tool):
            return False

        if self.argument is None or call.is_unreadable:
            return True

        return any(self._touches(text) for text in call.texts) or any(
            _leads_below(self.argument, path, strict=False)
            for place in call.places
            for path in (place.written, place.real)
        )

    def would_allow_but_for_a_chain(self, call: Call) -> bool:
        """Tells of a command line that begins as it is allowed, and then goes on."""
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

    def _touches(self, text: str) -> bool:
        assert self.argument is not None
        if self.tool != "Bash":
            return _fits(self.argument, text)

        return any(_fits_command(self.argument, each) for each in commands_in(text))


def parse(text: str) -> Pattern:
    """Reads a pattern; raises MalformedPattern."""
    written = _WRITTEN.fullmatch(text)
    if written is None:
        raise MalformedPattern(
            f"{text!r} is no pattern: its brackets do not match.",
            "Write the name of a tool, or one with what it may be given, as in 'Bash(git *)'.",
        )

    tool, argument = written["tool"], written["argument"]
    if not tool or _NAME.fullmatch(tool) is None:
        raise MalformedPattern(
            f"{tool!r} is no name of a tool.",
            "Names look like Bash or mcp__server__tool; a '*' may stand at their end.",
        )

    if argument is not None:
        _examine(tool, argument)

    return Pattern(text, tool, argument)


def arguments_of(tool: str, given: Mapping[str, object]) -> tuple[Kind, tuple[str, ...]] | None:
    """Gives the main arguments of a call; none of them where they cannot be read.

    None stands for a tool whose arguments no pattern knows.
    """
    known = _ARGUMENTS.get(tool)
    if known is None:
        return None

    kind, keys = known
    values = [given[key] for key in keys if key in given]
    if kind is Kind.PATH:
        more = given.get(_MORE_PATHS, [])
        values += more if isinstance(more, list) else [more]

    if tool in _SEARCH_FROM_HERE and "path" not in given:
        values.append(".")

    texts = tuple(value for value in values if isinstance(value, str) and "\0" not in value)
    return kind, texts if len(texts) == len(values) else ()


# --- what is well written -------------------------------------------------------------------------


def _examine(tool: str, argument: str) -> None:
    if tool not in _ARGUMENTS:
        listed = ", ".join(sorted(_ARGUMENTS))
        raise MalformedPattern(
            f"Nothing is known of what {tool} is given.",
            f"Write {tool} alone; only these can have something in brackets: {listed}.",
        )

    if not argument or argument != argument.strip():
        raise MalformedPattern(
            "What stands in the brackets is empty, or begins or ends with a blank.",
            f"Write {tool} alone for every call of it.",
        )

    if any(ord(letter) < 0x20 or letter == "\x7f" for letter in argument):
        raise MalformedPattern("The pattern holds a control character.")

    if _ARGUMENTS[tool][0] is Kind.PATH:
        _examine_path(argument)
    elif tool == "Bash":
        _examine_command(argument)


def _examine_path(path: str) -> None:
    if special := sorted(set(path) & set("?[]{}\\~")):
        raise MalformedPattern(
            f"{special[0]!r} means nothing in the pattern of a path.",
            "Only '*' and '**' stand for something: write one pattern for each path.",
        )

    parts = path.removeprefix("/").split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise MalformedPattern(
            f"{path!r} has a part that is empty, '.' or '..'.",
            "Name files as seen from the work tree, as in 'src/**', or absolutely.",
        )

    if any("**" in part and part != "**" for part in parts):
        raise MalformedPattern("'**' stands alone between slashes.", "Write 'src/**/*.py'.")


def _examine_command(command: str) -> None:
    if not is_plain(command):
        raise MalformedPattern(
            "The pattern of a command is one plain command: no chain, no redirection, no '$'.",
            "Write one pattern for each command; every command of a chain is looked at.",
        )


# --- texts and paths ------------------------------------------------------------------------------


def _fits(pattern: str, text: str) -> bool:
    """Matches with `*` for anything at all; takes time in proportion to the text."""
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
    """Matches a path; `folder/**` is all below a folder, and unless strict the folder itself."""
    if pattern.startswith("/") != path.startswith("/"):
        return False

    wanted = pattern.removeprefix("/").split("/")
    if strict and wanted != ["**"] and wanted[-1] == "**":
        wanted.append("*")

    return _fits_parts(wanted, [part for part in path.split("/") if part not in ("", ".")])


def _fits_parts(wanted: list[str], parts: list[str]) -> bool:
    """Walks a path with all places of the pattern in which one could stand."""
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
    """Adds where a `**` that stands for nothing leads."""
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
"""Words behind which another command stands."""

_FAR_BEHIND = 8
"""So many words further at most: options of the wrapper, and what they are given."""


def is_plain(command: str) -> bool:
    """Tells whether a command line is one command with its arguments, and certainly no more.

    Quotes are read as a POSIX shell reads them. What a shell might expand, and line ends even in
    quotes, make it not plain: a comment would hide the quote before them.
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
    """Gives everything in a command line that may be a command, and more rather than less."""
    without_quotes = line.replace("\\\n", "").replace("\\", "")
    yield line.strip()
    for text in (line, _QUOTES.sub("", without_quotes), _QUOTES.sub(";", without_quotes)):
        for piece in _SPLIT.split(text):
            yield from _unwrapped(piece.split())


def _unwrapped(words: list[str]) -> Iterator[str]:
    """Gives a command, and what it may be without its wrapper, assignments and directory."""
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
    """Matches a command line; `git *` is `git` alone, too, and never `gitk`."""
    return _fits(pattern, command) or (pattern.endswith(" *") and command == pattern[:-2])
