"""Projection of events to the schemas of Hankweave 0.12, for clients written for it.

A client that sends no `protocolVersion` parses each event with Hankweave's schemas and drops what
does not fit. `project` turns a line of the journal (or an event frame) into the frame for such a
client, or into None. Everything is an allow-list: a type without a shape, a field that a shape
does not name and a value that it does not allow never leave the server, so an event type that is
added later stays invisible to these clients until it is entered here.

Two tables do the work. `_ADAPTERS` rewrites the payloads that need it (a node of the file tree gets
the date that Hankweave requires) and drops what Hankweave cannot express; `SHAPES` lists the fields
to send, and checks them. The envelope keeps Hankweave's four fields. Projecting twice changes
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, get_args

import msgspec

from hankweave_protocol import reference_shapes as shapes
from hankweave_protocol.shapes import Value

TYPES = frozenset(shapes.SHAPES)
"""The event types that such a client can receive."""

LISTED_KINDS: tuple[shapes.ListedKind, ...] = get_args(shapes.ListedKind)
"""The checkpoints that Hankweave lists."""

Payload = dict[str, Any]


class Unrepresentable(ValueError):
    """An event has one of Hankweave's types, but does not fit its schema."""


class _Line(Value, kw_only=True):
    """An event of the journal; the payload stays encoded until it is needed."""

    id: str
    timestamp: str
    type: str
    data: msgspec.Raw
    run_id: str | None = None


class _Frame(Value):
    """An event frame of Hankweave."""

    id: str
    timestamp: str
    type: str
    data: Value


Adapted = Payload | tuple[str, Payload] | None
"""A payload, a payload with another type, or None if the client receives nothing."""


def project(line: bytes) -> bytes | None:
    """Return the frame for a client of Hankweave, or None if it receives none."""
    try:
        return convert(line)
    except Unrepresentable:
        return None


def convert(line: bytes) -> bytes | None:
    """Do the same, but raise Unrepresentable if a known type does not fit its shape."""
    event = _line_decoder.decode(line)
    shape = shapes.SHAPES.get(event.type)
    adapter = _ADAPTERS.get(event.type)
    try:
        if adapter is None:
            return None if shape is None else _framed(event, event.type, _decode(event.data, shape))

        adapted = adapter(msgspec.json.decode(event.data), event)
        if adapted is None:
            return None

        kind, payload = adapted if isinstance(adapted, tuple) else (event.type, adapted)
        return _framed(event, kind, msgspec.convert(payload, shapes.SHAPES[kind]))
    except (msgspec.ValidationError, LookupError, TypeError, AttributeError) as error:
        raise Unrepresentable(f"{event.type}: {error}") from error


def project_all(lines: Iterable[bytes]) -> list[bytes]:
    """Return the frames of several lines, in their order."""
    return [frame for line in lines if (frame := project(line)) is not None]


_line_decoder = msgspec.json.Decoder(_Line)
_encoder = msgspec.json.Encoder()
_decoders = {shape: msgspec.json.Decoder(shape) for shape in shapes.SHAPES.values()}


def _decode(data: msgspec.Raw, shape: type[Value]) -> Value:
    return _decoders[shape].decode(data)


def _framed(event: _Line, kind: str, data: Value) -> bytes:
    return _encoder.encode(_Frame(id=event.id, timestamp=event.timestamp, type=kind, data=data))


# --- adapters -------------------------------------------------------------------------------------


def _server_ready(data: Payload, event: _Line) -> Adapted:
    return data | {"dataPath": data.get("dataPath") or ""}


def _server_idle(data: Payload, event: _Line) -> Adapted:
    """Drop the event after a failed or stopped codon, for which Hankweave sends none."""
    return data if data["reason"] in get_args(shapes.IdleReason) else None


def _server_degraded(data: Payload, event: _Line) -> Adapted:
    problem = {"message": data["message"], "code": data["code"]}
    return "error", problem | {"fatal": False, "severity": "warning"}


def _server_recovered(data: Payload, event: _Line) -> Adapted:
    return "info", {"message": data["message"]}


def _state_snapshot(data: Payload, event: _Line) -> Adapted:
    """Send an empty tree, as Hankweave does.

    `recentFileAccess` is omitted: its schema requires a `Date` object, which JSON cannot hold.
    """
    current = data.get("currentCodon")
    return data | {
        "fileTree": [],
        "currentCodon": None if current is None else _execution(current),
        "completedCodons": [_execution(codon) for codon in data["completedCodons"]],
    }


def _execution(codon: Payload) -> Payload:
    reason = codon.get("failureReason")
    return codon | {"failureReason": _failure(reason)} if reason else codon


def _failure(reason: Payload) -> Payload:
    """Report a failed check, which Hankweave does not have, as a failure of unknown type."""
    known = reason["type"] in get_args(shapes.FailureType)
    return reason if known else reason | {"type": "unknown"}


def _state_transition(data: Payload, event: _Line) -> Adapted:
    return data if data["transitionType"] in get_args(shapes.TransitionType) else None


def _codon_completed(data: Payload, event: _Line) -> Adapted:
    reason = data.get("failureReason")
    return data | {"failureReason": _failure(reason)} if reason else data


