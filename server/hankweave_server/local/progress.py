"""Progress of long work, in words: of a server, or of our own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from hankweave_protocol.events import (
    CheckpointPruned,
    Event,
    RollbackProgress,
    RollbackStarted,
    StoreConsolidated,
    StoreProgress,
)
from hankweave_protocol.records import StoreOperation
from hankweave_server.background_tasks import alongside
from hankweave_server.plain_text import one_line

if TYPE_CHECKING:
    from hankweave_client.client import Client


T = TypeVar("T")


class Tell(Protocol):
    """Says what is done now, and how much of it is done, where that is known.

    What is not given stays as it was told, if the text does; another text is counted anew.
    """

    def __call__(
        self,
        text: str | None = None,
        done: int | None = None,
        total: int | None = None,
        *,
        unit: str = "",
    ) -> None: ...


def tell_nobody(
    text: str | None = None, done: int | None = None, total: int | None = None, *, unit: str = ""
) -> None:
    """Nobody is there to be told."""


async def watched(client: Client, work: Callable[[Client], Awaitable[T]], tell: Tell) -> T:
    """Does work with a server, and tells what it says of it meanwhile."""
    async with alongside(partial(_follow, client, tell)):
        done = await work(client)

    return done


async def _follow(client: Client, tell: Tell) -> None:
    try:
        async for event in client.events():
            if not _is_anothers(event, client):
                _pass_on(event, tell)
    except ConnectionError:
        return  # Who does the work is told as well.


def _is_anothers(event: Event, client: Client) -> bool:
    """Tells of the progress of what somebody else has asked for."""
    return isinstance(event.data, StoreProgress) and not client.waits_for(event.data.command_id)


def _pass_on(event: Event, tell: Tell) -> None:
    match event.data:
        case StoreProgress() as progress:
            tell_of(tell, progress)
        case RollbackStarted(to_checkpoint=sha):
            tell(f"All is saved; restoring {sha[:12]}")
        case RollbackProgress(current_step=step, total_steps=total, message=message):
            tell(one_line(message), step, total)
        case CheckpointPruned(checkpoints=shas):
            tell(f"{len(shas)} checkpoints are pruned; packing the store")
        case StoreConsolidated():
            tell("The store is packed")
        case _:
            return


_DOING: dict[tuple[StoreOperation, str], str] = {
    ("branch", "checking"): "Reading the checkpoint",
    ("branch", "copying"): "Copying the store",
    ("branch", "writing"): "Writing files",
    ("capture", "reading"): "Reading what has changed",
    ("fsck", "checking"): "Reading the store",
    ("gc", "examining"): "Looking for what may go",
    ("gc", "packing"): "Packing the store",
    ("gc", "sweeping"): "Letting go of what nobody needs",
    ("gc", "tracing"): "Looking for what is needed",
    ("restore", "checking"): "Reading the checkpoint",
    ("restore", "reading"): "Saving what is there",
    ("restore", "writing"): "Restoring files",
}


_DOING_IN_ANY = {
    "flushing": "Waiting for the disk",
    "scanning": "Looking at the files",
}


def tell_of(tell: Tell, progress: StoreProgress) -> None:
    """Says in words what a server, or we ourselves, have counted."""
    tell(_doing(progress), progress.done, progress.total, unit=progress.unit)


def _doing(progress: StoreProgress) -> str:
    """What is done now; a phase that a newer server knows has its own word."""
    phase = progress.phase
    named = _DOING.get((progress.operation, phase)) or _DOING_IN_ANY.get(phase)
    return named or one_line(phase).capitalize()
