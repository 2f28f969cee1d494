"""Which events sentinels may see: all of an execution's own, none of what sentinels cause.

A sentinel that saw sentinels would watch itself. Their states travel as `state.transition`, so
that one transition is kept from them as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from hankweave_protocol.events import EVENTS, Event, EventData, StateTransition
from hankweave_protocol.transitions import SentinelStatesUpdated

EVERY = "*"
ROUTED = frozenset(
    name
    for name, member in EVENTS.members.items()
    if member.JOURNALED and not name.startswith("sentinel.")
)


@dataclass(frozen=True, slots=True)
class Seen:
    """An event as a sentinel sees it; the frame is what its template gets."""

    type: str
    data: EventData
    frame: bytes


def is_routed(event: Event) -> bool:
    """Tells whether sentinels may see an event."""
    if event.type not in ROUTED:
        return False

    own = isinstance(event.data, StateTransition)
    return not (own and event.data.transition_type == SentinelStatesUpdated.TYPE)  # type: ignore[attr-defined]
