"""OpenAI's chat completions, as OpenCode and most compatible clients ask for them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from support.models.dialect import Asked, Body, Message, Reply, Spoken, halves, new_id, text_in
from support.models.offered import Tool
from support.models.openai_errors import JSON, STREAM, refusal
from support.models.turns import Trouble

# Compatible providers report this error; OpenAI's own wording would be retried.
_NO_CREDITS = b'{"error": {"message": "Insufficient credits. Add more to go on.", "code": 402}}'


class Chat:
    name = "chat"

    def accepts(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def read(self, path: str, body: Body) -> Asked:
        messages = tuple(Message(m["role"], text_in(m)) for m in body["messages"])
        functions = (tool["function"] for tool in body.get("tools", ()))
        tools = tuple(Tool(f["name"], f.get("parameters", {})) for f in functions)
        return Asked(body["model"], messages, tools, body.get("stream", False))

    def answer(self, asked: Asked, spoken: Spoken) -> Reply:
        if not asked.streams:
            return Reply(200, (json.dumps(_whole(asked, spoken)).encode(),), JSON)

        chunks = (f"data: {json.dumps(chunk)}\n\n".encode() for chunk in _chunks(asked, spoken))
        return Reply(200, (*chunks, b"data: [DONE]\n\n"), STREAM)

    def trouble(self, asked: Asked, trouble: Trouble) -> Reply | None:
        if trouble is Trouble.MALFORMED_STREAM:
            return Reply(200, (b'data: {"choices": 3}\n\n', b'data: {"choices": \n\n'), STREAM)

        if trouble is Trouble.REFUSAL:
            return self.answer(asked, Spoken("I cannot help with that.", declines=True))

        if trouble is Trouble.BILLING:
            return Reply(402, (_NO_CREDITS,), JSON)

        return refusal(trouble)


def _whole(asked: Asked, spoken: Spoken) -> Body:
    message: Body = {"role": "assistant", "content": spoken.text or None, "refusal": None}
    if spoken.declines:
        message |= {"content": None, "refusal": spoken.text}

    if spoken.call is not None:
        message["tool_calls"] = [_tool_call(spoken)]

    choice = {"index": 0, "message": message, "finish_reason": _reason(spoken), "logprobs": None}
    return {
        "id": new_id("chatcmpl-"),
        "object": "chat.completion",
        "created": 1736000000,
        "model": asked.model,
        "choices": [choice],
        "usage": _usage(spoken),
    }


def _tool_call(spoken: Spoken) -> Body:
    assert spoken.call is not None
    arguments = json.dumps(dict(spoken.call.arguments))
    function = {"name": spoken.call.tool.name, "arguments": arguments}
    return {"id": new_id("call_"), "type": "function", "function": function}


def _reason(spoken: Spoken) -> str:
    if spoken.declines:
        return "content_filter"

    return "stop" if spoken.call is None else "tool_calls"


def _usage(spoken: Spoken) -> Body:
    prompt = spoken.usage.input + spoken.usage.cached
    return {
        "prompt_tokens": prompt,
        "completion_tokens": spoken.usage.output,
        "total_tokens": prompt + spoken.usage.output,
        "prompt_tokens_details": {"cached_tokens": spoken.usage.cached},
    }


def _chunks(asked: Asked, spoken: Spoken) -> Iterator[Body]:
    base = {
        "id": new_id("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": 1736000000,
        "model": asked.model,
    }
    for delta in _deltas(spoken):
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield {**base, "choices": [choice], "usage": None}

    last = {"index": 0, "delta": {}, "finish_reason": _reason(spoken)}
    yield {**base, "choices": [last], "usage": None}
    yield {**base, "choices": [], "usage": _usage(spoken)}


def _deltas(spoken: Spoken) -> Iterator[Body]:
    yield {"role": "assistant", "content": ""}
    for piece in halves(spoken.text):
        yield {"refusal" if spoken.declines else "content": piece}

    if spoken.call is not None:
        call = _tool_call(spoken)
        arguments = call["function"]["arguments"]
        begun = call | {"index": 0, "function": call["function"] | {"arguments": ""}}
        yield {"tool_calls": [begun]}
        for piece in halves(arguments):
            yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
