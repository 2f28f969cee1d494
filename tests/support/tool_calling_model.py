"""A model on loopback that speaks Anthropic's dialect and does nothing but call tools, in order."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SHA = "the sha of the first answer"
"""Stands in an input for what the first tool that gave a sha has answered."""

Call = tuple[str, dict[str, Any]]


class ToolCallingModel(ThreadingHTTPServer):
    """Serves one conversation; each request that offers tools gets the next call."""

    daemon_threads = True

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.calls = calls
        self.offered: set[str] = set()
        self.results: list[dict[str, Any]] = []
        """What the tools answered, as the model was last shown it."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_block(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A call, or the last word where no tools are offered or all calls are done."""
        names = {tool["name"] for tool in asked.get("tools", [])}
        self.offered |= names
        results = [
            block
            for message in asked["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        if len(results) >= len(self.results):
            self.results = results

        if not names or len(results) >= len(self.calls):
            return {"type": "text", "text": "Done."}

        name, given = self.calls[len(results)]
        found = re.search(r'"sha": ?"([0-9a-f]{40})"', json.dumps(results).replace('\\"', '"'))
        text = json.dumps(given)
        if found is not None:
            text = text.replace(SHA, found[1])

        identity = f"toolu_{len(results)}"
        return {"type": "tool_use", "id": identity, "name": name, "input": json.loads(text)}


class _Answering(BaseHTTPRequestHandler):
    server: ToolCallingModel
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        stream = "".join(_stream(self.server.next_block(asked), str(asked.get("model"))))
        body = stream.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _stream(block: dict[str, Any], model: str) -> Iterator[str]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"id": "msg", "type": "message", "role": "assistant", "model": model}
    begun: dict[str, Any] = {
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield _event("message_start", message={**message, **begun})
    if block["type"] == "text":
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        reason = "end_turn"
    else:
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        reason = "tool_use"

    yield _event("content_block_start", index=0, content_block=empty)
    yield _event("content_block_delta", index=0, delta=delta)
    yield _event("content_block_stop", index=0)
    yield _event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)
    yield _event("message_stop")


def _event(kind: str, **fields: object) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


@contextmanager
def tool_calling_model(*calls: Call) -> Iterator[ToolCallingModel]:
    with ToolCallingModel(calls) as model:
        thread = threading.Thread(target=model.serve_forever, name="model", daemon=True)
        thread.start()
        try:
            yield model
        finally:
            model.shutdown()
            thread.join()
