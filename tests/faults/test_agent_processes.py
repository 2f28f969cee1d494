"""No process of an agent escapes, and the daemon stays healthy (T-P1 to T-P9).

All tests use a real server and the `command` agent of a hank.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from hankweave_client.client import Client
from hankweave_protocol.commands import CodonNext, GetServerStatus
from hankweave_protocol.events import ServerStarted
from hankweave_protocol.state import CompletedCodon, FailedCodon, TerminalCodon
from hankweave_server.agents.process import process_table
from hankweave_server.agents.process.process_table import containment
from hankweave_server.git.pack_reader import OPEN_PACKS
from hankweave_server.git.repo import LIBGIT2_OPEN_PACKS
from hankweave_server.paths import Layout
from support.running_server import RunningServer, journal, running_server, state
from support.scripted_hank import codon, write_hank
from support.struck import session
from support.tally import Tally
from support.tiers import Tier
from support.unruly_agents import (
    AT_ONCE,
    BAD_UTF8,
    BOMB,
    FLOOD,
    KEEPER_KILLED,
    ONE_LINE,
    STAYING,
    STDOUT_HELD,
    all_dead,
    announced,
    below,
    descriptors_of,
    hank_of,
    limited_processes,
    memory_of,
    moments,
    names_of,
    processes_in,
    program,
    zombies_of,
)
from support.waiting import eventually
from support.watching import idle

MOST_GROWTH = 32 * 2**20
LARGE_PROMPT = "x" * 2**20
"""More than a pipe holds."""

MOST_PACKS = OPEN_PACKS + LIBGIT2_OPEN_PACKS
MOST_DESCRIPTORS = 25
"""The descriptors of an idle server: its outputs, sockets, lock, logs, journal, folders, watch."""

ANSWER_DEADLINE = 1.0


def codon_of(execution: Path) -> TerminalCodon:
    [run] = [run for run in state(execution).runs if run.codons]
    [unruly] = run.codons
    assert isinstance(unruly, TerminalCodon)
    return unruly


def only_together(name: str, tier: Tier) -> None:
    if name != AT_ONCE and not tier.is_long:
        pytest.skip("one at a time: long tier")


# --- stopped and killed servers ------------------------------------------------------------------


@pytest.mark.parametrize("name", STAYING)
async def test_nothing_of_an_agent_outlives_a_stop(
    name: str, tmp_path: Path, tier: Tier, tally: Tally
) -> None:
    """T-P1, T-P5: the server shuts down, and every process that the agent made is dead."""
    only_together(name, tier)
    source, execution = STAYING[name], tmp_path / "execution"
    prompt = LARGE_PROMPT if "never reads" in name else "Begin."
    hank = hank_of(tmp_path / "hank", source, prompt)
    async with running_server(hank, None, execution) as server:
        pids = await announced(execution, *names_of(source))
        processes = moments(pids) | below(server.pid)
        assert len(processes) >= len(pids) + 1  # The keeper is one of them.
        assert await server.stop() == 0
        alive = await all_dead(processes)

    unruly = codon_of(execution)
    assert isinstance(unruly, FailedCodon)
    assert unruly.failure_reason.message
    tally.add("agents stopped", of="trees", violations=[f"{name}: {pid} lives" for pid in alive])
    assert alive == []


@pytest.mark.parametrize("name", STAYING)
@pytest.mark.story(
    "After a crash, the next start kills every process that an agent left behind.",
    of="SECURITY.md",
    cases=("all of them at once",),
)
async def test_nothing_of_an_agent_outlives_a_killed_daemon(
    name: str, tmp_path: Path, tier: Tier, tally: Tally
) -> None:
    """T-P2: after kill -9 and a start no process survives, and the codon failed with a reason."""
    only_together(name, tier)
    source, execution = STAYING[name], tmp_path / "execution"
    async with running_server(hank_of(tmp_path / "hank", source), None, execution) as server:
        processes = moments(await announced(execution, *names_of(source))) | below(server.pid)
        server.kill()
        await server.process.wait()

    async with running_server(None, None, execution, "--no-autostart") as again:
        alive = await all_dead(processes)
        async with again.client() as client:
            assert (await client.send(GetServerStatus())).containment == containment()

        assert await again.stop() == 0

    hello = [event.data for event in journal(execution) if isinstance(event.data, ServerStarted)]
    assert [each.containment for each in hello] == [containment()] * 2

    unruly = codon_of(execution)
    assert isinstance(unruly, FailedCodon)
    assert unruly.failure_reason.message
    tally.add("daemons killed", of="trees", violations=[f"{name}: {pid} lives" for pid in alive])
    assert alive == []


async def test_an_agent_that_kills_its_keeper_leaves_no_process_behind(tmp_path: Path) -> None:
    """A child without environment, in its own session and with a dead keeper, is still found."""
    if containment() != "cgroup":
        pytest.skip("no control group (cgroup v2) can be made here")

    execution = tmp_path / "execution"
    hank = hank_of(tmp_path / "hank", KEEPER_KILLED)
    async with running_server(hank, None, execution) as server:
        processes = moments(await announced(execution, "daemonized"))
        async with session(execution, since_seq=0) as client:
            await idle(client, "codon-failed")

        alive = await all_dead(processes)
        for pid in alive:
            os.kill(pid, 9)

        assert alive == []
        assert await server.stop() == 0


@pytest.mark.story("An agent that stops its keeper does not hang its codon.", of="SECURITY.md")
async def test_an_agent_that_stops_its_keeper_and_ends_does_not_hang_its_codon(
    tmp_path: Path,
) -> None:
    """The keeper is continued: the codon ends as its agent did."""
    execution = tmp_path / "execution"
    hank = hank_of(tmp_path / "hank", "os.kill(os.getppid(), signal.SIGSTOP)")
    async with running_server(hank, None, execution, "--headless") as server:
        assert await server.ended() == 0

    assert isinstance(codon_of(execution), CompletedCodon)


async def test_an_agent_that_keeps_stopping_its_keeper_fails_its_codon(tmp_path: Path) -> None:
    """The agent is ended, none of its processes survives, and the codon's reason says why."""
    execution = tmp_path / "execution"
    source = (
        "keeper = os.getppid(); announce('agent')\n"
        "while True: os.kill(keeper, signal.SIGSTOP); time.sleep(0.001)"
    )
    async with running_server(hank_of(tmp_path / "hank", source), None, execution) as server:
        processes = moments(await announced(execution, "agent"))
        async with session(execution, since_seq=0) as client:
            await idle(client, "codon-failed")

        assert await all_dead(processes) == []
        assert await server.stop() == 0

    unruly = codon_of(execution)
    assert isinstance(unruly, FailedCodon)
    assert "SIGSTOP" in unruly.failure_reason.message


