"""The whole wire as schemas: every frame, and every shape that frames and files consist of.

The schemas are generated from the shapes; only fields that hold encoded JSON (`msgspec.Raw`) are
filled in here. `asyncapi` and `typescript` print them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from hankweave_protocol import (
    commands,
    events,
    executions,
    hank,
    records,
    replies,
    state,
)
from hankweave_protocol.commands import COMMANDS, CommandData
from hankweave_protocol.events import EVENTS, EventData
from hankweave_protocol.schema import Schema, components
from hankweave_protocol.shapes import Typed
from hankweave_protocol.transitions import TRANSITIONS

REFERENCE = "#/components/schemas/{name}"

_SOURCE = re.compile(r" \((?:DESIGN|seed) [^()]*\)")
"""References to design documents, which are for readers of the source only."""

_MODULES = (hank, records, state, events, executions, replies, commands)
FRAMES = (
    replies.Handshake,
    replies.HandshakeResponse,
    replies.CommandSucceeded,
    replies.CommandFailed,
    commands.Command,
    events.Event,
)
FILES: dict[str, type] = {
    "runtime.lock": records.RuntimeLock,
    "execution-meta.json": records.ExecutionMeta,
    "state.json": state.State,
    "rollback.intent": records.RollbackIntent,
    "prune.intent": records.PruneIntent,
    "redact.intent": records.RedactIntent,
    "redactions": records.RedactionRecord,
    "branch.intent": records.BranchIntent,
    "archive-manifest.json": records.ArchiveManifest,
    "archive.intent": records.ArchiveIntent,
    "aftermath.intent": records.AftermathIntent,
}
"""The files of an execution directory, besides its journal, that other programs read."""


def ref(name: str) -> Schema:
    return {"$ref": REFERENCE.format(name=name)}


def shape_name(schema: Schema) -> str:
    """Return the name of the shape that a reference points to."""
    return str(schema["$ref"]).rpartition("/")[2]


def references(part: Any) -> Iterator[str]:
    """Yield the target of each reference in a schema or a document."""
    match part:
        case {"$ref": str(target)}:
            yield target
        case dict():
            for inner in part.values():
                yield from references(inner)
        case list():
            for inner in part:
                yield from references(inner)
        case _:
            pass


def command_name(member: type[CommandData]) -> str:
    return f"command.{member.TYPE}"


def event_name(member: type[EventData]) -> str:
    return f"event.{member.TYPE}"


def reply_name(member: type[CommandData]) -> str:
    return f"reply.{member.TYPE}"


def frames() -> dict[str, Schema]:
    """Return the schema of every frame by the name of its message, in the order of the README."""
    found = {"handshake": ref("Handshake"), "handshake.response": ref("HandshakeResponse")}
    found |= {command_name(member): _command(member) for member in COMMANDS.members.values()}
    found |= {reply_name(member): _reply(member) for member in COMMANDS.members.values()}
    found |= {"command.failed": ref("CommandFailed")}
    return found | {event_name(member): _event(member) for member in EVENTS.members.values()}


@cache
def shapes() -> dict[str, Schema]:
    """Return every shape of frames and files by name; callers must not change the result."""
    named = dict(_named_unions())
    replied = (member.REPLY for member in COMMANDS.members.values())
    kinds = [*FRAMES, *FILES.values(), records.TrafficRecord, *filter(None, replied)]
    kinds += [*COMMANDS.members.values(), *EVENTS.members.values(), *TRANSITIONS.members.values()]
    schemas, found = components([*kinds, *named.values()], REFERENCE)
    unions = dict(zip(named, schemas[len(kinds) :], strict=True))
    aliases = {name: _in_order(union, named[name]) for name, union in unions.items()}
    found = {name: _with_names(schema, aliases) for name, schema in found.items()}
    _fill_in(found)
    _without_sources(list(found.values()))
    return dict(sorted({**found, **aliases, **_unions_of_frames()}.items()))


# --- frames -------------------------------------------------------------------------------------


def _command(member: type[CommandData]) -> Schema:
    data = ref(member.__name__)
    required = ["data"] if shapes()[member.__name__].get("required") else []
    return _frame("Command", {"type": {"const": member.TYPE}, "data": data}, required)


def _reply(member: type[CommandData]) -> Schema:
    answer = member.REPLY
    data = {"type": "null"} if answer is None else ref(answer.__name__)
    return _frame("CommandSucceeded", {"data": data}, ["data"])


def _event(member: type[EventData]) -> Schema:
    data = ref(member.__name__)
    return _frame("Event", {"type": {"const": member.TYPE}, "data": data}, ["data"])


def _frame(envelope: str, properties: Schema, required: list[str]) -> Schema:
    own = {"type": "object", "properties": properties, "required": required}
    return {"allOf": [ref(envelope), own]}


def _unions_of_frames() -> dict[str, Schema]:
    types = EVENTS.members.values()
    return {"AnyEvent": {"oneOf": [ref(event_name(member)) for member in types]}}


# --- shapes -------------------------------------------------------------------------------------


def _fill_in(found: dict[str, Schema]) -> None:
    """Describe the fields that hold encoded JSON."""
    any_event = ref("AnyEvent")
    found["HandshakeResponseData"]["properties"]["eventHistory"]["items"] = any_event
    found["HistoryBatch"]["properties"]["events"]["items"] = any_event
    found["StateTransition"]["properties"]["transition"].update(ref("Transition"))
    for encoded in ("TransitionBody", "EventData", "CommandData"):
        del found[encoded]

    found["Transition"] = {"oneOf": [_typed(member) for member in TRANSITIONS.members.values()]}
    for envelope in ("Event", "Command"):
        data = {"type": "object", "description": "The data of this type."}
        found[envelope]["properties"]["data"] = data

    found["Command"]["required"].remove("data")
    page = found["EventsPage"]["properties"]
    page["events"] = {**page["events"], "type": "array", "items": any_event}
    page["events"].pop("anyOf")


def _without_sources(schema: Any) -> None:
    match schema:
        case dict():
            if isinstance(text := schema.get("description"), str):
                schema["description"] = _SOURCE.sub("", text)

            _without_sources(list(schema.values()))
        case list():
            for part in schema:
                _without_sources(part)
        case _:
            pass


def _typed(member: type[Typed]) -> Schema:
    properties = {"type": {"const": member.TYPE}, "data": ref(member.__name__)}
    return {"type": "object", "properties": properties, "required": ["type", "data"]}


def _named_unions() -> Iterator[tuple[str, Any]]:
    """Yield the types that have a name in the source: string literals and unions of shapes."""
    for module in _MODULES:
        for name, value in _own_names(module):
            if get_origin(value) is Literal or _is_union(value):
                yield name, value


def _own_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    source = inspect.getsource(module)
    for name, value in vars(module).items():
        if not name.startswith("_") and f"\n{name} = " in source:
            yield name, value


def _is_union(value: Any) -> bool:
    """Return True for unions of shapes and of string literals, not for those of basic types."""
    return get_origin(value) in (Union, UnionType) and all(
        get_origin(part) is Literal or hasattr(part, "__struct_fields__")
        for part in get_args(value)
    )


def _in_order(schema: Schema, union: Any) -> Schema:
    """Return the schema of a union with its strings in source order, not sorted."""
    if any("$ref" in option for option in schema.get("anyOf", ())):
        return {"anyOf": schema["anyOf"]}

    parts = get_args(union)
    words = [word for part in parts for word in (get_args(part) or (part,))]
    return {"type": "string", "enum": words}


def _with_names(schema: Any, aliases: dict[str, Schema]) -> Any:
    """Replace inline definitions of named types by references."""
    match schema:
        case {"enum": list(words)}:
            rest = {key: part for key, part in schema.items() if key not in ("enum", "type")}
            named = [name for name, known in aliases.items() if _are_words_of(known, words)]
            return {**ref(named[0]), **rest} if named else schema
        case {"anyOf": list(options)}:
            rest = {key: part for key, part in schema.items() if key != "anyOf"}
            return _with_named_options(_together(options), rest, aliases)
        case dict():
            return {key: _with_names(part, aliases) for key, part in schema.items()}
        case list():
            return [_with_names(part, aliases) for part in schema]
        case _:
            return schema


def _are_words_of(alias: Schema, words: list[str]) -> bool:
    return set(alias.get("enum", ())) == set(words)


def _together(options: list[Schema]) -> list[Schema]:
    """Merge all string literals among the options into one enum."""
    words = [word for option in options for word in option.get("enum", ())]
    others = [option for option in options if "enum" not in option]
    return [{"enum": words}, *others] if words else others


def _with_named_options(options: list[Schema], rest: Schema, aliases: dict[str, Schema]) -> Schema:
    shapes_among = [option for option in options if "$ref" in option]
    others = [_with_names(option, aliases) for option in options if "$ref" not in option]
    for name, alias in aliases.items():
        if len(shapes_among) > 1 and alias.get("anyOf") == shapes_among:
            return {"anyOf": [ref(name), *others], **rest} if others else {**ref(name), **rest}

    named = [_with_names(option, aliases) for option in options]
    return {**named[0], **rest} if len(named) == 1 else {"anyOf": named, **rest}
