"""Parsing of the lines that an agent prints on stdout."""

from __future__ import annotations

import json

import pytest

from hankweave_server.agents.base import (
    AgentSaid,
    ContextExceeded,
    Forbidden,
    Granted,
    LimitReported,
    PermissionAsked,
    PermissionWithdrawn,
    PlainOutput,
    RequestTimedOut,
    ResultReported,
    SessionStarted,
    Stderr,
    Thought,
    ToBeAsked,
    ToolCalled,
    ToolReturned,
    UsageReported,
    Verdict,
)
from hankweave_server.agents.stream_json import answer_to, ask_first, parse, user_message
from hankweave_server.domain.limits import LimitFacts
from support.token_counts import counts


def assistant(content: object, **message: object) -> dict:
    return {
        "type": "assistant",
        "message": {"id": "m1", "model": "opus", "content": content} | message,
    }


def tool_result(content: object, **block: object) -> dict:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": content} | block
    return {"type": "user", "message": {"role": "user", "content": [result]}}


def result(**fields: object) -> dict:
    return {"type": "result", "subtype": "success", "is_error": False, "result": "ok"} | fields


def reported(**fields: object) -> ResultReported:
    defaults = {
        "success": True,
        "text": "ok",
        "cost_usd": None,
        "tokens": None,
        "session_id": None,
        "model_usage": {},
    }
    return ResultReported(**(defaults | fields))


USAGE = {
    "input_tokens": 10,
    "output_tokens": 5,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 2,
    "service_tier": "standard",
}

