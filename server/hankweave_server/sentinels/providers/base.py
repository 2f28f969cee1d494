"""Define the interface between sentinels and models, independent of the provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from hankweave_protocol.state import NO_TOKENS, Tokens

if TYPE_CHECKING:
    from hankweave_server.sentinels.structured import Form

FatalKind = Literal["template", "configuration", "corruption", "resource"]
"""Kinds of errors that a retry cannot fix, as in Hankweave."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Literal["user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One question."""

    messages: tuple[Message, ...]
    """Oldest first; the last is the user's."""
    system: str | None = None
    form: Form | None = None
    """The form of the answer; None for text."""
    max_output_tokens: int = 8192
    temperature: float | None = None
    max_retries: int = 2
    """Retries of a transient failure before the call counts as failed."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """An answer and the tokens it used."""

    text: str
    """The JSON text of an object where the call has a form."""
    tokens: Tokens = NO_TOKENS


class CallFailed(Exception):
    """A call without an answer, after all retries."""

    def __init__(self, message: str, *, retriable: bool, fatal: FatalKind | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retriable = retriable
        """True if the same question may be answered later."""
        self.fatal = fatal
        """Set if no question will be answered, for instance with a wrong key or unknown model."""


def refused(who: str, status: int, message: str) -> CallFailed:
    """Return the exception for a call that returned an HTTP error status."""
    redirects = 300 <= status < 400
    if redirects:
        message = (
            "redirects are not followed. Set its ..._BASE_URL to the address where it answers."
        )

    return CallFailed(
        f"{who} returned {status}: {message}",
        retriable=status in (408, 409, 429) or status >= 500,
        fatal="configuration" if redirects or status in (401, 403, 404) else None,
    )


class ModelMissing(Exception):
    """A model has no provider, key or SDK; the message has the remedy."""


class Model(Protocol):
    """One model that can be called."""

    async def ask(self, call: ModelCall) -> ModelAnswer:
        """Send a call and return the answer; raises CallFailed."""

    async def aclose(self) -> None:
        """Close the connections."""


class OpensModels(Protocol):
    """A factory of models."""

    def open(self, model: str) -> Model:
        """Return the model with a name. Blocks; raises ModelMissing."""
