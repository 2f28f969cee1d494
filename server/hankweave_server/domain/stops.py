"""Codons that a server's orderly end cut short.

state.json calls such a codon `failed`, as Hankweave does, and its reason tells it from a failure of
its own. People are told that it was stopped: the next start goes on from its last checkpoint.
"""

from __future__ import annotations

from hankweave_protocol.state import FailureReason

_BEGINNING = "The server stopped: "


def reason_of_stop(cause: str) -> str:
    """Return the reason that a codon has failed for when the server ends in the middle of it."""
    return f"{_BEGINNING}{cause}."


def is_of_stop(message: str | None) -> bool:
    """Say whether the message of a failure is that of a stop."""
    return message is not None and message.startswith(_BEGINNING)


def was_stopped(reason: FailureReason | None) -> bool:
    """Say whether a codon was cut short by the server's end."""
    return reason is not None and is_of_stop(reason.message)
