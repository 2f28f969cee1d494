"""Claims about triggers and conditions: which events fire them."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol import codec
from hankweave_protocol.events import (
    CodonCompletedEvent,
    EventData,
    ExitStatus,
    Info,
    ServerIdle,
    ToolResult,
)
from hankweave_protocol.sentinels import Condition, EventTrigger, SequenceTrigger
from hankweave_server.sentinels.triggers import (
    HISTORY_LIMIT,
    ROUTED,
    SeenEvent,
    Trigger,
    all_of,
    fault_of_value,
    has_path,
    trigger_of,
)
from support.sentinels import CODON, an_event, info


def seen(data: EventData, seq: int = 1) -> SeenEvent:
    event = an_event(data, seq)
    return SeenEvent(event.type, data, codec.encode(event))


def sequence(*types: str, on: tuple[str, ...], consecutive: bool = True) -> Trigger:
    raw = {
        "type": "sequence",
        "interestFilter": {"on": on},
        "pattern": [{"type": each} for each in types],
        "options": {"consecutive": consecutive},
    }
    return trigger_of(msgspec.convert(raw, SequenceTrigger))


def messages(trigger: Trigger, *events: EventData) -> list[list[int]]:
    """Return the seqs of each firing for events in this order."""
    fired = [trigger.take(seen(data, seq)) for seq, data in enumerate(events, 1)]
    return [[msgspec.json.decode(frame)["seq"] for frame in firing] for firing in fired if firing]


IDLE = ServerIdle(reason="startup", message="idle")
DONE = CodonCompletedEvent(
    codon_id=CODON,
    success=False,
    cost=1.5,
    duration=7,
    exit_status=ExitStatus(type="error", code=3),
)
INFO = info("hello")


def test_an_event_trigger_fires_at_its_types_alone() -> None:
    """`*` stands for every type that sentinels see."""
    one = trigger_of(msgspec.convert({"type": "event", "on": ["info"]}, EventTrigger))
    every = trigger_of(msgspec.convert({"type": "event", "on": ["*"]}, EventTrigger))
    assert messages(one, INFO, IDLE, INFO) == [[1], [3]]
    assert messages(every, INFO, IDLE) == [[1], [2]]


def test_a_consecutive_sequence_is_the_tail_of_its_filter() -> None:
    """An event of the filter between the steps breaks the sequence; one outside it does not."""
    on = ("info", "server.idle")
    assert messages(sequence("info", "server.idle", on=on), INFO, INFO, DONE, IDLE) == [[2, 4]]
    assert messages(sequence("info", "info", on=on), INFO, IDLE, INFO) == []


def test_a_loose_sequence_takes_the_first_of_each_step_in_order() -> None:
    """Other events may occur between the steps, but the steps keep their order."""
    on = ("info", "server.idle", "codon.completed")
    trigger = sequence("info", "codon.completed", on=on, consecutive=False)
    assert messages(trigger, DONE, INFO, IDLE, INFO, DONE) == [[2, 5]]


def test_a_match_is_not_used_twice() -> None:
    """Events that have fired are forgotten: the next match needs new ones."""
    trigger = sequence("info", "info", on=("info",))
    assert messages(trigger, INFO, INFO, INFO, INFO, INFO) == [[1, 2], [3, 4]]


@pytest.mark.parametrize("on", [("info", "server.idle"), ("server.idle", "info"), ("*",)])
def test_a_sequence_is_tested_whenever_its_last_step_comes(on: tuple[str, ...]) -> None:
    """Hankweave tests only at the type that the filter lists last, and misses the other matches."""
    assert messages(sequence("info", "server.idle", on=on), INFO, IDLE) == [[1, 2]]


def test_a_sequence_reaches_back_a_thousand_events() -> None:
    """Older events are forgotten, and memory stays bounded."""
    trigger = sequence("server.idle", "codon.completed", on=("*",), consecutive=False)
    assert messages(trigger, IDLE, *[INFO] * (HISTORY_LIMIT - 2), DONE) != []
    trigger = sequence("server.idle", "codon.completed", on=("*",), consecutive=False)
    assert messages(trigger, IDLE, *[INFO] * (HISTORY_LIMIT - 1), DONE) == []


@given(st.lists(st.sampled_from([INFO, IDLE]), max_size=30))
def test_a_consecutive_match_is_exactly_its_pattern(events: list[EventData]) -> None:
    """For any events, it fires for each two neighbours of the pattern's types and no others."""
    trigger = sequence("info", "server.idle", on=("*",))
    neighbours = enumerate(pairwise(events), start=1)
    expected = [[seq, seq + 1] for seq, pair in neighbours if pair == (INFO, IDLE)]
    assert messages(trigger, *events) == expected