async def test_a_stdout_that_a_grandchild_holds_does_not_hold_the_codon(tmp_path: Path) -> None:
    """T-P5: the agent has ended, and its child holds its stdout: the codon ends at once."""
    execution = tmp_path / "execution"
    async with running_server(hank_of(tmp_path / "hank", STDOUT_HELD), None, execution) as server:
        processes = moments(await announced(execution, "agent", "holder"))
        async with session(execution, since_seq=0) as client:
            await idle(client)

        assert await all_dead(processes) == []
        assert await server.stop() == 0

    assert isinstance(codon_of(execution), CompletedCodon)


async def test_a_silent_agent_is_ended_by_its_limit(tmp_path: Path) -> None:
    """T-P5: stdout closed, stdin unread: after its idle limit the codon fails with that reason."""
    execution = tmp_path / "execution"
    source = STAYING["one that closes stdout and runs on"]
    hank = hank_of(tmp_path / "hank", source, LARGE_PROMPT, shimIdleTimeout=1)
    async with running_server(hank, None, execution) as server:
        processes = moments(await announced(execution, "agent"))
        async with session(execution, since_seq=0) as client:
            await idle(client, "codon-failed")

        assert await all_dead(processes) == []
        assert await server.stop() == 0

    unruly = codon_of(execution)
    assert isinstance(unruly, FailedCodon)
    assert (unruly.failure_reason.type, bool(unruly.failure_reason.message)) == ("timeout", True)


async def test_bytes_that_are_no_text_are_output(tmp_path: Path) -> None:
    """Invalid UTF-8 is logged, and the codon fails with the agent's own exit code."""
    execution = tmp_path / "execution"
    async with (
        running_server(hank_of(tmp_path / "hank", BAD_UTF8), None, execution) as server,
        session(execution, since_seq=0) as client,
    ):
        await idle(client, "codon-failed")
        assert await server.stop() == 0

    unruly = codon_of(execution)
    assert isinstance(unruly, FailedCodon)
    assert "3" in (unruly.failure_reason.message or "")


# --- excessive output and forks -------------------------------------------------------------------


async def _growth(server: RunningServer, execution: Path) -> int:
    """Watch the daemon until the agent ends; return its largest memory growth in bytes."""
    before = most = memory_of(server.pid)
    async with session(execution) as client:
        await client.send(CodonNext())

    async with anyio.create_task_group() as group:

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, memory_of(server.pid))
                await anyio.sleep(0.02)

        group.start_soon(watch)
        while not _is_over(execution):  # noqa: ASYNC110
            await anyio.sleep(0.1)

        group.cancel_scope.cancel()

    return most - before


def _is_over(execution: Path) -> bool:
    codons = [codon for run in state(execution).runs for codon in run.codons]
    return bool(codons) and isinstance(codons[0], TerminalCodon)


