"""Stores of checkpoints of a tree behind one small interface: the server's, and plain pygit2."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pygit2

from bench.trees import SOURCES
from hankweave_protocol.ids import RunId, Sha
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.model import CheckpointRequest, RestorePlan
from hankweave_server.paths import Layout

EVERYTHING = ("**",)
RUN = RunId("1736000000000-abc123-def456")

LineChanges = frozenset[tuple[str, int, int]]
"""Path, lines added, lines removed: the result of a diff of checkpoints."""


class Store(ABC):
    """One work tree and its history."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = Layout.of_execution(root).work_tree
        self._files = sorted(self.tree.rglob(SOURCES))
        self._edits = 0

    def edit(self, count: int | None) -> None:
        """Append to that many files, spread over the tree; None means to all."""
        count = len(self._files) if count is None else count
        step = max(1, len(self._files) // max(1, count))
        for number in range(count):
            self.edit_file(number * step)

    def edit_file(self, number: int) -> str:
        """Append to one file and return its path below the tree."""
        self._edits += 1
        path = self._files[number % len(self._files)]
        with path.open("a") as stream:
            stream.write(f"edit_{self._edits} = True\n")

        return str(path.relative_to(self.tree))

    @abstractmethod
    def renew(self) -> None:
        """Begin with an empty history."""

    @abstractmethod
    def checkpoint(self) -> str: ...

    def rollback(self, sha: str) -> None:
        raise AssertionError(f"no rollback to {sha} is measured for this store")

    def diff(self, old: str, new: str) -> LineChanges:
        raise AssertionError(f"no diff of {old} and {new} is measured for this store")

    def close(self) -> None:  # noqa: B027 - most stores have nothing open
        """Release open resources."""


class OurStore(Store):
    _engine: CheckpointEngine | None = None

    def renew(self) -> None:
        self.close()
        shutil.rmtree(Layout.of_execution(self.root).checkpoints, ignore_errors=True)
        self.reopen()

    def reopen(self) -> None:
        """Restart with cold memory and the same history."""
        self.close()
        self._engine = CheckpointEngine.open(Layout.of_execution(self.root))

    @property
    def engine(self) -> CheckpointEngine:
        assert self._engine is not None, "renew comes first"
        return self._engine

    def checkpoint(self) -> str:
        return self.engine.checkpoint(request("manual")).sha

    def rollback(self, sha: str) -> None:
        target = Sha(sha)
        plan = self.engine.plan_restore(target, EVERYTHING)
        safety = self.engine.checkpoint(request("safety", plan))
        self.engine.restore(target, safety.sha, detaches=True)

    def diff(self, old: str, new: str) -> LineChanges:
        found = self.engine.diff(Sha(old), Sha(new))
        return frozenset((os.fsdecode(file.path), file.added, file.removed) for file in found)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


class Pygit2Store(Store):
    """`add_all`, `write_tree`, `checkout_tree`, as in the library's documentation."""

    def renew(self) -> None:
        shutil.rmtree(self.root / "history.git", ignore_errors=True)
        self._repo = pygit2.init_repository(self.root / "history.git", bare=True)
        self._repo.config["core.bare"] = False
        self._repo.config["core.worktree"] = str(self.tree)
        self._repo = pygit2.Repository(str(self.root / "history.git"))

    def checkpoint(self) -> str:
        with _without_fsync():
            index = self._repo.index
            index.add_all()
            index.write()
            tree = index.write_tree()
            parents = [] if self._repo.head_is_unborn else [self._repo.head.target]
            who = pygit2.Signature("bench", "bench@example.org")
            return str(self._repo.create_commit("HEAD", who, who, "checkpoint", tree, parents))

    def rollback(self, sha: str) -> None:
        self._repo.checkout_tree(
            self._repo[sha].peel(pygit2.Tree), strategy=pygit2.enums.CheckoutStrategy.FORCE
        )
        self._repo.set_head(pygit2.Oid(hex=sha))

    def diff(self, old: str, new: str) -> LineChanges:
        return frozenset(
            (patch.delta.new_file.path, patch.line_stats[1], patch.line_stats[2])
            for patch in self._repo.diff(old, new)
            if patch is not None
        )


@contextmanager
def _without_fsync() -> Iterator[None]:
    """Restore the library's default: the engine has switched fsync on in this process."""
    pygit2.settings.enable_fsync_gitdir(False)
    try:
        yield
    finally:
        pygit2.settings.enable_fsync_gitdir(True)


def request(kind: str, before: RestorePlan | None = None) -> CheckpointRequest:
    return CheckpointRequest(
        kind=kind,
        codon_id=None,
        codon_name="bench",
        run_id=RUN,
        timestamp=datetime.now(UTC),
        duration_ms=None,
        operation_id="op",
        event_seq=1,
        session_id=None,
        memory_epoch=0,
        label=None,
        patterns=EVERYTHING,
        before=before,
    )
