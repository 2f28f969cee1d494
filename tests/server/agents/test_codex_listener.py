"""Events of Codex that are complete only together with its rollout file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hankweave_protocol.state import Tokens
from hankweave_server.agents.base import (
    ContextExceeded,
    LimitReported,
    ResultReported,
    SessionStarted,
    ToolCalled,
    ToolReturned,
    UsageReported,
)
from hankweave_server.agents.codex.stream import CodexListener, Rollout, rollouts_of
from hankweave_server.domain.limits import LimitFacts
from support.golden import GOLDEN
from support.token_counts import counts

RECORDED = GOLDEN / "agents" / "codex"
THREAD = "01a1ff2d-fb37-7402-b046-000000000001"


@pytest.fixture
def rollout(tmp_path: Path) -> Path:
    path = tmp_path / "sessions" / "2026" / "11" / "21" / f"rollout-x-{THREAD}.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def counted(used: int, *, cached: int = 0, output: int = 0) -> str:
    usage = {"input_tokens": used, "cached_input_tokens": cached, "output_tokens": output}
    payload = {"type": "token_count", "info": {"total_token_usage": usage}}
    return json.dumps({"type": "event_msg", "payload": payload}) + "\n"


def signals_of(listener: CodexListener, *events: dict) -> list:
    return [signal for each in events for signal in listener.parse(json.dumps(each).encode())]


def started() -> dict:
    return {"type": "thread.started", "thread_id": THREAD}


def message(text: str) -> dict:
    item = {"id": "item_0", "type": "agent_message", "text": text}
    return {"type": "item.completed", "item": item}


def ended(used: int, *, cached: int = 0, output: int = 0) -> dict:
    usage = {"input_tokens": used, "cached_input_tokens": cached, "output_tokens": output}
    return {"type": "turn.completed", "usage": usage}


def command(state: str, name: str = "item_1") -> dict:
    item = {"id": name, "type": "command_execution", "command": "ls"}
    return {"type": f"item.{state}", "item": item}


def usages(signals: list) -> list[Tokens]:
    return [signal.tokens for signal in signals if isinstance(signal, UsageReported)]


def test_the_session_has_the_model_that_was_asked_for(tmp_path) -> None:
    """Codex does not report the model, and prices depend on it."""
    (begun,) = signals_of(CodexListener(tmp_path, "gpt-5.4", None), started())
    assert begun == SessionStarted(THREAD, "gpt-5.4")


def test_a_call_is_reported_once_with_an_id_of_its_own(tmp_path) -> None:
    """A call is reported once, with a unique id: Codex renumbers its items in each process."""
    ids = []
    for events in (
        [command("started"), command("updated"), command("completed")],
        [command("completed")],
    ):
        signals = signals_of(CodexListener(tmp_path, "m", None), started(), *events)[1:]
        assert [type(signal) for signal in signals] == [ToolCalled, ToolReturned]
        assert signals[0].tool_use_id == signals[1].tool_use_id
        ids.append(signals[0].tool_use_id)

    assert len(set(ids)) == 2


def test_each_answer_of_the_model_is_counted_as_it_is_written_down(tmp_path, rollout) -> None:
    """Counts are reported during the turn, for budgets; a repeated count is skipped."""
    listener = CodexListener(tmp_path, "m", None)
    signals_of(listener, started())
    with rollout.open("a") as file:
        file.write(counted(200) + counted(1000, cached=400, output=50) * 2)
        file.write(counted(9000)[:40])  # Still incomplete.

    assert usages(signals_of(listener, message("a"))) == [
        counts(200),
        counts(400, 50, 0, 400),
    ]
    assert usages(signals_of(listener, command("started"))) == []
    written = counted(200) + counted(1000, cached=400, output=50) * 2
    rollout.write_text(written + counted(2500, cached=400, output=50))
    (more,) = usages(signals_of(listener, message("b")))
    assert more == counts(1500, 0, 0, 0)
    last = signals_of(listener, ended(3000, cached=400, output=70))
    assert usages(last) == [counts(500, 20, 0, 0)]
    assert last[-1].tokens == counts(2600, 70, 0, 400)
    assert last[-1].text == "b"


def test_a_resumed_thread_counts_what_is_new(tmp_path, rollout) -> None:
    """Codex prints the tokens of the whole thread at its end, earlier codons included."""
    rollout.write_text(counted(6000, cached=2400, output=300))
    before = Rollout(tmp_path, THREAD)
    before.read_on()
    listener = CodexListener(tmp_path, "m", before)
    lines = (RECORDED / "resumed.jsonl").read_bytes().splitlines()
    signals = [signal for line in lines for signal in listener.parse(line)]
    assert usages(signals) == [counts(600, 50, 0, 400)]
    assert isinstance(signals[-1], ResultReported)
    assert signals[-1].tokens == counts(600, 50, 0, 400)


def test_a_turn_that_fails_has_cost_what_was_written_down(tmp_path, rollout) -> None:
    """The cost of a failed turn comes from the rollout, as Codex prints no tokens then."""
    listener = CodexListener(tmp_path, "m", None)
    signals_of(listener, started())
    rollout.write_text(counted(1000))
    signals = signals_of(listener, {"type": "turn.failed", "error": {"message": "no"}})
    assert usages(signals) == [counts(1000)]
    assert signals[-1].tokens is None
    assert not signals[-1].success


def test_a_usage_limit_has_the_instant_that_was_written_down(tmp_path, rollout) -> None:
    """The rollout has the epoch of the exhausted allowance and the error's name; an error only
    of the output would have a local time."""
    listener = CodexListener(tmp_path, "gpt-5", None)
    signals_of(listener, started())
    allowances = {
        "primary": {"used_percent": 100.0, "resets_at": 1795269000},
        "secondary": {"used_percent": 41.5, "resets_at": 1795500000},
    }
    error = {"message": "You\u2019ve hit ...", "codex_error_info": "usage_limit_exceeded"}
    lines = (
        {"type": "event_msg", "payload": {"type": "token_count", "rate_limits": allowances}},
        {"type": "event_msg", "payload": {"type": "task_complete", "error": error}},
    )
    rollout.write_text("".join(json.dumps(line) + "\n" for line in lines))
    signals = signals_of(listener, {"type": "turn.failed", "error": {"message": "hit"}})
    facts = LimitFacts(error="usage_limit_exceeded", resets_at=1795269000.0)
    assert LimitReported(facts) in signals


def test_without_a_rollout_the_result_counts_alone(tmp_path) -> None:
    """A turn's total is not reported as a message, because it would look like a full context."""
    signals = signals_of(CodexListener(tmp_path, "m", None), started(), message("a"), ended(100))
    assert usages(signals) == []
    assert signals[-1].tokens == counts(100)


