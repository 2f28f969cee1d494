"""What sentinels need from around them, handed over by whoever runs the codon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import anyio

from hankweave_protocol import instants
from hankweave_protocol.events import EventData
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import Tokens
from hankweave_protocol.transitions import Transition
from hankweave_server.clock import Clock
from hankweave_server.sentinels.questions import CodonFacts

Price: TypeAlias = Callable[[str, Tokens], float | None]
"""What a call of a model cost in USD; None where its price is not known."""


class Tell(Protocol):
    """Takes what a sentinel has to say; the sentinels' new states go with it."""

    async def __call__(self, *events: EventData) -> None: ...


class TellAll(Protocol):
    """Takes events and the transition of the sentinels' states, in order."""

    async def __call__(self, *entries: EventData | Transition) -> None: ...


class Wait(Protocol):
    """Waits until an event is set, or until so many seconds have passed (None: for ever)."""

    async def __call__(self, wake: anyio.Event, seconds: float | None) -> None: ...


async def wait_for(wake: anyio.Event, seconds: float | None) -> None:
    with anyio.move_on_after(seconds):
        await wake.wait()


@dataclass(frozen=True, slots=True)
class Around:
    """One codon, as its sentinels see it."""

    codon: CodonFacts
    work_tree: Path
    clock: Clock
    price: Price
    tell: Tell
    wait: Wait
    threads: anyio.CapacityLimiter
    """Sentinels' files and templates wait for each other, and nobody else for them."""

    @property
    def codon_id(self) -> CodonId:
        return CodonId(self.codon.id)

    def now_text(self) -> str:
        return instants.to_text(self.clock.now())
