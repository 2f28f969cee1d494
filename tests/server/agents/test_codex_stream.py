"""Parsing of `codex exec --json` lines; the recorded ones were printed by Codex itself."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.state import Tokens
from hankweave_server.agents.base import (
    AgentSaid,
    ContextExceeded,
    PlainOutput,
    ResultReported,
    SessionStarted,
    Stderr,
    Thought,
    ToolCalled,
    ToolReturned,
)
from hankweave_server.agents.codex.stream import parse
from hankweave_server.domain.failures import classify
from support.golden import GOLDEN
from support.token_counts import counts

RECORDED = GOLDEN / "agents" / "codex"
THREAD = "01a1ff2d-fb37-7402-b046-000000000001"
CONTEXT_FULL = (
    "Codex ran out of room in the model's context window. Start a new thread or clear earlier "
    "history before retrying."
)


def result(*, success: bool = True, text: str = "", tokens: Tokens | None = None):
    return ResultReported(success, text, None, tokens, None, {})


def item(kind: str, state: str = "completed", **fields: object) -> dict:
    return {"type": f"item.{state}", "item": {"id": "item_1", "type": kind} | fields}


EVENTS = [
    ({"type": "thread.started", "thread_id": "t1"}, [SessionStarted("t1", "")]),
    ({"type": "thread.started"}, []),
    ({"type": "turn.started"}, []),
    ({"type": "turn.completed"}, [result()]),
    (
        {"type": "turn.completed", "usage": {"input_tokens": 10, "output_tokens": 5}},
        [result(tokens=counts(10, 5))],
    ),
    (
        {
            "type": "turn.completed",
            "usage": {
                "input_tokens": 100,
                "cached_input_tokens": 40,
                "cache_write_input_tokens": 10,
                "output_tokens": 5,
                "reasoning_output_tokens": 4,
            },
        },
        [result(tokens=counts(50, 5, 10, 40))],
    ),
    (
        {"type": "turn.completed", "usage": {"input_tokens": True, "cached_input_tokens": 7}},
        [result(tokens=counts(0, 0, 0, 7))],
    ),
    ({"type": "turn.failed", "error": {"message": "no"}}, [result(success=False, text="no")]),
    ({"type": "turn.failed", "error": "no"}, [result(success=False)]),
    (
        {"type": "turn.failed", "error": {"message": CONTEXT_FULL}},
        [ContextExceeded(CONTEXT_FULL), result(success=False, text=CONTEXT_FULL)],
    ),
    ({"type": "error", "message": "Reconnecting... 1/5"}, [Stderr("Reconnecting... 1/5")]),
    (item("error", message="careful"), [Stderr("careful")]),
    (item("agent_message", text="Hello"), [AgentSaid("Hello")]),
    (item("agent_message", "started", text="Hel"), []),
    (item("agent_message", text=""), []),
    (item("reasoning", text="Hm"), [Thought("Hm")]),
    (
        item("command_execution", "started", command="ls", status="in_progress", exit_code=None),
        [ToolCalled("item_1", "Bash", {"command": "ls"})],
    ),
    (
        item("command_execution", command="ls", aggregated_output="a\n", exit_code=0),
        [
            ToolCalled("item_1", "Bash", {"command": "ls"}),
            ToolReturned("item_1", "", "a\n", is_error=False),
        ],
    ),
    (
        item("command_execution", command="x", aggregated_output="", status="declined"),
        [
            ToolCalled("item_1", "Bash", {"command": "x"}),
            ToolReturned("item_1", "", "", is_error=True, is_refused=True),
        ],
    ),
    (
        item("file_change", changes=[{"path": "/a", "kind": "add"}], status="failed"),
        [
            ToolCalled(
                "item_1",
                "Write",
                {"file_path": "/a", "changes": [{"path": "/a", "kind": "add"}]},
            ),
            ToolReturned("item_1", "", "add /a", is_error=True),
        ],
    ),
    (
        item("file_change", changes=None),
        [
            ToolCalled("item_1", "Edit", {"changes": []}),
            ToolReturned("item_1", "", "", is_error=False),
        ],
    ),
    (
        item("mcp_tool_call", server="s", tool="t", arguments=None, error={"message": "refused"}),
        [ToolCalled("item_1", "mcp__s__t", {}), ToolReturned("item_1", "", "refused", False)],
    ),
    (
        item("mcp_tool_call", server="s", tool="t", result={"content": [{"type": "image"}, 3]}),
        [
            ToolCalled("item_1", "mcp__s__t", {}),
            ToolReturned("item_1", "", '{"type":"image"}\n3', False),
        ],
    ),
    (
        item("todo_list", "started", items=[{"text": "a", "completed": True}, {"text": "b"}, 3]),
        [
            ToolCalled(
                "item_1",
                "TodoWrite",
                {
                    "todos": [
                        {"content": "a", "status": "completed"},
                        {"content": "b", "status": "pending"},
                        {"content": "", "status": "pending"},
                    ]
                },
            ),
            ToolReturned("item_1", "", "", is_error=False),
        ],
    ),
    (item("todo_list", items=[]), []),
    (
        item("collab_tool_call", "started", tool="spawn_agent", prompt="look"),
        [ToolCalled("item_1", "Task", {"tool": "spawn_agent", "prompt": "look"})],
    ),
    (item("something_new", text="?"), []),
    ({"type": "item.completed", "item": ["no object"]}, []),
    ({"type": "thread.renamed"}, []),
]


@pytest.mark.parametrize(("event", "expected"), EVENTS)
def test_an_event_says_what_the_table_says(event: dict, expected: list) -> None:
    """Known events become their signals, unknown ones none, and wrong types never raise."""
    assert parse(json.dumps(event).encode()) == expected


def recorded(name: str) -> list:
    lines = (RECORDED / f"{name}.jsonl").read_bytes().splitlines()
    return [signal for line in lines for signal in parse(line)]


def test_a_turn_that_codex_printed_is_understood() -> None:
    """Commands, file changes, MCP tools, a search, messages and thoughts are parsed."""
    signals = recorded("turn")
    assert signals[0] == SessionStarted(THREAD, "")
    assert [s.text for s in signals if isinstance(s, AgentSaid)] == [
        "I will write it.",
        "All done.",
    ]
    assert [s.text for s in signals if isinstance(s, Thought)] == ["I should look first"]
    calls = {s.tool_use_id: s.name for s in signals if isinstance(s, ToolCalled)}
    assert list(calls.values()) == [
        *("Bash", "Write", "Edit", "mcp__echo__shout", "mcp__echo__fail", "WebSearch", "Bash")
    ]
    returned = [(s.result, s.is_error) for s in signals if isinstance(s, ToolReturned)]
    assert returned == [
        ("hello\n", False),
        ("add /agentRoot/a.txt", False),
        ("update /agentRoot/a.txt\ndelete /agentRoot/hello.txt", False),
        ("HI!", False),
        ("Error executing tool fail", True),
        ("", False),
        ("no\n", True),
    ]
    assert signals[-1] == result(tokens=counts(3600, 300, 0, 2400))
    assert not [s for s in signals if isinstance(s, PlainOutput)]


@pytest.mark.parametrize(
    ("name", "kind", "retriable"),
    [
        ("rate-limited", "rate-limit", True),
        ("wrong-key", "api-error", False),
        ("no-quota", "api-error", False),
        ("at-capacity", "api-error", True),
        ("dropped", "api-error", True),
        ("context-full", "api-error", False),
    ],
)
def test_a_failure_that_codex_printed_is_reported_and_classified(name, kind, retriable) -> None:
    """The last event is a failed result whose text shows whether a retry can help."""
    signals = recorded(name)
    (reported,) = (signal for signal in signals if isinstance(signal, ResultReported))
    assert reported is signals[-1]
    assert not reported.success
    reason = classify(reported.text, 1, had_session=True)
    assert (reason.type, reason.retriable) == (kind, retriable)
    full = [signal for signal in signals if isinstance(signal, ContextExceeded)]
    assert bool(full) == (name == "context-full")


WRONG: tuple[object, ...] = (
    *(None, True, 0, -1, 1.5, 10**30, "x", [], {}, [None], [3], [[]], {"message": 3}),
    *({"content": [None, {"type": "text"}]}, [{"path": 3, "kind": []}], [{"text": {}}]),
    *({"input_tokens": "many"}, {"input_tokens": -5, "cached_input_tokens": 9}),
)
anything = st.sampled_from(WRONG)
KINDS = sorted({each["type"] for each, _ in EVENTS})
ITEM_KINDS = sorted(
    {each["item"]["type"] for each, _ in EVENTS if isinstance(each.get("item"), dict)}
)
FIELDS = (
    *("id", "text", "message", "command", "aggregated_output", "exit_code", "status", "changes"),
    *("server", "tool", "arguments", "result", "error", "query", "items"),
)
hostile_items = st.fixed_dictionaries(
    {"type": st.sampled_from(ITEM_KINDS)}, optional=dict.fromkeys(FIELDS, anything)
)
hostile_events = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={"item": hostile_items | anything}
    | dict.fromkeys(("usage", "error", "message", "thread_id"), anything),
)


@given(hostile_events)
def test_no_event_of_wrong_types_raises(event: dict) -> None:
    """Values of wrong types give signals that can still be written to the journal."""
    for signal in parse(json.dumps(event).encode()):
        msgspec.json.encode(signal)
        assert not isinstance(signal, PlainOutput)


@given(st.binary() | st.binary().map(b'{"type": "error", \xff'.__add__))
def test_no_bytes_raise(line: bytes) -> None:
    """Bytes that are not an event, torn or not, are passed on as plain output."""
    assert parse(line) == [PlainOutput(line.decode(errors="replace"))]


@pytest.mark.parametrize(
    "line",
    [b"plain", b'{"type": "turn', b"[1]", b'{"type": 7}', b"[" * 100_000, b'{"a":' * 5_000],
)
def test_what_is_no_event_is_plain_output(line: bytes) -> None:
    """Text, torn or hostile JSON, and JSON without a type are plain output."""
    assert parse(line) == [PlainOutput(line.decode())]


def test_a_number_that_cannot_be_written_becomes_a_text() -> None:
    """A number that JSON cannot represent becomes text, so that the event can be journaled."""
    line = b'{"type":"item.started","item":{"id":"i","type":"mcp_tool_call","arguments":{"n":%d}}}'
    (called,) = parse(line % 10**30)
    assert isinstance(called, ToolCalled)
    assert called.input == {"n": str(10**30)}
