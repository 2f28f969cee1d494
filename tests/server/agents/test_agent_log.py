"""The raw log of an agent."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from hankweave_server.agents.agent_log import AgentLog, entries_of, wrapped
from hankweave_server.agents.base import (
    AgentSaid,
    ResultReported,
    ToolCalled,
    ToolReturned,
)
from support.token_counts import counts

NOW = "2025-01-04T12:00:00.000Z"


def test_the_log_is_appended_to_and_private(tmp_path: Path) -> None:
    """A resumed codon appends to the same file, which only its owner can read."""
    path = tmp_path / "runs" / "r" / "c-claude.log"
    for line in (b"one", b"two"):
        with AgentLog(path, limit=100) as log:
            log.append([line], NOW)

    assert path.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_torn_last_line_is_ended_first(tmp_path: Path) -> None:
    """A line that a crash left half-written is terminated before the next line is written."""
    path = tmp_path / "log"
    path.write_bytes(b'{"torn')
    with AgentLog(path, limit=100) as log:
        log.append([b"next"], NOW)

    assert path.read_bytes() == b'{"torn\nnext\n'


def test_a_full_log_says_so_once(tmp_path: Path) -> None:
    """At the size limit one marker is written, and nothing after it."""
    path = tmp_path / "log"
    with AgentLog(path, limit=10) as log:
        for _ in range(5):
            log.append([b"12345678"], NOW)

    first, marker = path.read_bytes().splitlines()
    assert first == b"12345678"
    assert json.loads(marker)["type"] == "truncated"
    assert json.loads(marker)["timestamp"] == NOW


def test_a_log_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """A symbolic link in place of the log is refused, so that the log cannot be redirected."""
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="log"):
        AgentLog(tmp_path / "log", limit=10)


def test_plain_text_is_wrapped() -> None:
    """Every line of the log is a JSON object with a type."""
    assert json.loads(wrapped("stderr", 'a "b"', "2025-01-04T12:00:00.000Z")) == {
        "type": "stderr",
        "timestamp": "2025-01-04T12:00:00.000Z",
        "message": 'a "b"',
    }


def test_a_claude_line_keeps_its_bytes_and_gains_the_flat_fields() -> None:
    """The nested form stays as printed; time, content and usage are appended to it."""
    line = b'{"type":"assistant", "message":{"content":"Hi","usage":{"input_tokens":1e0}} } '
    (entry,) = entries_of(line, [AgentSaid("Hi")], NOW)
    assert entry.startswith(line.rstrip().removesuffix(b"}"))
    assert json.loads(entry) == {
        "type": "assistant",
        "message": {"content": "Hi", "usage": {"input_tokens": 1.0}},
        "timestamp": NOW,
        "content": [{"type": "text", "text": "Hi"}],
        "usage": {"input_tokens": 1.0},
    }


def test_what_a_line_has_already_is_not_added() -> None:
    """A flat line with its own time stays unchanged, byte for byte."""
    line = b'{"type":"user","timestamp":"then","content":"c","message":{"content":[]}}'
    assert entries_of(line, [], NOW) == [line]
    result = b'{"type":"result","timestamp":"then","total_cost_usd":0.25}'
    (entry,) = entries_of(result, [], NOW)
    assert entry == result[:-1] + b',"cost":0.25,"total_cost":0.25}'


def test_a_line_of_another_format_is_followed_by_the_same_in_the_seeds_form() -> None:
    """Calls, results, tokens and cost of Codex's items are also logged in Claude's form."""
    line = b'{"type":"item.completed","item":{"type":"file_change"}}'
    signals = [
        ToolCalled("t", "Write", {"file_path": "a"}),
        ToolReturned("t", "", "add a", is_error=True),
        ResultReported(True, "done", 0.5, counts(3, 2), None, {}),
    ]
    entries = [json.loads(each) for each in entries_of(line, signals, NOW)]
    assert [each["timestamp"] for each in entries] == [NOW] * 4
    assert [each.get("derived", False) for each in entries] == [False, True, True, True]
    raw, call, returned, result = entries
    assert raw["item"] == {"type": "file_change"}
    (block,) = call["content"]
    assert (call["type"], block["type"], block["name"]) == ("assistant", "tool_use", "Write")
    (block,) = returned["content"]
    assert (returned["type"], block["tool_use_id"], block["is_error"]) == ("user", "t", True)
    assert (result["type"], result["total_cost"], result["usage"]["output_tokens"]) == (
        "result",
        0.5,
        2,
    )
