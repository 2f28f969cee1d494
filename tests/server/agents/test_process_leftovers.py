"""Processes that a dead daemon leaves behind are found and killed, and no others (T-P2, T-P3)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
import psutil
import pytest

from hankweave_protocol.ids import CodonId, RunId
from hankweave_server.agents.process import leftovers, process_table
from hankweave_server.agents.process.leftovers import AgentRecord, sweep
from support.waiting import LIMIT, eventually, eventually_blocking

MARK, TORN = f"m4rk{os.getpid()}", f"t0rn{os.getpid()}"
"""Of this process alone: a sweep in another one kills every process with its mark."""

# A separate daemon: it starts an agent whose four processes print their pids, and forwards them.
STARTER = """
import sys
from datetime import timedelta
from pathlib import Path
import anyio
from hankweave_server.agents.base import AgentTask, PlainOutput
from hankweave_server.agents.registry import CommandAgent

async def main(folder, source):
    task = AgentTask(
        prompt="", system_prompt=None, model="m", work_tree=folder, data_dir=folder,
        log_path=folder / "log", resume_session=None, environment={}, run_id="r", codon_id="c",
        processes_dir=folder / "agents",
    )
    async with CommandAgent((sys.executable, "-I", "-S", "-c", source)).start(task) as session:
        async for signal in session.signals():
            if isinstance(signal, PlainOutput):
                print(signal.line, flush=True)

anyio.run(main, Path(sys.argv[1]), sys.argv[2])
"""

# As in test_process_tree, but the double-forked process keeps its environment and so its mark.
TREE = """
import os, sys, time
def stay(name):
    print(name, os.getpid(), flush=True)
    time.sleep(600)

if os.fork() == 0:
    stay("child")

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        stay("double-forked")

    os._exit(0)

stay("agent")
"""


@contextmanager
def a_daemon_with_an_agent(folder: Path) -> Iterator[tuple[subprocess.Popen, dict[str, int]]]:
    """Yield the daemon, and the pids of its agent's processes and of their keeper."""
    daemon = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(folder), TREE], stdout=subprocess.PIPE, text=True
    )
    try:
        lines = [daemon.stdout.readline() for _ in range(3)]
        tree = {name: int(pid) for name, pid in (line.split() for line in lines)}
        yield daemon, tree | {"keeper": psutil.Process(tree["agent"]).ppid()}
    finally:
        daemon.kill()
        daemon.communicate()