@pytest.mark.parametrize(
    ("operator", "path", "value", "holds"),
    [
        ("equals", "success", False, True),
        ("equals", "success", 0, False),
        ("equals", "exitStatus.code", 3, True),
        ("equals", "exitStatus.nothing", None, False),
        ("notEquals", "exitStatus.type", "success", True),
        ("notEquals", "failureReason.type", "timeout", False),
        ("in", "exitStatus.code", [1, 3], True),
        ("notIn", "exitStatus.code", [1, 3], False),
        ("notIn", "exitStatus.code", [1], True),
        ("contains", "codonId", "serve", True),
        ("contains", "cost", "1", False),
        ("matches", "codonId", "^obs.*#[0-9]+$", True),
        ("matches", "cost", "1", False),
        ("greaterThan", "cost", 1.4, True),
        ("greaterThan", "success", 0, False),
        ("lessThan", "duration", 7, False),
    ],
)
def test_an_operator_means_what_it_means_in_hankweave(
    operator: str, path: str, value: object, holds: bool
) -> None:
    """Equality is strict, absent fields match no condition, and numbers compare as numbers."""
    raw = {"operator": operator, "path": path, "value": value}
    condition = msgspec.convert(raw, Condition)
    assert fault_of_value(condition) is None
    assert all_of([condition])(DONE) is holds


def test_a_default_that_the_wire_leaves_out_is_still_there() -> None:
    """A field that is false by default is not written, but a condition can test it."""
    condition = Condition(operator="equals", path="isError", value=False)
    result = ToolResult(
        codon_id=CODON,
        tool_use_id="t",
        tool_name="Bash",
        result="",
        truncated=False,
        original_length=0,
        execution_time_ms=0,
        is_error=False,
    )
    assert all_of([condition])(result)


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        ("equals", ["a"]),
        ("in", []),
        ("in", "a"),
        ("notIn", [None]),
        ("contains", 1),
        ("matches", "("),
        ("greaterThan", "1"),
        ("lessThan", True),
    ],
)
def test_a_value_that_its_operator_cannot_use_is_a_fault(operator: str, value: object) -> None:
    """The fault is reported when the sentinel loads, not when an event arrives."""
    raw = {"operator": operator, "path": "x", "value": value}
    assert fault_of_value(msgspec.convert(raw, Condition)) is not None


def test_paths_are_those_of_the_events_shapes() -> None:
    """Nested fields, unions and free objects are accepted; a path that no event has is a fault."""
    assert has_path("codon.completed", "failureReason.type")
    assert has_path("assistant.action", "toolInput.command.0")
    assert has_path("state.transition", "transition.data.checkpoint.kind")
    assert not has_path("codon.completed", "failureReason.kind")
    assert not has_path("info", "messages")


def test_sentinels_are_shown_neither_sentinels_nor_what_answers_one_client() -> None:
    """As in Hankweave, sentinels see server state and agents, no connection events."""
    assert {"sentinel.output", "server.ready", "pong", "history.batch"}.isdisjoint(ROUTED)
    assert {"info", "codon.completed", "tool.result", "file.updated"} <= ROUTED
    assert isinstance(INFO, Info)
