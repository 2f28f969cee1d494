"""What keeps the store, done on the files where no server runs.

Who changes something takes the runtime lock as a server does, so that none can start meanwhile, and
puts on record what it did; who only reads takes nothing and leaves everything as it was.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial

import anyio
import anyio.to_thread
import click
import msgspec

from hankweave_protocol.commands import CheckpointPin, CommandData, StoreFsck, StoreGc
from hankweave_protocol.errors import Refused
from hankweave_protocol.replies import FsckReport
from hankweave_server.api.maintenance import Store
from hankweave_server.background_tasks import alongside
from hankweave_server.checkpoints.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.cli.output.progress_bar import Tell, tell_of
from hankweave_server.clock import SystemClock
from hankweave_server.daemon import disk_stop, open_engine, open_ledger, refuse_moved_store
from hankweave_server.domain.checkpoint_records import OnRecord, on_record
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance.fsck import check_store, recorded_checkpoints
from hankweave_server.execution.maintenance.gc import Housekeeper
from hankweave_server.execution.maintenance.progress import ProgressWatch
from hankweave_server.execution.maintenance.repack import Packing
from hankweave_server.ledger.journal import JournalCorrupt
from hankweave_server.ledger.reading import whole_lines
from hankweave_server.ledger.writer import LedgerFailed
from hankweave_server.meter import Meter
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock import HeldLock, LockLost, acquire


def perform(layout: Layout, command: CommandData, tell: Tell) -> object:
    """Does one of the three commands; raises Stop, LockHeld among them, where it cannot."""
    if not layout.state_directory.is_dir():
        raise Stop(
            f"There is no execution in {layout.root}.",
            ExitCode.NO_INPUT,
            hint="Name an execution directory with --execution.",
        )

    try:
        if isinstance(command, StoreFsck) and not command.repair:
            return anyio.run(_check, layout, _recorded(layout), tell)

        return anyio.run(_change, layout, command, tell)
    except Refused as refused:
        raise Stop(
            f"{refused.message} ({refused.code})", ExitCode.FAILED, hint=refused.hint
        ) from None
    except (ShadowRepositoryError, InsufficientSpace, LedgerFailed) as error:
        raise disk_stop(error) from None


def _recorded(layout: Layout) -> OnRecord:
    try:
        return on_record(whole_lines(layout))
    except FileNotFoundError:
        return OnRecord(standing=frozenset(), pruned=frozenset())
    except JournalCorrupt as damage:
        raise Stop(str(damage), ExitCode.BAD_DATA) from None
    except msgspec.MsgspecError as fault:
        raise Stop(
            f"{layout.journal} has a line that is no event: {fault}",
            ExitCode.BAD_DATA,
            hint="Start the server on this execution: it repairs or names what is damaged.",
        ) from None


async def _check(layout: Layout, recorded: OnRecord, tell: Tell) -> FsckReport:
    """Reads in a thread, and tells meanwhile; who is interrupted waits for one object at most."""
    watch = ProgressWatch()
    watch.tell = partial(tell_of, tell)
    is_given_up = threading.Event()

    def check(meter: Meter) -> FsckReport:
        return check_store(layout, recorded, is_given_up.is_set, meter)

    try:
        async with alongside(watch.run):
            with watch.watching("fsck") as meter:
                return await anyio.to_thread.run_sync(check, meter, abandon_on_cancel=True)
    finally:
        is_given_up.set()


async def _change(layout: Layout, command: CommandData, tell: Tell) -> object:
    async with _owned(layout, tell) as store:
        match command:
            case StoreGc():
                return await store.gc(command, ())
            case CheckpointPin():
                return await store.pin(command, ())
            case StoreFsck():
                return await store.fsck(command, ())
            case _:
                raise AssertionError(f"{command.TYPE} wants a server")


@asynccontextmanager
async def _owned(layout: Layout, tell: Tell) -> AsyncIterator[Store]:
    """Owns an execution as a server does, without serving or driving anything."""
    clock = SystemClock()
    refuse_moved_store(layout)
    with ExitStack() as stack:
        lock = acquire(layout, clock)
        stack.callback(lock.release)
        _say_who_died(lock)
        engine = await open_engine(layout)
        stack.callback(engine.close)
        ledger = await open_ledger(layout, clock, engine)
        checkpointer = Checkpointer(
            engine, ledger, clock, require_lock=partial(_require_lock, lock)
        )
        checkpointer.progress.tell = partial(tell_of, tell)
        packing = Packing(ledger, checkpointer)
        housekeeper = Housekeeper(layout, clock, ledger, checkpointer, packing)
        failures: list[Exception] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ledger.run)
            tasks.start_soon(checkpointer.progress.run)
            tasks.start_soon(partial(lock.heartbeat, on_lost=_lock_lost))
            try:
                found = [item for item in (ledger.repair, ledger.recovery) if item is not None]
                await ledger.record(*found)
                recorded = recorded_checkpoints(ledger)
                await checkpointer.load(recorded.standing)
                await housekeeper.finish_interrupted(recorded)
                yield Store(layout, ledger, checkpointer, housekeeper, packing)
                await ledger.aclose()
            except Exception as failure:
                # Raised again outside: a task group would wrap it.
                failures.append(failure)

            tasks.cancel_scope.cancel()

        if failures:
            raise failures[0]


def _say_who_died(lock: HeldLock) -> None:
    """The next start will not know of it any more: the lock file tells of us by then."""
    if lock.previous is not None:
        click.echo(f"found a dead server: pid {lock.previous.pid}", err=True)


def _require_lock(lock: HeldLock) -> None:
    try:
        lock.verify()
    except LockLost as lost:
        _lock_lost(lost)


def _lock_lost(lost: LockLost) -> None:
    """Fences ourselves, as the server does."""
    os._exit(ExitCode.SOFTWARE)
