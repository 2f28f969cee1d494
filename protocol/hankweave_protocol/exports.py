"""What others make clients and editors from, printed: schemas, AsyncAPI, TypeScript.

`scripts/export-schema` is the door to it; with `--update` it writes the three files that stand in
protocol/.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from hankweave_protocol.asyncapi import asyncapi
from hankweave_protocol.schema import commands_schema, events_schema, hank_schema
from hankweave_protocol.typescript import typescript

WIDTH = 100


def _as_json(make: Callable[[], dict[str, Any]]) -> Callable[[], str]:
    return lambda: json.dumps(make(), indent=2, ensure_ascii=False) + "\n"


def folded(value: Any, indent: str = "", before: int = 0) -> str:
    """Writes JSON for people: what fits into one line, behind what stands before it, is one."""
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
    """Prints what is named; without a name the schema of hank.json."""
    name = arguments[0] if arguments else "hank"
    if name not in EXPORTS or len(arguments) > 1:
        sys.stderr.write(f"usage: export-schema [{'|'.join(EXPORTS)}]\n")
        return 2

    sys.stdout.buffer.write(EXPORTS[name]().encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
