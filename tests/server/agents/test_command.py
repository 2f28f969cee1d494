"""Arbitrary programs as agents, run as real processes."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
from datetime import timedelta

import anyio
import pytest

from hankweave_server.agents import agent_log
from hankweave_server.agents import session as session_module
from hankweave_server.agents.base import (
    AgentKilled,
    AgentLimits,
    AgentNotFound,
    AgentSaid,
    AgentStartFailed,
    Exited,
    PlainOutput,
    ResultReported,
    SessionStarted,
    Stderr,
    ToolCalled,
)
from hankweave_server.agents.registry import CommandAgent
from support.running_server import appears
from support.waiting import limited

IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


async def test_a_plain_program_is_a_whole_agent(a_task, run_agent) -> None:
    """The session id is generated, lines are reported and logged, and the exit code decides."""
    task = a_task("the prompt")
    run = await run_agent(CommandAgent(("sh", "-c", "cat; echo; echo oops >&2; exit 3")), task)
    begun, plain, result = (run.of(kind) for kind in (SessionStarted, PlainOutput, ResultReported))
    assert [signal.model for signal in begun] == ["test-model"]
    assert plain == [PlainOutput("the prompt")]
    assert run.of(Stderr) == [Stderr("oops")]
    assert result == [ResultReported(False, "oops", None, None, begun[0].session_id, {})]
    assert run.outcome == Exited(3)
    logged = [json.loads(line) for line in task.log_path.read_bytes().splitlines()]
    assert {(entry["type"], entry["message"]) for entry in logged} == {
        ("stdout", "the prompt"),
        ("stderr", "oops"),
    }


async def test_the_event_loop_does_not_wait_for_the_log(a_task, run_agent, monkeypatch) -> None:
    """Lines are written in a thread, one batch at a time, and before anyone hears of them."""
    append, threads = agent_log.AgentLog.append, set()

    def noted(log, lines, timestamp) -> None:
        threads.add(threading.current_thread())
        append(log, lines, timestamp)

    monkeypatch.setattr(agent_log.AgentLog, "append", noted)
    task = a_task()
    script = "for n in 1 2 3; do echo $n; echo $n >&2; done"
    with limited():
        async with CommandAgent(("sh", "-c", script)).start(task) as session:
            logged = [
                '"stdout"' in task.log_path.read_text()
                async for signal in session.signals()
                if isinstance(signal, PlainOutput)
            ]

    assert threads
    assert threading.main_thread() not in threads
    assert logged == [True] * 3


async def test_output_of_an_agent_is_logged_when_its_caller_is_cancelled(
    a_task, monkeypatch
) -> None:
    """The end of the session waits for a slow disk, and the lines that were read are in the log."""
    append, begun, goes_on = agent_log.AgentLog.append, threading.Event(), threading.Event()

    def slow(log, lines, timestamp) -> None:
        begun.set()
        assert goes_on.wait(60)
        append(log, lines, timestamp)

    monkeypatch.setattr(agent_log.AgentLog, "append", slow)
    task = a_task(limits=AgentLimits(kill_grace=timedelta(0)))

    async def run() -> None:
        async with CommandAgent(("sh", "-c", "echo said; exec sleep 600")).start(task) as session:
            async for _ in session.signals():
                pass

    with limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await anyio.to_thread.run_sync(begun.wait)
            tasks.cancel_scope.cancel()
            goes_on.set()

    assert '"said"' in task.log_path.read_text()


async def test_stream_json_is_understood_and_logged_raw(a_task, run_agent) -> None:
    """Messages become signals; the log has their exact bytes with fields appended."""
    lines = [
        '{"type":"system","subtype":"init","session_id":"s1","model":"opus","x": 1}',
        '{"type":"assistant","message":{"content":"Hello"}}',
        '{"type":"result","subtype":"success","result":"done"}',
    ]
    task = a_task("\n".join(lines))
    run = await run_agent(CommandAgent(("cat",)), task)
    assert list(run.signals) == [
        SessionStarted("s1", "opus"),
        AgentSaid("Hello"),
        ResultReported(True, "done", None, None, None, {}),
    ]
    logged = task.log_path.read_text().splitlines()
    assert [entry.startswith(line[:-1]) for line, entry in zip(lines, logged, strict=True)] == [
        True
    ] * 3
    assert all(json.loads(entry)["timestamp"].endswith("Z") for entry in logged)


async def test_what_an_agent_has_printed_is_known_before_its_turn(a_task, python) -> None:
    """Once a file is there, so is the call that wrote it, though its reader is at the beginning."""
    lines = (
        {"type": "system", "subtype": "init", "session_id": "s1", "model": "opus"},
        {
            "type": "assistant",
            "message": {
                "content": [
                    {
                        "type": "tool_use",
                        "id": "t1",
                        "name": "Write",
                        "input": {"file_path": "a.txt"},
                    }
                ]
            },
        },
    )
    source = (
        f"for line in {[json.dumps(line) for line in lines]!r}: print(line, flush=True)\n"
        "open('a.txt', 'w').close()\nimport time\ntime.sleep(600)"
    )
    task = a_task()
    with limited():
        async with python(source).start(task) as session:
            signals = session.signals()
            assert await anext(signals) == SessionStarted("s1", "opus")
            await appears(task.work_tree / "a.txt")
            called = ToolCalled("t1", "Write", {"file_path": "a.txt"})
            assert [each for each in await session.unread_signals() if each == called] == [called]
            await session.stop()


async def test_an_agent_may_end_without_a_result(a_task, run_agent) -> None:
    """Exit 0 without a result is reported as no result."""
    task = a_task('{"type":"system","subtype":"init","session_id":"s1","model":"opus"}')
    run = await run_agent(CommandAgent(("cat",)), task)
    assert run.of(ResultReported) == []
    assert run.outcome == Exited(0)


async def test_a_program_runs_in_the_work_tree_with_its_environment(a_task, run_agent) -> None:
    """The task sets directory and variables, and puts the system prompt before the prompt."""
    task = a_task("do it", system_prompt="be good", environment={"KEY": "value"})
    run = await run_agent(CommandAgent(("sh", "-c", 'pwd; echo "$KEY"; cat')), task)
    lines = [signal.line for signal in run.of(PlainOutput)]
    assert lines == [str(task.work_tree), "value", "be good", "do it"]


async def test_a_plain_program_goes_on_under_the_session_it_resumes(a_task, run_agent) -> None:
    """A generated session id is kept when the session is resumed."""
    run = await run_agent(CommandAgent(("true",)), a_task(resume_session="s7"))
    assert run.signals[0] == SessionStarted("s7", "test-model")


async def test_a_silent_program_begins_its_session_after_a_while(a_task, python) -> None:
    """Silence for the quiet start period is taken as a plain program at work."""
    agent = python("import time; time.sleep(60)", quiet_start=timedelta(seconds=0.05))
    with limited():
        async with agent.start(a_task()) as session:
            assert isinstance(await anext(session.signals()), SessionStarted)


@pytest.mark.parametrize("program", ["no-such-program", "./no-such-program", "/no/such/program"])
async def test_a_missing_program_is_named(a_task, program: str) -> None:
    """The error names the program and suggests a remedy."""
    with pytest.raises(AgentNotFound, match=r"no-such-program|no/such/program") as caught:
        async with CommandAgent((program,)).start(a_task()):
            pass

    assert caught.value.hint


async def test_a_program_the_kernel_refuses_is_a_failed_start(a_task) -> None:
    """An executable with an unknown format is refused with the kernel's reason."""
    task = a_task()
    program = task.work_tree / "broken"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o755)
    with pytest.raises(AgentStartFailed, match="Exec format error"):
        async with CommandAgent(("./broken",)).start(task):
            pass

    assert list(task.processes_dir.glob("*")) == []


