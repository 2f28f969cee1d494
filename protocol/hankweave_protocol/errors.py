"""Error codes of the protocol.

Every refusal has a code for programs, a sentence for people and, if helpful, the JSON path of the
fault and a hint. `Refused` is the caller's fault and is not journaled; any other exception of a
command is reported as `INTERNAL_ERROR` without details.
"""

from __future__ import annotations

import re
from enum import StrEnum


class ErrorCode(StrEnum):
    """Codes of `command.failed` and `error`; the first four are Hankweave's own."""

    ROLLBACK_IN_PROGRESS = "ROLLBACK_IN_PROGRESS"
    HANDSHAKE_REQUIRED = "HANDSHAKE_REQUIRED"
    INSUFFICIENT_PERMISSIONS = "INSUFFICIENT_PERMISSIONS"
    SENTINEL_LOAD_FAILURE = "SENTINEL_LOAD_FAILURE"

    MALFORMED_JSON = "MALFORMED_JSON"
    INVALID_COMMAND = "INVALID_COMMAND"
    UNKNOWN_COMMAND = "UNKNOWN_COMMAND"
    UNAUTHORIZED = "UNAUTHORIZED"
    RATE_LIMITED = "RATE_LIMITED"
    FRAME_TOO_LARGE = "FRAME_TOO_LARGE"

    CODON_RUNNING = "CODON_RUNNING"
    NO_CODON_RUNNING = "NO_CODON_RUNNING"
    UNKNOWN_CODON = "UNKNOWN_CODON"
    UNKNOWN_PERMISSION = "UNKNOWN_PERMISSION"
    PERMISSION_ANSWERED = "PERMISSION_ANSWERED"
    NOTHING_TO_RUN = "NOTHING_TO_RUN"
    UNKNOWN_RUN = "UNKNOWN_RUN"
    STALE_RUN = "STALE_RUN"

    CHECKPOINT_NOT_FOUND = "CHECKPOINT_NOT_FOUND"
    AMBIGUOUS_CHECKPOINT = "AMBIGUOUS_CHECKPOINT"
    CHECKPOINT_DAMAGED = "CHECKPOINT_DAMAGED"
    INVALID_PATH = "INVALID_PATH"
    FILE_TOO_LARGE = "FILE_TOO_LARGE"
    NOTHING_TO_UNDO = "NOTHING_TO_UNDO"
    INSUFFICIENT_SPACE = "INSUFFICIENT_SPACE"
    IO_ERROR = "IO_ERROR"
    STORE_UNUSABLE = "STORE_UNUSABLE"
    MERGE_CONFLICT = "MERGE_CONFLICT"

    RESULT_TOO_LARGE = "RESULT_TOO_LARGE"

    SHUTTING_DOWN = "SHUTTING_DOWN"
    INTERNAL_ERROR = "INTERNAL_ERROR"


class Refused(Exception):
    """A request that cannot be executed; nothing was changed."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        path: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.path = path
        """JSON path in the command; `$` is the whole frame."""
        self.hint = hint


def reason_of(error: BaseException) -> str:
    """Return the text of an error, or its kind: time limits and lost connections have no text."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).removesuffix(" Error").lower()
    return str(error).strip() or kind
