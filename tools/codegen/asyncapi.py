"""The wire as an AsyncAPI 3 document, for tools that draw, mock or generate from one.

As AsyncAPI requires, it describes the server's side: the server *receives* a client's frames and
*sends* events; a reply belongs to the operation that requests it.
"""

from __future__ import annotations

from typing import Any

from codegen import catalogue
from codegen.catalogue import command_name, event_name, reply_name
from hankweave_protocol import PROTOCOL_VERSION
from hankweave_protocol.commands import COMMANDS, CommandData, ServerForceShutdown
from hankweave_protocol.events import EVENTS, EventData
from hankweave_protocol.schema import Schema
from hankweave_protocol.shapes import Typed

_CHANNEL = "#/channels/wire"
_ABOUT = """\
Each text frame is one JSON object, in both directions. The first frame of a client is a \
handshake; then it sends commands, and receives events in journal order and a reply to each \
command. protocol/README.md and docs/reference have the details, and describe the files."""
_LOOPBACK = """\
The port is in `.hankweave/runtime.lock` of the execution directory. The address without `/ws` \
works as well."""
_BEARER = "The content of `.hankweave/server.token`, or of `server.viewer-token` to read only."
_QUERY = "The same, for clients that only accept an address. It may be in the handshake instead."


def asyncapi() -> dict[str, Any]:
    """Return the whole document; the same shapes produce the same bytes."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Hankweave",
            "version": str(PROTOCOL_VERSION),
            "description": _ABOUT,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {"loopback": _server()},
        "channels": {"wire": _channel()},
        "operations": {"handshake": _handshake(), **_commands(), "events": _events()},
        "components": {
            "messages": _messages(),
            "schemas": _schemas(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": _BEARER},
                "query": {
                    "type": "httpApiKey",
                    "in": "query",
                    "name": "token",
                    "description": _QUERY,
                },
            },
        },
    }


def _server() -> dict[str, Any]:
    return {
        "host": "127.0.0.1:{port}",
        "protocol": "ws",
        "description": _LOOPBACK,
        "variables": {"port": {"description": "Chosen at each start, unless `--port` is given."}},
        "security": [
            {"$ref": "#/components/securitySchemes/bearer"},
            {"$ref": "#/components/securitySchemes/query"},
        ],
    }


def _channel() -> dict[str, Any]:
    query = {"type": "object", "properties": {"token": {"type": "string"}}}
    return {
        "address": "/ws",
        "description": "The socket of a client.",
        "messages": {
            name: {"$ref": f"#/components/messages/{name}"} for name in catalogue.frames()
        },
        "bindings": {"ws": {"method": "GET", "query": query}},
    }


# --- operations ---------------------------------------------------------------------------------


def _handshake() -> dict[str, Any]:
    return {
        "action": "receive",
        "channel": {"$ref": _CHANNEL},
        "summary": "Identify the client, and say from where on it wants events.",
        "messages": _of_channel("handshake"),
        "reply": _reply("handshake.response", "command.failed"),
    }


def _commands() -> dict[str, Any]:
    return {member.TYPE: _command(member) for member in COMMANDS.members.values()}


def _command(member: type[CommandData]) -> dict[str, Any]:
    answers = [reply_name(member), "command.failed"]
    if member is ServerForceShutdown:
        answers.remove(reply_name(member))

    return {
        "action": "receive",
        "channel": {"$ref": _CHANNEL},
        **_summary(member),
        "messages": _of_channel(command_name(member)),
        "reply": _reply(*answers),
        "x-changes": member.MUTATES,
        "x-during-rollback": member.DURING_ROLLBACK,
        **({"x-beyond": True} if member.BEYOND else {}),
    }


def _events() -> dict[str, Any]:
    names = [event_name(member) for member in EVENTS.members.values()]
    return {
        "action": "send",
        "channel": {"$ref": _CHANNEL},
        "summary": "The events, in journal order.",
        "messages": _of_channel(*names),
    }


def _reply(*names: str) -> dict[str, Any]:
    return {"channel": {"$ref": _CHANNEL}, "messages": _of_channel(*names)}


def _of_channel(*names: str) -> list[Schema]:
    return [{"$ref": f"{_CHANNEL}/messages/{name}"} for name in names]


# --- messages -----------------------------------------------------------------------------------


def _messages() -> dict[str, Any]:
    found = {name: _message(name, name) for name in catalogue.frames()}
    for member in COMMANDS.members.values():
        sent, answered = command_name(member), reply_name(member)
        found[sent] = _message(sent, member.TYPE, "$message.payload#/id", member)
        found[answered] = _message(answered, "command.succeeded", "$message.payload#/inReplyTo")

    found["command.failed"] = _message(
        "command.failed", "command.failed", "$message.payload#/inReplyTo"
    )
    for event in EVENTS.members.values():
        found[event_name(event)] = _event(event)

    return found


def _event(member: type[EventData]) -> dict[str, Any]:
    message = _message(event_name(member), member.TYPE, member=member)
    return {**message, "x-journaled": member.JOURNALED}


def _message(
    name: str, type_name: str, correlation: str | None = None, member: type[Typed] | None = None
) -> dict[str, Any]:
    """Describe one frame; all except the two of the handshake have a schema of the same name."""
    payload = catalogue.frames()[name]
    message: dict[str, Any] = {"name": type_name}
    if member is not None:
        message |= _summary(member)

    message["payload"] = payload if "$ref" in payload else catalogue.ref(name)
    if correlation is not None:
        message["correlationId"] = {"location": correlation}

    return message


def _summary(member: type[Typed]) -> dict[str, str]:
    """Return the first paragraph of a shape's docstring, if it has one."""
    text = catalogue.shapes()[member.__name__].get("description", "")
    paragraph = " ".join(text.split("\n\n")[0].split())
    return {"summary": paragraph} if paragraph else {}


# --- schemas ------------------------------------------------------------------------------------


def _schemas() -> dict[str, Schema]:
    frames = {name: frame for name, frame in catalogue.frames().items() if "$ref" not in frame}
    return {name: _as_draft_7(schema) for name, schema in (frames | catalogue.shapes()).items()}


def _as_draft_7(schema: Any) -> Any:
    """Preserve the siblings of a reference: Draft 7, which AsyncAPI uses, ignores them."""
    match schema:
        case {"$ref": str(target), **rest} if rest:
            return {**rest, "allOf": [{"$ref": target}]}
        case dict():
            return {key: _as_draft_7(part) for key, part in schema.items()}
        case list():
            return [_as_draft_7(part) for part in schema]
        case _:
            return schema
