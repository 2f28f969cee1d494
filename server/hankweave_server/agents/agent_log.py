"""Write an agent's log: its output as one JSON object per line, readable by the owner only.

A line that the agent printed as JSON is kept byte for byte, and missing fields are appended to it:
`timestamp`, and the flat `content`, `usage`, `cost` and `total_cost` that readers of Hankweave's
log format expect beside Claude Code's nested `message` and `total_cost_usd`. A line in another
format (such as Codex's) is followed by lines with the same content in that form, marked
`"derived": true`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, Self

import msgspec

from hankweave_protocol.state import Tokens
from hankweave_server.agents.base import (
    AgentSaid,
    AgentSignal,
    ResultReported,
    SessionStarted,
    Thought,
    ToolCalled,
    ToolReturned,
    UsageReported,
)
from hankweave_server.agents.stream_json import Object, as_object, as_text, object_in
from hankweave_server.fsutil import PRIVATE_FILE, append_whole, is_full, make_private_directory
from hankweave_server.plain_text import counted
from hankweave_server.redaction.redactor import NOTHING_KNOWN, Redactor

_SEED_TYPES = frozenset({"system", "assistant", "user", "result"})


def wrapped(
    kind: Literal["stdout", "stderr", "truncated", "gap"], text: str, timestamp: str
) -> bytes:
    """Return a log line for plain text or a note, in the form that Hankweave uses for stderr."""
    entry = {"type": kind, "timestamp": timestamp, "message": text}
    return msgspec.json.encode(entry)


def entries_of(line: bytes, signals: Iterable[AgentSignal], timestamp: str) -> list[bytes]:
    """Return the log line of a JSON line that an agent printed, and the lines derived from it."""
    printed = object_in(line)
    added = dict(_missing_fields(printed, timestamp))
    entry = _with_fields(line, added) if printed else line
    if printed.get("type") in _SEED_TYPES:
        return [entry]

    return [entry, *(_derived(each, timestamp) for each in map(_as_seed, signals) if each)]


def _missing_fields(printed: Object, timestamp: str) -> Iterator[tuple[str, object]]:
    if not isinstance(printed.get("timestamp"), str):
        yield "timestamp", timestamp

    match printed.get("type"):
        case "assistant" | "user":
            message = as_object(printed.get("message"))
            if "content" not in printed and "content" in message:
                yield "content", _listed(message["content"])
            if "usage" not in printed and "usage" in message:
                yield "usage", message["usage"]
        case "system" if "content" not in printed and printed.get("subtype") == "init":
            yield "content", _session_text(as_text(printed.get("model")))
        case "result":
            for name in ("cost", "total_cost"):
                if name not in printed and "total_cost_usd" in printed:
                    yield name, printed["total_cost_usd"]


def _listed(content: object) -> object:
    """Return content as a list of blocks; readers filter it without checking for a string."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _with_fields(line: bytes, fields: Object) -> bytes:
    """Append fields to an encoded object without rewriting its content."""
    if not fields:
        return line

    # The agent's own bytes are kept: rewriting could change numbers and escapes.
    return line.rstrip().removesuffix(b"}") + b"," + msgspec.json.encode(fields)[1:]


def _session_text(model: str) -> str:
    return f"Agent initialized with model {model}" if model else "Agent initialized"


def _as_seed(signal: AgentSignal) -> dict[str, object] | None:
    match signal:
        case SessionStarted(session_id=session, model=model):
            return {"type": "system", "session_id": session, "content": _session_text(model)}
        case AgentSaid(text=text):
            return _message("assistant", {"type": "text", "text": text})
        case Thought(text=text):
            return _message("assistant", {"type": "thinking", "thinking": text})
        case ToolCalled(tool_use_id=call, name=name, input=given):
            return _message(
                "assistant", {"type": "tool_use", "id": call, "name": name, "input": given}
            )
        case ToolReturned(tool_use_id=call, result=text, is_error=is_error):
            failed = {"is_error": True} if is_error else {}
            block = {"type": "tool_result", "tool_use_id": call, "content": text, **failed}
            return _message("user", block)
        case UsageReported(model=model, tokens=tokens):
            return {"type": "assistant", "model": model, "content": [], "usage": _usage(tokens)}
        case ResultReported():
            return _result(signal)
        case _:
            return None


def _result(reported: ResultReported) -> dict[str, object]:
    entry: dict[str, object] = {
        "type": "result",
        "subtype": "success" if reported.success else "error_during_execution",
        "is_error": not reported.success,
        "result": reported.text,
    }
    if reported.cost_usd is not None:
        entry |= {"cost": reported.cost_usd, "total_cost": reported.cost_usd}

    if reported.tokens is not None:
        entry["usage"] = _usage(reported.tokens)

    return entry


def _message(kind: str, block: Object) -> dict[str, object]:
    return {"type": kind, "content": [block]}


def _usage(tokens: Tokens) -> dict[str, int]:
    return {
        "input_tokens": tokens.input_tokens,
        "output_tokens": tokens.output_tokens,
        "cache_creation_input_tokens": tokens.cache_creation_tokens,
        "cache_read_input_tokens": tokens.cache_read_tokens,
    }


def _derived(entry: dict[str, object], timestamp: str) -> bytes:
    return msgspec.json.encode(entry | {"timestamp": timestamp, "derived": True})


class AgentLog:
    """An append-only log up to a size limit; a last line says that the limit was reached.

    Writes are not synced: after a power cut the end of the log may be missing. A torn last line is
    terminated before anything is appended. Lines that do not fit on a full disk are left out, and a
    later line counts them. Every other OSError is raised. Secrets are removed from every line.
    """

    def __init__(self, path: Path, *, limit: int, redactor: Redactor = NOTHING_KNOWN) -> None:
        make_private_directory(path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags, PRIVATE_FILE)
        self._size = os.fstat(self._descriptor).st_size
        self._limit = limit
        self._redactor = redactor
        self._is_full = False
        self._lost = 0
        """Lines lost since the disk became full."""
        if self._size and os.pread(self._descriptor, 1, self._size - 1) != b"\n":
            self._write(b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def append(self, lines: list[bytes], timestamp: str) -> None:
        """Append whole lines without line ends; `timestamp` is for notes on a limit or a gap."""
        if self._is_full or not lines:
            return

        data = self._redacted(lines)
        if self._size + len(data) > self._limit:
            self._is_full = True
            message = f"The log has reached its limit of {self._limit} bytes; the rest is omitted."
            data = wrapped("truncated", message, timestamp) + b"\n"

        try:
            self._write(self._gap(timestamp) + data)
        except OSError as error:
            if not is_full(error):
                raise

            self._lost += len(lines)
        else:
            self._lost = 0

    def _redacted(self, lines: list[bytes]) -> bytes:
        """Return the lines as one text, each cleaned by itself if any has to be."""
        data = b"\n".join(lines) + b"\n"
        if not self._redactor.is_needed(data):
            return data

        return b"".join(self._redactor.data(line) + b"\n" for line in lines)

    def _gap(self, timestamp: str) -> bytes:
        if not self._lost:
            return b""

        message = f"The disk was full: {counted(self._lost, 'line is', 'lines are')} missing here."
        return wrapped("gap", message, timestamp) + b"\n"

    def _write(self, data: bytes) -> None:
        append_whole(self._descriptor, data)
        self._size += len(data)
