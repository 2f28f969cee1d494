"""Send commands: what a session with a server and a reader of files have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import overload

from hankweave_protocol.commands import AnsweredCommand, CommandData, R


class Calls(ABC):
    """Something that answers commands of the protocol.

    With `expected_run_id` the server refuses a command (STALE_RUN) unless that run is current.
    """

    @overload
    async def send(self, command: AnsweredCommand[R]) -> R: ...

    @overload
    async def send(self, command: CommandData) -> object: ...

    @abstractmethod
    async def send(self, command: CommandData) -> object:
        """Send a command and return its reply's data, as a value of the command's reply type.

        Raises CommandRefused if the server refuses it, and ConnectionLost if the session ended, or
        the server was restarted, before an answer came.
        """
