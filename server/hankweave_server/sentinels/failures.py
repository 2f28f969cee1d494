"""Define the failures of triggers and the reasons why a sentinel is unloaded."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hankweave_server.sentinels.providers.base import FatalKind

UnloadReason: TypeAlias = Literal[
    "codon-complete", "fatal-error", "consecutive-failures", "shutdown"
]
ErrorType: TypeAlias = Literal[
    "llm-call-failed",
    "template-render-failed",
    "file-write-failed",
    "triggers-dropped",
    "history-damaged",
    "trigger-failed",
]


class SentinelFailure(Exception):
    """A trigger failed."""

    def __init__(
        self, type: ErrorType, message: str, *, retriable: bool, fatal: FatalKind | None = None
    ) -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.retriable = retriable
        self.fatal = fatal
