"""Claims about the frames for a client of Hankweave 0.12, which sends no `protocolVersion`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol import codec, reference
from hankweave_protocol.events import EVENTS, Event, EventData
from hankweave_protocol.ids import EventSeq, RunId
from support.protocol_values import often_enough, texts, values_of
from support.reference_schema import DATA, faults_of

NOON = "2025-01-04T12:00:00.000Z"


def line(kind: str, data: dict[str, Any], **envelope: Any) -> bytes:
    event = {"id": "e1", "seq": 7, "timestamp": NOON, "type": kind, "data": data}
    return json.dumps(event | envelope).encode()


def projected(kind: str, data: dict[str, Any], **envelope: Any) -> dict[str, Any] | None:
    """Return the event as the client gets it; assert that it fits Hankweave's schema."""
    frame = reference.convert(line(kind, data, **envelope))
    if frame is None:
        return None

    assert faults_of(frame) == []
    event: dict[str, Any] = json.loads(frame)
    return event


def payload(kind: str, data: dict[str, Any], **envelope: Any) -> dict[str, Any]:
    event = projected(kind, data, **envelope)
    assert event is not None
    return dict(event["data"])


@pytest.mark.parametrize("member", EVENTS.members.values(), ids=lambda member: member.TYPE)
@often_enough
@given(data=st.data())
def test_whatever_stands_in_an_event_the_client_gets_nothing_that_it_cannot_parse(
    member: type[EventData], data: st.DataObject
) -> None:
    """Any event becomes one that fits Hankweave's schema, or none.

    This holds for any value of each event type; projecting a projected event changes nothing.
    """
    event = Event(
        id=data.draw(texts),
        seq=EventSeq(1),
        timestamp=NOON,
        type=member.TYPE,
        data=data.draw(values_of(member)),
        run_id=RunId("1736000000000-abc"),
    )
    frame = reference.project(codec.encode(event))
    if frame is not None:
        assert faults_of(frame) == []
        assert reference.project(frame) == frame


def test_the_two_tables_name_the_same_types() -> None:
    """The server's shapes and the validator, written independently, know the same events."""
    assert DATA.keys() | {"history.batch"} == reference.TYPES


@pytest.mark.parametrize("member", sorted(set(EVENTS.names) - reference.TYPES))
def test_an_event_type_of_ours_is_dropped_or_converted_to_one_of_hankweave(member: str) -> None:
    """No event that Hankweave lacks is sent under its own name."""
    said_otherwise = {"rollback.failed": "error", "server.degraded": "error"}
    said_otherwise["server.recovered"] = "info"
    data = {"message": "no room", "code": "DISK_FULL", "target": {}, "since": NOON}
    event = projected(member, data)
    assert (None if event is None else event["type"]) == said_otherwise.get(member)


def test_an_event_type_that_is_added_later_is_dropped() -> None:
    """The table is an allow-list: a type that is not in it is not sent."""
    assert projected("codon.invented", {"codonId": "one"}) is None


def test_a_client_gets_the_four_fields_of_the_envelope_and_no_field_of_ours() -> None:
    """`seq`, `causes` and added fields of a payload are for clients with `protocolVersion`."""
    data = {
        "codonId": "one",
        "success": False,
        "cost": 0.5,
        "duration": 10,
        "exitStatus": {"type": "error", "code": 1},
        "skipped": True,
        "condition": "x == 1",
        "failureReason": {"type": "check-failed", "retriable": False},
    }
    event = projected("codon.completed", data, causes=[1], runId="r", codonId="one")
    assert event == {
        "id": "e1",
        "timestamp": NOON,
        "type": "codon.completed",
        "data": {
            "codonId": "one",
            "success": False,
            "cost": 0.5,
            "duration": 10,
            "exitStatus": {"type": "error", "code": 1},
            "failureReason": {"type": "unknown", "retriable": False},
        },
    }


