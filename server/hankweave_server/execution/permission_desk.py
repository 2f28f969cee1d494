"""Where requests of agents lie until a client answers them."""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field

import anyio

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.records import PendingPermission
from hankweave_server.domain.permissions import Answer

REMEMBERED = 1000
"""Answered requests of which a second answer is told that it comes too late."""


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that nobody has answered yet. The first answer counts."""

    told: PendingPermission
    answer: Answer | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set when the answer is on record, and the agent was told; or when there is none any more."""

    def settle_by(self, answer: Answer) -> None:
        if self.answer is None:
            self.answer = answer
            self.answered.set()


class Desk:
    """The requests of one execution that wait; whoever lays one here takes it away again."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        self._answered: deque[str] = deque(maxlen=REMEMBERED)

    @property
    def pending(self) -> tuple[PendingPermission, ...]:
        """What waits for an answer, the oldest first."""
        return tuple(each.told for each in self._waiting.values() if each.answer is None)

    def new_id(self) -> str:
        """Makes a name that is short enough to be typed."""
        while (name := secrets.token_hex(4)) in self._waiting:
            pass

        return name

    def lay(self, told: PendingPermission) -> Waiting:
        waiting = self._waiting[told.request_id] = Waiting(told)
        return waiting

    def take(self, waiting: Waiting) -> None:
        del self._waiting[waiting.told.request_id]
        self._answered.append(waiting.told.request_id)

    async def answer(self, request_id: str, answer: Answer) -> None:
        """Gives a client's answer; returns when it is on record. Raises Refused."""
        waiting = self._waiting.get(request_id)
        if request_id in self._answered or (waiting is not None and waiting.answer is not None):
            raise Refused(
                ErrorCode.PERMISSION_ANSWERED,
                f"Request {request_id} is settled already.",
                path="$.data.requestId",
                hint="permission.resolved says how, and by whom.",
            )

        if waiting is None:
            raise self._unknown(request_id)

        waiting.settle_by(answer)
        await waiting.settled.wait()

    def _unknown(self, request_id: str) -> Refused:
        listed = ", ".join(each.request_id for each in self.pending)
        return Refused(
            ErrorCode.UNKNOWN_PERMISSION,
            f"No agent waits for an answer to {request_id}.",
            path="$.data.requestId",
            hint=f"These wait: {listed}." if listed else "Nothing waits for an answer now.",
        )
