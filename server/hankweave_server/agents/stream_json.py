"""Parse lines of an agent's stdout (Claude's stream-json, or plain text), and encode answers.

The input is untrusted: no field is assumed to have the right type, and one with a wrong type counts
as absent. Unknown kinds of message and unknown fields are ignored, because the format grows. A line
that is not a JSON object with a `type` is plain output. Hankweave's older, flat lines are
understood as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias, assert_never

import msgspec

from hankweave_protocol.state import Tokens
from hankweave_server.agents.base import (
    AgentSaid,
    AgentSignal,
    ContextExceeded,
    Forbidden,
    Granted,
    LimitReported,
    MessageNamed,
    MessageReceived,
    PermissionAsked,
    PermissionWithdrawn,
    PlainOutput,
    RequestTimedOut,
    ResultReported,
    SessionStarted,
    Stderr,
    Thought,
    ToBeAsked,
    ToolAnnounced,
    ToolCalled,
    ToolReturned,
    UsageReported,
    Verdict,
)
from hankweave_server.domain.limits import LimitFacts

Object: TypeAlias = Mapping[str, object]

MOST = 10**12
"""Tokens or dollars; a larger number is ignored, because sums of such could not be encoded."""

_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def object_in(line: bytes) -> Object:
    """Return the JSON object of a line, or an empty one if it is something else.

    Every number in it can be encoded again.
    """
    try:
        value = msgspec.json.decode(line)
        if _LONG_NUMBER.search(line):
            value = _encodable(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}

    return as_object(value)


def as_object(value: object) -> Object:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[Object]:
    """Return the elements of a list as objects; empty if the value is not a list."""
    return [as_object(each) for each in value] if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return the value if it is a positive integer up to `MOST`, else 0."""
    match value:
        case bool():
            return 0
        case int() if 0 < value <= MOST:
            return value
        case _:
            return 0


def as_number(value: object) -> float | None:
    """Return the value if it is a positive number up to 10**15, else None."""
    match value:
        case bool():
            return None
        case int() | float() if 0 < value <= 10**15:
            return float(value)
        case _:
            return None


def _encodable(value: object) -> object:
    """Return the value with integers beyond 64 bits as strings; msgspec cannot encode those."""
    match value:
        case dict():
            return {name: _encodable(each) for name, each in value.items()}
        case list():
            return [_encodable(each) for each in value]
        case int() if not -(2**63) <= value < 2**64:
            return str(value)
        case _:
            return value


HOOK_SECONDS = 600
"""Seconds that a hook waits for the server; after that the agent's own rules decide."""

_REQUEST_TIMED_OUT = "API Error: Request timed out."
_SYNTHETIC_MODEL = "<synthetic>"
_TERMINATED = "API Error: terminated"
_OUTPUT_MAXIMUM = re.compile(r"exceeded the .{0,40}output token maximum")
_INPUT_OVERFLOW = re.compile(r"prompt is too long|context_length_exceeded", re.IGNORECASE)


def parse(line: bytes) -> list[AgentSignal]:
    """Parse one line without its line end; `[PlainOutput]` if and only if it is not a message."""
    message = object_in(line)
    match message.get("type"):
        case "system":
            return list(_system(message))
        case "assistant":
            return list(_assistant(message))
        case "user":
            return list(_user(message))
        case "result":
            return list(_result(message))
        case "control_request":
            return list(_control_request(message))
        case "control_cancel_request":
            return [PermissionWithdrawn(as_text(message.get("request_id")))]
        case "rate_limit_event":
            return list(_rate_limit(as_object(message.get("rate_limit_info"))))
        case "stderr":
            return [Stderr(as_text(message.get("message")))]
        case str():
            return []
        case _:
            return [PlainOutput(line.decode(errors="replace"))]


