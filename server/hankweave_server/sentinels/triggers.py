"""Match events against the triggers of sentinels: a single event, or a sequence.

Conditions on the data of an event are checked when a sentinel loads, and evaluated for every event.

Sentinels see all journaled events of an execution except those that sentinels cause; otherwise a
sentinel could trigger itself. The states of sentinels are published as a `state.transition`, so
that transition is hidden from them as well (`is_routed`).
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, assert_never

import msgspec
import regex
from msgspec import inspect

from hankweave_protocol.events import EVENTS, Event, EventData, StateTransition
from hankweave_protocol.sentinels import Condition, EventTrigger, PatternStep, SequenceTrigger
from hankweave_protocol.transitions import SentinelStatesUpdated

Test: TypeAlias = Callable[[EventData], bool]

SLOWEST_MATCH: Final = 0.01
"""Seconds that one `matches` may take, because the codon's events wait for it."""

MISSING: Final = object()
"""The value of a path that leads nowhere; no condition holds for it."""


class TooSlow(Exception):
    """A regular expression takes too long on a value."""


def all_of(conditions: Sequence[Condition]) -> Test:
    """Return one test for all the conditions, which must be valid; the test may raise TooSlow."""
    tests = [(each.path.split("."), _test_of(each)) for each in conditions]

    def holds(data: EventData) -> bool:
        return all(
            (value := _value_at(data, steps)) is not MISSING and test(value)
            for steps, test in tests
        )

    return holds


def fault_of_value(condition: Condition) -> str | None:
    """Return a message if the value of a condition does not fit its operator, or None."""
    value = condition.value
    match condition.operator:
        case "equals" | "notEquals":
            return (
                None if _is_scalar(value) else "Expected a string, a number, true, false or null."
            )
        case "in" | "notIn":
            fits = isinstance(value, list) and value and all(map(_is_text_or_number, value))
            return None if fits else "Expected a non-empty list of strings or numbers."
        case "contains":
            return None if isinstance(value, str) else "Expected a string."
        case "matches":
            return _fault_of_pattern(value)
        case "greaterThan" | "lessThan":
            return None if _is_number(value) else "Expected a number."
        case other:
            assert_never(other)


def has_path(event_type: str, path: str) -> bool:
    """Return whether events of a type can have such a field."""
    member = EVENTS.get(event_type)
    return member is not None and _leads(inspect.type_info(member), path.split("."))


# --- asking -----------------------------------------------------------------------------------


def _test_of(condition: Condition) -> Callable[[Any], bool]:
    wanted: Any = condition.value
    match condition.operator:
        case "equals":
            return lambda value: _same(value, wanted)
        case "notEquals":
            return lambda value: not _same(value, wanted)
        case "in":
            return lambda value: any(_same(value, each) for each in wanted)
        case "notIn":
            return lambda value: not any(_same(value, each) for each in wanted)
        case "contains":
            return lambda value: _contains(value, wanted)
        case "matches":
            return functools.partial(_matches, regex.compile(wanted))
        case "greaterThan":
            return lambda value: _is_number(value) and value > wanted
        case "lessThan":
            return lambda value: _is_number(value) and value < wanted
        case other:
            assert_never(other)


def _same(value: object, wanted: object) -> bool:
    """Compare like JavaScript's `===`: true is not 1."""
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def _contains(value: object, wanted: str) -> bool:
    return wanted in value if isinstance(value, str | list | tuple) else False


def _matches(pattern: regex.Pattern[str], value: object) -> bool:
    if not isinstance(value, str):
        return False

    try:
        return pattern.search(value, timeout=SLOWEST_MATCH) is not None
    except TimeoutError:
        raise TooSlow(
            f"The pattern {pattern.pattern!r} takes too long on a value of {len(value)} characters."
        ) from None


def _value_at(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        value = _member(value, step)
        if value is MISSING:
            break

    return value


def _member(value: Any, step: str) -> Any:
    match value:
        case msgspec.Raw():
            return _member(msgspec.json.decode(value), step)
        case msgspec.Struct():
            return _field(value, step)
        case dict():
            return value.get(step, MISSING)
        case list() | tuple() if step.isdecimal() and int(step) < len(value):
            return value[int(step)]
        case _:
            return MISSING


def _field(value: msgspec.Struct, step: str) -> Any:
    """Return a field by its name on the wire; MISSING for an optional field that is not set."""
    known = _fields(type(value)).get(step)
    if known is None:
        return MISSING

    name, may_be_absent = known
    found = getattr(value, name)
    return MISSING if found is None and may_be_absent else found


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, tuple[str, bool]]:
    return {
        field.encode_name: (field.name, field.default is None)
        for field in msgspec.structs.fields(kind)
    }


