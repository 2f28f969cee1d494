"""The ACP adapter and its bridge, with a stand-in agent that speaks the protocol with the SDK."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import psutil
import pytest

from hankweave_server.agents.acp.adapter import AcpAgent
from hankweave_server.agents.base import (
    AgentLimits,
    AgentNotFound,
    AgentSaid,
    Exited,
    Forbidden,
    Granted,
    McpServer,
    PermissionAsked,
    PlainOutput,
    ResultReported,
    SessionStarted,
    Stderr,
    Thought,
    TimedOut,
    ToolCalled,
    ToolReturned,
)
from hankweave_server.confinement import own_program
from support.token_counts import counts
from support.waiting import limited

STAND_IN = Path(__file__).resolve().parents[2] / "support" / "acp_agent.py"


def stand_in(*arguments: str, **changes: Any) -> AcpAgent:
    return AcpAgent((sys.executable, str(STAND_IN), *arguments), **changes)


def messages_of(task: Any) -> list[dict[str, Any]]:
    """Return the messages that the stand-in received."""
    lines = (task.work_tree / "heard.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def message(task: Any, what: str) -> Any:
    return next(each[what] for each in messages_of(task) if what in each)


@pytest.mark.full
async def test_a_turn_is_reported_as_any_other_agents(a_task, converse, monkeypatch) -> None:
    """Chunks are joined into messages; a tool call, its question and its result come in order."""
    monkeypatch.setenv("STAND_IN_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not yours")
    monkeypatch.setenv("HANKWEAVE_TOKEN", "nobody's")
    task = a_task("do it", system_prompt="be brief", model="large")
    agent = stand_in(
        *("say=I wi|ll", "think=hm", "write=a.txt", "cost=0.5", "say=done"),
        keys=("STAND_IN_KEY", "HANKWEAVE_"),
        mode="bold",
    )
    call = {"file_path": "a.txt", "old_string": "", "new_string": "new words\n"}
    run = await converse(agent, task, Granted())
    assert run.signals == [
        SessionStarted("session-1", "maker/large"),
        AgentSaid("I will"),
        Thought("hm"),
        ToolCalled("call-a.txt", "Edit", call),
        PermissionAsked("permission-1", "Edit", call),
        ToolReturned("call-a.txt", "Edit", "Changed a.txt", False),
        AgentSaid("done"),
        ResultReported(True, "done", 0.5, counts(30, 12), "session-1", {}),
    ]
    assert run.outcome == Exited(0)
    assert (task.work_tree / "a.txt").read_text() == "new words\n"
    assert message(task, "permission")["optionId"] == "once"
    assert message(task, "option") == {"llm": "maker/large"}
    assert message(task, "mode") == {"mode": "bold"}
    prompt = message(task, "prompt")
    assert prompt["text"] == "be brief\n\ndo it"
    assert "STAND_IN_KEY" in prompt["variables"]
    assert not {"ANTHROPIC_API_KEY", "HANKWEAVE_TOKEN"} & set(prompt["variables"])
    raw = [json.loads(line) for line in task.log_path.read_text().splitlines()]
    methods = [each["message"].get("method") for each in raw if each["type"] == "acp"]
    assert methods[0] == "initialize"
    assert "session/request_permission" in methods


@pytest.mark.full
async def test_a_refused_call_is_not_made(a_task, converse) -> None:
    """A refusal selects the agent's own `reject_once`; the tool fails and the turn continues."""
    task = a_task()
    run = await converse(stand_in("write=a.txt", "say=a pity"), task, Forbidden("No."))
    assert not (task.work_tree / "a.txt").exists()
    assert message(task, "permission")["optionId"] == "never"
    (returned,) = run.of(ToolReturned)
    assert returned.is_error
    assert run.outcome == Exited(0)


@pytest.mark.full
async def test_servers_of_tools_are_handed_on_and_their_secrets_logged_nowhere(
    a_task, run_agent
) -> None:
    """The agent gets an MCP server's command and environment; the log has only variable names."""
    server = McpServer("hankweave", ("run", "it"), {"SECRET": "s3cret"})
    task = a_task(tools=(server,))
    await run_agent(stand_in("say=hi"), task)
    (offered,) = message(task, "new")["servers"]
    assert (offered["name"], offered["command"], offered["args"]) == ("hankweave", "run", ["it"])
    assert offered["env"] == [{"name": "SECRET", "value": "s3cret"}]
    log = task.log_path.read_text()
    assert "SECRET" in log
    assert "s3cret" not in log


