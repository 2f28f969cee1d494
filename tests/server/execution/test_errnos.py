"""The adoption of an attempt on a system that refuses what it has to do."""

from __future__ import annotations

import errno
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from hankweave_protocol.attempts import AttemptRecord, Exploration
from hankweave_protocol.commands import Command, ExplorationAdopt
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import CodonId, CommandId
from hankweave_protocol.transitions import ExplorationSet
from hankweave_server.api.dispatch import Dispatch
from hankweave_server.api.rollback import Rollbacks
from hankweave_server.errors import ExitCode
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.features.exploration.server_part import Explorer
from hankweave_server.ledger.writer import LedgerFailed
from hankweave_server.local.takeover import disk_stop
from hankweave_server.paths import Layout
from support.callers import CONTROLLER
from support.components import by_hand
from support.refusing_system import ERRNOS, OPERATIONS, Refusals
from support.rollback_room import Room, a_room, served
from support.running_server import tree

pytestmark = pytest.mark.feature("exploration")

RESULT = {"a.txt": b"first", "b.txt": b"attempted", "c.txt": b"new"}
PRESENT = {"a.txt": b"second", "b.txt": b"first"}
MERGED = {"a.txt": b"second", "b.txt": b"attempted", "c.txt": b"new"}


def lay_out(top: Path, files: dict[str, bytes]) -> None:
    for path in top.iterdir():
        path.unlink()

    for name, content in files.items():
        (top / name).write_bytes(content)


@asynccontextmanager
async def an_attempt(tmp_path: Path) -> AsyncIterator[Room]:
    """Open an execution in which one attempt has a result and a person has changed a file."""
    async with a_room(tmp_path, "b.txt") as room:
        ctx, top = room.ctx, room.ctx.layout.work_tree
        origin = next(iter(ctx.checkpointer.known))
        lay_out(top, RESULT)
        made = await by_hand(ctx.checkpointer, ctx.state.runs[0].run_id)
        lay_out(top, PRESENT)
        attempt = AttemptRecord(attempt_id="e-1", status="completed", checkpoint_sha=made.sha)
        exploration = Exploration(
            exploration_id="e",
            created_at=ctx.now_text(),
            checkpoint_sha=origin,
            codon_id=CodonId("one"),
            attempts=(attempt,),
        )
        await ctx.ledger.record(ExplorationSet(exploration=exploration))
        yield room


async def adopt(room: Room, *, merge: bool) -> None:
    unused: Any = None
    explorer = Explorer(room.ctx, room.runner, unused, Rollbacks(room.ctx, room.rollback), unused)
    dispatch = Dispatch(room.ctx, [explorer], space=room.ctx.ledger.space, quiet=Quiet())
    data = ExplorationAdopt(attempt_id="e-1", merge=merge)
    await dispatch.handle(Command(id=CommandId("command-1"), type=data.TYPE, data=data), CONTROLLER)


async def met(
    tmp_path: Path, operation: str, number: int, only: int | None = None, *, merge: bool
) -> int:
    """Adopt while the system refuses; return how many calls there were.

    Whatever is refused has a code, a path and a next step, also where the server has to end; and
    when the system allows it again, the same command does it, under the next server.
    """
    failures: list[tuple[ErrorCode | ExitCode, str, str | None]] = []
    refusals = Refusals(Layout.of_execution(tmp_path / "execution").root, only)
    try:
        async with an_attempt(tmp_path) as room:
            with structlog.testing.capture_logs(), pytest.MonkeyPatch.context() as patch:
                refusals.install(patch, operation, number)
                try:
                    await adopt(room, merge=merge)
                except Refused as refusal:
                    failures.append((refusal.code, refusal.message, refusal.hint))
    except* LedgerFailed as ended:
        stop = disk_stop(ended, refusals.below)
        failures.append((stop.exit_code, stop.message, stop.hint))

    for code, message, hint in failures:
        assert code not in (ErrorCode.INTERNAL_ERROR, ExitCode.SOFTWARE)
        assert hint
        if number not in (errno.ENOSPC, errno.EDQUOT):
            assert f"({errno.errorcode[number]})" in message, message
            assert str(refusals.below) in message

    async with served(tmp_path) as room:
        await room.recovery.recover()
        await adopt(room, merge=merge)
        assert tree(room.ctx.layout.work_tree) == (MERGED if merge else RESULT)

    return refusals.count


def a_case(operation: str, number: int) -> Any:
    """Return one case of the table; the gate tests one error of each operation."""
    is_sample = OPERATIONS.index(operation) == ERRNOS.index(number)
    name = f"{operation}-{errno.errorcode[number]}"
    return pytest.param(operation, number, marks=() if is_sample else pytest.mark.full, id=name)


TABLE = [a_case(operation, number) for operation in OPERATIONS for number in ERRNOS]


@pytest.mark.parametrize("merge", [False, True], ids=["adopt", "merge"])
@pytest.mark.parametrize(("operation", "number"), TABLE)
async def test_a_system_that_refuses_everything_is_named(
    tmp_path: Path, operation: str, number: int, merge: bool
) -> None:
    await met(tmp_path, operation, number, merge=merge)


@pytest.mark.full
@pytest.mark.parametrize("merge", [False, True], ids=["adopt", "merge"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_system_that_refuses_one_call_is_named(
    tmp_path: Path, operation: str, merge: bool
) -> None:
    numbers = itertools.cycle(ERRNOS)
    only = calls = 1
    while only <= calls:
        calls = await met(tmp_path / str(only), operation, next(numbers), only, merge=merge)
        only += 1