# --- checking ---------------------------------------------------------------------------------


def _leads(kind: inspect.Type, steps: Sequence[str]) -> bool:
    if not steps:
        return True

    match kind:
        case inspect.StructType():
            fields = {field.encode_name: field.type for field in kind.fields}
            if kind.tag_field is not None:
                fields.setdefault(kind.tag_field, inspect.StrType())

            return steps[0] in fields and _leads(fields[steps[0]], steps[1:])
        case inspect.UnionType():
            return any(_leads(each, steps) for each in kind.types)
        case inspect.VarTupleType() | inspect.ListType():
            return steps[0].isdecimal() and _leads(kind.item_type, steps[1:])
        case inspect.DictType():
            return _leads(kind.value_type, steps[1:])
        case inspect.AnyType() | inspect.CustomType() | inspect.RawType():
            return True
        case _:
            return False


def _fault_of_pattern(value: object) -> str | None:
    if not isinstance(value, str):
        return "Expected a regular expression as a string."

    try:
        regex.compile(value)
    except regex.error as error:
        return f"This is not a valid regular expression: {error}."

    return None


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text_or_number(value: object) -> bool:
    return isinstance(value, str) or _is_number(value)


EVERY = "*"
ROUTED = frozenset(
    name
    for name, member in EVENTS.members.items()
    if member.JOURNALED and not name.startswith("sentinel.")
)


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An event for sentinels; templates get the frame."""

    type: str
    data: EventData
    frame: bytes


def is_routed(event: Event) -> bool:
    """Return whether sentinels may see an event."""
    if event.type not in ROUTED:
        return False

    own = isinstance(event.data, StateTransition)
    return not (own and event.data.transition_type == SentinelStatesUpdated.TYPE)  # type: ignore[attr-defined]


HISTORY_LIMIT = 1000
"""Events of its interest filter that a sequence may reach back, as in Hankweave."""

Firing: TypeAlias = tuple[bytes, ...]
"""The frames of the events that made a sentinel fire, oldest first."""


class Trigger(Protocol):
    """The interface of both kinds of trigger."""

    def take(self, seen: SeenEvent) -> Firing | None:
        """Process the next event; return a firing or None.

        Raises TooSlow if a condition cannot be evaluated in time.
        """


def trigger_of(config: EventTrigger | SequenceTrigger) -> Trigger:
    """Return the matcher for a configured trigger."""
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

    def take(self, seen: SeenEvent) -> Firing | None:
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

    def fits(self, seen: SeenEvent) -> bool:
        return self.type in (EVERY, seen.type) and self.holds(seen.data)


@dataclass(frozen=True, slots=True)
class _Past:
    """An event that passed the filter, and the steps of the pattern that it fits."""

    frame: bytes
    steps: frozenset[int]


class _OnSequence:
    """A sequence trigger: keeps the filtered events since the last match, and looks back.

    It looks back on every event that fits the last step. Hankweave does so only for the type that
    the filter lists last, which misses patterns that end with another type.
    """

    def __init__(self, config: SequenceTrigger) -> None:
        self._on = frozenset(config.interest_filter.on)
        self._pattern = [_Step.of(step) for step in config.pattern]
        self._consecutive = config.options is None or config.options.consecutive
        self._past: deque[_Past] = deque(maxlen=HISTORY_LIMIT)

    def take(self, seen: SeenEvent) -> Firing | None:
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
        """Match each step except the last to its first event; the last is the newest event."""
        *before, newest = self._past
        found: list[bytes] = []
        for past in before:
            if len(found) == len(self._pattern) - 1:
                break

            if len(found) in past.steps:
                found.append(past.frame)

        return (*found, newest.frame) if len(found) == len(self._pattern) - 1 else None


def _is_among(seen: SeenEvent, types: frozenset[str]) -> bool:
    return seen.type in types or EVERY in types
