"""The scripted agent runs as a real process, and the same script gives the same output."""

from __future__ import annotations

import json
import signal
from datetime import timedelta

import anyio
import pytest

from hankweave_server.agents.base import (
    AgentKilled,
    AgentLimits,
    AgentSaid,
    Exited,
    Forbidden,
    Granted,
    PermissionAsked,
    ResultReported,
    SessionStarted,
    Stderr,
    Thought,
    TimedOut,
    ToolCalled,
    ToolReturned,
    UsageReported,
)
from hankweave_server.agents.scripted.adapter import ScriptedAgent
from support.waiting import limited


def script(*steps: dict) -> str:
    return json.dumps({"steps": steps})


async def test_a_prompt_that_is_no_script_plays_the_default(a_task, run_agent) -> None:
    """Another prompt plays the demo: the agent reports its input and writes a note."""
    task = a_task("Look at the data.\n")
    run = await run_agent(ScriptedAgent(), task)
    assert run.of(AgentSaid) == [AgentSaid("I have read the prompt of observe: 4 words.")]
    note = task.work_tree / "notes" / "observe.md"
    assert note.read_text() == "# observe\n\nLook at the data.\n"
    assert run.of(ResultReported)[0].success
    assert run.outcome == Exited(0)


async def test_files_change_as_tool_calls(a_task, run_agent) -> None:
    """Every file step is reported as a call, the change, and its result."""
    task = a_task(
        script(
            {"write": {"path": "deep/a.txt", "text": "one\n"}},
            {"append": {"path": "deep/a.txt", "text": "zwei ü\n"}},
            {"write": {"path": "b.txt", "text": ""}},
            {"delete": "b.txt"},
            {"run": "cat deep/a.txt; exit 4"},
        )
    )
    run = await run_agent(ScriptedAgent(), task)
    calls, returns = run.of(ToolCalled), run.of(ToolReturned)
    assert [call.name for call in calls] == ["Write", "Edit", "Write", "Bash", "Bash"]
    assert calls[0].input["file_path"] == str(task.work_tree / "deep/a.txt")
    assert [(r.tool_use_id, r.name) for r in returns] == [(c.tool_use_id, c.name) for c in calls]
    assert returns[-1] == ToolReturned("toolu_5", "Bash", "one\nzwei ü\n", is_error=True)
    assert not (task.work_tree / "b.txt").exists()
    assert run.of(ResultReported)[0].success


async def test_two_runs_say_the_same(a_task, run_agent) -> None:
    """Ids, tokens and costs depend on the task alone."""
    task = a_task(script({"say": "Hello there"}, {"think": "Hm"}, {"cost": 0.5}, {"cost": 0.25}))
    first, second = [await run_agent(ScriptedAgent(), task) for _ in range(2)]
    assert first == second
    assert first.of(Thought) == [Thought("Hm")]
    assert len({usage.message_id for usage in first.of(UsageReported)}) == 2
    (result,) = first.of(ResultReported)
    assert result.cost_usd == 0.75
    assert result.tokens.output_tokens == sum(
        usage.tokens.output_tokens for usage in first.of(UsageReported)
    )


async def test_a_resumed_session_keeps_its_name(a_task, run_agent) -> None:
    """The first line of a resumed session has the same session id."""
    run = await run_agent(ScriptedAgent(), a_task(script(), resume_session="s9"))
    assert run.of(SessionStarted) == [SessionStarted("s9", "test-model")]


@pytest.mark.parametrize(
    ("step", "outcome", "texts"),
    [
        ({"fail": {"message": "out of credit"}}, Exited(1), ["out of credit"]),
        ({"fail": {"message": "no", "exitCode": 0}}, Exited(0), ["no"]),
        ({"exit": 5}, Exited(5), []),
        ({"crash": "SIGKILL"}, AgentKilled(signal.SIGKILL), []),
        ({"crash": 15}, AgentKilled(signal.SIGTERM), []),
    ],
)
async def test_a_script_can_end_badly(a_task, run_agent, step, outcome, texts) -> None:
    """A script can end with an error result, or with an exit code or a crash and no result."""
    run = await run_agent(ScriptedAgent(), a_task(script(step, {"say": "never"})))
    assert run.outcome == outcome
    assert [(result.success, result.text) for result in run.of(ResultReported)] == [
        (False, text) for text in texts
    ]
    assert run.of(AgentSaid) == []


@pytest.mark.parametrize(
    "prompt",
    [
        script({"dance": 1}),
        script({"say": "a", "think": "b"}),
        script({"delete": "absent"}),
        '{"steps"',
    ],
)
async def test_a_wrong_script_is_an_error_result(a_task, run_agent, prompt: str) -> None:
    """Unknown steps and broken scripts end with an error message and exit code 2."""
    run = await run_agent(ScriptedAgent(), a_task(prompt))
    assert run.of(ResultReported)[0].text.startswith("The script is invalid")
    assert run.outcome == Exited(2)


async def test_a_script_waits_for_a_file(a_task) -> None:
    """A test can hold the agent at a step until a file exists."""
    task = a_task(script({"say": "before"}, {"waitForFile": "go"}, {"wait": 0}, {"say": "after"}))
    with limited():
        async with ScriptedAgent().start(task) as session:
            texts = []
            async for signal in session.signals():
                if isinstance(signal, AgentSaid):
                    texts.append(signal.text)
                    (task.work_tree / "go").touch()

    assert texts == ["before", "after"]


