"""Hooks that run as programs and wait until the server lets them continue."""

from __future__ import annotations

import functools
import json
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from hankweave_server.agents.base import AgentSignal, Forbidden, Granted, PermissionAsked, ToBeAsked
from hankweave_server.agents.hook_server import HookServer, hook_command
from support.waiting import LIMIT, eventually

CALL = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "t1"}


@asynccontextmanager
async def listening(path: Path, signals: list[AgentSignal]) -> AsyncIterator[HookServer]:
    async def handle(signal: AgentSignal) -> None:
        signals.append(signal)

    server = HookServer(path)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, handle)
            yield server
            tasks.cancel_scope.cancel()
    finally:
        server.close()


async def run_hook(path: Path, printed: list[bytes]) -> None:
    # A hook that finds no server ends without reading its input: that is no error here.
    run = functools.partial(
        subprocess.run,
        ["sh", "-c", hook_command(path)],
        input=json.dumps(CALL).encode(),
        capture_output=True,
        check=True,
        timeout=LIMIT,
    )
    printed.append((await anyio.to_thread.run_sync(run)).stdout)


async def asked_by(signals: list[AgentSignal], count: int) -> list[PermissionAsked]:
    await eventually(lambda: len(signals) >= count)
    return [each for each in signals if isinstance(each, PermissionAsked)]


@pytest.mark.parametrize(
    ("verdict", "decision"), [(Granted(), None), (ToBeAsked(), None), (Forbidden("No."), "deny")]
)
async def test_a_hook_waits_for_its_answer(tmp_path: Path, verdict, decision) -> None:
    """A hook prints nothing for an allowed call, and a refusal in its agent's format."""
    path, signals, printed = tmp_path / "agents" / "a.sock", list[AgentSignal](), list[bytes]()
    async with listening(path, signals) as server, anyio.create_task_group() as tasks:
        tasks.start_soon(run_hook, path, printed)
        (asked,) = await asked_by(signals, 1)
        assert (asked.name, asked.input, asked.by_hook) == ("Bash", {"command": "ls"}, True)
        assert printed == []
        assert server.answer(asked, verdict)
        assert not server.answer(asked, verdict)

    (answer,) = printed
    answered = json.loads(answer)["hookSpecificOutput"]["permissionDecision"] if answer else None
    assert answered == decision


async def test_several_hooks_wait_side_by_side(tmp_path: Path) -> None:
    """Each hook gets its own answer; a path longer than a socket address works too."""
    path, signals, printed = tmp_path / ("x" * 150) / "a.sock", list[AgentSignal](), list[bytes]()
    async with listening(path, signals) as server, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(run_hook, path, printed)

        for asked in reversed(await asked_by(signals, 3)):
            assert server.answer(asked, Granted())

    assert printed == [b""] * 3


async def test_a_hook_does_not_wait_for_a_server_that_is_gone(tmp_path: Path) -> None:
    """If the server is gone before the hook asks, or while it waits, the call passes."""
    path, signals, printed = tmp_path / "a.sock", list[AgentSignal](), list[bytes]()
    await run_hook(path, printed)
    async with anyio.create_task_group() as tasks, listening(path, signals):
        tasks.start_soon(run_hook, path, printed)
        await asked_by(signals, 1)

    assert printed == [b"", b""]
    assert not path.exists()


async def test_what_is_no_call_is_asked_about_all_the_same(tmp_path: Path) -> None:
    """A hook with unparsable input waits as if the call might change files."""
    path, signals = tmp_path / "a.sock", list[AgentSignal]()
    async with listening(path, signals) as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with await anyio.connect_unix(path) as stream:
            await stream.send(b"what?")
            await stream.send_eof()
            (asked,) = await asked_by(signals, 1)
            assert (asked.name, asked.input) == ("", {})
            server.answer(asked, Granted())
