"""What there is to look at: in a server, or in the files of one that has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.state import State
from hankweave_server.api.listings import Listing, Listings
from hankweave_server.api.naming import the_checkpoint
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.errors import (
    CheckpointDamaged,
    CheckpointNotFound,
    ShadowRepositoryError,
)
from hankweave_server.domain.targets import Checkpoints
from hankweave_server.ledger.history import Moment
from hankweave_server.worktree.names import shown

T = TypeVar("T")


class Run(Protocol):
    """Does one blocking call of the engine, alone, where it holds nobody up."""

    def __call__(self, work: Callable[..., T], /, *arguments: object) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the past is read."""

    engine: CheckpointEngine
    run: Run
    known: Callable[[], Checkpoints]
    state: Callable[[], State]
    last_seq: Callable[[], int]
    moment_at: Callable[[int], Awaitable[Moment]]
    patterns: Callable[[], tuple[str, ...]]
    """What is tracked now."""
    missing: Callable[[], Collection[Sha]] = tuple
    """Checkpoints that the journal names and the repository does not have."""


class Past:
    """Checkpoints by what clients call them, and their files; faults come out as refusals."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._listings = Listings()

    def named(self, name: str, *, at: str) -> CheckpointRecord:
        """The one checkpoint that is meant; `at` is where the name stands in the command."""
        state, known = self.sources.state(), self.sources.known()
        try:
            return the_checkpoint(state, known, name, at=at)
        except Refused as refused:
            if refused.code is not ErrorCode.CHECKPOINT_NOT_FOUND:
                raise

        return the_checkpoint(state, known, name, at=at, missing=self.sources.missing())

    async def files_of(self, record: CheckpointRecord) -> Listing:
        """Lists a checkpoint's files; reads them once."""
        listing = self._listings.get(record.sha)
        if listing is None:
            listing = await self.run(lambda: Listing.of(self.sources.engine.tree(record.sha)))
            self._listings.add(record.sha, listing)

        return listing

    async def run(self, work: Callable[[], T]) -> T:
        """Does one call of the engine; refuses where objects are gone or damaged."""
        with _faults_told():
            return await self.sources.run(work)


@contextmanager
def _faults_told() -> Iterator[None]:
    try:
        yield
    except CheckpointNotFound as error:
        raise Refused(
            ErrorCode.CHECKPOINT_NOT_FOUND,
            f"Checkpoint {error.name[:12]} is gone: it was pruned.",
            hint="checkpoint.list names those that there are.",
        ) from None
    except CheckpointDamaged as error:
        first = error.damages[0]
        count = len(error.damages)
        raise Refused(
            ErrorCode.CHECKPOINT_DAMAGED,
            f"Checkpoint {error.sha[:12]} cannot be read: {count} objects are damaged.",
            hint=f"First: {first.kind} {first.sha} at {shown(first.path)!r}. "
            "`hankweave fsck --repair` writes again what can be found.",
        ) from None
    except ShadowRepositoryError as error:
        raise Refused(
            ErrorCode.INTERNAL_ERROR,
            f"The shadow repository cannot be read: {error}.",
            hint="store.fsck with repair: true (`hankweave fsck --repair`) says what is lost.",
        ) from None
