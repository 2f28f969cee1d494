"""What can go wrong between a client and its server."""

from __future__ import annotations

from hankweave_protocol.errors import Refused
from hankweave_protocol.replies import Failure


class CommandRefused(Exception):
    """The server answered that it cannot do this; nothing was done."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.message} ({failure.code})")
        self.code = failure.code
        self.message = failure.message
        self.path = failure.path
        self.hint = failure.hint


class NotRunning(ConnectionError):
    """Nobody serves there."""


class Unauthorized(ConnectionError):
    """The token does not hold here, or there is none and one is needed."""


class ConnectionLost(ConnectionError):
    """The connection ended; what was asked and not answered may or may not have been done."""

    def __init__(self, message: str, *, orderly: bool = False) -> None:
        super().__init__(message)
        self.orderly = orderly
        """True where the server said goodbye."""


class Unreadable(ConnectionError):
    """The server sent what this version cannot read; trying again would not help."""

    def __init__(self, fault: Refused) -> None:
        where = f" at {fault.path}" if fault.path else ""
        super().__init__(f"The server sent what cannot be read: {fault.message}{where}")
