"""A clock that is set, a suspended machine and a stopped server are reported and do no harm.

A library that is loaded before libc moves the clocks of a real server. Nothing is simulated where
the kernel can do it: a process is stopped by SIGSTOP.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import pytest

from hankweave_client.client import Client
from hankweave_protocol.codec import decode_transition
from hankweave_protocol.commands import CheckpointCreate, RollbackToCheckpoint, RollbackToCodon
from hankweave_protocol.events import (
    ClockJumped,
    CodonCompletedEvent,
    Event,
    ServerResumed,
    StateTransition,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.instants import from_text
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.clock import SystemClock
from hankweave_server.errors import ExitCode
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.held import acquire
from hankweave_server.runtime_lock.lock_file import LockHeld, LockLost
from support.invariants import Acknowledged, violations
from support.moved_clocks import Clocks, moved_clocks
from support.running_server import RunningServer, command, environment, journal, running_server
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.tally import Tally
from support.waiting import LIMIT, eventually
from support.watching import events_of, idle, started

TWO_HOURS = 7200
A_YEAR = 365 * 24 * 3600
BEAT = timedelta(milliseconds=10)


@pytest.fixture
def clocks(tmp_path: Path) -> Clocks:
    return moved_clocks(tmp_path)


async def test_a_clock_that_is_set_back_under_a_codon_is_reported_and_harms_nothing(
    tmp_path: Path, clocks: Clocks, tally: Tally
) -> None:
    """Two hours back, a year forward: durations and order are kept, and the owner stays."""
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "1"), waits_for(gate)))
    begun = time.monotonic()
    async with (
        running_server(hank, None, execution, env=clocks.environment) as server,
        server.client(since_seq=0) as client,
    ):
        await started(client, "one")
        clocks.move(wall=-TWO_HOURS)
        await _clock_jumped(client, "back", TWO_HOURS)
        assert _second_server(execution, clocks) == ExitCode.LOCK_HELD
        clocks.move(wall=A_YEAR)
        await _clock_jumped(client, "forward", TWO_HOURS + A_YEAR)
        assert _second_server(execution, clocks) == ExitCode.LOCK_HELD
        gate.touch()
        await idle(client)
        spent = time.monotonic() - begun
        await client.send(CheckpointCreate(label="a year later"))
        await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end"))
        assert await server.stop() == 0

    (ended,) = events_of(execution, CodonCompletedEvent)
    assert 0 <= ended.duration <= spent * 1000
    found = violations(execution, Acknowledged())
    tally.add("moved clocks", of="cases", violations=found)
    assert found == []


async def test_a_frozen_agent_can_go_back_after_its_clock_went_back(
    tmp_path: Path, clocks: Clocks
) -> None:
    """Whether a checkpoint belongs to the running codon does not depend on its timestamp."""
    set_back, gate, execution = (tmp_path / name for name in ("set_back", "gate", "execution"))
    steps = (writes("a.txt", "1"), waits_for(set_back), writes("b.txt", "1"), waits_for(gate))
    hank = write_hank(tmp_path / "hank", codon("one", *steps))
    async with (
        running_server(hank, None, execution, env=clocks.environment) as server,
        server.client(since_seq=0) as client,
    ):
        await started(client, "one")
        clocks.move(wall=-TWO_HOURS)
        await _clock_jumped(client, "back", TWO_HOURS)
        set_back.touch()
        made = await client.until(StateTransition, _is_late_checkpoint, timeout=LIMIT)
        assert isinstance(made.data, StateTransition)
        created = decode_transition(made.data)
        assert isinstance(created, CheckpointCreated)
        await client.send(
            RollbackToCheckpoint(checkpoint_sha=created.checkpoint.sha, on_running="pause")
        )
        gate.touch()
        await idle(client)
        assert await server.stop() == 0


def _is_late_checkpoint(event: Event) -> bool:
    """Return True for the checkpoint after the second file, written after the clock jump."""
    assert isinstance(event.data, StateTransition)
    made = decode_transition(event.data)
    return (
        isinstance(made, CheckpointCreated)
        and made.checkpoint.kind == "tool"
        and from_text(event.timestamp) < datetime.now(UTC) - timedelta(hours=1)
    )


async def test_a_heartbeat_goes_on_under_a_clock_that_went_back(tmp_path: Path) -> None:
    """The heartbeat runs by the monotonic clock: it is written with the timestamp there is."""
    layout, clock = Layout.of_execution(tmp_path / "execution"), SetClock()
    lock = acquire(layout, clock)
    losses: list[LockLost] = []
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(lock.heartbeat, BEAT, on_lost=losses.append))
            before = _heartbeat(layout)
            clock.ahead = -timedelta(seconds=TWO_HOURS)
            await eventually(lambda: _heartbeat(layout) <= before - timedelta(hours=1))

            later = _heartbeat(layout)
            await eventually(lambda: _heartbeat(layout) != later)

            with pytest.raises(LockHeld):
                acquire(layout, SystemClock())

            tasks.cancel_scope.cancel()
    finally:
        lock.release()

    assert losses == []


class SetClock(SystemClock):
    """A machine clock that can be set."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.mark.story(
    "A machine that slept is reported, and the run continues.", of="docs/how-to/unattended.md"
)
async def test_a_suspended_machine_is_reported(tmp_path: Path, clocks: Clocks) -> None:
    """An hour of suspended time is reported as a suspend, not as a clock jump."""
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "1")))
    async with (
        running_server(hank, None, execution, "--no-autostart", env=clocks.environment) as server,
        server.client(since_seq=0) as client,
    ):
        clocks.move(wall=3600, boot=3600)
        event = await client.until(ServerResumed, timeout=LIMIT)
        assert isinstance(event.data, ServerResumed)
        assert event.data.cause == "suspended"
        assert 3590 < event.data.suspended_seconds < 3700
        assert await server.stop() == 0

    assert events_of(execution, ClockJumped) == []


