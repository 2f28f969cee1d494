"""Signals on their way from an agent's pipes to the one who reads them, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import anyio
import anyio.lowlevel

from hankweave_server.agents.base import AgentSignal

ROOM = 16
"""Batches; one is at most what a single read of a pipe brought (16 KiB)."""

ROOM_IN_A_HURRY = 256
"""Batches kept for a reader that is itself waiting for the agent to end."""


class Mailbox:
    """Makes a fast agent wait for a slow reader, until it is being stopped.

    Then nobody may wait for the reader any more, who may be the very one that stops the agent:
    what finds no room is dropped, and stands in the agent's log only.
    """

    def __init__(self) -> None:
        self._batches: deque[Sequence[AgentSignal]] = deque()
        self._changed = anyio.Event()
        self._is_hurried = False
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        return not self._is_hurried and len(self._batches) >= ROOM

    async def put(self, batch: Sequence[AgentSignal]) -> None:
        while self.is_full:
            await self._changed.wait()

        if batch and len(self._batches) < ROOM_IN_A_HURRY:
            self._batches.append(batch)
            self._stir()

        # A pipe that is never empty must not keep the others from running.
        await anyio.lowlevel.checkpoint()

    async def take(self) -> Sequence[AgentSignal] | None:
        """Returns the next batch, or None when it is closed and empty."""
        while not self._batches:
            if self._is_closed:
                return None

            await self._changed.wait()

        batch = self._batches.popleft()
        self._stir()
        return batch

    def hurry(self) -> None:
        self._is_hurried = True
        self._stir()

    def close(self) -> None:
        self._is_closed = True
        self._stir()

    def _stir(self) -> None:
        stirred, self._changed = self._changed, anyio.Event()
        stirred.set()
