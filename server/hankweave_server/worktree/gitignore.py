"""What `.gitignore` files hide, exactly as git reads them (gitignore(5))."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hankweave_server.worktree.names import joined
from hankweave_server.worktree.wildmatch import Meaningless, compiled

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line."""

    hides: bool
    """False: it takes back what an earlier line has hidden."""
    of_folders: bool
    of_names: bool
    """It is about names in any folder, not about paths."""
    pattern: re.Pattern[bytes]

    def speaks_of(self, path: bytes, name: bytes, *, is_folder: bool) -> bool:
        if self.of_folders and not is_folder:
            return False

        return self.pattern.fullmatch(name if self.of_names else path) is not None


class IgnoreRules:
    """The `.gitignore` of one folder, on top of those of the folders above it."""

    def __init__(
        self, outer: IgnoreRules | None, folder: bytes, content: bytes, *, above: bytes = b""
    ) -> None:
        """`above` is for rules from outside: where the work tree lies below their folder."""
        self._outer = outer
        self._above = above
        self._below = len(folder) + 1 if folder else 0
        self._newest_first = tuple(reversed(tuple(_rules(content))))

    def hide(self, path: bytes, *, is_folder: bool) -> bool:
        """Tells whether the path is ignored; the nearest `.gitignore` with an opinion decides.

        Only the path itself is asked about: a walk that never enters an ignored folder gives
        the rule that nothing below it can be taken back.
        """
        own = path[self._below :]
        verdict = self._verdict(joined(self._above, own) if self._above else own, is_folder)
        if verdict is not None:
            return verdict

        return self._outer is not None and self._outer.hide(path, is_folder=is_folder)

    def hide_the_root(self) -> bool:
        """Tells whether rules from outside ignore the work tree itself, and so all of it."""
        above = self._above.split(b"/")
        folders = (b"/".join(above[:depth]) for depth in range(1, len(above) + 1))
        if any(self._verdict(folder, is_folder=True) for folder in folders):
            return True

        return self._outer is not None and self._outer.hide_the_root()

    def _verdict(self, path: bytes, is_folder: bool) -> bool | None:
        name = path.rpartition(b"/")[2]
        for rule in self._newest_first:
            if rule.speaks_of(path, name, is_folder=is_folder):
                return rule.hides

        return None


def _rules(content: bytes) -> Iterator[_Rule]:
    """Reads the lines; what fits nothing is passed over, as git does without a word."""
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
    """Spaces at the end are nothing, unless a backslash says that they are meant."""
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return line[: len(kept) + 1] if backslashes % 2 and len(kept) < len(line) else kept