async def test_a_keeper_that_cannot_run_is_a_failed_start(a_task, monkeypatch) -> None:
    """If Python itself cannot run, the start fails and the keeper is not taken for an agent."""
    monkeypatch.setattr(
        "hankweave_server.agents.process.child.own_program", lambda _module: ("false",)
    )
    with pytest.raises(AgentStartFailed, match="keeper"):
        async with CommandAgent(("true",)).start(a_task()):
            pass


async def test_a_missing_work_tree_is_a_failed_start(a_task) -> None:
    """Without its directory no agent starts."""
    task = a_task()
    task.work_tree.rmdir()
    with pytest.raises(AgentStartFailed, match="agentRoot"):
        async with CommandAgent(("true",)).start(task):
            pass


async def test_a_prompt_larger_than_a_pipe_arrives_whole(a_task, run_agent, python) -> None:
    """A megabyte of prompt reaches the program while its output is read."""
    prompt = "word " * 200_000
    run = await run_agent(python("import sys; print(len(sys.stdin.read()))"), a_task(prompt))
    assert run.of(PlainOutput) == [PlainOutput(str(len(prompt)))]


async def test_an_agent_that_never_reads_its_prompt_is_left_alone(
    a_task, run_agent, python, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the prompt deadline stdin is closed, and the agent runs on."""
    monkeypatch.setattr(session_module, "PROMPT_DEADLINE", 0.1)
    source = """
import os, time
while True:  # Until stdin is closed: the prompt fills the pipe, then comes its end.
    if not os.read(0, 1 << 16): break
    time.sleep(0.3)
print("closed")
"""
    run = await run_agent(python(source), a_task("x" * 300_000))
    assert run.of(PlainOutput) == [PlainOutput("closed")]
    assert run.outcome == Exited(0)


async def test_an_agent_that_closes_its_stdin_is_no_error(a_task, run_agent, python) -> None:
    """A prompt that the agent does not read is discarded."""
    run = await run_agent(python("import os; os.close(0); print('on')"), a_task("x" * 300_000))
    assert run.of(PlainOutput) == [PlainOutput("on")]


async def test_a_crash_is_reported_with_its_signal(a_task, run_agent, python) -> None:
    """Death by a signal is reported as a signal, not as an exit code."""
    run = await run_agent(python("import os; os.kill(os.getpid(), 11)"), a_task())
    assert run.outcome == AgentKilled(11)
    assert not run.of(ResultReported)[0].success


async def test_an_agent_starts_clean(a_task, run_agent, python) -> None:
    """An agent has three streams, no core dump, its own session, and oom_score_adj 500."""
    source = """
import os, resource
print(sorted(int(fd) for fd in os.listdir("/proc/self/fd")))
print(resource.getrlimit(resource.RLIMIT_CORE), os.getsid(0) == os.getpid())
print(open("/proc/self/oom_score_adj").read())
"""
    run = await run_agent(python(source), a_task())
    assert [signal.line for signal in run.of(PlainOutput)] == [
        "[0, 1, 2, 3]",  # The last one is the descriptor that lists the directory.
        "(0, 0) True",
        "500",
    ]


async def test_an_agent_starts_with_default_signals(a_task, run_agent) -> None:
    """Signals that Python ignores or blocks have their default handling in the agent."""
    agent = CommandAgent(("grep", "-E", "SigBlk|SigIgn", "/proc/self/status"))
    run = await run_agent(agent, a_task())
    assert [signal.line.split()[1] for signal in run.of(PlainOutput)] == ["0" * 16] * 2


async def test_an_error_of_the_caller_is_raised_as_it_is(a_task, lives) -> None:
    """The caller's exception is raised unwrapped, not in a group, and the agent is ended."""
    pids = []

    async def drive() -> None:
        async with CommandAgent(("sleep", "600")).start(a_task()) as session:
            pids.append(session.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await drive()

    assert [pid for pid in pids if lives(pid)] == []
    assert len(pids) == 1


async def test_an_agent_receives_signals_that_the_server_inherited_as_ignored(
    a_task, run_agent
) -> None:
    """A shell ignores INT and QUIT for processes started with `&`; an agent must react to INT."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in IGNORED}
    try:
        agent = CommandAgent(("grep", "SigIgn", "/proc/self/status"))
        run = await run_agent(agent, a_task())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    assert [line.line.split()[1] for line in run.of(PlainOutput)] == ["0" * 16]


async def test_an_agent_whose_log_cannot_be_written_is_ended(a_task, python, monkeypatch) -> None:
    """A disk error ends the agent and its signals with the error; a full disk does not."""

    def broken(descriptor: int, data: bytes) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(agent_log, "append_whole", broken)
    source = "import time; print('hello', flush=True); time.sleep(600)"
    with limited():
        async with python(source).start(a_task()) as session:
            with pytest.raises(OSError, match="Input/output error"):
                [signal async for signal in session.signals()]

            assert isinstance(await session.wait(), AgentKilled)


async def test_python_is_found_in_path(a_task, run_agent, tmp_path) -> None:
    """A bare program name is looked up in the agent's PATH, not in the daemon's."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    task = a_task("print('found')", environment={"PATH": str(tmp_path / "bin")})
    run = await run_agent(CommandAgent(("python3", "-I", "-S", "-")), task)
    assert run.of(PlainOutput) == [PlainOutput("found")]


async def test_a_task_without_limits_runs(a_task, run_agent) -> None:
    """A task whose limits are None runs without limits."""
    run = await run_agent(CommandAgent(("true",)), a_task(limits=AgentLimits(None, None, None)))
    assert run.outcome == Exited(0)
