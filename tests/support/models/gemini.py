"""Gemini's generateContent, whole and streamed, as Gemini CLI asks for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from support.models.dialect import Asked, Body, Message, Reply, Spoken, halves, new_id, text_in
from support.models.offered import Tool
from support.models.turns import Trouble

_JSON = {"content-type": "application/json; charset=UTF-8"}
_STREAM = {"content-type": "text/event-stream"}
_PATH = re.compile(r"/models/(?P<model>[^/:]+):(?P<method>generateContent|streamGenerateContent)$")

_TROUBLES = {
    Trouble.RATE_LIMIT: (
        429,
        "RESOURCE_EXHAUSTED",
        "Quota exceeded for quota metric 'Generate Content API requests per minute' and limit "
        "'GenerateContent request limit per minute'. Please retry in 1s.",
    ),
    Trouble.OVERLOAD: (
        503,
        "UNAVAILABLE",
        "The model is overloaded. Please try again later.",
    ),
    Trouble.BILLING: (
        403,
        "PERMISSION_DENIED",
        "This API method requires billing to be enabled. Please enable billing on project #1.",
    ),
    Trouble.WRONG_KEY: (
        400,
        "INVALID_ARGUMENT",
        "API key not valid. Please pass a valid API key.",
    ),
    Trouble.CONTEXT_FULL: (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ),
}
_REASONS = {Trouble.WRONG_KEY: "API_KEY_INVALID", Trouble.BILLING: "BILLING_DISABLED"}


class Gemini:
    name = "gemini"

    def accepts(self, path: str) -> bool:
        return _PATH.search(path) is not None

    def read(self, path: str, body: Body) -> Asked:
        found = _PATH.search(path)
        assert found is not None
        messages = tuple(Message(c.get("role", "user"), text_in(c)) for c in body["contents"])
        declared = (f for t in body.get("tools", ()) for f in t.get("functionDeclarations", ()))
        tools = tuple(Tool(f["name"], _schema(f)) for f in declared)
        return Asked(found["model"], messages, tools, found["method"].startswith("stream"))

    def answer(self, asked: Asked, spoken: Spoken) -> Reply:
        chunks = list(_chunks(asked, spoken))
        if not asked.streams:
            parts = [part for c in chunks for part in c["candidates"][0]["content"]["parts"]]
            whole = chunks[-1]
            whole["candidates"][0]["content"]["parts"] = parts
            return Reply(200, (json.dumps(whole).encode(),), _JSON)

        return Reply(200, tuple(f"data: {json.dumps(c)}\r\n\r\n".encode() for c in chunks), _STREAM)

    def trouble(self, asked: Asked, trouble: Trouble) -> Reply | None:
        if trouble is Trouble.MALFORMED_STREAM:
            return Reply(
                200, (b'data: {"candidates": 3}\r\n\r\n', b'data: {"cand\r\n\r\n'), _STREAM
            )

        if trouble is Trouble.REFUSAL:
            return self.answer(asked, Spoken("I cannot help with that.", declines=True))

        if (found := _TROUBLES.get(trouble)) is None:
            return None

        code, status, message = found
        error = {"code": code, "message": message, "status": status, "details": _details(trouble)}
        return Reply(code, (json.dumps({"error": error}).encode(),), _JSON)


def counted(body: Body) -> Reply:
    """Return the answer of `countTokens`."""
    return Reply(200, (json.dumps({"totalTokens": len(text_in(body)) // 4}).encode(),), _JSON)


def _schema(function: Body) -> Body:
    schema: Body = function.get("parametersJsonSchema") or function.get("parameters") or {}
    return schema


def _details(trouble: Trouble) -> list[Body]:
    if reason := _REASONS.get(trouble):
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        return [{"@type": kind, "reason": reason, "domain": "googleapis.com"}]

    if trouble is Trouble.RATE_LIMIT:
        return [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}]

    return []


def _chunks(asked: Asked, spoken: Spoken) -> Iterator[Body]:
    pieces = [] if spoken.declines else halves(spoken.text)
    parts: list[list[Body]] = [[{"text": piece}] for piece in pieces]
    if spoken.call is not None:
        arguments = dict(spoken.call.arguments)
        parts.append([{"functionCall": {"name": spoken.call.tool.name, "args": arguments}}])

    parts = parts or [[]]
    response_id = new_id("response-")
    for index, piece in enumerate(parts):
        candidate: Body = {"content": {"role": "model", "parts": piece}, "index": 0}
        if index == len(parts) - 1:
            candidate["finishReason"] = "SAFETY" if spoken.declines else "STOP"

        yield {
            "candidates": [candidate],
            "usageMetadata": _usage(spoken),
            "modelVersion": asked.model,
            "responseId": response_id,
        }


def _usage(spoken: Spoken) -> Body:
    prompt = spoken.usage.input + spoken.usage.cached
    return {
        "promptTokenCount": prompt,
        "candidatesTokenCount": spoken.usage.output,
        "cachedContentTokenCount": spoken.usage.cached,
        "totalTokenCount": prompt + spoken.usage.output,
    }
