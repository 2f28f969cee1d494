"""Shared fixtures for the agent tests: a default task, a signal collector and a process witness."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from hankweave_protocol.ids import CodonId, RunId
from hankweave_server.agents.base import (
    Agent,
    AgentLimits,
    AgentOutcome,
    AgentSession,
    AgentSignal,
    AgentTask,
    PermissionAsked,
    PlainOutput,
    Verdict,
)
from hankweave_server.agents.registry import CommandAgent
from support.waiting import limited

HOURS = timedelta(hours=3)
"""An agent that reacts to a signal has the time to do so; the others get a shorter grace."""


@pytest.fixture
def a_task(tmp_path: Path) -> Callable[..., AgentTask]:
    def build(prompt: str = "", **changes: object) -> AgentTask:
        work_tree = tmp_path / "agentRoot"
        work_tree.mkdir(exist_ok=True)
        limits = AgentLimits(kill_grace=HOURS)
        defaults = {
            "prompt": prompt,
            "system_prompt": None,
            "model": "test-model",
            "work_tree": work_tree,
            "data_dir": tmp_path / "data",
            "log_path": tmp_path / "runs" / "observe-claude.log",
            "resume_session": None,
            "environment": {},
            "run_id": RunId("1736000000000-abc123-def456"),
            "codon_id": CodonId("observe"),
            "processes_dir": tmp_path / "agents",
            "limits": limits,
        }
        return AgentTask(**(defaults | changes))

    return build


@dataclass(frozen=True)
class FinishedRun:
    signals: Sequence[AgentSignal]
    outcome: AgentOutcome

    def of(self, kind: type) -> list:
        return [signal for signal in self.signals if isinstance(signal, kind)]


@pytest.fixture
def run_agent() -> Callable:
    async def run(agent: Agent, task: AgentTask) -> FinishedRun:
        with limited():
            async with agent.start(task) as session:
                signals = [signal async for signal in session.signals()]
                return FinishedRun(signals, await session.wait())

    return run


@pytest.fixture
def converse() -> Callable:
    """Return a function that runs an agent and gives each of its questions the same answer."""

    async def run(agent: Agent, task: AgentTask, verdict: Verdict) -> FinishedRun:
        with limited():
            async with agent.start(task) as session:
                signals = []
                async for signal in session.signals():
                    signals.append(signal)
                    if isinstance(signal, PermissionAsked):
                        await session.answer(signal, verdict)

                return FinishedRun(signals, await session.wait())

    return run


@pytest.fixture
def python() -> Callable[[str], CommandAgent]:
    """Return a factory that makes an agent from Python source."""

    def build(source: str, **changes: object) -> CommandAgent:
        return CommandAgent((sys.executable, "-I", "-S", "-c", source), **changes)

    return build


@pytest.fixture
def printed_lines() -> Callable:
    """Return a function that waits until the agent has printed `count` lines, split into words."""

    async def read(session: AgentSession, count: int) -> list[list[str]]:
        lines: list[list[str]] = []
        with limited():
            async for signal in session.signals():
                if isinstance(signal, PlainOutput):
                    lines.append(signal.line.split())
                    if len(lines) == count:
                        break

        return lines

    return read


@pytest.fixture
def lives() -> Callable[[int], bool]:
    def ask(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return ask
