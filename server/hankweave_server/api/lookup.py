r"""Resolve the shas and paths of commands, and read checkpoints for them.

This works in a server and on the files of an execution that has ended. Commands are resolved before
anything is changed.

A path on the wire is text, and a name in a work tree is bytes. A byte that is not UTF-8 is shown as
`\xff`. What is shown can be sent back; it means a file with that literal name first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import anyio.to_thread

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.state import State
from hankweave_server.api.checkpoint_list import Listings, TreeListing
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.domain import targets
from hankweave_server.domain.targets import NO_NEW_NAMES, Checkpoints, RollbackTarget
from hankweave_server.execution.checkpoint_access import CheckpointAccess
from hankweave_server.ledger.moments import Moment
from hankweave_server.worktree.names import is_out_of_bounds, meanings, shown


def the_checkpoint(
    state: State,
    known: Checkpoints,
    name: str,
    *,
    at: str,
    missing: Collection[Sha] = (),
    renamed: Mapping[Sha, Sha] = NO_NEW_NAMES,
) -> CheckpointRecord:
    """Return the one checkpoint a sha or a prefix means; Refused names the path `at`."""
    record = known.get(Sha(name))
    if record is not None:
        return record

    try:
        return targets.of_prefix(state, known, name, missing, renamed).checkpoint
    except Refused as refusal:
        raise Refused(refusal.code, refusal.message, path=at, hint=refusal.hint) from None


def target_named(prefix: str, state: State, store: CheckpointAccess) -> RollbackTarget:
    """Return the target that a sha or a prefix means; raise Refused."""
    return targets.of_prefix(state, store.known, prefix, store.missing, store.renamed)


def the_path(text: str, *, at: str) -> tuple[bytes, ...]:
    """Return what a path may mean, the likelier first; refuse what no work tree can contain."""
    paths = meanings(text.removesuffix("/"))
    # A person's project may contain our names at its top; in an execution they just do not exist.
    if is_out_of_bounds(paths[0], frozenset()):
        raise Refused(
            ErrorCode.INVALID_PATH,
            f"{text!r} is not a path inside the work tree.",
            path=at,
            hint=(
                "Paths are relative to the work tree, without `..`, `.git` or Hankweave's "
                "own files."
            ),
        )

    return paths


def no_such_path(text: str, where: str, *, at: str) -> Refused:
    return Refused(
        ErrorCode.INVALID_PATH,
        f"There is no {text!r} {where}.",
        path=at,
        hint=Hint.FILES_OF_CHECKPOINT,
    )


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources from which the past is read."""

    store: CheckpointAccess
    known: Callable[[], Checkpoints]
    state: Callable[[], State]
    last_seq: Callable[[], int]
    moment_at: Callable[[int], Awaitable[Moment]]
    patterns: Callable[[], tuple[str, ...]]
    """The patterns that are tracked now."""
    missing: Callable[[], Collection[Sha]] = tuple
    """Checkpoints that the journal names and the repository does not have."""


class CheckpointLookup:
    """Checkpoints by the names clients use, and their files; faults become refusals."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._listings = Listings()

    def named(self, name: str, *, at: str) -> CheckpointRecord:
        """Return the checkpoint a name means; `at` is the place of the name in the command."""
        state, known = self.sources.state(), self.sources.known()
        renamed = self.sources.store.renamed
        try:
            return the_checkpoint(state, known, name, at=at, renamed=renamed)
        except Refused as refused:
            if refused.code is not ErrorCode.CHECKPOINT_NOT_FOUND:
                raise

        return the_checkpoint(state, known, name, at=at, missing=self.sources.missing())

    async def files_of(self, record: CheckpointRecord) -> TreeListing:
        """Return a checkpoint's files; they are read once."""
        listing = self._listings.get(record.sha)
        if listing is None:
            with faults_refused():
                files = await self.sources.store.call(lambda engine: engine.tree(record.sha))

            listing = await anyio.to_thread.run_sync(TreeListing.of, files)
            self._listings.add(record.sha, listing)

        return listing


@contextmanager
def faults_refused() -> Iterator[None]:
    """Refuse if objects that the block reads are gone or damaged."""
    try:
        yield
    except CheckpointNotFound as error:
        raise Refused(
            ErrorCode.CHECKPOINT_NOT_FOUND,
            f"Checkpoint {error.name[:12]} was pruned.",
            hint=Hint.CHECKPOINTS,
        ) from None
    except CheckpointDamaged as error:
        first = error.damages[0]
        raise Refused(
            ErrorCode.CHECKPOINT_DAMAGED,
            f"Checkpoint {error.sha[:12]} cannot be read: {error.damage}.",
            hint=f"First: {first.kind} {first.sha} at {shown(first.path)!r}. `hankweave "
            "fsck --repair` restores what can be found.",
        ) from None