def test_a_compacted_context_is_reported_once(tmp_path, rollout) -> None:
    """Codex does not print a compaction; it is reported once, as the hank may wait for it."""
    listener = CodexListener(tmp_path, "m", None)
    signals_of(listener, started())
    rollout.write_bytes((RECORDED / "rollout.jsonl").read_bytes())
    signals = signals_of(listener, message("a"), message("b"))
    assert [s.reason for s in signals if isinstance(s, ContextExceeded)] == ["compact_boundary"]
    assert usages(signals) == [counts(5000, 50), counts(100, 50), counts(100, 50)]


def test_a_rollout_is_found_by_its_id_alone(tmp_path, rollout) -> None:
    """A rollout is found in any directory with any time, and its thread can be searched."""
    rollout.write_text('{"type":"response_item","payload":{"text":"Be \\"brief\\" é"}}\n')
    assert rollouts_of(tmp_path, THREAD) == (rollout,)
    found = Rollout(tmp_path, THREAD)
    assert not found.contains('Be "brief" é')
    found.read_on()
    assert found.is_found
    assert found.contains('Be "brief" é')
    assert not found.contains("Be loud")


def test_a_rollout_that_is_gone_is_expected_where_codex_would_have_put_it(
    tmp_path, monkeypatch
) -> None:
    """The expected path comes from the time in the id; the file may be slightly newer."""
    monkeypatch.setenv("TZ", "UTC")
    begun = "2026-11-21T17-36-0"
    names = [path.name for path in rollouts_of(tmp_path, THREAD)]
    assert names == [f"rollout-{begun}{second}-{THREAD}.jsonl" for second in (5, 6)]
    folders = {path.parent for path in rollouts_of(tmp_path, THREAD)}
    assert folders == {tmp_path / "sessions" / "2026" / "11" / "21"}


@pytest.mark.parametrize(
    "forged",
    ["", "..", "../s1", "a/b", "a\0b", "*", "x" * 200, "0c7b9f2e-95a1-4a6e-9a55-1b8f4d0d9a11"],
)
def test_an_id_that_is_no_threads_names_nothing(tmp_path, forged) -> None:
    """A path, a pattern or an id without a time names no rollout."""
    assert rollouts_of(tmp_path, forged) == ()
