"""Idempotent command ids: a repeated command gets the first answer again.

A client whose connection broke cannot know whether its command was executed. It sends the same
frame with the same id again, on any connection, and gets the first answer; if the first execution
is still running, it waits for it. Answers are kept in memory only: after a restart of the server
an id is new.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import CommandId

KEPT_ANSWERS = 1_000
KEPT_BYTES = 16 * 1024 * 1024  # A thousand reports of large rollbacks would take gigabytes.

Frames = tuple[bytes, ...]
_Key = tuple[CommandId, bytes]


@dataclass(slots=True)
class StoredAnswer:
    """The frames that answer a command; None until it has been executed."""

    done: anyio.Event = field(default_factory=anyio.Event)
    frames: Frames | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.frames or ()))


class RecentAnswers:
    """The most recent answers to commands that change something, for all connections."""

    def __init__(self, kept: int = KEPT_ANSWERS, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept = kept
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._entries: OrderedDict[_Key, StoredAnswer] = OrderedDict()

    @asynccontextmanager
    async def answer_to(self, command_id: CommandId, frame: bytes) -> AsyncIterator[StoredAnswer]:
        """Yield the answer to a command, which the block sets if it is a new id and frame.

        Raises Refused (SHUTTING_DOWN) if the first execution was cancelled while this one waited.
        """
        key = (command_id, hashlib.sha256(frame).digest())
        known = self._entries.get(key)
        if known is not None:
            self._entries.move_to_end(key)
            await known.done.wait()
            if known.frames is None:
                raise Refused(ErrorCode.SHUTTING_DOWN, "The server is shutting down.")

            yield known
            return

        entry = self._entries[key] = StoredAnswer()
        try:
            yield entry
        finally:
            entry.done.set()
            if entry.frames is None:
                del self._entries[key]

        self._bytes += entry.size
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forget answers until the rest is within bounds; ids in use stay."""
        while not self._is_within_bounds():
            answered = (key for key, entry in self._entries.items() if entry.done.is_set())
            oldest = next(answered, None)
            if oldest is None:
                return

            self._bytes -= self._entries.pop(oldest).size

    def _is_within_bounds(self) -> bool:
        return len(self._entries) <= self._kept and self._bytes <= self._kept_bytes
