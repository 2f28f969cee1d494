"""The keyboard of a terminal: single keys as they are pressed, without echo."""

from __future__ import annotations

import codecs
import os
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import anyio

from hankweave_server.cli.live.keys import (
    keys_of,
)

_AT_ONCE = 1024


class Keyboard:
    """A terminal that is read key by key."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Read single keys while the block runs; restore the terminal's settings afterwards."""
        before = termios.tcgetattr(self._descriptor)
        try:
            self.take()
            yield
        finally:
            with suppress(termios.error):  # A terminal that was closed has no settings.
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)

    def take(self) -> None:
        """Switch to single keys, at the start and after SIGCONT: a shell resets the terminal."""
        tty.setcbreak(self._descriptor, termios.TCSADRAIN)

    async def keys(self) -> AsyncIterator[str]:
        """Yield keys until the terminal is closed."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            await anyio.wait_readable(self._descriptor)
            try:
                data = os.read(self._descriptor, _AT_ONCE)
            except OSError:
                return

            if not data:
                return

            for key in keys_of(decoder.decode(data)):
                yield key
