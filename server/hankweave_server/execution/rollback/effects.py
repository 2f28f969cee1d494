"""What reached outside the work tree: no rollback takes it back, so each that crosses it says so.

An agent marks such a tool call itself, or calls a tool of an MCP server, which lives elsewhere by
its nature (seed 004, "What it does NOT give you").
"""

from __future__ import annotations

import anyio
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.events import AssistantAction, Event
from hankweave_server.ledger.writer import Ledger

PAGE = 1000
"""Journal lines read in one go; other tasks have their turn between two."""

LISTED = 100
"""Effects named one by one; of more, only the number is said."""

_MARK = b'"external":true'
_ELSEWHERE = "mcp__"


def is_external(tool_name: str, tool_input: dict[str, object]) -> bool:
    """Tells whether a tool call reaches outside, as far as its name or the agent says."""
    return tool_name.startswith(_ELSEWHERE) or tool_input.get("external") is True


async def since(ledger: Ledger, seq: int) -> tuple[str, ...]:
    """Names the tool calls after a moment whose effects lie outside, oldest first."""
    found: list[str] = []
    at = seq
    while lines := ledger.history(at, PAGE):
        at += len(lines)
        found += [_named(line) for line in lines if _MARK in line]
        await anyio.lowlevel.checkpoint()

    if len(found) > LISTED:
        return (*found[:LISTED], f"and {len(found) - LISTED} more")

    return tuple(found)


def _named(line: bytes) -> str:
    try:
        event = codec.decode_event(line)
    except msgspec.MsgspecError:
        return "an event that cannot be read"

    return _described(event)


def _described(event: Event) -> str:
    if not isinstance(event.data, AssistantAction):
        return f"event {event.seq}"

    return f"{event.data.tool_name} of codon {event.data.codon_id} (event {event.seq})"
