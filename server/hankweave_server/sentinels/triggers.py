"""What makes a sentinel fire: one event, or several in an order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, assert_never

from hankweave_protocol.sentinels import EventTrigger, PatternStep, SequenceTrigger
from hankweave_server.sentinels.conditions import Test, all_of
from hankweave_server.sentinels.routing import EVERY, Seen

HISTORY_LIMIT = 1000
"""How far back a sequence may reach, in events of its interest filter (Hankweave)."""

Firing: TypeAlias = tuple[bytes, ...]
"""The frames of the events that made a sentinel fire, oldest first."""


class Trigger(Protocol):
    """Both kinds; `take` raises TooSlow where a condition cannot be decided in time."""

    def take(self, seen: Seen) -> Firing | None:
        """Looks at the next event; returns what fires, or None."""


def trigger_of(config: EventTrigger | SequenceTrigger) -> Trigger:
    match config:
        case EventTrigger():
            return _OnEvent(config)
        case SequenceTrigger():
            return _OnSequence(config)
        case other:
            assert_never(other)


class _OnEvent:
    def __init__(self, config: EventTrigger) -> None:
        self._on = frozenset(config.on)
        self._holds = all_of(config.conditions)

    def take(self, seen: Seen) -> Firing | None:
        if not _is_among(seen, self._on) or not self._holds(seen.data):
            return None

        return (seen.frame,)


@dataclass(frozen=True, slots=True)
class _Step:
    type: str
    holds: Test

    @classmethod
    def of(cls, config: PatternStep) -> _Step:
        return cls(config.type, all_of(config.conditions))

    def fits(self, seen: Seen) -> bool:
        return self.type in (EVERY, seen.type) and self.holds(seen.data)


@dataclass(frozen=True, slots=True)
class _Past:
    """An event of the filter, and which steps of the pattern it fits."""

    frame: bytes
    steps: frozenset[int]


class _OnSequence:
    """Keeps the filtered events since the last match, and looks back when the last step comes.

    Every event that fits the last step is looked at, whichever type the filter lists last: to look
    only at that type, as Hankweave does, misses patterns that end with another one.
    """

    def __init__(self, config: SequenceTrigger) -> None:
        self._on = frozenset(config.interest_filter.on)
        self._pattern = [_Step.of(step) for step in config.pattern]
        self._consecutive = config.options is None or config.options.consecutive
        self._past: deque[_Past] = deque(maxlen=HISTORY_LIMIT)

    def take(self, seen: Seen) -> Firing | None:
        if not _is_among(seen, self._on):
            return None

        steps = frozenset(i for i, step in enumerate(self._pattern) if step.fits(seen))
        self._past.append(_Past(seen.frame, steps))
        if len(self._pattern) - 1 not in steps:
            return None

        found = self._tail() if self._consecutive else self._in_order()
        if found is not None:
            self._past.clear()

        return found

    def _tail(self) -> Firing | None:
        count = len(self._pattern)
        tail = list(self._past)[-count:]
        if len(tail) < count or not all(i in past.steps for i, past in enumerate(tail)):
            return None

        return tuple(past.frame for past in tail)

    def _in_order(self) -> Firing | None:
        """Takes the first event for each step but the last, which is the newest event."""
        *before, newest = self._past
        found: list[bytes] = []
        for past in before:
            if len(found) == len(self._pattern) - 1:
                break

            if len(found) in past.steps:
                found.append(past.frame)

        return (*found, newest.frame) if len(found) == len(self._pattern) - 1 else None


def _is_among(seen: Seen, types: frozenset[str]) -> bool:
    return seen.type in types or EVERY in types


def types_of(config: EventTrigger | SequenceTrigger) -> Sequence[str]:
    """Every type of event that a trigger names."""
    match config:
        case EventTrigger(on=on):
            return on
        case SequenceTrigger(interest_filter=interest, pattern=pattern):
            return (*interest.on, *(step.type for step in pattern))
        case other:
            assert_never(other)