def test_a_codon_is_extended_with_its_four_counts_of_tokens() -> None:
    """Hankweave's `cumulativeTokens` is an object; an old journal has only the sum."""
    counts = {
        "inputTokens": 3,
        "outputTokens": 4,
        "cacheCreationTokens": 5,
        "cacheReadTokens": 6,
    }
    extended = {
        "codonId": "one",
        "codonName": "One",
        "extensionNumber": 1,
        "exhaustWithPrompt": "go on",
        "cumulativeTokens": 7,
        "cumulativeCost": 0.1,
    }
    assert payload("codon.extended", extended | {"tokens": counts})["cumulativeTokens"] == counts
    assert payload("codon.extended", extended)["cumulativeTokens"]["inputTokens"] == 7


def test_files_in_the_tree_have_a_date_and_folders_have_none() -> None:
    """A file of an old journal, which has no date, gets that of the event."""
    file = {"name": "a", "path": "b/a", "isDirectory": False, "children": []}
    dated = file | {"name": "c", "path": "b/c", "lastModified": "2024-01-01T00:00:00.000Z"}
    folder = {"name": "b", "path": "b", "isDirectory": True, "children": [file, dated]}
    (shown,) = payload("filetree.updated", {"tree": [folder], "omitted": 3})["tree"]
    assert "lastModified" not in shown
    assert [each["lastModified"] for each in shown["children"]] == [NOON, dated["lastModified"]]


@pytest.mark.parametrize(
    ("source", "action", "is_projected"),
    [
        ({"kind": "tool_use", "toolUseId": "t1"}, "modified", True),
        ({"kind": "codon-start"}, "created", True),
        ({"kind": "tool_use"}, "modified", False),
        ({"kind": "tool_use", "toolUseId": "t1"}, "deleted", False),
        ({"kind": "codon-end"}, "modified", False),
        ({"kind": "rig"}, "created", False),
        ({"kind": "person"}, "modified", False),
        ({"kind": "archive"}, "deleted", False),
        ({"kind": "rollback"}, "modified", False),
    ],
)
def test_file_changes_are_published_where_hankweave_publishes_them(
    source: dict[str, str], action: str, is_projected: bool
) -> None:
    """Files that a call wrote, and files that exist when a codon starts, are reported."""
    data = {
        "path": "a.txt",
        "filename": "a.txt",
        "action": action,
        "sha256": "" if action == "deleted" else "0" * 64,
        "bytes": 0,
        "source": source,
        "codonId": "one",
    }
    assert (projected("file.updated", data) is not None) == is_projected


def test_a_created_link_is_not_published() -> None:
    """A link has no checksum, and neither has a file that was gone before it could be read."""
    link = {"path": "a", "filename": "a", "action": "created", "sha256": "", "bytes": 4}
    assert projected("file.updated", {**link, "source": {"kind": "codon-start"}}) is None


@pytest.mark.parametrize("reason", ["codon-failed", "stopped"])
def test_idling_for_a_reason_of_ours_is_not_published(reason: str) -> None:
    """Hankweave reports a failed codon by `codon.completed`, and a stop by `info`."""
    assert projected("server.idle", {"reason": reason, "message": "x"}) is None
    idle = {"reason": "codon-completed", "message": "x"}
    assert payload("server.idle", idle) == idle


@pytest.mark.parametrize("kind", ["PlanSet", "TimeTravelled", "AgentTold", "EditsNoticed"])
def test_a_transition_of_ours_is_dropped(kind: str) -> None:
    """Hankweave has fourteen."""
    data = {
        "transitionType": kind,
        "transition": {"type": kind, "data": {}},
        "resultingState": {
            "currentRunId": None,
            "runCount": 0,
            "totalCost": 0,
            "currentRunCost": 0,
        },
    }
    assert projected("state.transition", data) is None
    run_completed = data | {"transitionType": "RunCompleted"}
    assert payload("state.transition", run_completed)["resultingState"]["currentRunId"] is None