async def test_a_server_that_was_stopped_goes_on_and_reports_it(tmp_path: Path) -> None:
    """After SIGSTOP and SIGCONT the codon continues: the pause does not count as agent silence."""
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    one = codon("one", writes("a.txt", "1"), waits_for(gate), shimIdleTimeout=6)
    hank = write_hank(tmp_path / "hank", one)
    async with (
        running_server(hank, None, execution) as server,
        server.client(since_seq=0) as client,
    ):
        await started(client, "one")
        await _stopped_for(server, seconds=8)
        event = await client.until(ServerResumed, timeout=LIMIT)
        assert isinstance(event.data, ServerResumed)
        assert event.data.cause == "stopped"
        gate.touch()
        await idle(client)
        assert await server.stop() == 0

    (ended,) = events_of(execution, CodonCompletedEvent)
    assert ended.success
    seqs = [event.seq for event in journal(execution)]
    assert seqs == list(range(1, len(seqs) + 1))


async def _stopped_for(server: RunningServer, seconds: float) -> None:
    """Stop the process for this time; no event marks the duration, so the test must sleep."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        await anyio.sleep(seconds)
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def _clock_jumped(client: Client, direction: str, seconds: int) -> None:
    def is_it(data: object) -> bool:
        return isinstance(data, ClockJumped) and data.direction == direction

    event = await client.until(ClockJumped, lambda event: is_it(event.data), timeout=LIMIT)
    assert isinstance(event.data, ClockJumped)
    assert abs(event.data.seconds - seconds) < 60


def _second_server(execution: Path, clocks: Clocks) -> int:
    argv = command("run", "--execution", str(execution), "--json")
    env = environment(**clocks.environment)
    return subprocess.run(argv, env=env, capture_output=True, timeout=LIMIT).returncode


def _heartbeat(layout: Layout) -> datetime:
    return from_text(json.loads(layout.runtime_lock.read_bytes())["lastHeartbeat"])
