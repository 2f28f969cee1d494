"""Remove lost checkpoints from the history without changing any sha, and keep all others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.commit_message import facts_of
from hankweave_server.fsutil import make_private_directory, replace_durably
from hankweave_server.git.repo import (
    BRANCHES,
    KEPT,
    MEMORY_REF,
    NOTES_REF,
    PINS,
    RawCommit,
    ShadowRepo,
)

QUARANTINE = "quarantine"
"""A folder of the repository that git ignores; damaged files are moved there."""


@dataclass(frozen=True, slots=True)
class DetachedRef:
    """A ref whose target is lost."""

    ref: str
    was: Sha
    now: Sha | None
    """The checkpoint that it names now; None if the ref was removed."""


class DetachedRefs:
    """The refs that are not reported yet: the engine's thread adds them, another thread takes them.

    Each is taken once, whatever comes between the two threads.
    """

    def __init__(self) -> None:
        self._refs: deque[DetachedRef] = deque()

    def add(self, ref: DetachedRef) -> None:
        self._refs.append(ref)

    def take(self) -> tuple[DetachedRef, ...]:
        """Return those that were added since the last call."""
        return tuple(self._refs.popleft() for _ in range(len(self._refs)))


def set_aside(quarantine: Path, ref: str, target: Sha) -> None:
    """Record what a ref named, durably, where git does not look."""
    place = quarantine / ref
    make_private_directory(place.parent)
    replace_durably(place, f"{target}\n".encode())


class Detaching:
    """The last part of a repair; refs are recorded in `quarantine`, under their names."""

    def __init__(self, repo: ShadowRepo, quarantine: Path) -> None:
        self._repo = repo
        self._quarantine = quarantine
        self._commits: dict[Sha, RawCommit] = {}

    def run(self, recorded: Iterable[Sha], lost: frozenset[Sha]) -> tuple[DetachedRef, ...]:
        """Detach the lost checkpoints; return the refs that changed."""
        self._commits, missing = self._repo.reachable({*self._named(), *recorded})
        gone = lost | missing
        whole = {sha: commit for sha, commit in self._commits.items() if sha not in gone}
        self._cut(whole, gone)
        changed = [self._moved(ref, sha, whole, gone) for ref, sha in self._refs().items()]
        head = self._detached_head(whole, gone)
        self._repo.reopen()
        self._keep(whole)
        return tuple(each for each in (*changed, head) if each is not None)

    def _named(self) -> set[Sha]:
        return {self._repo.commit_named_by(tip) or tip for tip in self._repo.tips()}

    def _refs(self) -> dict[str, Sha]:
        refs = self._repo.references()
        return {ref: sha for ref, sha in refs.items() if ref not in (NOTES_REF, MEMORY_REF)}

    def _cut(self, whole: dict[Sha, RawCommit], gone: frozenset[Sha] | set[Sha]) -> None:
        """Make histories begin with the commits whose parents are lost."""
        cut = {sha for sha, commit in whole.items() if not gone.isdisjoint(commit.parents)}
        known = self._repo.shallow()
        if cut - known:
            lines = "".join(f"{sha}\n" for sha in sorted(cut | known))
            replace_durably(self._repo.path / "shallow", lines.encode())

    def _moved(
        self, ref: str, target: Sha, whole: dict[Sha, RawCommit], gone: frozenset[Sha] | set[Sha]
    ) -> DetachedRef | None:
        commit = self._repo.commit_named_by(target)
        if commit is not None and commit in whole:
            return None

        if ref.startswith(PINS) and (pinned := Sha(ref.removeprefix(PINS))) in whole:
            self._set_aside(ref, target)
            self._repo.point(ref, pinned)  # The tag with its name is lost; the pin is not.
            return DetachedRef(ref, target, pinned)

        if commit is None and target not in gone:
            return None  # It names no commit.

        newest = self._newest_of(ref, whole)
        self._set_aside(ref, target)
        if newest is None:
            self._repo.drop(ref)
        else:
            self._repo.point(ref, newest)

        return DetachedRef(ref, target, newest)

    def _detached_head(
        self, whole: dict[Sha, RawCommit], gone: frozenset[Sha] | set[Sha]
    ) -> DetachedRef | None:
        """Point HEAD to a whole checkpoint, if it names a lost one and not a branch."""
        head = self._repo.head()
        if head is None or head in whole or head not in gone:
            return None

        newest = max(whole.values(), key=lambda commit: commit.committed, default=None)
        if newest is None:
            return None

        self._set_aside("HEAD", head)
        self._repo.detach(newest.sha)
        return DetachedRef("HEAD", head, newest.sha)

    def _set_aside(self, ref: str, target: Sha) -> None:
        set_aside(self._quarantine, ref, target)

    def _newest_of(self, ref: str, whole: dict[Sha, RawCommit]) -> Sha | None:
        """Return the newest whole checkpoint of a branch's run."""
        if not ref.startswith(BRANCHES):
            return None

        run_id = ref.removeprefix(BRANCHES).removeprefix("run-")
        own = [
            facts
            for commit in whole.values()
            if (facts := _facts(commit)) is not None and facts[0] == run_id
        ]
        newest = max(own, key=lambda facts: facts[1:], default=None)
        return None if newest is None else newest[2]

    def _keep(self, whole: dict[Sha, RawCommit]) -> None:
        """Create refs for whole checkpoints that no ref reaches any more."""
        reached, _ = self._repo.reached_from_refs()
        alone = {sha: commit for sha, commit in whole.items() if sha not in reached}
        parents = {parent for commit in alone.values() for parent in commit.parents}
        for sha in sorted(alone.keys() - parents):
            if _facts(alone[sha]) is not None:
                self._repo.point(KEPT + sha, sha)


def _facts(commit: RawCommit) -> tuple[str, int, Sha] | None:
    """Return run, event and sha of a checkpoint; None for any other commit."""
    facts = facts_of(commit)
    return None if facts is None else (facts.run_id, facts.event_seq or 0, commit.sha)