def test_a_list_of_checkpoints_has_the_kinds_that_hankweave_knows() -> None:
    """Each belongs to a codon in a known state; run and branch are never null."""
    item = {
        "codonId": "one",
        "codonName": "One",
        "checkpointType": "completed",
        "sha": "f" * 40,
        "status": "completed",
        "timestamp": NOON,
        "label": "done",
        "coordinate": {"seq": 1},
    }
    ours = item | {"checkpointType": "safety", "codonId": None, "status": None}
    data = {"runId": None, "checkpoints": [ours, item], "currentBranch": None}
    listed = payload("checkpoint.list", data, runId="r1")
    assert (listed["runId"], listed["currentBranch"]) == ("r1", "run-r1")
    assert [each["checkpointType"] for each in listed["checkpoints"]] == ["completed"]
    assert "label" not in listed["checkpoints"][0]


def test_a_rollback_to_the_beginning_goes_by_its_checkpoint() -> None:
    """No codon has run there, and Hankweave's ids are strings."""
    started = {
        "fromRun": "r1",
        "fromCodon": None,
        "toCodon": None,
        "toCheckpoint": "f" * 40,
        "checkpointType": "initial",
        "codonsToProcess": [],
    }
    data = payload("rollback.started", started)
    assert (data["fromCodon"], data["toCodon"]) == ("", "initial")
    completed = {
        "fromRun": "r1",
        "toRun": "r2",
        "checkpoint": "f" * 40,
        "codonId": None,
        "codonName": "Before any codon",
        "checkpointType": "initial",
        "autoRestart": False,
    }
    assert payload("rollback.completed", completed)["codonId"] == "initial"


def test_unrepresentable_events_are_converted_or_left_out() -> None:
    """Content that Hankweave cannot express is converted or left out.

    A sentinel's list is sent as text. Unexpected model usage, the end of a loop, and a reason that
    Hankweave lacks are left out.
    """
    output = {
        "sentinelId": "s",
        "codonId": "one",
        "triggerNumber": 1,
        "outputType": "structured",
        "content": ["a", "b"],
        "cost": 0,
        "tokens": {"input": 1, "output": 2},
        "eventCount": 1,
    }
    assert payload("sentinel.output", output)["content"] == '["a", "b"]'
    usage = {
        "codonId": "one",
        "inputTokens": 1,
        "outputTokens": 1,
        "cacheCreationTokens": 0,
        "cacheReadTokens": 0,
        "totalCost": 0,
        "modelUsage": {"m": {"inputTokens": 1}},
        "final": True,
    }
    assert payload("token.usage", usage).keys() == usage.keys() - {"modelUsage", "final"}
    good = {"m": {"inputTokens": 1, "outputTokens": 2, "costUSD": 0.1, "webSearchRequests": 0}}
    kept = payload("token.usage", usage | {"modelUsage": good})["modelUsage"]["m"]
    assert kept == {"inputTokens": 1, "outputTokens": 2, "costUSD": 0.1}
    iteration = {
        "loopId": "l",
        "iteration": 0,
        "durationMs": 1,
        "costUsd": 0,
        "tokensUsed": 0,
        "isFinal": True,
        "terminationReason": "budget_exceeded",
    }
    assert "terminationReason" not in payload("loop.iteration.completed", iteration)


def test_a_batch_of_history_holds_only_what_the_client_may_get() -> None:
    """A batch's events are projected as live ones are."""
    events = [
        json.loads(line("info", {"message": "a"})),
        json.loads(line("server.started", {"serverVersion": "1", "pid": 1})),
    ]
    batch = payload("history.batch", {"events": events, "hasMore": False})
    assert [each["type"] for each in batch["events"]] == ["info"]
    assert "seq" not in batch["events"][0]


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        ({"type": "codon.retrying", "data": {}}, "no event type"),
        ({"type": "info", "data": {}}, "message is missing"),
        ({"type": "info", "data": {"message": None}}, "is no string"),
        ({"type": "info", "data": {"message": "a", "code": "b"}}, "not in the schema"),
        ({"type": "info", "data": {"message": "a"}, "seq": 1}, "not in the schema"),
        ({"type": "server.idle", "data": {"reason": "stopped", "message": ""}}, "none of"),
    ],
)
def test_the_validator_finds_each_kind_of_fault(frame: dict[str, Any], fault: str) -> None:
    """Unknown types, missing, null or unknown fields, and bad enumeration values are found."""
    found = faults_of(json.dumps({"id": "e", "timestamp": NOON} | frame))
    assert any(fault in each for each in found), found