MESSAGES = [
    (
        {"type": "system", "subtype": "init", "session_id": "s1", "model": "opus", "tools": []},
        [SessionStarted("s1", "opus")],
    ),
    ({"type": "system", "subtype": "init"}, []),
    ({"type": "system", "subtype": "api_retry", "attempt": 2}, []),
    (
        {"type": "system", "subtype": "api_retry", "attempt": 2, "retry_delay_ms": 1200},
        [LimitReported(LimitFacts(retry_ms=1200.0))],
    ),
    ({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed", "resetsAt": 5}}, []),
    (
        {
            "type": "rate_limit_event",
            "rate_limit_info": {
                "status": "rejected",
                "resetsAt": 1795272870,
                "rateLimitType": "seven_day_opus",
            },
        },
        [LimitReported(LimitFacts(resets_at=1795272870.0, window="seven_day_opus"))],
    ),
    (
        {"type": "assistant", "error": "billing_error", "message": {"content": []}},
        [LimitReported(LimitFacts(error="billing_error"))],
    ),
    (
        {
            "type": "control_request",
            "request_id": "r1",
            "request": {"subtype": "can_use_tool", "tool_name": "Write", "input": {"a": 1}},
        },
        [PermissionAsked("r1", "Write", {"a": 1})],
    ),
    (
        {
            "type": "control_request",
            "request_id": "r2",
            "request": {
                "subtype": "hook_callback",
                "callback_id": "before-tool",
                "input": {"tool_name": "Edit", "tool_input": {"b": 2}},
            },
        },
        [PermissionAsked("r2", "Edit", {"b": 2}, by_hook=True)],
    ),
    ({"type": "control_request", "request": {"subtype": "interrupt"}}, []),
    ({"type": "control_request", "request": None}, []),
    ({"type": "control_response", "response": {"subtype": "success"}}, []),
    ({"type": "system", "subtype": "compact_boundary"}, [ContextExceeded("compact_boundary")]),
    (assistant("Hello"), [AgentSaid("Hello")]),
    (assistant([{"type": "text", "text": "Hello"}]), [AgentSaid("Hello")]),
    (assistant([{"type": "thinking", "thinking": "Hm", "signature": "x"}]), [Thought("Hm")]),
    (
        assistant([{"type": "tool_use", "id": "t1", "name": "Write", "input": {"file_path": "a"}}]),
        [ToolCalled("t1", "Write", {"file_path": "a"})],
    ),
    (
        assistant([{"type": "text", "text": "a"}, {"type": "redacted_thinking"}], usage=USAGE),
        [AgentSaid("a"), UsageReported("m1", "opus", counts(10, 5, 3, 2))],
    ),
    (
        assistant([], usage={"input_tokens": 7, "output_tokens": -1}),
        [UsageReported("m1", "opus", counts(7, 0))],
    ),
    (assistant(None), []),
    (assistant([None, 5, "x", {"type": "text", "text": 5}]), []),
    (
        {"type": "assistant", "content": "flat", "usage": {"input_tokens": 1}},
        [AgentSaid("flat"), UsageReported("", "", counts(1))],
    ),
    (tool_result("done"), [ToolReturned("t1", "", "done", False)]),
    (tool_result("no", is_error=True), [ToolReturned("t1", "", "no", True)]),
    (
        tool_result([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        [ToolReturned("t1", "", "a\nb", False)],
    ),
    (tool_result([{"type": "image"}]), [ToolReturned("t1", "", '{"type":"image"}', False)]),
    (tool_result({"ok": True}), [ToolReturned("t1", "", '{"ok":true}', False)]),
    (tool_result(None), [ToolReturned("t1", "", "", False)]),
    ({"type": "user", "message": {"role": "user", "content": "an echo"}}, []),
    (
        result(total_cost_usd=0.25, session_id="s1", usage=USAGE, modelUsage={"opus": {"n": 1}}),
        [
            reported(
                cost_usd=0.25,
                session_id="s1",
                tokens=counts(10, 5, 3, 2),
                model_usage={"opus": {"n": 1}},
            )
        ],
    ),
    (result(total_cost=0.015), [reported(cost_usd=0.015)]),
    (result(total_cost_usd=True, cost=-1), [reported()]),
    (result(is_error=True, result="no credit"), [reported(success=False, text="no credit")]),
    (
        {"type": "result", "subtype": "error_during_execution", "errors": ["a", "b"]},
        [reported(success=False, text="a\nb")],
    ),
    ({"type": "stderr", "timestamp": "…", "message": "warned"}, [Stderr("warned")]),
    ({"type": "stream_event", "event": {"type": "message_start"}}, []),
    ({"type": "control_response"}, []),
    (
        assistant("API Error: Request timed out."),
        [
            AgentSaid("API Error: Request timed out."),
            RequestTimedOut("API Error: Request timed out."),
        ],
    ),
    (
        assistant("API Error: terminated", model="<synthetic>"),
        [AgentSaid("API Error: terminated"), ContextExceeded("API Error: terminated")],
    ),
    (
        assistant("Prompt is too long", model="<synthetic>"),
        [AgentSaid("Prompt is too long"), ContextExceeded("Prompt is too long")],
    ),
    (assistant("The user's prompt is too long."), [AgentSaid("The user's prompt is too long.")]),
    (
        assistant("API Error: the response exceeded the 32000 output token maximum."),
        [
            AgentSaid("API Error: the response exceeded the 32000 output token maximum."),
            ContextExceeded("API Error: the response exceeded the 32000 output token maximum."),
        ],
    ),
    (
        result(is_error=True, result="400 context_length_exceeded"),
        [
            ContextExceeded("400 context_length_exceeded"),
            reported(success=False, text="400 context_length_exceeded"),
        ],
    ),
    (result(result="prompt is too long, said I"), [reported(text="prompt is too long, said I")]),
]


@pytest.mark.parametrize(("message", "expected"), MESSAGES)
def test_a_message_says_what_the_table_says(message: dict, expected: list) -> None:
    """Every known message becomes its signals, and every unknown one becomes none."""
    assert parse(json.dumps(message).encode()) == expected


@pytest.mark.parametrize(
    "line",
    [
        b"plain text",
        b'{"type": "assistant"',
        b'{"answer": 42}',
        b'{"type": 7}',
        b"[1, 2]",
        b"null",
        b'{"type": "result", "total_cost_usd": NaN}',
        b'{"type": "system", "session_id": "\\ud800"}',
        b"[" * 100_000,
        b'{"type":"user","x":' * 5_000,
    ],
)
def test_what_is_no_message_is_plain_output(line: bytes) -> None:
    """Text, torn or hostile JSON, and JSON without a type are passed on unchanged."""
    assert parse(line) == [PlainOutput(line.decode())]


def test_bytes_that_are_no_text_are_plain_output() -> None:
    """Invalid UTF-8 bytes are replaced, and nothing is raised."""
    assert parse(b"caf\xe9") == [PlainOutput("caf�")]
    assert parse(b'{"type": "caf\xe9"}') == [PlainOutput('{"type": "caf�"}')]


@pytest.mark.parametrize(
    ("verdict", "by_hook", "response"),
    [
        (Granted(), False, {"behavior": "allow", "updatedInput": {"a": 1}}),
        (Granted(), True, {}),
        (Forbidden("No."), False, {"behavior": "deny", "message": "No."}),
        (
            Forbidden("No."),
            True,
            {
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "permissionDecision": "deny",
                    "permissionDecisionReason": "No.",
                }
            },
        ),
        (
            ToBeAsked(),
            True,
            {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask"}},
        ),
    ],
)
def test_an_answer_is_what_the_question_understands(
    verdict: Verdict, by_hook: bool, response: dict[str, object]
) -> None:
    """A question is allowed with its input unchanged, or denied with a reason; a hook without a
    decision leaves it to the agent's own rules."""
    line = answer_to(PermissionAsked("r1", "Write", {"a": 1}, by_hook=by_hook), verdict)
    assert line.endswith(b"\n")
    answer = json.loads(line)
    assert answer["type"] == "control_response"
    assert answer["response"] == {"subtype": "success", "request_id": "r1", "response": response}


def test_a_question_can_be_taken_back() -> None:
    """A withdrawn question no longer waits for an answer."""
    line = b'{"type": "control_cancel_request", "request_id": "r1"}'
    assert parse(line) == [PermissionWithdrawn("r1")]


def test_what_is_written_to_an_agent_is_one_line_each() -> None:
    """A prompt with line ends is still written as one line."""
    for text in (user_message("a\nb"), ask_first()):
        assert text.count("\n") == 1
        assert json.loads(text)["type"] in ("user", "control_request")


@pytest.mark.parametrize(
    ("denials", "calls"),
    [
        ([{"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {}}], ("t1",)),
        ([{"tool_name": "Bash"}, "t2", None, {"tool_use_id": 3}], ()),
        ("t1", ()),
        (None, ()),
    ],
)
def test_a_result_names_the_calls_that_were_not_allowed(denials: object, calls: tuple) -> None:
    """Claude Code lists denied calls; entries of another shape are ignored."""
    line = {"type": "result", "subtype": "success", "permission_denials": denials}
    (result,) = parse(json.dumps(line).encode())
    assert isinstance(result, ResultReported)
    assert result.denied_calls == calls
