"""What a sentinel needs of a model, whoever provides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from hankweave_protocol.state import NO_TOKENS, Tokens

if TYPE_CHECKING:
    from hankweave_server.sentinels.structured import Form

FatalKind = Literal["template", "configuration", "corruption", "resource"]
"""Errors that trying again cannot mend (Hankweave)."""


@dataclass(frozen=True, slots=True)
class Message:
    role: Literal["user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Call:
    """One question."""

    messages: tuple[Message, ...]
    """Oldest first; the last is the user's."""
    system: str | None = None
    form: Form | None = None
    """Of the answer; None for a text."""
    max_output_tokens: int = 8192
    temperature: float | None = None
    max_retries: int = 2
    """How often a failure that may pass is tried again, before it counts as one failure."""


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    """The JSON text of an object where the call has a form."""
    tokens: Tokens = NO_TOKENS


class CallFailed(Exception):
    """A question without an answer, after all retries."""

    def __init__(self, message: str, *, retriable: bool, fatal: FatalKind | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retriable = retriable
        """The same question may be answered later."""
        self.fatal = fatal
        """Set where no question will ever be: a wrong key, an unknown model."""


class ModelMissing(Exception):
    """A model that cannot be asked: no provider, no key or no SDK. It says what to do."""


class Model(Protocol):
    """One model, ready to be asked."""

    async def ask(self, call: Call) -> Answer:
        """Asks; raises CallFailed."""

    async def aclose(self) -> None:
        """Lets go of connections."""


class OpensModels(Protocol):
    """Finds a model by its name."""

    def open(self, model: str) -> Model:
        """Returns it ready to be asked; blocks, and raises ModelMissing."""
