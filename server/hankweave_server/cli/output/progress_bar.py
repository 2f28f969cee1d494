"""The progress bar of long operations.

The bar shows a fraction only if this process or the server counts the work; it never estimates.
Otherwise it pulses, with the elapsed time and the last message. It is drawn on stderr, only on a
terminal and only after half a second, and it is erased at the end.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hankweave_protocol.events import (
    StoreProgress,
)
from hankweave_server.cli.output.text import can_be_drawn_on, size_text
from hankweave_server.local.progress import ReportProgress, discard_progress, phase_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


DELAY = 0.5
"""Seconds before the bar appears: most operations are done by then."""


@contextmanager
def waiting(what: str | None) -> Iterator[ReportProgress]:
    """Show a progress bar titled `what` while the block runs; none if `what` is None.

    Yields the function that reports progress to it.
    """
    if what is None or not can_be_drawn_on(sys.stderr):
        yield discard_progress
        return

    bar = _Bar(what)
    timer = threading.Timer(DELAY, bar.begin)
    timer.daemon = True
    timer.start()
    try:
        yield bar.report
    finally:
        timer.cancel()
        bar.end()


@dataclass(frozen=True, slots=True)
class _BarState:
    text: str
    done: int = 0
    total: int | None = None
    unit: str = ""

    @property
    def counted(self) -> str:
        return _counted(self.done, self.total, self.unit)


class _Bar:
    def __init__(self, what: str) -> None:
        self._lock = threading.Lock()
        self._state = _BarState(what)
        self._shown: tuple[Progress, TaskID] | None = None
        self._has_ended = False

    def begin(self) -> None:
        """Draw the bar for the first time; rich is imported only if this is reached."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        from hankweave_server.cli.live.frame import Terminal

        with self._lock:
            if self._has_ended:
                return

            state = self._state
            progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[counted]}", markup=False),
                TimeElapsedColumn(),
                console=Terminal(stderr=True, highlight=False),
                transient=True,
            )
            task = progress.add_task(
                state.text, completed=state.done, total=state.total, counted=state.counted
            )
            self._shown = progress, task
            progress.start()

    def report(
        self,
        text: str | None = None,
        done: int | None = None,
        total: int | None = None,
        *,
        unit: str = "",
    ) -> None:
        with self._lock:
            before, shown_before = self._state, self._state.text
            if text is not None and text != before.text:
                before = _BarState(text)

            self._state = state = _BarState(
                before.text,
                before.done if done is None else done,
                before.total if total is None else total,
                unit or before.unit,
            )
            if self._shown is not None:
                progress, task = self._shown
                if state.text != shown_before:
                    _restart_bar(progress)

                progress.update(
                    task,
                    description=state.text,
                    completed=state.done,
                    total=state.total,
                    counted=state.counted,
                )

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
            if self._shown is not None:
                self._shown[0].stop()


def _counted(done: int, total: int | None, unit: str) -> str:
    """Format the amount of work done; an empty string if nothing is counted."""
    amount = size_text if unit == "bytes" else "{:,}".format
    name = f" {unit}" if unit and unit != "bytes" else ""
    if total is None:
        return f"{amount(done)}{name}" if done else ""

    return f"{amount(done)} of {amount(total)}{name}"


def _restart_bar(progress: Progress) -> None:
    """Reset total and end, but not the elapsed time: `update` cannot set a total to None."""
    for task in progress.tasks:
        task.total = task.finished_time = None


# --- progress events of a server ------------------------------------------------------------------


def line_of_progress(progress: StoreProgress) -> str:
    """Return a progress event as a line, for places without a bar."""
    counted = _counted(progress.done, progress.total, progress.unit)
    return ": ".join(filter(None, (phase_text(progress), counted)))
