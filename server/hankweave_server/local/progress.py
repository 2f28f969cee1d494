"""Progress of long operations, as text: a server's or this process's own."""

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
from hankweave_server.plain_text import counted, one_line

if TYPE_CHECKING:
    from hankweave_client.client import Client


T = TypeVar("T")


class ReportProgress(Protocol):
    """A callback for what is being done, and how much of it is done, if that is known.

    Omitted arguments keep their values as long as the text is the same; a new text starts a new
    count.
    """

    def __call__(
        self,
        text: str | None = None,
        done: int | None = None,
        total: int | None = None,
        *,
        unit: str = "",
    ) -> None: ...


def discard_progress(
    text: str | None = None, done: int | None = None, total: int | None = None, *, unit: str = ""
) -> None:
    """Discard a progress report."""


async def watched(
    client: Client, work: Callable[[Client], Awaitable[T]], report_progress: ReportProgress
) -> T:
    """Work with a server and report its progress meanwhile."""
    async with alongside(partial(_follow, client, report_progress)):
        done = await work(client)

    return done


async def _follow(client: Client, report_progress: ReportProgress) -> None:
    try:
        async for event in client.events():
            if not _is_anothers(event, client):
                _pass_on(event, report_progress)
    except ConnectionError:
        return  # The work itself fails with the same error.


def _is_anothers(event: Event, client: Client) -> bool:
    """Return whether an event is the progress of another client's command."""
    return isinstance(event.data, StoreProgress) and not client.waits_for(event.data.command_id)


def _pass_on(event: Event, report_progress: ReportProgress) -> None:
    match event.data:
        case StoreProgress() as progress:
            report_store_progress(report_progress, progress)
        case RollbackStarted(to_checkpoint=sha):
            report_progress(f"The current files are saved; restoring {sha[:12]}")
        case RollbackProgress(current_step=step, total_steps=total, message=message):
            report_progress(one_line(message), step, total)
        case CheckpointPruned(checkpoints=shas):
            report_progress(f"{counted(len(shas), 'checkpoint')} pruned; packing the store")
        case StoreConsolidated():
            report_progress("The store is packed")
        case _:
            return


_DOING: dict[tuple[StoreOperation, str], str] = {
    ("branch", "checking"): "Reading the checkpoint",
    ("branch", "copying"): "Copying the store",
    ("branch", "writing"): "Writing files",
    ("capture", "reading"): "Reading changed files",
    ("fsck", "checking"): "Reading the store",
    ("gc", "examining"): "Looking for checkpoints to prune",
    ("gc", "packing"): "Packing the store",
    ("gc", "sweeping"): "Removing unused objects",
    ("gc", "tracing"): "Finding objects in use",
    ("restore", "checking"): "Reading the checkpoint",
    ("restore", "reading"): "Saving the current files",
    ("restore", "writing"): "Restoring files",
}


_DOING_IN_ANY = {
    "flushing": "Waiting for the disk",
    "scanning": "Scanning the files",
}


def report_store_progress(report_progress: ReportProgress, progress: StoreProgress) -> None:
    """Report a progress event as text."""
    report_progress(phase_text(progress), progress.done, progress.total, unit=progress.unit)


def phase_text(progress: StoreProgress) -> str:
    """Return the text of a phase; an unknown phase of a newer server is shown by its name."""
    phase = progress.phase
    named = _DOING.get((progress.operation, phase)) or _DOING_IN_ANY.get(phase)
    return named or one_line(phase).capitalize()
