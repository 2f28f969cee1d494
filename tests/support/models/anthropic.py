"""Anthropic's messages, as Claude Code asks for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from support.models.dialect import Asked, Body, Message, Reply, Spoken, halves, new_id, text_in
from support.models.offered import Tool
from support.models.turns import Trouble

_STREAM = {"content-type": "text/event-stream; charset=utf-8"}
_JSON = {"content-type": "application/json"}

_TROUBLES = {
    Trouble.RATE_LIMIT: (
        429,
        "rate_limit_error",
        "This request would exceed your organization's rate limit of 50 requests per minute.",
    ),
    Trouble.OVERLOAD: (529, "overloaded_error", "Overloaded"),
    Trouble.BILLING: (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. "
        "Please go to Plans & Billing to upgrade or purchase credits.",
    ),
    Trouble.WRONG_KEY: (401, "authentication_error", "invalid x-api-key"),
    Trouble.CONTEXT_FULL: (
        400,
        "invalid_request_error",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ),
}


class Anthropic:
    name = "anthropic"

    def accepts(self, path: str) -> bool:
        return path.endswith("/v1/messages")

    def read(self, path: str, body: Body) -> Asked:
        messages = tuple(
            Message(message["role"], text_in(message["content"])) for message in body["messages"]
        )
        tools = tuple(Tool(t["name"], t.get("input_schema", {})) for t in body.get("tools", ()))
        return Asked(body["model"], messages, tools, body.get("stream", False))

    def answer(self, asked: Asked, spoken: Spoken) -> Reply:
        blocks = list(_blocks(spoken))
        if not asked.streams:
            return Reply(200, (json.dumps(_message(asked, spoken, blocks)).encode(),), _JSON)

        parts = tuple(_event(event) for event in _events(asked, spoken, blocks))
        return Reply(200, parts, _STREAM)

    def trouble(self, asked: Asked, trouble: Trouble) -> Reply | None:
        if trouble is Trouble.MALFORMED_STREAM:
            begun = _event({"type": "message_start", "message": 3})
            return Reply(200, (begun, b'event: content_block_delta\ndata: {"type": \n\n'), _STREAM)

        if trouble is Trouble.REFUSAL:
            return self.answer(asked, Spoken("I cannot help with that.", declines=True))

        if (found := _TROUBLES.get(trouble)) is None:
            return None

        status, kind, message = found
        error = {"type": "error", "error": {"type": kind, "message": message}}
        waits = {"retry-after": "1", "retry-after-ms": "20"} if status in (429, 529) else {}
        return Reply(status, (json.dumps(error).encode(),), _JSON | waits)


def counted(body: Body) -> Reply:
    """Return the answer of `count_tokens`."""
    count = json.dumps({"input_tokens": len(text_in(body)) // 4}).encode()
    return Reply(200, (count,), _JSON)


def _blocks(spoken: Spoken) -> Iterator[Body]:
    if spoken.text:
        yield {"type": "text", "text": spoken.text}

    if spoken.call is not None:
        yield {
            "type": "tool_use",
            "id": new_id("toolu_"),
            "name": spoken.call.tool.name,
            "input": dict(spoken.call.arguments),
        }


def _message(asked: Asked, spoken: Spoken, blocks: list[Body]) -> Body:
    return {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": blocks,
        "stop_reason": _stop_reason(spoken),
        "stop_sequence": None,
        "usage": _usage(spoken),
    }


def _stop_reason(spoken: Spoken) -> str:
    if spoken.declines:
        return "refusal"

    return "end_turn" if spoken.call is None else "tool_use"


def _usage(spoken: Spoken) -> Body:
    return {
        "input_tokens": spoken.usage.input,
        "output_tokens": spoken.usage.output,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": spoken.usage.cached,
    }


def _events(asked: Asked, spoken: Spoken, blocks: list[Body]) -> Iterator[Body]:
    begun = _message(asked, spoken, []) | {"stop_reason": None}
    begun["usage"] = _usage(spoken) | {"output_tokens": 1}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(blocks):
        empty: Body = {"input": {}} if block["type"] == "tool_use" else {"text": ""}
        yield {"type": "content_block_start", "index": index, "content_block": block | empty}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}

        yield {"type": "content_block_stop", "index": index}

    yield {
        "type": "message_delta",
        "delta": {"stop_reason": _stop_reason(spoken), "stop_sequence": None},
        "usage": {"output_tokens": spoken.usage.output},
    }
    yield {"type": "message_stop"}


def _deltas(block: Body) -> Iterator[Body]:
    if block["type"] == "text":
        for piece in halves(block["text"]):
            yield {"type": "text_delta", "text": piece}
    else:
        for piece in halves(json.dumps(block["input"])):
            yield {"type": "input_json_delta", "partial_json": piece}


def _event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()
