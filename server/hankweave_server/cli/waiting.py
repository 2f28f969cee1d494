"""What a person sees while something takes long: how far it is, as far as anybody tells.

A bar fills only where work is counted: checkpoints that were read, steps that the server names.
Elsewhere it moves without a measure, with the time and the last thing that was heard. It is drawn
on stderr, on a terminal alone, after half a second, and leaves nothing behind.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio

from hankweave_protocol.events import (
    CheckpointPruned,
    Event,
    RollbackProgress,
    RollbackStarted,
    StoreConsolidated,
)
from hankweave_server.cli.plain_text import one_line
from hankweave_server.cli.terminals import can_be_drawn_on

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from hankweave_client.client import Client

T = TypeVar("T")

PATIENCE = 0.5
"""Seconds in which nothing is drawn: most is done by then."""


class Tell(Protocol):
    """Says what is done now, and how much of it is done, where that is known."""

    def __call__(
        self, text: str | None = None, done: int | None = None, total: int | None = None
    ) -> None: ...


@contextmanager
def waiting(what: str) -> Iterator[Tell]:
    """Shows that something goes on while the block runs."""
    if not can_be_drawn_on(sys.stderr):
        yield _tell_nobody
        return

    bar = _Bar(what)
    timer = threading.Timer(PATIENCE, bar.begin)
    timer.daemon = True
    timer.start()
    try:
        yield bar.tell
    finally:
        timer.cancel()
        bar.end()


def _tell_nobody(
    text: str | None = None, done: int | None = None, total: int | None = None
) -> None:
    """Nobody is there to be told."""


class _Bar:
    def __init__(self, what: str) -> None:
        self._lock = threading.Lock()
        self._told: tuple[str, int, int | None] = (what, 0, None)
        self._shown: tuple[Progress, TaskID] | None = None
        self._has_ended = False

    def begin(self) -> None:
        """Draws for the first time; rich is for those who have to wait."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        from hankweave_server.cli.live import Terminal

        with self._lock:
            if self._has_ended:
                return

            text, done, total = self._told
            progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[counted]}", markup=False),
                TimeElapsedColumn(),
                console=Terminal(stderr=True, highlight=False),
                transient=True,
            )
            task = progress.add_task(
                text, completed=done, total=total, counted=_counted(done, total)
            )
            self._shown = progress, task
            progress.start()

    def tell(
        self, text: str | None = None, done: int | None = None, total: int | None = None
    ) -> None:
        with self._lock:
            told, before, most = self._told
            self._told = (
                told if text is None else text,
                before if done is None else done,
                most if total is None else total,
            )
            if self._shown is not None:
                progress, task = self._shown
                text, done, total = self._told
                counted = _counted(done, total)
                progress.update(
                    task, description=text, completed=done, total=total, counted=counted
                )

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
            if self._shown is not None:
                self._shown[0].stop()


def _counted(done: int, total: int | None) -> str:
    return "" if total is None else f"{done} of {total}"


# --- what a server tells meanwhile ----------------------------------------------------------------


async def watched(client: Client, work: Callable[[Client], Awaitable[T]], tell: Tell) -> T:
    """Does work with a server, and tells what it says of it meanwhile."""
    done: list[T] = []
    failures: list[Exception] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_follow, client, tell)
        try:
            done.append(await work(client))
        except Exception as failure:
            failures.append(failure)  # Raised again outside: a task group would wrap it.

        tasks.cancel_scope.cancel()

    if failures:
        raise failures[0]

    return done[0]


async def _follow(client: Client, tell: Tell) -> None:
    try:
        async for event in client.events():
            _pass_on(event, tell)
    except ConnectionError:
        return  # Who does the work is told as well.


def _pass_on(event: Event, tell: Tell) -> None:
    match event.data:
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