def _system(message: Object) -> Iterator[AgentSignal]:
    match message.get("subtype"):
        case "init":
            if session_id := as_text(message.get("session_id")):
                yield SessionStarted(session_id, as_text(message.get("model")))
        case "compact_boundary":
            yield ContextExceeded("compact_boundary")
        case "notice":
            yield MessageReceived(as_text(message.get("operation_id")))
        case "api_retry":
            # Only the delay: the request may succeed yet, and the result names its own status.
            if (delay := as_number(message.get("retry_delay_ms"))) is not None:
                yield LimitReported(LimitFacts(retry_ms=delay))
        case "tool_announced":
            yield ToolAnnounced(as_text(message.get("tool_use_id")), as_text(message.get("name")))


def _rate_limit(info: Object) -> Iterator[LimitReported]:
    """Parse the state of an allowance; only one that is used up is of interest."""
    if info.get("status") == "rejected":
        window = as_text(info.get("rateLimitType"))
        yield LimitReported(LimitFacts(resets_at=as_number(info.get("resetsAt")), window=window))


def _control_request(message: Object) -> Iterator[AgentSignal]:
    """Parse a request to the server; only those about permission to call a tool are understood."""
    request, request_id = as_object(message.get("request")), as_text(message.get("request_id"))
    match request.get("subtype"):
        case "can_use_tool":
            called = dict(as_object(request.get("input")))
            yield PermissionAsked(request_id, as_text(request.get("tool_name")), called)
        case "hook_callback":
            hook = as_object(request.get("input"))
            called = dict(as_object(hook.get("tool_input")))
            yield PermissionAsked(request_id, as_text(hook.get("tool_name")), called, by_hook=True)


def answer_to(asked: PermissionAsked, verdict: Verdict) -> bytes:
    """Encode the answer to a permission request."""
    answer = hook_output(verdict) if asked.by_hook else _permission_result(asked, verdict)
    response = {"subtype": "success", "request_id": asked.request_id, "response": answer}
    return msgspec.json.encode({"type": "control_response", "response": response}) + b"\n"


def _permission_result(asked: PermissionAsked, verdict: Verdict) -> Object:
    match verdict:
        case Forbidden(message=message):
            return {"behavior": "deny", "message": message}
        case Granted() | ToBeAsked():
            return {"behavior": "allow", "updatedInput": asked.input}
        case _:
            assert_never(verdict)


def hook_output(verdict: Verdict) -> Object:
    """Return the output of a PreToolUse hook (Claude Code 2.1.329); empty: the agent decides."""
    match verdict:
        case Granted():
            return {}
        case ToBeAsked():
            decided = {"permissionDecision": "ask"}
        case Forbidden(message=message):
            decided = {"permissionDecision": "deny", "permissionDecisionReason": message}
        case _:
            assert_never(verdict)

    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decided}}


def ask_first() -> str:
    """Return the line that makes Claude Code wait for the server before it calls a tool.

    It matches every tool: those of MCP servers and plugins may change files too, and their names do
    not show which ones do.
    """
    hook = {"matcher": "*", "hookCallbackIds": ["before-tool"], "timeout": HOOK_SECONDS}
    request = {"subtype": "initialize", "hooks": {"PreToolUse": [hook]}}
    message = {"type": "control_request", "request_id": "ask-first", "request": request}
    return msgspec.json.encode(message).decode() + "\n"


def user_message(text: str) -> str:
    """Encode a prompt as one line, for an agent whose stdin stays open."""
    message = {"type": "user", "message": {"role": "user", "content": text}}
    return msgspec.json.encode(message).decode() + "\n"


def _named(message: Object) -> Iterator[AgentSignal]:
    """Name a message of the main conversation; messages of subagents get no name."""
    name = as_text(message.get("uuid"))
    if name and message.get("parent_tool_use_id") is None:
        yield MessageNamed(name)


def _assistant(message: Object) -> Iterator[AgentSignal]:
    yield from _named(message)
    body = as_object(message.get("message")) or message
    model = as_text(body.get("model"))
    for block in _blocks(body.get("content")):
        yield from _assistant_block(block, model)

    if error := as_text(message.get("error")):
        yield LimitReported(LimitFacts(error=error))

    if usage := as_object(body.get("usage")):
        yield UsageReported(as_text(body.get("id")), model, _tokens(usage))


