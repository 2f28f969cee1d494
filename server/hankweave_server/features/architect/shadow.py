"""`CheckpointManager(repository="shadow")`: checkpoints in the shadow repository.

The user's own git repository is never touched.

Reads open the shadow repository directly, so they work with and without a server. The order of
checkpoints follows from the parents of HEAD: after a rollback, later checkpoints still exist but
are no longer ancestors of HEAD, which `Labelled.on_line` records.

Changes go through the workspace's server. If none runs, an ephemeral server is started by the first
such call and kept until the manager is closed. Each call runs in a thread with an event loop of its
own, so that callers may themselves run inside an event loop; concurrent calls are serialised.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import (
    CheckpointCreate,
    CheckpointDiff,
    RollbackToCheckpoint,
    RollbackUndo,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.domain.retention import CommitFacts
from hankweave_server.errors import Stop
from hankweave_server.local.ephemeral_server import EphemeralServer
from hankweave_server.local.executions import layout_in
from hankweave_server.local.reader import reading_store
from hankweave_server.local.server_session import at_server, run_read_only
from hankweave_server.paths import Layout
from hankweave_server.user_git.errors import CheckpointError, UnknownCheckpoint, WorkspaceMissing
from hankweave_server.user_git.labels import Checkpoint, Mark, label_of, mark_in
from hankweave_server.worktree import data_source


@dataclass(frozen=True, slots=True)
class Labelled:
    """A labelled checkpoint."""

    sha: Sha
    mark: Mark
    timestamp: float
    run_id: RunId
    codon_id: CodonId | None
    on_line: bool
    """True for an ancestor of the current state, or the current state itself."""


class ShadowCheckpoints:
    """All checkpoints of one execution, read at one point in time."""

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
        """Return the newest labelled checkpoint on the current line."""
        return next((each for each in self.labelled if each.on_line), None)

    def called(self, step: int | str) -> list[Labelled]:
        """Return matches for a step's number or name, newest first.

        Matches on other lines are returned only if the current line has none.
        """
        found = [each for each in self.labelled if each.mark.is_called(step)]
        return [each for each in found if each.on_line] or found

    def beginning_with(self, prefix: str) -> list[Sha]:
        """Return every checkpoint, labelled or not, whose sha starts with a prefix."""
        return [sha for sha in self._commits if sha.startswith(prefix.lower())]

    def described(self, each: Labelled) -> Checkpoint:
        """Return the documented record; its files are those that differ from its predecessor."""
        return Checkpoint(
            step=each.mark.step or 0,
            commit_hash=each.sha,
            message=each.mark.message,
            timestamp=each.timestamp,
            files_changed=self._files_changed(each.sha),
        )

    def _line(self) -> Iterator[Sha]:
        """Yield the checkpoints from HEAD back to the first one."""
        at = None if self._engine is None else self._engine.head()
        while at is not None and (facts := self._commits.get(at)) is not None:
            yield at
            at = _parent(facts)

    def _predecessors(self) -> dict[Sha, Sha | None]:
        """Map every checkpoint to the closest labelled ancestor; parents come before children."""
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
def reading(layout: Layout) -> Iterator[ShadowCheckpoints]:
    """Open the checkpoints of an execution; there are none while there is no shadow repository."""
    if not layout.shadow_repository.is_dir():
        yield ShadowCheckpoints(None)
        return

    with reading_store(layout) as engine:
        yield ShadowCheckpoints(engine)


def _parent(facts: CommitFacts) -> Sha | None:
    return facts.parents[0] if facts.parents else None


T = TypeVar("T")


def open_shadow(workspace_root: Path) -> Shadow:
    """Open the checkpoints of a workspace; nothing is written before the first checkpoint.

    Raises CheckpointError for a path that cannot be a workspace.
    """
    root = workspace_root.expanduser().absolute()
    if not root.is_dir():
        raise WorkspaceMissing(f"There is no folder {root}.", "Name a folder that exists.")

    try:
        return Shadow(_layout_of(root).root)
    except Stop as stop:
        raise CheckpointError(stop.message, stop.hint or "") from None


def _layout_of(root: Path) -> Layout:
    if data_source.read_meta(Layout.of_execution(root)) is not None:
        return data_source.layout_of(root)

    return layout_in(root)


class Shadow:
    """The backend that keeps checkpoints in a shadow repository."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._server = EphemeralServer(root, founds=True)
        self._lock = threading.Lock()
        # Also ends the server of a manager that is never closed: at collection or interpreter exit.
        self._ending = weakref.finalize(self, self._server.end)

    @property
    def _layout(self) -> Layout:
        """Where the state is now: the first start of a server may put it somewhere else."""
        return _layout_of(self._root)

    def create(self, step: int, message: str) -> Checkpoint | None:
        label = label_of(step, message)
        return self._apart(partial(self._create, label))

    def list_checkpoints(self) -> list[Checkpoint]:
        return self._apart(self._listed)

    def get_latest(self) -> Checkpoint | None:
        return self._apart(self._latest)

    def has_changes_since(self, commit_hash: str) -> bool:
        return self._apart(partial(self._has_changes_since, commit_hash))

    def rollback(self, step: int | str | None, commit: str | None) -> bool:
        return self._apart(partial(self._roll_back, step, commit))

    def undo(self) -> bool:
        return self._apart(self._undo)

    def close(self) -> None:
        with self._lock:
            self._ending()

    # --- operations, run in the worker thread --------------------------------------------------

    def _create(self, label: str) -> Checkpoint | None:
        with reading(self._layout) as checkpoints:
            latest = checkpoints.latest()

        if latest is not None and not self._differs_from(latest.sha):
            return None

        made = self._served(lambda client: client.send(CheckpointCreate(label=label)))
        return self._described(made)

    def _described(self, made: CheckpointRecord) -> Checkpoint:
        with reading(self._layout) as checkpoints:
            own = next(each for each in checkpoints.labelled if each.sha == made.sha)
            return checkpoints.described(own)

    def _listed(self) -> list[Checkpoint]:
        with reading(self._layout) as checkpoints:
            return [checkpoints.described(each) for each in checkpoints.labelled]

    def _latest(self) -> Checkpoint | None:
        with reading(self._layout) as checkpoints:
            latest = checkpoints.latest()
            return None if latest is None else checkpoints.described(latest)

    def _has_changes_since(self, commit: str) -> bool:
        with reading(self._layout) as checkpoints:
            found = _meant_by(commit, checkpoints)

        if len(found) != 1:
            raise UnknownCheckpoint(
                f"{commit!r} matches {len(found) or 'none'} of the checkpoints of {self._root}.",
                "list_checkpoints() returns the full hash of each.",
            )

        return self._differs_from(found[0])

    def _roll_back(self, step: int | str | None, commit: str | None) -> bool:
        with reading(self._layout) as checkpoints:
            if commit:
                found = _meant_by(commit, checkpoints)
                target = found[0] if len(found) == 1 else None
            else:
                called = [] if step is None else checkpoints.called(step)
                target = called[0].sha if called else None

        if target is None:
            return False

        self._served(lambda client: client.send(RollbackToCheckpoint(checkpoint_sha=target)))
        return True

    def _undo(self) -> bool:
        if not self._layout.state_directory.is_dir():
            return False

        async def work(client: Client) -> bool:
            try:
                await client.send(RollbackUndo())
            except CommandRefused as refused:
                if refused.code is ErrorCode.NOTHING_TO_UNDO:
                    return False

                raise

            return True

        return self._served(work)

    # --- access to the server ------------------------------------------------------------------

    def _differs_from(self, sha: Sha) -> bool:
        page = run_read_only(
            self._root, lambda calls: calls.send(CheckpointDiff(from_sha=sha, limit=1))
        )
        return page.stats.files > 0

    def _served(self, work: Callable[[Client], Awaitable[T]]) -> T:
        return self._server.do(lambda: at_server(self._root, work))

    def _apart(self, work: Callable[[], T]) -> T:
        """Run work in a fresh thread, one call at a time: the client needs its own event loop."""
        with self._lock, ThreadPoolExecutor(1, "checkpoints") as thread:
            try:
                return thread.submit(work).result()
            except Stop as stop:
                raise CheckpointError(stop.message, stop.hint or "") from None


def _meant_by(commit: str, checkpoints: ShadowCheckpoints) -> list[Sha]:
    prefix = commit.strip().lower()
    return checkpoints.beginning_with(prefix) if prefix else []
