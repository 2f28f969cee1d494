"""Finds checkpoints: on HEAD's line, and those that a rollback stepped back over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from hankweave_server.git.trees import Lookup, differences
from hankweave_server.user_git.commits import Marked, belongs_to, marked
from hankweave_server.user_git.repository import Commit
from hankweave_server.user_git.workspace import Opened

KEPT = "refs/hankweave/safety/"


@dataclass(frozen=True, slots=True)
class Listed:
    """One checkpoint as it is listed."""

    sha: str
    mark: Marked
    timestamp: int
    files: tuple[str, ...]
    """Paths in the workspace that it changed."""


class Listing:
    """The checkpoints of one workspace."""

    def __init__(self, place: Opened) -> None:
        self._place = place

    def all(self) -> list[Listed]:
        """Gives every checkpoint, newest first."""
        kept = self._place.repo.references(KEPT).values()
        head = self._place.head.sha
        tips = [*kept, *([head] if head else [])]
        return [self.listed(commit) for commit in self._checkpoints(tips)] if tips else []

    def on_the_line(self) -> Iterator[Listed]:
        """Gives those that lead to HEAD, newest first."""
        head = self._place.head.sha
        return map(self.listed, self._checkpoints([head])) if head else iter(())

    def found(self, step: int | str | None) -> str | None:
        """Finds the newest checkpoint of a step on HEAD's line, or else among the others."""
        head = self._place.head.sha
        kept = [*self._place.repo.references(KEPT).values()]
        for tips, hidden in ((([head] if head else []), []), (kept, [head] if head else [])):
            for commit in self._checkpoints(tips, hidden) if tips else ():
                mark = marked(commit)
                if mark is not None and _means(step, mark):
                    return commit.sha

        return None

    def listed(self, commit: Commit) -> Listed:
        mark = marked(commit)
        if mark is None:
            raise ValueError(f"{commit.sha} is no checkpoint")

        return Listed(commit.sha, mark, commit.author_time, self._files_of(commit))

    def _checkpoints(self, tips: list[str], hidden: list[str] | None = None) -> Iterator[Commit]:
        for commit in self._place.repo.history(tips, hidden or []):
            if marked(commit) is not None and belongs_to(commit, self._place.folder):
                yield commit

    def _files_of(self, commit: Commit) -> tuple[str, ...]:
        repo = self._place.repo
        lookup = Lookup(repo.read_tree)
        before = repo.commit(commit.parents[0]).tree if commit.parents else None
        trees = [lookup.folder(tree, self._place.folder) for tree in (before, commit.tree)]
        return tuple(os.fsdecode(path) for path in sorted(differences(repo.read_tree, *trees)))


def _means(step: int | str | None, mark: Marked) -> bool:
    """A number never means a named step, whose own number is 0 in lists only."""
    if isinstance(step, str):
        return mark.name == step

    return mark.name is None and mark.step == step
