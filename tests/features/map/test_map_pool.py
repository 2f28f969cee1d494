"""The pool of this machine, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil
import pytest

from hankweave_server.agents.process import process_table
from hankweave_server.errors import ExitCode
from hankweave_server.features.map.executor import (
    ItemLaunch,
    ItemLimits,
    LocalPool,
    LocalServer,
    usage_of,
)
from hankweave_server.local.living import living_server
from hankweave_server.paths import Layout
from support.scripted_hank import codon, waits_for, write_hank
from support.waiting import eventually, limited

POOL = LocalPool(ItemLimits())


@pytest.fixture(autouse=True)
def _unconfined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANKWEAVE_RUNTIME_CONFINEMENT", "none")


def launch_in(folder: Path, name: str, hank: Path) -> ItemLaunch:
    data, variables = folder / "in.txt", folder / "variables.json"
    data.touch()
    variables.write_text("{}")
    layout = Layout.of_execution(folder / name)
    return ItemLaunch(name, 1, layout, hank, data, variables, log=folder / f"{name}.out")


def working_in(folder: Path, name: str) -> ItemLaunch:
    """Return a server whose agent waits for ever."""
    hank = write_hank(folder / "hank", codon("one", waits_for(folder / "never")))
    return launch_in(folder, name, hank)


@asynccontextmanager
async def working(launch: ItemLaunch) -> AsyncIterator[LocalServer]:
    """Start a server and wait until it has taken its directory; kill it at the end."""
    server = await POOL.start(launch)
    try:
        await eventually(lambda: living_server(launch.layout) == server.pid)
        yield server
    finally:
        for each in process_table.descendants(process_table.scan(), [server.pid]) | {server.pid}:
            if psutil.pid_exists(each):
                os.kill(each, signal.SIGKILL)


@pytest.mark.full
async def test_a_server_runs_in_a_session_of_its_own_with_a_lower_priority(tmp_path: Path) -> None:
    """Its output goes to its log, and its exit code is reported."""
    launch = working_in(tmp_path, "a")
    async with working(launch) as server:
        assert os.getsid(server.pid) == server.pid
        assert os.getpriority(os.PRIO_PROCESS, server.pid) > os.getpriority(os.PRIO_PROCESS, 0)
        server.stop()
        with limited():
            assert (await server.result()).exit_code is not None

    assert str(tmp_path / "a") in (tmp_path / "a.out").read_text()


async def test_a_server_that_refuses_reports_its_exit_code(tmp_path: Path) -> None:
    """Its words are in its log."""
    server = await POOL.start(launch_in(tmp_path, "b", Path("/nowhere")))
    with limited():
        assert (await server.result()).exit_code == ExitCode.NO_INPUT

    assert "There is no hank at /nowhere" in (tmp_path / "b.out").read_text()


@pytest.mark.full
async def test_a_server_is_found_by_another_pool(tmp_path: Path) -> None:
    """That one waits for its end, whose exit code it cannot know if it is not the parent."""
    launch = working_in(tmp_path, "a")
    assert await POOL.find(launch) is None
    async with working(launch) as server:
        found = await LocalPool(ItemLimits()).find(launch)
        assert found.pid == server.pid
        found.stop()
        with limited():
            assert (await found.result()).exit_code is None
            assert (await server.result()).exit_code is not None


@pytest.mark.full
async def test_a_server_that_does_not_end_in_order_is_killed(tmp_path: Path) -> None:
    """A stopped process does not handle the request."""
    async with working(working_in(tmp_path, "a")) as server:
        os.kill(server.pid, signal.SIGSTOP)
        server.stop()
        with limited():
            assert (await server.result()).exit_code == -signal.SIGKILL


def test_the_usage_of_a_process_includes_all_below_it() -> None:
    """Its children and theirs; other processes do not count."""
    program = "import subprocess; subprocess.run(['sh', '-c', 'sleep 600 & echo up; wait'])"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"up\n"
        memory, processes = usage_of(process.pid)
        for each in psutil.Process(process.pid).children(recursive=True):
            each.kill()

    assert processes == 3
    assert memory > 1 << 20


def test_a_limit_is_named_with_what_was_used() -> None:
    """Without limits nothing is too much."""
    assert ItemLimits().beyond(3 << 30, 12) is None
    assert "3,072 MiB" in (ItemLimits(memory=1 << 30).beyond(3 << 30, 12) or "")
    assert "12 processes; the limit is 10" in (ItemLimits(processes=10).beyond(0, 12) or "")


async def test_a_limit_holds_without_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that goes beyond it is asked to end, and the exit says what it has used."""
    monkeypatch.setattr("hankweave_server.features.map.executor.CHECK_INTERVAL", 0.0)
    program = [sys.executable, "-c", "input()"]
    async with await anyio.open_process(program, stdin=subprocess.PIPE) as process:
        limits = ItemLimits(memory=1 << 20)
        server = LocalServer(process.pid, os.pidfd_open(process.pid), limits, is_own=False)
        with limited():
            ended = await server.result()

    assert "the limit is 1 MiB" in (ended.overrun or "")


def test_a_control_group_has_limits_where_the_kernel_grants_them() -> None:
    """Elsewhere there is none, and nothing is left."""
    group = process_table.make_limited("item-test", ItemLimits(1 << 30, 50).of_group())
    if group is not None:
        assert (group / "memory.max").read_text() == f"{1 << 30}\n"
        assert (group / "pids.max").read_text() == "50\n"
        process_table.remove(group)
        assert not group.exists()
