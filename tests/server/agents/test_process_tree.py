"""All processes that an agent starts end with it (T-P1, T-P6, T-P9)."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

import anyio
import psutil
import pytest

from hankweave_server.agents import session as session_module
from hankweave_server.agents.base import (
    AgentKilled,
    AgentLimits,
    AgentOutOfControl,
    Exited,
    PlainOutput,
    Stderr,
)
from hankweave_server.agents.process.child import KEEPER_STOPPED
from hankweave_server.agents.registry import CommandAgent
from support.waiting import LIMIT, limited

# Each process prints its name and pid, and sleeps; all ignore SIGINT and SIGTERM.
TREE = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)

def stay(name):
    print(name, os.getpid(), flush=True)
    time.sleep(600)

if os.fork() == 0:
    stay("child")

if os.fork() == 0:
    os.setsid()
    stay("own-session")

between = os.fork()
if between == 0:
    os.setsid()
    if os.fork() == 0:
        program = "import os, time; print('double-forked', os.getpid(), flush=True)"
        program += "; time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", program], {})

    os._exit(0)

os.waitpid(between, 0)
stay("agent")
"""
# A child, in its own session, stops the keeper again and again.
STOPPER = """
import os, signal, time

keeper = os.getppid()
if os.fork() == 0:
    os.setsid()
    print("child", os.getpid(), flush=True)
    while True:
        os.kill(keeper, signal.SIGSTOP)
        time.sleep(0.001)

print("agent", os.getpid(), flush=True)
time.sleep(600)
"""
NAMES = {"agent", "child", "own-session", "double-forked"}
DEAF = AgentLimits(kill_grace=timedelta(seconds=0.3))
"""For agents that do not end when they are asked to."""


async def test_nothing_outlives_a_stop(a_task, python, printed_lines, lives) -> None:
    """A child, one in its own session, and a double-forked one are dead after a stop (T-P1)."""
    with limited():
        async with python(TREE).start(a_task(limits=DEAF)) as session:
            tree = {name: int(pid) for name, pid in await printed_lines(session, 4)}
            assert tree.keys() == NAMES
            assert tree["agent"] == session.pid
            await session.stop()
            assert [name for name, pid in tree.items() if lives(pid)] == []
            assert await session.wait() == AgentKilled(signal.SIGKILL)
            await session.stop()


async def test_nothing_outlives_the_context(a_task, python, printed_lines, lives) -> None:
    """Leaving the context ends the agent and removes its record."""
    task = a_task()
    with limited():
        async with python(TREE).start(task) as session:
            tree = await printed_lines(session, 4)
            assert len(list(task.processes_dir.iterdir())) == 1

    assert [name for name, pid in tree if lives(int(pid))] == []
    assert list(task.processes_dir.iterdir()) == []


async def test_nothing_outlives_a_cancelled_caller(a_task, python, printed_lines, lives) -> None:
    """Cancelling the task that drives the agent ends the agent."""
    tree = []
    with limited(), anyio.CancelScope() as scope:
        async with python(TREE).start(a_task()) as session:
            tree = await printed_lines(session, 4)
            scope.cancel()
            await anyio.sleep_forever()

    assert len(tree) == 4
    assert [name for name, pid in tree if lives(int(pid))] == []


async def test_nothing_outlives_an_agent_that_exits(a_task, run_agent, python, lives) -> None:
    """Background processes end with the agent, even if they hold its stdout open (T-P6)."""
    run = await run_agent(python(TREE.replace('stay("agent")', "time.sleep(0.5)")), a_task())
    tree = [signal.line.split() for signal in run.of(PlainOutput)]
    assert run.outcome == Exited(0)
    assert {name for name, _ in tree} <= NAMES - {"agent"}
    assert [name for name, pid in tree if lives(int(pid))] == []


async def test_a_stdout_held_by_a_stranger_does_not_hold_us(a_task, python, printed_lines) -> None:
    """Output ends with the agent's processes, even if another process has the pipe open."""
    # Python would miss a signal that comes just before it sleeps.
    source = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); "
        "print('agent', flush=True); time.sleep(600)"
    )
    with limited():
        async with python(source).start(a_task()) as session:
            await printed_lines(session, 1)
            stranger = os.open(f"/proc/{session.pid}/fd/1", os.O_WRONLY)
            await session.stop()
            assert PlainOutput("agent") not in [signal async for signal in session.signals()]
            os.close(stranger)


async def test_an_agent_that_kills_its_keeper_does_not_get_away(
    a_task, python, printed_lines, lives
) -> None:
    """Without the keeper the agent dies too, and its other processes are found by their mark."""
    source = TREE.replace("{})", "os.environ)")  # Keeps the mark, for the sweep.
    with limited():
        async with python(source).start(a_task()) as session:
            tree = await printed_lines(session, 4)
            keeper = psutil.Process(session.pid).ppid()
            os.kill(keeper, signal.SIGKILL)
            assert await session.wait() == AgentKilled(signal.SIGKILL)
            assert [name for name, pid in tree if lives(int(pid))] == []


