"""Print an export of the protocol: JSON Schemas, AsyncAPI, TypeScript.

`scripts/export-schema` runs it; with `--update` it writes the three files in protocol/.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from codegen.asyncapi import asyncapi
from codegen.typescript import typescript
from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.events import EVENTS
from hankweave_protocol.schema import DIALECT, Schema, components, hank_schema
from hankweave_protocol.shapes import Typed

WIDTH = 100


def events_schema() -> Schema:
    """Return the schema of the events in the journal and on the wire."""
    return _messages("An event of Hankweave", EVENTS.members.values(), ("id", "timestamp"))


def commands_schema() -> Schema:
    """Return the schema of the commands that a client sends."""
    return _messages("A command of Hankweave", COMMANDS.members.values(), ("id",))


def _messages(title: str, kinds: Iterable[type[Typed]], required: tuple[str, ...]) -> Schema:
    """Return the schema of a union whose members have `type` and `data`."""
    members = list(kinds)
    payloads, defs = components(members)
    return {
        "$schema": DIALECT,
        "title": title,
        "type": "object",
        "required": [*required, "type"],
        "properties": {"id": {"type": "string"}, "timestamp": {"type": "string"}},
        "oneOf": [
            {"properties": {"type": {"const": member.TYPE}, "data": payload}}
            for member, payload in zip(members, payloads, strict=True)
        ],
        "$defs": defs,
    }


def _as_json(make: Callable[[], dict[str, Any]]) -> Callable[[], str]:
    return lambda: json.dumps(make(), indent=2, ensure_ascii=False) + "\n"


def folded(value: Any, indent: str = "", before: int = 0) -> str:
    """Return JSON for people: a value that fits into the rest of a line is not broken.

    `before` is the number of characters before it on the line.
    """
    line = json.dumps(value, ensure_ascii=False)
    is_short = len(indent) + before + len(line) < WIDTH
    if is_short or not isinstance(value, dict | list) or not value:
        return line

    inner = indent + "  "
    parts = _entries(value, inner) if isinstance(value, dict) else _items(value, inner)
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{right}"


def _entries(value: dict[str, Any], indent: str) -> Iterator[str]:
    for key, part in value.items():
        name = f"{json.dumps(key, ensure_ascii=False)}: "
        yield name + folded(part, indent, len(name))


def _items(value: list[Any], indent: str) -> Iterator[str]:
    return (folded(part, indent) for part in value)


EXPORTS: dict[str, Callable[[], str]] = {
    "hank": _as_json(hank_schema),
    "events": _as_json(events_schema),
    "commands": _as_json(commands_schema),
    "asyncapi": lambda: folded(asyncapi()) + "\n",
    "typescript": typescript,
}


def main(arguments: list[str]) -> int:
    """Print the named export, by default the schema of hank.json; return the exit code."""
    name = arguments[0] if arguments else "hank"
    if name not in EXPORTS or len(arguments) > 1:
        sys.stderr.write(f"usage: export-schema [{'|'.join(EXPORTS)}]\n")
        return 2

    sys.stdout.buffer.write(EXPORTS[name]().encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
