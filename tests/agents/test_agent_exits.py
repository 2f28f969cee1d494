"""Agents that crash or hang leave no process and no key behind."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from hankweave_protocol.state import FailedCodon
from support.invariants import Acknowledged, violations
from support.models.turns import Fails, Trouble
from support.real_agents import KINDS, REAL, Environment, Grounds, Kind, processes_of
from support.running_server import RunningServer, running_server, state
from support.scripted_hank import write_hank
from support.waiting import limited

DEADLINE = 60.0


async def in_mid_work(grounds: Grounds) -> list[tuple[psutil.Process, Environment]]:
    """Wait for a request to the model; return the agent's processes and environments."""
    endpoint = grounds.endpoint
    await anyio.to_thread.run_sync(endpoint.wait_for, lambda: bool(endpoint.turns))
    return processes_of(grounds.execution, keepers=False)


def hanging_hank(grounds: Grounds, kind: Kind, **fields: Any) -> Path:
    """Return a hank of one codon whose model never answers."""
    grounds.endpoint.script.add(Fails(Trouble.SILENCE))
    codon = grounds.codon("one", kind, "Please wait.", **fields)
    return write_hank(grounds.folder / "hank", codon)


async def failed(server: RunningServer) -> FailedCodon:
    """Wait for the end of an unattended run, and return its only codon."""
    with limited():
        assert await server.process.wait() == 1, server.output[-5:]

    (run,) = state(server.execution).runs
    (codon,) = run.codons
    assert isinstance(codon, FailedCodon)
    return codon


async def test_an_agent_that_is_killed_has_failed(grounds: Grounds, kind: Kind) -> None:
    """The codon of a killed agent fails at once and is retriable.

    While its processes ran, they had the agent's own key in their environment, and neither another
    agent's key nor the server's.
    """
    everybodys = Grounds(grounds.endpoint, grounds.folder, (kind, *KINDS))
    hank = hanging_hank(grounds, kind)
    async with running_server(
        hank, None, grounds.execution, "--headless", env=everybodys.environment
    ) as server:
        agents = await in_mid_work(grounds)
        assert_has_only(kind, [environment for _, environment in agents], server.execution)
        for process, _ in agents:
            with suppress(psutil.NoSuchProcess):  # The process may have ended with its parent.
                process.kill()

        codon = await failed(server)

    assert codon.failure_reason.retriable
    assert codon.failure_reason.type == "unknown"
    assert processes_of(grounds.execution) == []
    assert violations(grounds.execution, Acknowledged()) == []


def assert_has_only(kind: Kind, found: list[Environment], execution: Path) -> None:
    """Assert that only this agent's key is in the environments.

    Other agents' keys and the server's tokens, read from their files, must be absent.
    """
    others = {other.key for other in KINDS} - {kind.key}
    tokens = {path.read_text().strip() for path in execution.rglob("server.*token")}
    assert found
    assert tokens
    seen = ["\n".join(environment.values()) for environment in found]
    assert any(kind.key in values for values in seen)
    assert [s for s in others | tokens if any(s in values for values in seen)] == []


@pytest.mark.parametrize("kind", REAL, ids=str)
async def test_an_agent_that_hangs_is_ended_in_its_time(grounds: Grounds, kind: Kind) -> None:
    """The idle timeout ends all processes of a hung agent, and the failure says so.

    Stopped processes respond to no signal but SIGKILL.
    """
    hank = hanging_hank(grounds, kind, shimIdleTimeout=kind.quiet)
    async with running_server(
        hank, None, grounds.execution, "--headless", env=grounds.environment
    ) as server:
        for process, _ in await in_mid_work(grounds):
            with suppress(psutil.NoSuchProcess):  # The process may have been short-lived.
                process.suspend()

        codon = await failed(server)

    assert (codon.failure_reason.type, codon.failure_reason.retriable) == ("timeout", True)
    assert processes_of(grounds.execution) == []
    assert violations(grounds.execution, Acknowledged()) == []


@pytest.mark.enclosed
def test_where_real_agents_run_there_is_loopback_alone() -> None:
    """The sandbox of the real agents has one network interface, loopback, and no route out."""
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anywhere:
        assert anywhere.connect_ex(("192.0.2.1", 443)) == errno.ENETUNREACH
