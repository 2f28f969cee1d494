"""Read what the journal has only in part: whole results of tools, from the log of their agent.

A result stands in the log as a block of a `user` message, below the id of its call. An agent may
use an id again in its next conversation, so of several the one is taken that begins as the journal
says.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from hankweave_protocol.commands import CodonReadResult
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import ToolResult
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.replies import ToolImage, ToolOutput
from hankweave_server.agents.stream_json import (
    Object,
    as_object,
    as_objects,
    as_text,
    flattened,
    object_in,
)
from hankweave_server.paths import Layout

AT = "$.data.seq"


class _Told(msgspec.Struct, rename="camel"):
    """The fields of a journal line that say where a result is."""

    type: str
    data: msgspec.Raw
    run_id: RunId | None = None
    codon_id: CodonId | None = None


def whole_result(layout: Layout, line: bytes, command: CodonReadResult) -> ToolOutput:
    """Return a range of the result that a journal line tells of; raise Refused."""
    told = msgspec.json.decode(line, type=_Told)
    if told.type != ToolResult.TYPE or told.run_id is None:
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            f"Event {command.seq} is no result of a tool; it is a {told.type}.",
            path=AT,
            hint="Name the event that has the result of a tool.",
        )

    result = msgspec.json.decode(told.data, type=ToolResult)
    content = _content(layout.agent_log(told.run_id, result.codon_id), result)
    if content is None:
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            f"The agent's log does not have the whole result of event {command.seq}.",
            path=AT,
            hint="The event has the beginning of it.",
        )

    images = tuple(_images(content))
    text = flattened(_without_images(content))
    end = command.offset + command.length
    return ToolOutput(
        content=text[command.offset : end],
        size=len(text),
        offset=command.offset,
        next_offset=end if end < len(text) else None,
        images=images if command.offset == 0 else (),
    )


def _content(log: Path, result: ToolResult) -> object:
    """Return the content of the block; None if the log has none."""
    beginning = result.result.removesuffix("...") if result.truncated else result.result
    found: object = None
    try:
        for content in _contents(log, result.tool_use_id):
            found = content
            if flattened(content).startswith(beginning):
                break
    except FileNotFoundError:
        return None  # A branch has the events of its parent, and not the logs.

    return found


def _contents(log: Path, tool_use_id: str) -> Iterator[object]:
    """Yield the contents of all results of calls with this id, in the order of the log."""
    needle = msgspec.json.encode(tool_use_id)
    descriptor = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        for line in file:
            if needle in line:
                yield from _results(object_in(line), tool_use_id)


def _results(entry: Object, tool_use_id: str) -> Iterator[object]:
    blocks = entry.get("content") or as_object(entry.get("message")).get("content")
    for block in as_objects(blocks):
        if block.get("type") == "tool_result" and block.get("tool_use_id") == tool_use_id:
            yield block.get("content")


def _is_image(block: Object) -> bool:
    return block.get("type") == "image"


def _without_images(content: object) -> object:
    if not isinstance(content, list):
        return content

    return [each for each in content if not _is_image(as_object(each))]


def _images(content: object) -> Iterable[ToolImage]:
    for block in as_objects(content):
        source = as_object(block.get("source"))
        if _is_image(block) and source.get("type") == "base64":
            yield ToolImage(
                media_type=as_text(source.get("media_type")), data=as_text(source.get("data"))
            )
