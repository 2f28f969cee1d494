"""OpenAI's responses, as Codex asks for them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from support.models.dialect import Asked, Body, Message, Reply, Spoken, halves, new_id, text_in
from support.models.offered import Tool
from support.models.openai_errors import JSON, STREAM, error_of, refusal
from support.models.turns import Trouble

_FOUND_LATE = (Trouble.CONTEXT_FULL, Trouble.REFUSAL)
"""The errors that are reported after the stream has begun."""


class Responses:
    name = "responses"

    def accepts(self, path: str) -> bool:
        return path.endswith("/responses")

    def read(self, path: str, body: Body) -> Asked:
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        messages = tuple(Message(i.get("role", i.get("type", "")), text_in(i)) for i in items)
        added = [item for item in items if item.get("type") == "additional_tools"]
        tools = tuple(
            tool for offered in (*body.get("tools", ()), *added) for tool in _tools(offered)
        )
        return Asked(body["model"], messages, tools, body.get("stream", False))

    def answer(self, asked: Asked, spoken: Spoken) -> Reply:
        whole = _whole(asked, spoken)
        if not asked.streams:
            return Reply(200, (json.dumps(whole).encode(),), JSON)

        return Reply(200, tuple(_numbered(_events(whole))), STREAM)

    def trouble(self, asked: Asked, trouble: Trouble) -> Reply | None:
        if trouble is Trouble.MALFORMED_STREAM:
            begun = b'event: response.created\ndata: {"type": "response.created"}\n\n'
            return Reply(200, (begun, b'event: response.completed\ndata: {"type": \n\n'), STREAM)

        if trouble in _FOUND_LATE and asked.streams:
            failed = _response(asked, "failed") | {"error": error_of(trouble)}
            return Reply(
                200, tuple(_numbered([{"type": "response.failed", "response": failed}])), STREAM
            )

        return refusal(trouble)


def _tools(offered: Body) -> Iterator[Tool]:
    match offered.get("type"):
        case "function":
            yield Tool(offered["name"], offered.get("parameters", {}))
        case "custom":
            yield Tool(offered["name"], is_free_form=True)
        case "additional_tools" | "namespace":
            # Newer models are offered their tools in the conversation, in groups.
            for each in offered["tools"]:
                yield from _tools(each)


def _response(asked: Asked, status: str) -> Body:
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": 1736000000,
        "status": status,
        "model": asked.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "usage": None,
    }


def _whole(asked: Asked, spoken: Spoken) -> Body:
    read = spoken.usage.input + spoken.usage.cached
    return _response(asked, "completed") | {
        "output": list(_items(spoken)),
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": spoken.usage.cached},
            "output_tokens": spoken.usage.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + spoken.usage.output,
        },
    }


def _items(spoken: Spoken) -> Iterator[Body]:
    if spoken.text:
        part = {"type": "output_text", "text": spoken.text, "annotations": []}
        yield {
            "type": "message",
            "id": new_id("msg_"),
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }

    if (call := spoken.call) is not None:
        kind = "custom_tool_call" if call.tool.is_free_form else "function_call"
        output = (
            {"input": call.text}
            if call.tool.is_free_form
            else {"arguments": json.dumps(dict(call.arguments))}
        )
        named = {"id": new_id("fc_"), "call_id": new_id("call_"), "name": call.tool.name}
        yield {"type": kind, "status": "completed", **named, **output}


def _events(whole: Body) -> Iterator[Body]:
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(whole["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        shell = item | {"status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": shell}
        yield from _deltas(item, at)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}

    yield {"type": "response.completed", "response": whole}


def _deltas(item: Body, at: Body) -> Iterator[Body]:
    match item["type"]:
        case "message":
            kind, text = "output_text", item["content"][0]["text"]
            at = at | {"content_index": 0}
        case "function_call":
            kind, text = "function_call_arguments", item["arguments"]
        case _:
            kind, text = "custom_tool_call_input", item["input"]

    for piece in halves(text):
        yield {"type": f"response.{kind}.delta", "delta": piece, **at}


def _numbered(events: Iterator[Body] | list[Body]) -> Iterator[bytes]:
    for number, event in enumerate(events):
        data = json.dumps(event | {"sequence_number": number})
        yield f"event: {event['type']}\ndata: {data}\n\n".encode()