@pytest.mark.full
async def test_a_session_is_loaded_and_its_history_not_reported_again(a_task, run_agent) -> None:
    """The history of a loaded session is not reported again, even if it follows the response."""
    task = a_task("on", resume_session="earlier")
    run = await run_agent(stand_in("can-load", "late-history", "say=new", "cost=2"), task)
    assert [each.text for each in run.of(AgentSaid)] == ["new"]
    (result,) = run.of(ResultReported)
    assert (result.session_id, result.cost_usd) == ("earlier", None)
    assert message(task, "load") == {"session": "earlier"}


@pytest.mark.full
async def test_an_agent_that_cannot_load_sessions_fails_clearly(a_task, run_agent) -> None:
    """No new session starts: the next codon would continue in the wrong conversation."""
    run = await run_agent(stand_in("say=new"), a_task(resume_session="earlier"))
    (result,) = run.of(ResultReported)
    assert "cannot continue an earlier session" in result.text
    assert run.of(SessionStarted) == []
    assert run.outcome == Exited(1)


@pytest.mark.full
async def test_a_conversation_goes_back_with_its_file(a_task, run_agent, tmp_path) -> None:
    """The conversation is kept at each step, and a rollback removes everything after that step."""
    program = tmp_path / "opencode"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STAND_IN}" can-resume "$@"\n')
    program.chmod(0o755)

    def agent(*arguments: str) -> AcpAgent:
        return AcpAgent((str(program), *arguments), homes=tmp_path / "homes")

    async def texts_of(*arguments: str, resumed: str | None) -> list[str]:
        run = await run_agent(agent(*arguments), a_task(resume_session=resumed))
        assert run.outcome == Exited(0)
        return [each.text for each in run.of(AgentSaid)]

    (memory,) = agent().memory_of("session-1", tmp_path, {})
    assert await texts_of("remember=a", "announce=x", resumed=None) == ["taken note of"]
    then = memory.read_bytes()
    assert await texts_of("remember=b", "recall", resumed="session-1") == ["a b"]
    memory.write_bytes(then)
    assert await texts_of("recall", resumed="session-1") == ["a"]
    assert [path.name for path in (tmp_path / "homes" / "opencode").iterdir()] == [memory.name]


@pytest.mark.full
async def test_what_is_not_offered_is_refused(a_task, run_agent) -> None:
    """An agent that asks its client to write files learns that this client does not."""
    task = a_task()
    run = await run_agent(stand_in("announce=x"), task)
    assert [each.text for each in run.of(AgentSaid)] == ["error -32601"]
    assert not (task.work_tree / "x").exists()


@pytest.mark.full
async def test_a_key_of_the_environment_authenticates(a_task, run_agent, monkeypatch) -> None:
    """A key authenticates only if the agent asks for it, by a method without user interaction."""
    monkeypatch.setenv("STAND_IN_KEY", "k")
    task = a_task()
    run = await run_agent(stand_in("needs-key", "say=hi", keys=("STAND_IN_KEY",)), task)
    assert run.outcome == Exited(0)
    assert message(task, "authenticate") == {"method": "stand-in-key"}
    run = await run_agent(stand_in("needs-key", "say=hi"), a_task())
    (result,) = run.of(ResultReported)
    assert result.text.startswith("Not authenticated")
    assert "stand-in-key" in result.text


@pytest.mark.full
async def test_a_stopped_agent_is_asked_to_cancel_its_turn(a_task) -> None:
    """SIGINT becomes `session/cancel`, and the end of the turn is reported as a failure."""
    task = a_task()
    with limited():
        async with stand_in("say=begun", "write=a.txt", "wait-for-cancel").start(task) as session:
            signals = []
            async for signal in session.signals():
                signals.append(signal)
                if isinstance(signal, PermissionAsked):
                    await session.stop()

            assert await session.wait() == Exited(1)

    (result,) = [each for each in signals if isinstance(each, ResultReported)]
    assert (result.success, result.text) == (False, "The agent's turn was cancelled.")
    assert message(task, "cancel") == {}
    assert message(task, "permission") == {"outcome": "cancelled"}


