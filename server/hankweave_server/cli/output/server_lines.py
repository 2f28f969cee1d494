"""What the server says on stdout or stderr, said by a thread of its own.

Whoever reads that may be slow, or gone: neither may hold the server up. Lines wait in a
bounded queue; what finds no room there is passed over, and a reader that catches up is told how
much that was. Who closes the pipe is told no more. Nothing is lost by it: every event is in the
journal.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

WAITING = 100_000
"""Lines that may wait for a slow reader, if they are short."""

WAITING_CHARACTERS = 4 * 1024 * 1024
"""What all of them may hold."""

LAST_WORDS_SECONDS = 2.0
"""How long the end of the program waits for the reader to take what is left."""


class Voice:
    """Says lines in order. Until `open` is called they are kept back."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """`stream` is stdout if it is none else."""
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING)
        self._held: list[str] | None = []
        self._put = self._taken = 0
        """Characters that were put into the queue, and taken from it; each has one writer."""
        self._passed_over = 0
        self._silent = threading.Event()

    def say(self, line: str) -> None:
        if self._held is not None:
            self._held.append(line)
        elif not self._silent.is_set():
            self._wait_in_line(line)

    def _wait_in_line(self, line: str) -> None:
        told = line if self._passed_over == 0 else f"{_omission(self._passed_over)}\n{line}"
        if self._put - self._taken + len(told) > WAITING_CHARACTERS:
            self._passed_over += 1
            return

        try:
            self._lines.put_nowait(told)
        except queue.Full:
            self._passed_over += 1
        else:
            self._put += len(told)
            self._passed_over = 0

    def open(self, first: str) -> None:
        """Says this line before all that were kept back (DESIGN 11: `server.ready` is first)."""
        held, self._held = self._held or [], None
        for line in (first, *held):
            self.say(line)

    @contextmanager
    def speaking(self) -> Iterator[None]:
        thread = threading.Thread(target=self._speak, name="stdout", daemon=True)
        thread.start()
        try:
            yield
        finally:
            if self._held:
                self.open(self._held.pop(0))

            try:
                self._lines.put(None, timeout=LAST_WORDS_SECONDS)
            except queue.Full:
                self._silent.set()

            thread.join(LAST_WORDS_SECONDS)

    def _speak(self) -> None:
        stream = self._stream or sys.stdout
        while (line := self._lines.get()) is not None:
            self._taken += len(line)
            try:
                stream.write(line + "\n")
                if self._lines.empty():
                    stream.flush()
            except (BrokenPipeError, ValueError):
                self._silent.set()
                return


def _omission(lines: int) -> str:
    return f"({lines:,} lines were passed over here: they came too fast. The journal has them.)"
