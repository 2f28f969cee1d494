"""The whole wire as schemas: every frame, and every shape that a frame or file is made of.

`hankweave_protocol.asyncapi` and `hankweave_protocol.typescript` write it down for others. It is
made from the shapes themselves; only what they keep encoded (`msgspec.Raw`) is filled in here.
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
    hank,
    records,
    replies,
    state,
)
from hankweave_protocol.commands import COMMANDS, CommandData
from hankweave_protocol.events import EVENTS, EventData
from hankweave_protocol.replies import ANSWERS
from hankweave_protocol.schema import Schema, components
from hankweave_protocol.shapes import Typed
from hankweave_protocol.transitions import TRANSITIONS

REFERENCE = "#/components/schemas/{name}"

_SOURCE = re.compile(r" \((?:DESIGN|seed) [^()]*\)")
"""Where an idea is from: of interest to readers of the source alone."""

_MODULES = (hank, records, state, events, replies, commands)
_FRAMES = (
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
    "branch.intent": records.BranchIntent,
    "archive-manifest.json": records.ArchiveManifest,
    "archive.intent": records.ArchiveIntent,
    "aftermath.intent": records.AftermathIntent,
}
"""The files of an execution directory, beside its journal, that a program may want to read."""


def ref(name: str) -> Schema:
    return {"$ref": REFERENCE.format(name=name)}


def shape_name(schema: Schema) -> str:
    """Names what a reference means."""
    return str(schema["$ref"]).rpartition("/")[2]


def command_name(member: type[CommandData]) -> str:
    return f"command.{member.TYPE}"


def event_name(member: type[EventData]) -> str:
    return f"event.{member.TYPE}"


def reply_name(member: type[CommandData]) -> str:
    return f"reply.{member.TYPE}"


def frames() -> dict[str, Schema]:
    """Returns the schema of every frame by the name of its message, in the order of the page."""
    found = {"handshake": ref("Handshake"), "handshake.response": ref("HandshakeResponse")}
    found |= {command_name(member): _command(member) for member in COMMANDS.members.values()}
    found |= {reply_name(member): _reply(member) for member in COMMANDS.members.values()}
    found |= {"command.failed": ref("CommandFailed")}
    return found | {event_name(member): _event(member) for member in EVENTS.members.values()}


@cache
def shapes() -> dict[str, Schema]:
    """Returns by name every shape that frames and files are made of; not to be changed."""
    named = dict(_named_unions())
    kinds = [*_FRAMES, *FILES.values(), records.TrafficRecord, *ANSWERS.values()]
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
    answer = ANSWERS.get(member)
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
    """Says what stands where the shapes keep something as it came."""
    any_event = ref("AnyEvent")
    found["HandshakeResponseData"]["properties"]["eventHistory"]["items"] = any_event
    found["HistoryBatch"]["properties"]["events"]["items"] = any_event
    found["StateTransition"]["properties"]["transition"] = ref("Transition")
    for encoded in ("TransitionBody", "EventData", "CommandData"):
        del found[encoded]

    found["Transition"] = {"oneOf": [_typed(member) for member in TRANSITIONS.members.values()]}
    for envelope in ("Event", "Command"):
        found[envelope]["properties"]["data"] = {"type": "object"}

    found["Command"]["required"].remove("data")
    page = found["EventsPage"]["properties"]
    page["events"] = {**page["events"], "type": "array", "items": any_event}
    page["rows"] = {**page["rows"], "type": "array", "items": {"type": "object"}}
    for several in (page["events"], page["rows"]):
        several.pop("anyOf")


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
    """Finds what the source gives a name: sets of words, and unions of shapes."""
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
    """Tells unions of shapes, and of sets of words; one of texts and numbers is no idea of ours."""
    return get_origin(value) in (Union, UnionType) and all(
        get_origin(part) is Literal or hasattr(part, "__struct_fields__")
        for part in get_args(value)
    )


def _in_order(schema: Schema, union: Any) -> Schema:
    """Lists words as the source does, not by their letters."""
    if any("$ref" in option for option in schema.get("anyOf", ())):
        return {"anyOf": schema["anyOf"]}

    parts = get_args(union)
    words = [word for part in parts for word in (get_args(part) or (part,))]
    return {"type": "string", "enum": words}


def _with_names(schema: Any, aliases: dict[str, Schema]) -> Any:
    """Puts a name wherever the schema spells out what has one."""
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
    """Makes one set of words of several."""
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