@pytest.mark.full
async def test_a_deaf_agent_goes_down_with_all_it_has(a_task) -> None:
    """An agent that ignores signals is killed with its process tree, own sessions included."""
    task = a_task(limits=AgentLimits(kill_grace=timedelta(seconds=0.3)))
    with limited():
        async with stand_in("say=begun", "think=so", "deaf").start(task) as session:
            async for signal in session.signals():
                if isinstance(signal, AgentSaid):
                    children = psutil.Process(session.pid).children(recursive=True)
                    await session.stop()

    assert children
    assert not any(child.is_running() for child in children)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("complain=Out of ideas.", "exit=3"), "ended with exit code 3"),
        (("complain=Out of ideas.", "crash"), "was terminated by signal 9"),
    ],
)
@pytest.mark.full
async def test_an_agent_that_dies_leaves_its_last_output(
    a_task, run_agent, arguments, expected
) -> None:
    """The failure has the pending request and the agent's last output, and no exit code."""
    run = await run_agent(stand_in(*arguments), a_task())
    (result,) = run.of(ResultReported)
    assert not result.success
    assert expected in result.text
    assert "session/prompt" in result.text
    assert "Out of ideas." in result.text
    assert run.outcome == Exited(1)


@pytest.mark.full
async def test_an_agent_that_never_begins_is_reported_too(a_task, run_agent) -> None:
    """An agent that exits before its first protocol message is reported as a failure."""
    run = await run_agent(stand_in("early-exit=7"), a_task())
    (result,) = run.of(ResultReported)
    assert "exit code 7 before it answered initialize" in result.text
    assert "I cannot begin." in result.text


@pytest.mark.full
async def test_oddities_and_lines_beyond_all_reason_are_passed_over(a_task, run_agent) -> None:
    """Garbage, unknown updates and a line of a hundred megabytes do not end a turn."""
    task = a_task()
    run = await run_agent(stand_in("garbage", "odd", "long=3", "long=100", "say=well"), task)
    (result,) = run.of(ResultReported)
    assert (result.success, result.text) == (True, "well")
    assert run.of(PlainOutput) == []
    remarks = [each.line for each in run.of(Stderr)]
    assert "no JSON at all" in remarks
    assert any(remark.endswith("bytes was ignored.") for remark in remarks)
    (long,) = [each for each in run.of(ToolReturned) if each.name == "Read"]
    assert long.result.endswith("characters dropped]")


@pytest.mark.full
async def test_silence_ends_by_a_time_limit(a_task, run_agent) -> None:
    """The start limit applies before the session starts, the idle limit during a turn."""
    limits = AgentLimits(start=timedelta(seconds=1), kill_grace=timedelta(seconds=0.3))
    run = await run_agent(stand_in("silent"), a_task(limits=limits))
    assert run.outcome == TimedOut("start")
    limits = AgentLimits(idle=timedelta(seconds=8), kill_grace=timedelta(seconds=0.3))
    run = await run_agent(stand_in("deaf"), a_task(limits=limits))
    assert run.outcome == TimedOut("idle")


async def test_what_is_not_installed_is_named_before_anything_starts(
    a_task, run_agent, monkeypatch
) -> None:
    """Without the agent's program, or the extra for the bridge, the start fails at once."""
    with pytest.raises(AgentNotFound, match="no-such-agent"):
        await run_agent(AcpAgent(("no-such-agent", "acp")), a_task())

    def nothing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(own_program, "distribution", nothing)
    task = a_task()
    with pytest.raises(AgentNotFound) as refused:
        await run_agent(stand_in("say=hi"), task)

    assert refused.value.hint == "Install it with: pip install 'hankweave[acp]'"
    assert not task.log_path.exists()


async def test_a_codons_environment_cannot_change_the_bridge(a_task, run_agent, tmp_path) -> None:
    """Python variables in a codon's environment reach only the agent."""
    (tmp_path / "agentRoot").mkdir()
    (tmp_path / "agentRoot" / "acp.py").write_text("raise SystemExit('hijacked')")
    broken = str(tmp_path / "nowhere")
    task = a_task(environment={"PYTHONHOME": broken, "PYTHONSTARTUP": broken})
    run = await run_agent(stand_in("say=hi"), task)
    (result,) = run.of(ResultReported)
    # The stand-in is Python itself and cannot start with these variables; the bridge can.
    assert "before it answered initialize" in result.text