async def test_a_script_prints_anything(a_task, run_agent) -> None:
    """Raw lines and stderr output can be printed to test a runner."""
    line = '{"type":"assistant","message":{"content":"raw"}}'
    run = await run_agent(ScriptedAgent(), a_task(script({"raw": line}, {"stderr": "careful"})))
    assert run.of(AgentSaid) == [AgentSaid("raw")]
    assert run.of(Stderr) == [Stderr("careful")]


@pytest.mark.parametrize("from_codon", [True, False])
async def test_a_script_can_be_a_file(a_task, run_agent, tmp_path, monkeypatch, from_codon) -> None:
    """HANKWEAVE_SCRIPT names the file, in the codon's or the daemon's environment."""
    file = tmp_path / "script.json"
    file.write_text(script({"say": "from the file"}))
    monkeypatch.setenv("HANKWEAVE_SCRIPT", "/absent" if from_codon else str(file))
    environment = {"HANKWEAVE_SCRIPT": str(file)} if from_codon else {}
    run = await run_agent(ScriptedAgent(), a_task("plain prompt", environment=environment))
    assert run.of(AgentSaid) == [AgentSaid("from the file")]


async def test_a_script_asks_before_each_change_and_waits_for_the_answer(a_task) -> None:
    """With `asks`, a file step is a call, a question, the change and its result, in this order."""
    steps = [
        {"write": {"path": "a.txt", "text": "a"}},
        {"run": "cat a.txt"},
        {"ask": {"tool": "X"}},
    ]
    task = a_task(json.dumps({"steps": steps, "asks": True}))
    asked, kinds = [], []
    with limited():
        async with ScriptedAgent().start(task) as session:
            async for each in session.signals():
                kinds.append(type(each))
                if isinstance(each, PermissionAsked):
                    asked.append((each.name, (task.work_tree / "a.txt").exists()))
                    await session.answer(each, Granted())

            assert await session.wait() == Exited(0)

    assert asked == [("Write", False), ("Bash", True), ("X", True)]
    order = [kind for kind in kinds if kind in (ToolCalled, PermissionAsked, ToolReturned)]
    assert order == [ToolCalled, PermissionAsked, ToolReturned] * 2 + [PermissionAsked]


@pytest.mark.full
async def test_time_in_which_an_agent_waits_for_an_answer_does_not_count(a_task) -> None:
    """An answer may take as long as a checkpoint; afterwards the limits apply again."""
    limits = AgentLimits(idle=timedelta(seconds=2), kill_grace=timedelta(seconds=0.2))
    task = a_task(script({"ask": {"tool": "Write"}}, {"say": "on"}, {"wait": 60}), limits=limits)
    with limited():
        async with ScriptedAgent().start(task) as session:
            texts = []
            async for each in session.signals():
                if isinstance(each, PermissionAsked):
                    await anyio.sleep(3)  # The passing of time is under test.
                    await session.answer(each, Granted())
                elif isinstance(each, AgentSaid):
                    texts.append(each.text)

            outcome = await session.wait()

    assert texts == ["Write: allowed", "on"]
    assert outcome == TimedOut("idle")


async def test_a_session_is_remembered_if_there_is_a_folder_for_it(
    a_task, run_agent, tmp_path
) -> None:
    """Prompts and steps are stored, one per line, for the owner only; a resume reads them."""
    agent = ScriptedAgent(sessions=tmp_path / "sessions")
    steps = script({"say": "a"}, {"recall": "I know"})
    first = await run_agent(agent, a_task(steps))
    (session,) = first.of(SessionStarted)
    second = await run_agent(agent, a_task(steps, resume_session=session.session_id))
    assert [each.text for each in (*first.of(AgentSaid), *second.of(AgentSaid))] == [
        "a",
        "I know 1 prompts and 1 steps",
        "a",
        "I know 2 prompts and 3 steps",
    ]
    (path,) = agent.memory_of(session.session_id, tmp_path, {})
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_text().splitlines()) == 6
    assert (
        agent.memory_of("../x", tmp_path, {}) == ScriptedAgent().memory_of("s", tmp_path, {}) == ()
    )


@pytest.mark.parametrize("gives_up", [False, True])
async def test_a_refusal_is_a_result_or_the_end(a_task, converse, gives_up: bool) -> None:
    """A refused step is not done and is a failed result; with `onRefusal` the agent fails."""
    steps = [{"write": {"path": "a.txt", "text": "a"}}, {"say": "on"}]
    script = {"steps": steps, "onRefusal": "fail"} if gives_up else {"steps": steps}
    task = a_task(json.dumps(script), asks=True)
    run = await converse(ScriptedAgent(), task, Forbidden("Not this one."))
    assert run.outcome == Exited(1 if gives_up else 0)
    assert not (task.work_tree / "a.txt").exists()
    (result,) = run.of(ToolReturned)
    assert (result.result, result.is_error) == ("Not this one.", True)
    assert (AgentSaid("on") in run.signals) is not gives_up
    (end,) = run.of(ResultReported)
    assert (end.success, end.text) == (not gives_up, "Not this one." if gives_up else "on")