def wait_until_dead(lives, *pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(LIMIT)

        assert not lives(pid)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@contextmanager
def asleep(**options):
    """Run a process in its own session."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True, **options)
    # Popen returns before the kernel has set the arguments and environment of the new program.
    eventually_blocking(Path(f"/proc/{process.pid}/cmdline").read_bytes)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def stranger():
    with asleep() as process:
        yield process


@pytest.fixture
def marked():
    environment = os.environ | {"HANKWEAVE_AGENT_MARK": TORN}
    with asleep(env=environment) as process:
        yield process


def a_record(**changes: object) -> AgentRecord:
    record = AgentRecord(
        mark=MARK,
        boot_id=process_table.boot_id(),
        run_id=RunId("r"),
        codon_id=CodonId("c"),
    )
    return msgspec.structs.replace(record, **changes)


async def test_a_daemon_killed_at_once_takes_its_agents_along(tmp_path: Path, lives) -> None:
    """SIGKILL of the daemon alone ends the whole tree, before any sweep."""
    with a_daemon_with_an_agent(tmp_path) as (daemon, tree):
        daemon.kill()
        wait_until_dead(lives, *tree.values())

    folder = tmp_path / "agents"
    assert await sweep(folder) == ()
    # Its keeper has left when that was, for the recovery.
    await eventually(lambda: leftovers.last_moments(folder) is not None)
    leftovers.forget_last_moments(folder)
    assert names(folder) == []


async def test_what_outlives_daemon_and_keeper_is_swept(tmp_path: Path, lives) -> None:
    """If both are killed, the next start kills, names and forgets what is left (T-P2)."""
    with a_daemon_with_an_agent(tmp_path) as (daemon, tree):
        keeper = psutil.Process(tree["keeper"])
        keeper.suspend()
        daemon.kill()
        keeper.kill()
        wait_until_dead(lives, tree["agent"])
        assert lives(tree["child"])
        assert lives(tree["double-forked"])
        swept = await sweep(tmp_path / "agents")

    assert {tree["child"], tree["double-forked"]} <= {leftover.pid for leftover in swept}
    assert [(each.run_id, each.codon_id, each.survived) for each in swept] == [
        ("r", "c", False) for _ in swept
    ]
    assert all("setsid" in each.command for each in swept)
    assert [name for name, pid in tree.items() if lives(pid)] == []
    assert names(tmp_path / "agents") == []
    assert await sweep(tmp_path / "agents") == ()


async def test_a_running_agent_is_written_down(tmp_path: Path) -> None:
    """The record has pid, start time, boot id and group; only its owner can read it."""
    with a_daemon_with_an_agent(tmp_path) as (_, tree):
        (path,) = (tmp_path / "agents").iterdir()
        record = json.loads(path.read_bytes())

    assert record["pid"] == record["pgid"] == tree["agent"]
    assert record["bootId"] == process_table.boot_id()
    assert record["starttime"] > 0
    assert path.stem == record["mark"]


async def test_a_stranger_with_a_recorded_pid_is_left_alone(tmp_path, stranger, lives) -> None:
    """A process that reuses a recorded pid is not killed (T-P3)."""
    facts = process_table.read(stranger.pid)
    a_record(pid=stranger.pid, pgid=stranger.pid, starttime=facts.start_ticks - 1).remember(
        tmp_path
    )
    assert await sweep(tmp_path) == ()
    assert stranger.poll() is None
    assert names(tmp_path) == []


async def test_a_record_of_another_boot_means_nothing(tmp_path, stranger) -> None:
    """After a reboot, even pid and start time together can match an unrelated process."""
    facts = process_table.read(stranger.pid)
    a_record(boot_id="another", pid=stranger.pid, starttime=facts.start_ticks).remember(tmp_path)
    assert await sweep(tmp_path) == ()
    assert stranger.poll() is None


async def test_a_recorded_agent_is_killed_without_its_mark(tmp_path, stranger, lives) -> None:
    """Pid and start time of this boot identify a process that has erased its environment."""
    facts = process_table.read(stranger.pid)
    a_record(pid=stranger.pid, starttime=facts.start_ticks).remember(tmp_path)
    (killed,) = await sweep(tmp_path)
    assert (killed.pid, killed.command, killed.survived) == (stranger.pid, "sleep 600", False)
    assert stranger.wait(LIMIT) == -signal.SIGKILL


async def test_a_damaged_record_still_finds_by_mark(tmp_path: Path, marked) -> None:
    """The mark is the record's file name, so a torn record can still be swept."""
    (tmp_path / f"{TORN}.json").write_bytes(b'{"pid": ')
    (killed,) = await sweep(tmp_path)
    assert killed.pid == marked.pid
    assert marked.wait(LIMIT) == -signal.SIGKILL
    assert names(tmp_path) == []


async def test_a_survivor_is_named_and_its_record_kept(tmp_path, stranger, monkeypatch) -> None:
    """A process that cannot be killed is reported, and the next sweep tries again."""
    monkeypatch.setattr("hankweave_server.agents.process.leftovers.KILL_DEADLINE", 0.1)
    monkeypatch.setattr("signal.pidfd_send_signal", lambda _descriptor, _number: None)
    facts = process_table.read(stranger.pid)
    a_record(pid=stranger.pid, starttime=facts.start_ticks).remember(tmp_path)
    (killed,) = await sweep(tmp_path)
    assert killed.survived
    assert names(tmp_path) == [f"{MARK}.json"]


async def test_a_sweeper_started_by_a_leftover_spares_itself(tmp_path: Path) -> None:
    """A new daemon that an old agent has started carries the agent's mark and is not killed."""
    program = (
        "import anyio, sys; from pathlib import Path; "
        "from hankweave_server.agents.process.leftovers import sweep; "
        "print(anyio.run(sweep, Path(sys.argv[1])))"
    )
    a_record().remember(tmp_path)
    environment = os.environ | {"HANKWEAVE_AGENT_MARK": MARK}
    done = await anyio.run_process(
        [sys.executable, "-c", program, str(tmp_path)], env=environment, start_new_session=True
    )
    assert done.stdout == b"()\n"


async def test_a_folder_that_is_not_there_is_swept(tmp_path: Path) -> None:
    """Without a record directory there is nothing to sweep."""
    assert await sweep(tmp_path / "agents") == ()
