"""A reader of a document, who runs its commands as they are printed and compares the output.

Each `bash` block is run, in order and in one home; a `text` block that follows it is its output. In
such a text, `…` stands for anything in a line, and in a line of its own for any number of lines.
Times, durations, costs, ports and identifiers differ from run to run. An identifier that was
printed takes the place of the document's in later commands and texts.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from documents import blocks
from support.waiting import LIMIT

HOME = "/home/ann"
"""The home directory in documents."""

_ID = r"\b(?=[0-9a-f]*\d)[0-9a-f]{12}\b|\b(?=[0-9a-f]*\d)[0-9a-f]{6}\b"
_VARYING = {
    r"\d\d:\d\d:\d\d(?:\.\d+)?": r"\d\d:\d\d:\d\d(?:\.\d+)?",
    r"\d{4}-\d\d-\d\d(?= \(| \d\d:)": r"\d{4}-\d\d-\d\d",
    r"\$\d+\.\d{4}": r"\$\d+\.\d{4}",
    r"\b\d+(?:\.\d+)? s\b": r"\d+(?:\.\d+)? s",
    r"\b\d+\.\d+\.\d+(?= )": r"\d+\.\d+\.\d+",
    r"(?<=127\.0\.0\.1:)\d+": r"\d+",
    r" {2,}": r" {2,}",
    r"…": r".*",
}
"""Patterns of varying parts of a text, and of what may be printed in their place."""

_PARTS = re.compile("|".join(f"(?P<v{n}>{each})" for n, each in enumerate((_ID, *_VARYING))))
_FAILED = "unexpected exit code"
_NOTICE = f"trap 'echo \"{_FAILED} $?: $BASH_COMMAND\"' ERR"
"""Reports a command that fails, unless the document expects it (`|| echo`)."""


@dataclass
class Reader:
    """A person who follows a document, in a shell."""

    home: Path
    """An empty directory, to begin with."""
    variables: Mapping[str, str]
    """The environment of the shell, without HOME."""
    names: dict[str, str] = field(default_factory=dict)
    """Identifiers of the document, and the ones that were printed in their place."""

    def follow(self, page: Path) -> None:
        """Run the blocks of a page; raise AssertionError if the output is not as shown."""
        for block, after in pairwise([*blocks(page), None]):
            if block is None or block.language != "bash":
                continue

            printed = self._run(self._named(block.text))
            if after is not None and after.language == "text":
                self._compare(after.text, printed, f"{page.name}, line {block.line}")
            else:
                assert _FAILED not in printed, printed

    def _run(self, commands: str) -> str:
        """Run commands where the last ones ended; return what they print, in order."""
        state = shlex.quote(str(self.home / ".left-off"))
        end = f'{{ echo "cd $(printf %q "$PWD")"; export -p; }} > {state}'
        begin = f"trap {shlex.quote(end)} EXIT; cd ~; test ! -e {state} || . {state}"
        done = subprocess.run(
            ["bash", "-c", f"{begin}\n{_NOTICE}\n{commands}"],
            env={**self.variables, "HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        return done.stdout

    def _named(self, text: str) -> str:
        return re.sub(_ID, lambda found: self.names.get(found[0], found[0]), text)

    def _compare(self, shown: str, printed: str, where: str) -> None:
        found = re.fullmatch(self._pattern(shown), printed)
        assert found is not None, (
            f"{where} shows\n{self._named(shown)}\nbut this was printed:\n{printed}"
        )
        self.names |= {name.removeprefix("id"): value for name, value in found.groupdict().items()}

    def _pattern(self, shown: str) -> str:
        """Return a regular expression for what a text of the document stands for."""
        seen: set[str] = set()

        def part(found: re.Match[str]) -> str:
            if found.lastgroup != "v0":
                kinds = list(_VARYING.values())
                return kinds[int(str(found.lastgroup)[1:]) - 1]

            name = found[0]
            if name in self.names:
                return self.names[name]

            if name in seen:
                return f"(?P=id{name})"

            seen.add(name)
            return f"(?P<id{name}>[0-9a-f]{{{len(name)}}})"

        def line(text: str) -> str:
            if text == "…":
                return r"(?:.*\n)*?"

            pattern, end = "", 0
            for found in _PARTS.finditer(text):
                pattern += re.escape(text[end : found.start()]) + part(found)
                end = found.end()

            return pattern + re.escape(text[end:]) + r" *\n"

        return "".join(map(line, shown.replace(HOME, str(self.home)).splitlines()))
