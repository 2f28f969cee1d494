"""Check or repair the store of an execution that has no server.

A check only reads: it takes no lock and changes nothing. A repair owns the directory as a server
does, but begins without recovery: recovery would give up a rollback, or go back to an older
checkpoint, for the sake of objects that the repair can still bring back.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from functools import partial

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol.commands import StoreFsck
from hankweave_protocol.errors import Refused
from hankweave_protocol.replies import FsckReport
from hankweave_server.api.maintenance import StoreMaintenance
from hankweave_server.background_tasks import alongside
from hankweave_server.clock import SystemClock
from hankweave_server.domain.checkpoints.records import OnRecord, on_record
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance.fsck import check_store
from hankweave_server.execution.maintenance.garbage_collection import GarbageCollector
from hankweave_server.execution.maintenance.progress import ProgressWatch
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.execution.maintenance.repack import Repacker
from hankweave_server.execution.rollback.guard import TreeGuard
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.installed import parts
from hankweave_server.ledger.writer import LedgerFailed
from hankweave_server.local.hints import stop_at
from hankweave_server.local.journals import journal_lines
from hankweave_server.local.progress import ReportProgress, report_store_progress
from hankweave_server.local.takeover import (
    disk_stop,
    open_engine,
    open_ledger,
    refuse_moved_store,
)
from hankweave_server.local.targeting import require_execution, start_line
from hankweave_server.meter import Meter
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.held import HeldLock, acquire
from hankweave_server.runtime_lock.lock_file import LockLost


def fsck(layout: Layout, command: StoreFsck, report_progress: ReportProgress) -> FsckReport:
    """Check the store, after a repair if the command asks for one.

    Raises Stop if that is impossible; LockHeld, a subclass, if a repair finds another owner.
    """
    require_execution(layout.root)
    try:
        if command.repair:
            return anyio.run(_repair, layout, command, report_progress)

        return anyio.run(_check, layout, _recorded(layout), report_progress)
    except Refused as refused:
        raise stop_at(refused, refused.hint) from None
    except (ShadowRepositoryError, InsufficientSpace, LedgerFailed) as error:
        raise disk_stop(error, layout.root) from None


def _recorded(layout: Layout) -> OnRecord:
    try:
        return on_record(journal_lines(layout))
    except msgspec.MsgspecError as fault:
        raise Stop(
            f"{layout.journal} has a line that is not an event: {fault}",
            ExitCode.BAD_DATA,
            hint=f"`{start_line(layout.root)}` repairs or reports the damage.",
        ) from None


async def _check(layout: Layout, recorded: OnRecord, report_progress: ReportProgress) -> FsckReport:
    """Check the store in a thread, and report progress meanwhile.

    A cancelled check ends after the object it is reading.
    """
    watch = ProgressWatch(report=partial(report_store_progress, report_progress))
    is_given_up = threading.Event()

    def check(meter: Meter) -> FsckReport:
        return check_store(layout, recorded, is_given_up.is_set, meter)

    try:
        async with alongside(watch.run):
            with watch.watching("fsck") as meter:
                return await anyio.to_thread.run_sync(check, meter, abandon_on_cancel=True)
    finally:
        is_given_up.set()


async def _repair(
    layout: Layout, command: StoreFsck, report_progress: ReportProgress
) -> FsckReport:
    """Repair and check as the owner of the directory, and record what was done."""
    clock = SystemClock()
    refuse_moved_store(layout)
    with ExitStack() as stack:
        lock = acquire(layout, clock)
        stack.callback(lock.release)
        for part in parts("unfinished"):
            part.finish(layout)

        engine = await open_engine(layout)
        stack.callback(engine.close)
        ledger = await open_ledger(layout, clock, engine)
        checkpointer = Checkpointer(
            engine, ledger, clock, require_lock=partial(_require_lock, lock)
        )
        checkpointer.progress.attach(partial(report_store_progress, report_progress))
        packing = Repacker(ledger, checkpointer, Quiet())
        housekeeper = GarbageCollector(
            layout, clock, ledger, checkpointer, packing, guard=TreeGuard()
        )
        heartbeat = partial(lock.heartbeat, on_lost=_end_at_once)
        async with alongside(ledger.run, checkpointer.progress.run, heartbeat):
            found = [item for item in (ledger.repair, ledger.recovery) if item is not None]
            await ledger.record(*found)
            recorded = ledger.digest.checkpoints()
            await checkpointer.load(recorded.standing)
            await housekeeper.finish_interrupted(recorded)
            store = StoreMaintenance(layout, ledger, checkpointer, housekeeper, packing)
            report = await store.check(command, ())
            await ledger.aclose()

    return report


def _require_lock(lock: HeldLock) -> None:
    try:
        lock.verify()
    except LockLost as lost:
        _end_at_once(lost)


def _end_at_once(_lost: LockLost) -> None:
    """End this process, as a server that lost its lock does."""
    os._exit(ExitCode.SOFTWARE)
