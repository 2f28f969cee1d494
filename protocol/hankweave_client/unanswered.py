"""Commands of a session that have no answer yet."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
import msgspec

from hankweave_client.errors import CommandRefused, ConnectionLost
from hankweave_client.link import Link
from hankweave_protocol.codec import encode_command
from hankweave_protocol.commands import CommandData
from hankweave_protocol.ids import CommandId
from hankweave_protocol.replies import Failure

Answer = msgspec.Raw | Failure | ConnectionLost


@dataclass(slots=True)
class Pending:
    """One command; its frame is the same on every connection, so that it is executed once."""

    frame: bytes
    mutates: bool
    was_sent: bool = False
    _answered: anyio.Event = field(default_factory=anyio.Event)
    _answer: Answer | None = None

    async def send(self, link: Link) -> None:
        if self._answered.is_set():
            return

        self.was_sent = True
        # The reader of the link notices a lost connection; the frame is sent again on the next one.
        with contextlib.suppress(ConnectionLost):
            await link.send(self.frame)

    def settle(self, answer: Answer) -> None:
        if self._answer is None:
            self._answer = answer
            self._answered.set()

    async def answer(self) -> msgspec.Raw:
        """Wait for the reply's data; raise CommandRefused or ConnectionLost."""
        await self._answered.wait()
        match self._answer:
            case Failure() as failure:
                raise CommandRefused(failure)
            case ConnectionLost() as lost:
                raise lost
            case data:
                assert data is not None
                return data


class Unanswered:
    """All unanswered commands, by id."""

    def __init__(self, name: str | None = None) -> None:
        """Create an empty set; `name` begins every id, so that logs show who sent a command."""
        self._prefix = "" if name is None else f"{name}:"
        self._pending: dict[CommandId, Pending] = {}

    @contextmanager
    def added(self, command: CommandData) -> Iterator[Pending]:
        """Give the command an id and keep it until the block is left."""
        command_id = CommandId(f"{self._prefix}{uuid.uuid4()}")
        pending = Pending(encode_command(command, command_id), command.MUTATES)
        self._pending[command_id] = pending
        try:
            yield pending
        finally:
            del self._pending[command_id]

    def __contains__(self, command_id: CommandId | None) -> bool:
        return command_id in self._pending

    async def send_all(self, link: Link) -> None:
        for pending in tuple(self._pending.values()):
            await pending.send(link)

    def settle(self, command_id: CommandId | None, answer: msgspec.Raw | Failure) -> None:
        pending = None if command_id is None else self._pending.get(command_id)
        if pending is not None:
            pending.settle(answer)

    def settle_all(self, lost: ConnectionLost) -> None:
        for pending in self._pending.values():
            pending.settle(lost)

    def give_up_on_effects(self) -> None:
        """Fail sent commands with effects: a restarted server does not know their ids."""
        for pending in self._pending.values():
            if pending.mutates and pending.was_sent:
                pending.settle(
                    ConnectionLost("The server was restarted; the command may have been done.")
                )
