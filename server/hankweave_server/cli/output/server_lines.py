"""Write the server's lines to stdout or stderr from a separate thread.

The reader may be slow or gone, and neither may block the server. Lines wait in a bounded queue.
Lines that do not fit are dropped, and the next line that fits says how many. When the reader closes
the pipe or the terminal, output ends. No information is lost: every event is in the journal.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from hankweave_server.plain_text import acted_on

WAITING = 100_000
"""Maximum lines in the queue."""

WAITING_CHARACTERS = 4 * 1024 * 1024
"""Maximum characters of all lines in the queue."""

FLUSH_SECONDS = 2.0
"""How long the program waits at its end for the reader to take the rest."""


class LineWriter:
    """A writer of lines in order; lines written before `open` wait for it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to `stream`, by default stdout."""
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING)
        self._held: list[str] | None = []
        self._put = self._taken = 0
        """Characters put into the queue and taken from it; each counter has a single writer."""
        self._passed_over = 0
        self._stopped = threading.Event()

    def write(self, line: str) -> None:
        if self._held is not None:
            self._held.append(line)
        elif not self._stopped.is_set():
            self._wait_in_line(line)

    def _wait_in_line(self, line: str) -> None:
        text = line if self._passed_over == 0 else f"{_omission(self._passed_over)}\n{line}"
        if self._put - self._taken + len(text) > WAITING_CHARACTERS:
            self._passed_over += 1
            return

        try:
            self._lines.put_nowait(text)
        except queue.Full:
            self._passed_over += 1
        else:
            self._put += len(text)
            self._passed_over = 0

    def open(self, first: str) -> None:
        """Write this line, then those that waited: `server.ready` must be the first line."""
        held, self._held = self._held or [], None
        for line in (first, *held):
            self.write(line)

    @contextmanager
    def writing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._write_lines, name="stdout", daemon=True)
        thread.start()
        try:
            yield
        finally:
            if self._held:
                self.open(self._held.pop(0))

            try:
                self._lines.put(None, timeout=FLUSH_SECONDS)
            except queue.Full:
                self._stopped.set()

            thread.join(FLUSH_SECONDS)

    def _write_lines(self) -> None:
        stream = self._stream or sys.stdout
        while (line := self._lines.get()) is not None:
            self._taken += len(line)
            try:
                stream.write(line + "\n")
                if self._lines.empty():
                    stream.flush()
            except (OSError, ValueError):
                self._stopped.set()
                return


def _omission(lines: int) -> str:
    return (
        f"({acted_on(lines, 'line')} skipped here because the output could not keep up. The "
        "journal has them.)"
    )