async def test_an_agent_that_stops_its_keeper_does_not_get_away(
    a_task, python, printed_lines, lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper that does not respond is given up after its deadline and killed with the others."""
    monkeypatch.setattr("hankweave_server.agents.process.child.KILL_DEADLINE", 0.2)
    with limited():
        async with python(TREE).start(a_task()) as session:
            tree = await printed_lines(session, 4)
            os.kill(psutil.Process(session.pid).ppid(), signal.SIGSTOP)

    assert [name for name, pid in tree if lives(int(pid))] == []


async def test_an_interrupt_comes_first(a_task, python, printed_lines) -> None:
    """An agent that exits on SIGINT is given time to finish its output."""
    source = """
import time
try:
    print("ready", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("goodbye")
"""
    with limited():
        async with python(source).start(a_task()) as session:
            await printed_lines(session, 1)
            await session.stop()
            last = [signal async for signal in session.signals()]
            assert PlainOutput("goodbye") in last
            assert await session.wait() == Exited(0)


async def test_a_terminate_comes_second(a_task, python, printed_lines) -> None:
    """An agent that ignores SIGINT gets SIGTERM before SIGKILL."""
    source = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""
    with limited():
        async with python(source).start(a_task(limits=DEAF)) as session:
            await printed_lines(session, 1)
            await session.stop()
            assert await session.wait() == AgentKilled(signal.SIGTERM)


async def test_a_paused_tree_stands_still_and_goes_on(a_task, python, printed_lines, lives) -> None:
    """Every process of the tree is stopped by a pause, and none after a resume."""
    with limited():
        async with python(TREE).start(a_task(limits=DEAF)) as session:
            pids = [int(pid) for _, pid in await printed_lines(session, 4)]
            await session.pause()
            assert {psutil.Process(pid).status() for pid in pids} == {psutil.STATUS_STOPPED}
            await session.resume()
            assert psutil.STATUS_STOPPED not in {psutil.Process(pid).status() for pid in pids}
            await session.pause()
            await session.stop()
            assert [pid for pid in pids if lives(pid)] == []


async def test_a_pause_does_not_cut_a_long_prompt_short(
    a_task, python, printed_lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is paused before it reads its prompt gets all of it after the pause.

    Another agent, which starts later and reads nothing, shows that the deadline has passed.
    """
    reads = "import sys; print(len(sys.stdin.buffer.read()), flush=True)"
    sees_the_end = """
import select
stdin = select.poll()
stdin.register(0, 0)
stdin.poll()  # Until the other end is closed.
print("closed", flush=True)
"""
    prompt = "x" * 300_000
    monkeypatch.setattr(session_module, "PROMPT_DEADLINE", 0.1)
    with limited():
        async with python(reads).start(a_task(prompt)) as session:
            await session.pause()  # Before the first byte is written.
            later = a_task(prompt, log_path=tmp_path / "later.log")
            async with python(sees_the_end).start(later) as other:
                assert await printed_lines(other, 1) == [["closed"]]

            monkeypatch.setattr(session_module, "PROMPT_DEADLINE", LIMIT)
            await session.resume()
            assert await printed_lines(session, 1) == [["300000"]]


async def test_a_paused_agent_receives_the_interrupt(a_task, python, printed_lines) -> None:
    """Stopping a paused agent lets it shut down in order."""
    source = """
import time
try:
    print("ready", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    raise SystemExit(7)
"""
    with limited():
        async with python(source).start(a_task()) as session:
            await printed_lines(session, 1)
            await session.pause()
            await session.stop()
            assert await session.wait() == Exited(7)


async def test_a_fork_bomb_is_ended(a_task, python, printed_lines) -> None:
    """A tree that forks as fast as it can is killed completely, group by group (T-P6)."""
    source = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("bomb", os.getpid(), flush=True)
for generation in range(6):
    os.fork()
for _ in range(150):  # Some seconds of forking. Without an end it could take all ids of processes.
    if os.fork():
        os._exit(0)
while True:
    signal.pause()
"""
    with limited():
        async with python(source).start(a_task()) as session:
            ((_, pid),) = await printed_lines(session, 1)

    sessions = {
        process.pid for process in psutil.process_iter() if _session_of(process) == int(pid)
    }
    assert sessions == set()


def _session_of(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return -1


async def test_no_zombies_remain(a_task, run_agent) -> None:
    """Agents leave no dead children and no descriptors behind (T-P9)."""
    agent = CommandAgent(("sh", "-c", "sleep 600 & true"))
    await run_agent(agent, a_task())
    descriptors = psutil.Process().num_fds()
    for _ in range(20):
        await run_agent(agent, a_task())

    children = psutil.Process().children(recursive=True)
    assert [child for child in children if child.status() == psutil.STATUS_ZOMBIE] == []
    assert psutil.Process().num_fds() == descriptors


async def test_an_agent_that_stops_its_keeper_and_exits_has_ended(
    a_task, run_agent, python
) -> None:
    """A stopped keeper is continued within seconds, and then reports how the agent ended."""
    source = "import os, signal; os.kill(os.getppid(), signal.SIGSTOP); raise SystemExit(3)"
    run = await run_agent(python(source), a_task())
    assert run.outcome == Exited(3)
    assert [each.line for each in run.of(Stderr)] == [KEEPER_STOPPED]


async def test_an_agent_that_keeps_stopping_its_keeper_is_ended(
    a_task, python, printed_lines, lives
) -> None:
    """After the third stop all its processes are killed, and an error gives the reason."""
    with limited():
        async with python(STOPPER).start(a_task()) as session:
            tree = await printed_lines(session, 2)
            with pytest.raises(AgentOutOfControl, match="SIGSTOP"):
                async for _ in session.signals():
                    pass

            assert await session.wait() == AgentKilled(signal.SIGKILL)
            assert [name for name, pid in tree if lives(int(pid))] == []
