"""The wire as TypeScript types: one file of declarations, to be copied into a client.

Interfaces have the names of the Python shapes. Frames are unions discriminated by `type`, states of
a codon by `status`; four maps (`Commands`, `Replies`, `Events`, `Transitions`) lead from a type to
its data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from textwrap import wrap

from codegen import catalogue
from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.events import EVENTS
from hankweave_protocol.schema import Schema
from hankweave_protocol.shapes import Typed, Value
from hankweave_protocol.transitions import TRANSITIONS

WIDTH = 100
_PLAIN_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_ENVELOPES = {"AnyEvent", "Command", "CommandSucceeded", "Event", "Transition"}
"""Written by hand in `_FRAMES`, generic in their `type`."""

_HEADER = """\
// The wire format and files of Hankweave, generated from the types of the protocol by
// `scripts/export-schema --update`. It has no imports: copy it to where you need it.
//
// Fields with a default value may be omitted, so they are `?` here. A newer server may send events,
// fields and values that are not listed here: ignore or preserve them.
"""

_FRAMES = """\
/** A frame from a client. */
export type ClientFrame = Handshake | AnyCommand;

/** A frame from a server, discriminated by `type`. */
export type ServerFrame = HandshakeResponse | AnyReply | CommandFailed | AnyEvent;

export type CommandType = keyof Commands;

/** A command; `data` may be omitted if it is empty. */
export type CommandOf<T extends CommandType> = { id: string; type: T } & ({} extends Commands[T]
  ? { data?: Commands[T] }
  : { data: Commands[T] });

export type AnyCommand = { [T in CommandType]: CommandOf<T> }[CommandType];

/** The reply to a command that succeeded. */
export interface ReplyTo<T extends CommandType> {
  type: "command.succeeded";
  /** The id of the command. */
  inReplyTo: string;
  timestamp: string;
  data: Replies[T];
}

export type AnyReply = { [T in CommandType]: ReplyTo<T> }[CommandType];

export type EventType = keyof Events;

/** An event, on the wire and in the journal. */
export interface EventOf<T extends EventType> {
  /** A UUID. */
  id: string;
  /** The position in the journal; absent if the event is for one client only. */
  seq?: number;
  /** UTC, milliseconds, `Z`. */
  timestamp: string;
  type: T;
  data: Events[T];
  runId?: string;
  codonId?: string;
  /** Seqs of the events, or the id of the command, that caused this one. */
  causes?: (number | string)[];
}

export type AnyEvent = { [T in EventType]: EventOf<T> }[EventType];

export type TransitionType = keyof Transitions;

/** One change of the state; state.json is the fold of all of these. */
export interface TransitionOf<T extends TransitionType> {
  type: T;
  data: Transitions[T];
}

export type Transition = { [T in TransitionType]: TransitionOf<T> }[TransitionType];
"""


def typescript() -> str:
    """Return the whole file; the same shapes produce the same text."""
    commands = COMMANDS.members.values()
    answers = [(member.TYPE, member.REPLY) for member in commands]
    parts = [
        _HEADER,
        _FRAMES,
        _map("Commands", "The data of each command.", _by_type(commands)),
        _map("Replies", "The data of the reply to each command.", answers),
        _map("Events", "The data of each event.", _by_type(EVENTS.members.values())),
        _map("Transitions", "The data of each transition.", _by_type(TRANSITIONS.members.values())),
        *(_shape(name, schema) for name, schema in catalogue.shapes().items()),
    ]
    return "\n".join(part for part in parts if part)


def _by_type(members: Iterable[type[Typed]]) -> list[tuple[str, type]]:
    return [(member.TYPE, member) for member in members]


def _map(name: str, text: str, entries: Iterable[tuple[str, type | None]]) -> str:
    lines = [
        f"  {json.dumps(key)}: {'null' if shape is None else shape.__name__};\n"
        for key, shape in entries
    ]
    return f"/** {text} */\nexport interface {name} {{\n{''.join(lines)}}}\n"


def _shape(name: str, schema: Schema) -> str:
    if name in _ENVELOPES:
        return ""

    text = _comment(schema.get("description", ""), "")
    if "properties" not in schema:
        return f"{text}{_union(name, schema)}"

    body = "".join(_fields(schema, "  ", is_whole=name in _written_whole()))
    return f"{text}export interface {name} {{\n{body}}}\n" if body else _empty(name, text)


def _empty(name: str, text: str) -> str:
    return f"{text}export type {name} = Record<string, never>;\n"


def _union(name: str, schema: Schema) -> str:
    line = f"export type {name} = {_type(schema)};\n"
    if len(line) <= WIDTH:
        return line

    options = _type(schema).split(" | ")
    return f"export type {name} =\n" + "".join(f"  | {option}\n" for option in options)[:-1] + ";\n"


def _written_whole() -> frozenset[str]:
    """Return the shapes of which every field is written, also if it is null."""
    kinds, found = [Value], set[str]()
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if not kind.__struct_config__.omit_defaults:
            found.add(kind.__name__)

    return frozenset(found)


def _fields(schema: Schema, indent: str, *, is_whole: bool = False) -> Iterator[str]:
    """Yield the fields of a shape; `is_whole` is as in `_written_whole`."""
    required = schema.get("required", [])
    for name, field in schema["properties"].items():
        kind = _type(field)
        if name not in required and not is_whole:
            # A field whose default is null is never written as null.
            name, kind = f"{_key(name)}?", kind.removesuffix(" | null")
        else:
            name = _key(name)

        yield f"{_comment(field.get('description', ''), indent)}{indent}{name}: {kind};\n"


def _key(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)


def _comment(text: str, indent: str) -> str:
    if not text:
        return ""

    text = text.replace("*/", "* /")
    one_line = f"{indent}/** {' '.join(text.split())} */\n"
    if len(one_line) <= WIDTH:
        return one_line

    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    start = f"{indent} * "
    filled = [
        wrap(part, WIDTH, initial_indent=start, subsequent_indent=start) for part in paragraphs
    ]
    lines = f"\n{start.rstrip()}\n".join("\n".join(lines) for lines in filled)
    return f"{indent}/**\n{lines}\n{indent} */\n"


# --- types --------------------------------------------------------------------------------------


def _type(schema: Schema) -> str:
    """Return one schema as a type."""
    for key, written in _WRITERS.items():
        if key in schema:
            return written(schema)

    return "unknown"


def _options(schemas: Iterable[Schema]) -> str:
    written = dict.fromkeys(_type(schema) for schema in schemas)
    return " | ".join(sorted(written, key="null".__eq__))


def _of_kind(schema: Schema) -> str:
    match schema["type"]:
        case "array":
            item = _type(schema.get("items", {}))
            return f"({item})[]" if " | " in item else f"{item}[]"
        case "object":
            return _object(schema)
        case "integer":
            return "number"
        case str(kind):
            return kind
        case kind:
            raise ValueError(f"{kind!r} is not a type that the shapes have")


def _object(schema: Schema) -> str:
    values = schema.get("additionalProperties", {})
    return f"Record<string, {_type(values)}>"


_WRITERS: dict[str, Callable[[Schema], str]] = {
    "$ref": catalogue.shape_name,
    "const": lambda schema: json.dumps(schema["const"]),
    "enum": lambda schema: " | ".join(map(json.dumps, schema["enum"])),
    "anyOf": lambda schema: _options(schema["anyOf"]),
    "type": _of_kind,
}
"""By the key of the schema that decides; the first that matches is used."""
