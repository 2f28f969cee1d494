"""The labelled checkpoints of a shadow repository, read from its commits.

Nothing is touched, so that they are listed with a server and without. What leads to now is told
from the parents of HEAD: after a rollback the later ones are still there, but on another line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_server.architect.labels import Mark, mark_in
from hankweave_server.architect.model import Checkpoint
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.model import CommitFacts
from hankweave_server.paths import Layout


@dataclass(frozen=True, slots=True)
class Labelled:
    """One labelled checkpoint."""

    sha: Sha
    mark: Mark
    timestamp: float
    run_id: RunId
    codon_id: CodonId | None
    on_line: bool
    """True where it leads to the files as they are now, unless they have changed since."""


class ShadowHistory:
    """All checkpoints of one execution at one moment."""

    def __init__(self, engine: CheckpointEngine | None) -> None:
        self._engine = engine
        self._commits = {} if engine is None else {facts.sha: facts for facts in engine.commits()}
        line = frozenset(self._line())
        self.labelled = tuple(
            Labelled(
                facts.sha,
                mark,
                facts.timestamp.timestamp(),
                facts.run_id,
                facts.codon_id,
                facts.sha in line,
            )
            for facts in self._commits.values()
            if (mark := mark_in(facts.label)) is not None
        )
        """Newest first."""
        self._bases = self._predecessors()

    def latest(self) -> Labelled | None:
        """The newest one that leads to now."""
        return next((each for each in self.labelled if each.on_line), None)

    def called(self, step: int | str) -> list[Labelled]:
        """Those that a number or name may mean, newest first; on other lines if not on this."""
        found = [each for each in self.labelled if each.mark.is_called(step)]
        return [each for each in found if each.on_line] or found

    def beginning_with(self, prefix: str) -> list[Sha]:
        """Every checkpoint, labelled or not, whose sha begins so."""
        return [sha for sha in self._commits if sha.startswith(prefix.lower())]

    def described(self, each: Labelled) -> Checkpoint:
        """Writes the documented record; its files are those that differ from the one before."""
        return Checkpoint(
            step=each.mark.step or 0,
            commit_hash=each.sha,
            message=each.mark.message,
            timestamp=each.timestamp,
            files_changed=self._files_changed(each.sha),
        )

    def _line(self) -> Iterator[Sha]:
        """Walks from HEAD to the first checkpoint."""
        at = None if self._engine is None else self._engine.head()
        while at is not None and (facts := self._commits.get(at)) is not None:
            yield at
            at = _parent(facts)

    def _predecessors(self) -> dict[Sha, Sha | None]:
        """Finds for every checkpoint the labelled one before it; parents come before children."""
        labelled = {each.sha for each in self.labelled}
        bases: dict[Sha, Sha | None] = {}
        for facts in reversed(self._commits.values()):
            parent = _parent(facts)
            if parent is None or parent in labelled:
                bases[facts.sha] = parent
            else:
                bases[facts.sha] = bases.get(parent)

        return bases

    def _files_changed(self, sha: Sha) -> list[str]:
        assert self._engine is not None
        base = self._bases.get(sha)
        changed = self._engine.tree(sha) if base is None else self._engine.diff(base, sha)
        return [os.fsdecode(file.path) for file in changed]


@contextmanager
def reading(layout: Layout) -> Iterator[ShadowHistory]:
    """Opens the history of an execution; one that has no repository yet has none."""
    if not layout.shadow_repository.is_dir():
        yield ShadowHistory(None)
        return

    with CheckpointEngine.for_reading(layout) as engine:
        yield ShadowHistory(engine)


def _parent(facts: CommitFacts) -> Sha | None:
    return facts.parents[0] if facts.parents else None