@pytest.mark.parametrize("kind", ["a flood on both outputs", "one long line"])
async def test_output_without_measure_fills_no_memory(
    kind: str, tmp_path: Path, tier: Tier, tally: Tally
) -> None:
    """T-P4: 1 GB on each output, or one line of 100 MB, takes under 32 MB; the daemon responds."""
    execution = tmp_path / "execution"
    flood = FLOOD.format(mebibytes=1024 if tier.is_long else 32)
    source = flood if "flood" in kind else ONE_LINE.format(mebibytes=100)
    hank = hank_of(tmp_path / "hank", source)
    async with running_server(hank, None, execution, "--no-autostart") as server:
        with anyio.fail_after(3600 if tier.is_long else 100):
            grown = await _growth(server, execution)

        assert await server.stop() == 0

    assert isinstance(codon_of(execution), CompletedCodon)
    log = next(Layout.of_execution(execution).runs.glob("*/unruly-claude.log"))
    assert log.stat().st_size < 260 * 2**20
    tally.add(f"{kind} (memory grew by {grown / 2**20:.1f} MiB)", of="agents")
    assert grown < MOST_GROWTH


@pytest.mark.enclosed
async def test_a_fork_bomb_under_limits_delays_no_client(tmp_path: Path, tally: Tally) -> None:
    """T-P6: while 200 processes fork constantly, the daemon replies within a second."""
    execution = tmp_path / "execution"
    with limited_processes(200) as group:
        if group is None:
            pytest.skip("no cgroup for pids can be made here")

        hank = hank_of(tmp_path / "hank", BOMB.format(group=str(group)))
        async with running_server(hank, None, execution) as server:
            await announced(execution, "agent")
            await eventually(lambda: len(processes_in(group)) >= 150)

            async with session(execution) as client:
                delays = [await _delay(client) for _ in range(10)]

            assert await server.stop() == 0
            await eventually(lambda: not processes_in(group))

    tally.add(f"fork bomb (answers within {max(delays):.2f} s)", of="bombs")
    assert sorted(delays)[len(delays) // 2] < ANSWER_DEADLINE


async def _delay(client: Client) -> float:
    began = anyio.current_time()
    await client.send(GetServerStatus())
    return anyio.current_time() - began


async def test_many_short_agents_leave_no_zombie(tmp_path: Path, tier: Tier, tally: Tally) -> None:
    """T-P9: after a thousand agents with an orphan each, no zombie, descriptor or record remains.

    Packs of the store are an exception: a limited number of them stays open.
    """
    execution, count = tmp_path / "execution", 1000 if tier.is_long else 50
    agent = {"type": "command", "command": ["sh", "-c", "(sleep 600 &) ; true"]}
    codons = [codon(f"c{number}", agent=agent) for number in range(count)]
    hank = write_hank(tmp_path / "hank", *codons)
    async with running_server(hank, None, execution) as server:
        most = 0
        with anyio.fail_after(3600 if tier.is_long else 100):
            while sum(len(run.codons) for run in state(execution).runs) < count or not all(
                isinstance(each, TerminalCodon)
                for run in state(execution).runs
                for each in run.codons
            ):
                most = max(most, zombies_of(server.pid))
                await anyio.sleep(0.05)

        assert zombies_of(server.pid) == 0
        assert below(server.pid) == {}
        packs, others = descriptors_of(server.pid)
        assert packs <= MOST_PACKS
        assert others <= MOST_DESCRIPTORS
        assert list(Layout.of_execution(execution).agent_processes.iterdir()) == []
        assert await server.stop() == 0

    tally.add(f"short agents (at most {most} dead at once)", rounds=count, of="agents")


# --- unrelated processes --------------------------------------------------------------------------


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """Start two unrelated processes with the command line of an agent."""
    argv = program(STAYING["a child"])
    places = tmp_path / "a", tmp_path / "b"
    for place in places:
        place.mkdir()

    both = [subprocess.Popen(argv, cwd=place, start_new_session=True) for place in places]
    yield both[0], both[1]
    for stranger in both:
        os.killpg(stranger.pid, signal.SIGKILL)
        stranger.wait()


@pytest.mark.enclosed
async def test_no_stranger_is_signalled(tmp_path: Path, strangers) -> None:  # type: ignore[no-untyped-def]
    """T-P3: one has the recorded pid, both have the agent's command line: both survive."""
    execution, source = tmp_path / "execution", STAYING["a child"]
    namesake, holder = strangers
    async with running_server(hank_of(tmp_path / "hank", source), None, execution) as server:
        processes = moments(await announced(execution, *names_of(source)))
        agents = Layout.of_execution(execution).agent_processes
        await eventually(lambda: list(agents.glob("*.json")))

        [record] = agents.glob("*.json")
        entry = json.loads(record.read_bytes())
        server.kill()
        await server.process.wait()

    entry |= {"pid": holder.pid, "pgid": holder.pid, "keeperPid": holder.pid}
    facts = process_table.read(holder.pid)
    assert facts is not None
    entry["starttime"] = entry["keeperStarttime"] = facts.start_ticks - 100
    record.write_text(json.dumps(entry))
    async with running_server(None, None, execution, "--no-autostart") as again:
        assert await all_dead(processes) == []
        assert await again.stop() == 0

    assert not record.exists()
    assert (namesake.poll(), holder.poll()) == (None, None)