def _codon_extended(data: Payload, event: _Line) -> Adapted:
    """Replace the sum of all tokens by the four counts.

    A journal of an earlier version has only the sum, which is reported as input tokens.
    """
    tokens = data["cumulativeTokens"]
    if isinstance(tokens, dict):
        return data

    counts = data.get("tokens") or {
        "inputTokens": tokens,
        "outputTokens": 0,
        "cacheCreationTokens": 0,
        "cacheReadTokens": 0,
    }
    return data | {"cumulativeTokens": counts}


def _token_usage(data: Payload, event: _Line) -> Adapted:
    """Drop an agent's own usage by model unless it fits Hankweave's schema."""
    try:
        msgspec.convert(data.get("modelUsage"), dict[str, shapes.ModelUsage] | None)
    except msgspec.ValidationError:
        return data | {"modelUsage": None}

    return data


def _file_updated(data: Payload, event: _Line) -> Adapted:
    """Keep events about files that tools wrote or that existed at a codon's start.

    Hankweave sends none for deletions, for files that no longer exist and links (which have no
    checksum), and for rigs, people and the archive; the next `filetree.updated` shows them.
    """
    source = data["source"]
    by_tool = source["kind"] == "tool_use" and source.get("toolUseId")
    is_file = data["action"] != "deleted" and data["sha256"]
    if not is_file or not (by_tool or source["kind"] == "codon-start"):
        return None

    return data


def _filetree_updated(data: Payload, event: _Line) -> Adapted:
    """Give files without a date, as in journals of earlier versions, that of the event."""
    return {"tree": [_node(node, event.timestamp) for node in data["tree"]]}


def _node(node: Payload, timestamp: str) -> Payload:
    if not node["isDirectory"]:
        return {"lastModified": timestamp} | node | {"children": []}

    children = [_node(child, timestamp) for child in node["children"]]
    return node | {"children": children, "lastModified": None}


def _loop_iteration_completed(data: Payload, event: _Line) -> Adapted:
    known = data.get("terminationReason") in get_args(shapes.LoopEnd)
    return data if known else data | {"terminationReason": None}


def _sentinel_error(data: Payload, event: _Line) -> Adapted:
    """Drop reports of dropped triggers, which Hankweave only logs."""
    return data if data["errorType"] in get_args(shapes.SentinelErrorType) else None


def _sentinel_output(data: Payload, event: _Line) -> Adapted:
    """Encode a list as text, because Hankweave's schema does not allow lists."""
    content = data["content"]
    return data | {"content": json.dumps(content)} if isinstance(content, list) else data


def _checkpoint_list(data: Payload, event: _Line) -> Adapted:
    """Keep the kinds that Hankweave lists; each belongs to a codon with a known status."""
    known = [
        item
        for item in data["checkpoints"]
        if item["checkpointType"] in get_args(shapes.ListedKind)
        and item.get("codonId") is not None
        and item.get("status") is not None
    ]
    run_id = data.get("runId") or event.run_id
    branch = data.get("currentBranch") or f"run-{run_id}"
    return data | {"checkpoints": known, "runId": run_id, "currentBranch": branch}


def _rollback_started(data: Payload, event: _Line) -> Adapted:
    """Use the checkpoint's kind as the codon if the target is before the first codon."""
    return data | {
        "fromCodon": data.get("fromCodon") or "",
        "toCodon": data.get("toCodon") or data["checkpointType"],
    }


def _rollback_to_a_codon(data: Payload, event: _Line) -> Adapted:
    return data | {"codonId": data.get("codonId") or data["checkpointType"]}


def _rollback_failed(data: Payload, event: _Line) -> Adapted:
    message = f"Rollback failed: {data['message']}"
    return "error", {"message": message, "fatal": False, "severity": "operation"}


def _history_batch(data: Payload, event: _Line) -> Adapted:
    events = project_all(_encoder.encode(each) for each in data["events"])
    return data | {"events": [msgspec.json.decode(each) for each in events]}


def _incomplete_codon(data: Payload, event: _Line) -> Adapted:
    message = f"Codon {data['codonName']} did not come to its end: it is {data.get('status')}."
    return {"message": message} | data


_ADAPTERS: dict[str, Callable[[Payload, _Line], Adapted]] = {
    "checkpoint.list": _checkpoint_list,
    "codon.completed": _codon_completed,
    "codon.extended": _codon_extended,
    "file.updated": _file_updated,
    "filetree.updated": _filetree_updated,
    "history.batch": _history_batch,
    "incomplete.codon": _incomplete_codon,
    "loop.iteration.completed": _loop_iteration_completed,
    "rollback.codonCheckpoint": _rollback_to_a_codon,
    "rollback.completed": _rollback_to_a_codon,
    "rollback.failed": _rollback_failed,
    "rollback.started": _rollback_started,
    "sentinel.error": _sentinel_error,
    "sentinel.output": _sentinel_output,
    "server.degraded": _server_degraded,
    "server.idle": _server_idle,
    "server.ready": _server_ready,
    "server.recovered": _server_recovered,
    "state.snapshot": _state_snapshot,
    "state.transition": _state_transition,
    "token.usage": _token_usage,
}