def _assistant_block(block: Object, model: str) -> Iterator[AgentSignal]:
    match block.get("type"):
        case "text":
            if text := as_text(block.get("text")):
                yield AgentSaid(text)
                yield from _meaning_of(text, model)
        case "thinking":
            if thinking := as_text(block.get("thinking")):
                yield Thought(thinking)
        case "tool_use":
            yield ToolCalled(
                as_text(block.get("id")),
                as_text(block.get("name")),
                dict(as_object(block.get("input"))),
            )


def _meaning_of(text: str, model: str) -> Iterator[AgentSignal]:
    """Recognize errors that Claude Code reports as if they were text of the model.

    Only synthetic messages and texts that begin like its errors are examined, because an agent may
    legitimately write about prompts that are too long.
    """
    if text == _REQUEST_TIMED_OUT:
        yield RequestTimedOut(text)
    elif (model == _SYNTHETIC_MODEL or text.startswith("API Error")) and _is_overflow(text):
        yield ContextExceeded(text)


def _is_overflow(text: str) -> bool:
    return (
        text == _TERMINATED
        or _OUTPUT_MAXIMUM.search(text) is not None
        or _INPUT_OVERFLOW.search(text) is not None
    )


def _user(message: Object) -> Iterator[AgentSignal]:
    yield from _named(message)
    body = as_object(message.get("message")) or message
    for block in _blocks(body.get("content")):
        if block.get("type") == "tool_result":
            yield ToolReturned(
                tool_use_id=as_text(block.get("tool_use_id")),
                name="",  # Only the call carries the name; `Conversation` remembers it.
                result=flattened(block.get("content")),
                is_error=block.get("is_error") is True,
            )


def _result(message: Object) -> Iterator[AgentSignal]:
    # Billing errors come with subtype success and is_error.
    success = message.get("subtype") == "success" and message.get("is_error") is not True
    text = _result_text(message)
    if not success and _is_overflow(text):
        yield ContextExceeded(text)

    if not success:
        yield from _provider_error(message)

    usage = as_object(message.get("usage"))
    yield ResultReported(
        success=success,
        text=text,
        cost_usd=_cost(message),
        tokens=_tokens(usage) if usage else None,
        session_id=as_text(message.get("session_id")) or None,
        model_usage=as_object(message.get("modelUsage")),
        is_over_budget=message.get("subtype") == "error_max_budget_usd",
        denied_calls=tuple(_denied(message)),
    )


def _provider_error(message: Object) -> Iterator[LimitReported]:
    status, error = as_count(message.get("api_error_status")), as_text(message.get("api_error"))
    if status or error:
        yield LimitReported(LimitFacts(status=status or None, error=error))


def _denied(message: Object) -> Iterator[str]:
    for each in as_objects(message.get("permission_denials")):
        if call := as_text(each.get("tool_use_id")):
            yield call


def _result_text(message: Object) -> str:
    if text := as_text(message.get("result")) or as_text(message.get("error")):
        return text

    errors = message.get("errors")
    return "\n".join(as_text(error) for error in errors) if isinstance(errors, list) else ""


def _cost(message: Object) -> float | None:
    for name in ("total_cost_usd", "total_cost", "cost"):
        match message.get(name):
            case bool():
                continue
            case int() | float() as cost if 0 <= cost <= MOST:
                return float(cost)

    return None


def _tokens(usage: Object) -> Tokens:
    return Tokens(
        input_tokens=as_count(usage.get("input_tokens")),
        output_tokens=as_count(usage.get("output_tokens")),
        cache_creation_tokens=as_count(usage.get("cache_creation_input_tokens")),
        cache_read_tokens=as_count(usage.get("cache_read_input_tokens")),
    )


def flattened(content: object) -> str:
    """Return a tool's result, which is a text, a list of blocks or any object, as one text."""
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return "\n".join(_flattened_block(block) for block in content)
        case _:
            return msgspec.json.encode(content).decode()


def _flattened_block(block: object) -> str:
    match block:
        case {"type": "text", "text": str() as text}:
            return text
        case _:
            return flattened(block)


def _blocks(content: object) -> Iterator[Object]:
    match content:
        case str():
            yield {"type": "text", "text": content}
        case list():
            yield from (as_object(block) for block in content)
