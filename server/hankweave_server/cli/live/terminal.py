"""The keyboard: each key at once and unseen, and the terminal afterwards as it was."""

from __future__ import annotations

import codecs
import os
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import anyio

from hankweave_server.cli.live.keys_inner import keys_of

_AT_ONCE = 1024


class Keyboard:
    """Reads a terminal key by key."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Takes the terminal's keys while the block runs."""
        before = termios.tcgetattr(self._descriptor)
        try:
            self.take()
            yield
        finally:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)

    def take(self) -> None:
        """Takes them again: a shell gives a terminal its own settings while we were stopped."""
        tty.setcbreak(self._descriptor, termios.TCSADRAIN)

    async def keys(self) -> AsyncIterator[str]:
        """Yields keys until the terminal goes away."""
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
