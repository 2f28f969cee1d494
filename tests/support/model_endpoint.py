"""An endpoint on loopback that speaks Anthropic's protocol and OpenAI's, with their errors.

It follows HTTP as far as the SDKs check it. It does not support streaming, which no test requests.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
import anyio.abc

Body: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    headers: tuple[str, ...] = ()


Trouble: TypeAlias = Callable[[], Reply | None]
"""What happens to a request instead of an answer; None: silence."""


def rate_limit() -> Reply:
    return Reply(429, _error("rate_limit_error", "Slow down."), ("retry-after-ms: 5",))


def overload() -> Reply:
    return Reply(529, _error("overloaded_error", "Overloaded."), ("retry-after-ms: 5",))


def wrong_key() -> Reply:
    return Reply(401, _error("authentication_error", "Invalid key."))


def malformed() -> Reply:
    return Reply(200, b'{"half": ')


def nonsense() -> Reply:
    return Reply(200, b'{"choices": [], "content": 3}')


def silence() -> None:
    return None


def _error(kind: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: Body


@dataclass
class Endpoint:
    port: int
    troubles: deque[Trouble] = field(default_factory=deque)
    """One for each of the next requests; after these it answers."""
    requests: list[Request] = field(default_factory=list)
    json_answer: Body = field(default_factory=lambda: {"risk": "high"})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that point the server at this endpoint."""
        return {
            "HANKWEAVE_SENTINEL_ANTHROPIC_API_KEY": "key-a",
            "HANKWEAVE_SENTINEL_ANTHROPIC_BASE_URL": self.url,
            "HANKWEAVE_SENTINEL_OPENAI_API_KEY": "key-o",
            "HANKWEAVE_SENTINEL_OPENAI_BASE_URL": f"{self.url}/v1",
            "HANKWEAVE_SENTINEL_LOCAL_BASE_URL": f"{self.url}/v1",
        }

    def answer(self, request: Request) -> bytes:
        content = request.body["messages"][-1]["content"]
        speak = _anthropic if request.path.endswith("/messages") else _openai
        return json.dumps(speak(self, request.body, f"heard {content}")).encode()


def _anthropic(endpoint: Endpoint, body: Body, text: str) -> Body:
    tools = body.get("tools")
    content = (
        {"type": "tool_use", "id": "t1", "name": tools[0]["name"], "input": endpoint.json_answer}
        if tools
        else {"type": "text", "text": text}
    )
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [content],
        "stop_reason": "tool_use" if tools else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 100,
            "output_tokens": 20,
            "cache_creation_input_tokens": 5,
            "cache_read_input_tokens": 7,
        },
    }


def _openai(endpoint: Endpoint, body: Body, text: str) -> Body:
    is_json = "response_format" in body
    content = json.dumps(endpoint.json_answer) if is_json else text
    message = {"role": "assistant", "content": content, "refusal": None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1736000000,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": {
            "prompt_tokens": 107,
            "completion_tokens": 20,
            "total_tokens": 127,
            "prompt_tokens_details": {"cached_tokens": 7},
        },
    }


@asynccontextmanager
async def model_endpoint(*troubles: Trouble) -> AsyncIterator[Endpoint]:
    """Serve while the block runs."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    endpoint = Endpoint(port, deque(troubles))
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, lambda stream: _converse(endpoint, stream))
        yield endpoint
        tasks.cancel_scope.cancel()


async def _converse(endpoint: Endpoint, stream: anyio.abc.SocketStream) -> None:
    """Handle one request per connection; the reply says so, and the SDKs open another."""
    async with stream:
        try:
            request = await _request(stream)
        except anyio.EndOfStream:
            return

        endpoint.requests.append(request)
        trouble = endpoint.troubles.popleft() if endpoint.troubles else None
        reply = Reply(200, endpoint.answer(request)) if trouble is None else trouble()
        if reply is None:
            await anyio.sleep_forever()
            return

        await stream.send(_encoded(reply))


async def _request(stream: anyio.abc.SocketStream) -> Request:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()

    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += await stream.receive()

    return Request(first.split(" ")[1], headers, json.loads(body))


def _encoded(reply: Reply) -> bytes:
    lines = (
        f"HTTP/1.1 {reply.status} Status",
        "content-type: application/json",
        f"content-length: {len(reply.body)}",
        "connection: close",
        *reply.headers,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + reply.body
