"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes of one run of all benches."""

    rounds: int
    durable_appends: int
    batched_appends: int
    clients: tuple[int, ...]
    deliveries: int
    """Frames in one round of the fan-out, over all clients."""
    messages: int
    """What the agent of the long execution says; each message makes three events."""
    trees: tuple[int, ...]
    """Files in the work trees that are checkpointed."""


FULL = Scale(
    rounds=5,
    durable_appends=1_000,
    batched_appends=20_000,
    clients=(1, 100, 1_000),
    deliveries=30_000,
    messages=3_334,
    trees=(1_000, 10_000),
)

SMALLEST = Scale(
    rounds=1,
    durable_appends=2,
    batched_appends=10,
    clients=(1,),
    deliveries=10,
    messages=10,
    trees=(110,),
)
"""For the test that claims that every bench still works; its figures mean nothing."""
