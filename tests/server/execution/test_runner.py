"""Runner behaviour at exact moments, tested with its components in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import FailedCodon
from hankweave_server.domain.execution_thread import active_codon
from hankweave_server.execution.codon.run import Halt
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.recovery import Recovery
from hankweave_server.execution.rollback.rollback import Rollback
from hankweave_server.execution.runner import Runner
from hankweave_server.paths import Layout
from support.components import components
from support.scripted_hank import codon, waits_for, write_hank
from support.waiting import limited


@asynccontextmanager
async def a_runner(tmp_path: Path) -> AsyncIterator[tuple[Runner, ExecutionContext]]:
    """Create the runner of a new execution, whose one codon never ends by itself."""
    hank = write_hank(tmp_path / "hank", codon("one", waits_for(tmp_path / "never")))
    with limited():
        async with components(Layout.of_execution(tmp_path / "execution")) as found:
            ctx = found.context(hank)
            runner = Runner(ctx, autostart=True)
            recovery = Recovery(ctx, runner, Rollback(ctx, runner), frozenset())
            found.tasks.start_soon(runner.run)
            await recovery.begin_if_new()
            await runner.close_run()
            yield runner, ctx


async def test_a_stop_while_the_run_is_being_opened_takes_the_wish_back(tmp_path: Path) -> None:
    """A stop during the write between request and start cancels the request."""
    async with a_runner(tmp_path) as (runner, ctx):
        runner.start(CodonId("one"))
        while len(ctx.state.runs) == 1:  # The decision is not yet written.
            await anyio.lowlevel.checkpoint()

        await runner.quiesce(Halt("stopped"))
        assert not runner.is_busy
        assert not ctx.state.runs[0].codons


async def test_a_stop_before_the_agent_lives_ends_the_codon(tmp_path: Path) -> None:
    """A stop while the codon is `preparing` takes effect when its agent would start."""
    async with a_runner(tmp_path) as (runner, ctx):
        runner.start(CodonId("one"))
        while active_codon(ctx.state) is None:
            await anyio.lowlevel.checkpoint()

        await runner.quiesce(Halt("stopped"))
        (ended,) = ctx.state.runs[0].codons
        assert isinstance(ended, FailedCodon)
        assert ended.failure_reason.message == "stopped"


async def test_a_closed_runner_takes_no_wish_and_no_rollback(tmp_path: Path) -> None:
    """After `close` both are refused with SHUTTING_DOWN."""
    async with a_runner(tmp_path) as (runner, ctx):
        await runner.close(Halt("the end"))
        with pytest.raises(Refused) as start:
            runner.start(CodonId("one"))

        with pytest.raises(Refused) as rollback, ctx.guard.rolling_back():
            pass

    assert start.value.code == rollback.value.code == ErrorCode.SHUTTING_DOWN
