"""Translation of ACP updates to messages, tool calls and results."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_server.agents import stream_json
from hankweave_server.agents.acp.events import AcpTranslator
from hankweave_server.agents.acp.json_lines import LONGEST_LINE, LONGEST_TEXT, encoded
from hankweave_server.agents.base import (
    AgentSaid,
    PlainOutput,
    Thought,
    ToolAnnounced,
    ToolCalled,
    ToolReturned,
)
from hankweave_server.domain.permission_patterns import DECIDING

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KINDS = (
    *("agent_message_chunk", "agent_thought_chunk", "user_message_chunk", "tool_call"),
    *("tool_call_update", "plan", "usage_update", "current_mode_update", "of_tomorrow"),
)
NAMES = ("content", "toolCallId", "title", "kind", "status", "rawInput", "rawOutput", "locations")
UPDATES = st.fixed_dictionaries(
    {"sessionUpdate": st.sampled_from(KINDS)},
    optional=dict.fromkeys((*NAMES, "messageId", "cost", "_meta"), JSON)
    | {"status": st.sampled_from(["pending", "in_progress", "completed", "failed"])},
)


class Listener:
    """A listener that stores each line as the session parses it."""

    def __init__(self) -> None:
        self.signals: list[Any] = []
        self.safe_points = 0

    def write(self, line: dict[str, Any]) -> None:
        data = encoded(line)
        assert data.endswith(b"\n")
        assert len(data) <= LONGEST_LINE
        self.signals += stream_json.parse(data[:-1])

    def save(self) -> None:
        self.safe_points += 1


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def story(listener: Listener) -> AcpTranslator:
    return AcpTranslator(listener.write, listener.save)


def chunk(text: str, kind: str = "agent_message_chunk", **more: Any) -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}, **more}


def call(update: str = "tool_call", **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": update, "toolCallId": "c1", **fields}


@given(st.lists(UPDATES, max_size=12))
def test_no_update_ends_the_translation(updates: list[dict[str, Any]]) -> None:
    """Every update is reported or skipped, whatever it holds, and every line can be parsed."""
    listener = Listener()
    story = AcpTranslator(listener.write, listener.save)
    for update in updates:
        story.receive(update)

    story.question("r1", {"toolCall": updates[0] if updates else None})
    story.end()
    assert not [each for each in listener.signals if isinstance(each, PlainOutput)]


@given(st.lists(st.text(), max_size=20), st.integers(1, 3))
def test_pieces_are_joined_whatever_their_borders(texts: list[str], step: int) -> None:
    """The message is the same at whatever positions the stream was cut."""
    listener = Listener()
    story = AcpTranslator(listener.write, listener.save)
    text = "".join(texts)
    for start in range(0, len(text), step):
        story.receive(chunk(text[start : start + step]))

    story.end()
    found = "".join(each.text for each in listener.signals if isinstance(each, AgentSaid))
    assert found == (text if text.strip() else "")


def test_halves_of_a_pair_find_each_other(story: AcpTranslator, listener: Listener) -> None:
    """A surrogate pair that a UTF-16 stream cut in half is joined again."""
    story.receive(chunk("\ud83d"))
    story.receive(chunk("\ude00 and \ud83d"))
    story.end()
    assert listener.signals == [AgentSaid("\U0001f600 and \ufffd")]


def test_a_message_ends_where_another_begins(story: AcpTranslator, listener: Listener) -> None:
    """A new id, a thought, a tool or a plan ends a message; an update without content does not."""
    for update in (
        chunk("a", messageId="1"),
        {"sessionUpdate": "available_commands_update"},
        chunk("b", messageId="1"),
        chunk("c", messageId="2"),
        chunk("t", "agent_thought_chunk", messageId="2"),
        chunk("d", messageId="2"),
        {"sessionUpdate": "plan", "entries": []},
        chunk("e", messageId="2"),
    ):
        story.receive(update)

    story.end()
    assert listener.signals == [
        AgentSaid("ab"),
        AgentSaid("c"),
        Thought("t"),
        AgentSaid("d"),
        AgentSaid("e"),
    ]
    assert story.last_text == "e"


def test_a_long_message_is_split(story: AcpTranslator, listener: Listener) -> None:
    """A long message is split, so that no line is longer than the session accepts."""
    story.receive(chunk("x" * (3 * LONGEST_TEXT + 5)))
    story.end()
    assert [len(each.text) for each in listener.signals] == [LONGEST_TEXT] * 3 + [5]


def test_a_call_is_reported_when_its_input_is_complete(
    story: AcpTranslator, listener: Listener
) -> None:
    """A pending call is announced, then reported once with its whole input, and its result once."""
    story.receive(call(title="write", kind="edit", status="pending", rawInput={}))
    story.receive(call("tool_call_update", status="pending"))
    assert listener.signals == [ToolAnnounced("c1", "Edit")]
    story.receive(
        call("tool_call_update", status="in_progress", rawInput={"filePath": "/w/a", "content": ""})
    )
    story.receive(call("tool_call_update", status="in_progress", title="still"))
    done = call("tool_call_update", status="completed", rawOutput={"output": "Wrote it."})
    story.receive(done)
    story.receive(done)
    assert listener.signals[1:] == [
        ToolCalled("c1", "Edit", {"filePath": "/w/a", "content": ""}),
        ToolReturned("c1", "", "Wrote it.", False),
    ]
    assert listener.safe_points == 1


def test_a_call_that_never_began_is_reported_at_the_end(
    story: AcpTranslator, listener: Listener
) -> None:
    """A call that never started is reported at the end of the turn."""
    story.receive(call(title="rm -r x", kind="execute", status="pending"))
    story.end()
    assert listener.signals == [
        ToolAnnounced("c1", "Bash"),
        ToolCalled("c1", "Bash", {"command": "rm -r x"}),
    ]


@pytest.mark.parametrize(
    ("fields", "name", "arguments"),
    [
        ({"kind": "execute", "title": "ls"}, "Bash", {"command": "ls"}),
        ({"kind": "execute", "rawInput": {"command": "ls -l"}}, "Bash", {"command": "ls -l"}),
        ({"kind": "read", "locations": [{"path": "/a"}]}, "Read", {"file_path": "/a"}),
        (
            {"kind": "move", "locations": [{"path": "/a"}, {"path": "/b"}]},
            "Move",
            {"file_path": "/a", "file_paths": ["/a", "/b"]},
        ),
        (
            {"kind": "edit", "content": [{"type": "diff", "path": "/a", "newText": "n"}]},
            "Edit",
            {"file_path": "/a", "old_string": "", "new_string": "n"},
        ),
        ({"kind": "other", "title": "hankweave_checkpoint_create"}, None, {}),
        ({"kind": "other", "title": "two\nlines"}, "Tool", {}),
        ({"kind": "think", "rawInput": [1]}, "Think", {"input": [1]}),
        ({"kind": "edit", "_meta": {"claudeCode": {"toolName": "Write"}}}, "Write", {}),
    ],
)
def test_tools_have_the_names_that_rules_are_written_for(
    story: AcpTranslator,
    listener: Listener,
    fields: dict[str, Any],
    name: str | None,
    arguments: object,
) -> None:
    """Tool kinds and their main argument get the names that Claude Code uses."""
    story.receive(call(status="in_progress", **fields))
    assert listener.signals == [ToolCalled("c1", name or fields["title"], arguments)]


def test_a_question_reports_the_call_first(story: AcpTranslator, listener: Listener) -> None:
    """A question reports its call first, as some agents ask before they announce it.

    Long contents are truncated.
    """
    content = "x" * LONGEST_TEXT
    line = story.question(
        "r1", {"toolCall": {"toolCallId": "c1", "kind": "edit", "rawInput": {"content": content}}}
    )
    assert listener.signals == [ToolCalled("c1", "Edit", {"content": content})]
    request = line["request"]
    assert (line["request_id"], request["tool_name"]) == ("r1", "Edit")
    assert len(request["input"]["content"]) < 3_000


@pytest.mark.parametrize("key", sorted(DECIDING))
def test_what_decides_is_never_shortened(story: AcpTranslator, key: str) -> None:
    """Long paths and commands are never truncated: the end may be what a rule denies."""
    value = "src/" + "./" * 1500 + "../../etc/passwd"
    line = story.question("r1", {"toolCall": {"toolCallId": "c1", "rawInput": {key: value}}})
    assert line["request"]["input"] == {key: value}


def test_history_is_not_reported_but_its_cost_is_counted(
    story: AcpTranslator, listener: Listener
) -> None:
    """Events of a loaded history are not reported again, but its cost is counted."""
    story.is_replay = True
    story.receive(chunk("old"))
    story.receive(call(status="completed"))
    story.receive({"sessionUpdate": "usage_update", "cost": {"amount": 2, "currency": "USD"}})
    story.receive({"sessionUpdate": "usage_update", "cost": {"amount": 9, "currency": "EUR"}})
    story.is_replay = False
    story.end()
    assert listener.signals == []
    assert story.cost == 2.0
    assert story.update_count == 4


def test_what_cannot_be_printed_is_left_out() -> None:
    """Deeply nested or infinite values are dropped from a line, which is still printed."""
    deep: Any = []
    for _ in range(2_000):
        deep = [deep]

    for value in (deep, float("inf"), "\ud800", 10**400, {str(n): "y" * 500 for n in range(5_000)}):
        line = encoded({"type": "assistant", "message": {"content": value}})
        assert len(line) <= LONGEST_LINE
        assert json.loads(line)["type"] == "assistant"
