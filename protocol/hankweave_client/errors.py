"""Errors between a client and its server."""

from __future__ import annotations

from hankweave_protocol.errors import Refused
from hankweave_protocol.replies import Failure


class CommandRefused(Exception):
    """The server refused the command; nothing was done."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.message} ({failure.code})")
        self.code = failure.code
        self.message = failure.message
        self.path = failure.path
        self.hint = failure.hint


class NotRunning(ConnectionError):
    """No server is running there."""


class Unauthorized(ConnectionError):
    """The token is invalid, or there is none and one is needed."""


class ConnectionLost(ConnectionError):
    """The connection ended; unanswered commands may or may not have been executed."""

    def __init__(self, message: str, *, orderly: bool = False) -> None:
        super().__init__(message)
        self.orderly = orderly
        """True after an orderly end: a close with 1000 or 1001, or by this client."""


class Unreadable(ConnectionError):
    """The server sent a frame that this version cannot decode; retrying would not help."""

    def __init__(self, fault: Refused) -> None:
        where = f" at {fault.path}" if fault.path else ""
        super().__init__(f"The server sent what cannot be read: {fault.message}{where}")
