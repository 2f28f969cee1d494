"""`hankweave gc`, `fsck` and `pin`: prune, check and pin checkpoints.

If a server runs, it executes the command. Otherwise the command works on the files itself:

- One that changes something (`gc`, `pin`, `fsck --repair`) holds the runtime lock as a server does,
  so that no server can start meanwhile, and records what it did in the journal.
- `fsck` without `--repair` only reads. It takes no lock and changes nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import anyio
import anyio.to_thread
import click
import msgspec

from hankweave_client.errors import NotRunning
from hankweave_protocol import codec
from hankweave_protocol.commands import (
    LONGEST_AGE_SECONDS,
    CheckpointPin,
    CommandData,
    StoreFsck,
    StoreGc,
)
from hankweave_protocol.errors import Refused
from hankweave_protocol.records import CheckpointKind, CheckpointRecord, StoreRepair
from hankweave_protocol.replies import FsckReport, GcReport, KeepReason
from hankweave_server.api.maintenance import Store
from hankweave_server.background_tasks import alongside
from hankweave_server.cli.checkpoints import line_of_checkpoint
from hankweave_server.cli.output.progress_bar import waiting
from hankweave_server.cli.output.text import AGE, SIZE, size_text
from hankweave_server.cli.remote import execution_option, json_option, print_json, root_of
from hankweave_server.cli.shared import completions
from hankweave_server.clock import SystemClock
from hankweave_server.domain.checkpoint_records import OnRecord, on_record
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance.fsck import check_store, recorded_checkpoints
from hankweave_server.execution.maintenance.gc import GarbageCollector
from hankweave_server.execution.maintenance.progress import ProgressWatch
from hankweave_server.execution.maintenance.repack import Repacker
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.ledger.history import whole_lines
from hankweave_server.ledger.journal import JournalCorrupt
from hankweave_server.ledger.writer import LedgerFailed
from hankweave_server.local.progress import ReportProgress, tell_of
from hankweave_server.local.server_session import at_server
from hankweave_server.local.takeover import disk_stop, open_engine, open_ledger, refuse_moved_store
from hankweave_server.local.targeting import require_consent, root_to_change
from hankweave_server.meter import Meter
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock import HeldLock, LockLost, acquire
from hankweave_server.worktree import data_source


def perform(layout: Layout, command: CommandData, tell: ReportProgress) -> object:
    """Execute one of the three commands on the files.

    Raises Stop if that is impossible; LockHeld, a subclass, if another process owns the execution.
    """
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


async def _check(layout: Layout, recorded: OnRecord, tell: ReportProgress) -> FsckReport:
    """Check the store in a thread, and report progress meanwhile.

    A cancelled check ends after the object it is reading.
    """
    watch = ProgressWatch(tell=partial(tell_of, tell))
    is_given_up = threading.Event()

    def check(meter: Meter) -> FsckReport:
        return check_store(layout, recorded, is_given_up.is_set, meter)

    try:
        async with alongside(watch.run):
            with watch.watching("fsck") as meter:
                return await anyio.to_thread.run_sync(check, meter, abandon_on_cancel=True)
    finally:
        is_given_up.set()


async def _change(layout: Layout, command: CommandData, tell: ReportProgress) -> object:
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
async def _owned(layout: Layout, tell: ReportProgress) -> AsyncIterator[Store]:
    """Hold the runtime lock and open the store and ledger, without serving or running a plan."""
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
        checkpointer.progress.attach(partial(tell_of, tell))
        packing = Repacker(ledger, checkpointer)
        housekeeper = GarbageCollector(layout, clock, ledger, checkpointer, packing)
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
                # Raised again outside the task group, which would wrap it.
                failures.append(failure)

            tasks.cancel_scope.cancel()

        if failures:
            raise failures[0]


def _say_who_died(lock: HeldLock) -> None:
    """Report a dead server now: the lock file names us from here on, so no start will see it."""
    if lock.previous is not None:
        click.echo(f"found a dead server: pid {lock.previous.pid}", err=True)


def _require_lock(lock: HeldLock) -> None:
    try:
        lock.verify()
    except LockLost as lost:
        _lock_lost(lost)


def _lock_lost(lost: LockLost) -> None:
    """End this process at once, as a server that lost its lock does."""
    os._exit(ExitCode.SOFTWARE)


T = TypeVar("T")

_REASONS: dict[KeepReason, str] = {
    "pinned": "pinned",
    "completed": "completed work is never pruned",
    "thread": "the execution thread needs it",
    "undo": "the next undo or redo needs it",
    "kind": "not of a kind that was asked for",
    "ancestor": "one that stays descends from it",
    "limits": "within the limits",
}


class _Kinds(click.ParamType[tuple[CheckpointKind, ...]]):
    """Comma-separated kinds of checkpoints."""

    name = "kinds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[CheckpointKind, ...]:
        kinds = tuple(part.strip() for part in str(value).split(",") if part.strip())
        known = get_args(CheckpointKind)
        for kind in kinds or ("",):
            if kind not in known:
                self.fail(f"{kind!r} is no kind of checkpoint: {', '.join(known)}.", param, ctx)

        return kinds  # type: ignore[return-value]  # each one is in `known`


def _answer(execution: Path | None, command: CommandData, shape: type[T], what: str | None) -> T:
    root = root_of(execution)
    with waiting(what) as tell:
        try:
            found = at_server(root, lambda client: client.send(command), tell)
        except (NotRunning, ConnectionRefusedError):
            found = perform(data_source.layout_of(root), command, tell)

    return msgspec.convert(msgspec.json.decode(codec.encode(found)), shape)


@click.command()
@execution_option
@click.option("--dry-run", is_flag=True, help="Show what would be pruned or kept, and why.")
@click.option("--max-age", type=AGE, metavar="AGE", help="Prune older ones, e.g. 30d or 12h.")
@click.option("--max-count", type=click.IntRange(min=0), help="Keep this many of the newest ones.")
@click.option("--max-bytes", type=SIZE, metavar="SIZE", help="Prune the oldest ones to fit SIZE.")
@click.option("--kinds", type=_Kinds(), help="Prune only these kinds, e.g. safety,manual.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
def gc(
    execution: Path | None,
    dry_run: bool,
    max_age: int | None,
    max_count: int | None,
    max_bytes: int | None,
    kinds: tuple[CheckpointKind, ...] | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Prune checkpoints beyond the limits, and pack the store.

    Without a limit, nothing is pruned. Completed and pinned checkpoints are never pruned, nor are
    those that the execution thread or the next undo or redo needs. With a limit, the command asks
    for confirmation; without a terminal, it requires --yes.

    \b
    hankweave gc --dry-run --max-age 30d
    hankweave gc --max-bytes 500MB --kinds tool,turn,safety --yes
    """
    if max_age is not None and max_age > LONGEST_AGE_SECONDS:
        raise click.UsageError("--max-age is limited to a thousand years.")

    execution = root_of(execution) if dry_run else root_to_change(execution)
    if not dry_run and (max_age, max_count, max_bytes) != (None, None, None):
        _require_agreement(yes=yes, as_json=as_json)

    command = StoreGc(
        dry_run=dry_run,
        max_age_seconds=max_age,
        max_count=max_count,
        max_bytes=max_bytes,
        kinds=kinds,
    )
    report = _answer(execution, command, GcReport, None if as_json else "Looking for what may go")
    if as_json:
        print_json(report)
    else:
        _print_gc(report)


def _require_agreement(*, yes: bool, as_json: bool) -> None:
    foresee = "--dry-run says what would go."
    require_consent(yes=yes, otherwise=foresee)
    if not (yes or as_json) and not click.confirm("Prune checkpoints beyond these limits?"):
        raise Stop("Nothing was pruned.", ExitCode.FAILED, hint=foresee)


def _print_gc(report: GcReport) -> None:
    verb = "would be" if report.dry_run else "were"
    click.echo(f"{len(report.pruned)} checkpoints {verb} pruned")
    for record in report.pruned:
        click.echo(f"  {line_of_checkpoint(record)}")

    click.echo(f"{report.kept} checkpoints {'would be' if report.dry_run else 'are'} kept")
    if report.dry_run:
        for kept in report.kept_because:
            click.echo(f"  {kept.sha[:12]}  {kept.kind:<10} {_REASONS[kept.reason]}")
    else:
        for reason, count in Counter(kept.reason for kept in report.kept_because).items():
            click.echo(f"  {count}  {_REASONS[reason]}")

    for count, what in ((report.undos_lost, "undo"), (report.redos_lost, "redo")):
        if count:
            rollbacks = "rollback" if count == 1 else "rollbacks"
            click.echo(f"{count} {rollbacks} could no longer be taken back by `hankweave {what}`")

    before, after = size_text(report.bytes_before), size_text(report.bytes_after)
    click.echo(f"{before} on disk{' now, about' if report.dry_run else ' before,'} {after} after")
    if report.unreadable is not None:
        click.echo(
            f"{report.unreadable} cannot be read, so no garbage was removed. "
            "`hankweave fsck --repair` shows what is lost.",
            err=True,
        )

    if report.consolidated is not None and not report.consolidated.finished:
        click.echo(
            "The store is not fully packed yet: packing was interrupted by more urgent work."
        )


@click.command()
@execution_option
@click.option(
    "--repair", is_flag=True, help="Restore lost objects; drop checkpoints that stay incomplete."
)
@click.option(
    "--mirror",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A git repository or execution that may contain lost objects; with --repair.",
)
@json_option
def fsck(execution: Path | None, repair: bool, mirror: Path | None, as_json: bool) -> None:
    """Verify every checkpoint, down to the content of each file.

    The exit code is 1 if something is damaged. With --repair, lost objects are restored from the
    work tree, from damaged packs and from the mirror. Checkpoints that stay incomplete are removed
    from the history; all others are kept. Damaged files are moved aside and never deleted.

    \b
    hankweave fsck
    hankweave fsck --repair
    hankweave fsck --repair --mirror /backup/execution
    """
    if mirror is not None and not repair:
        raise click.UsageError("--mirror is for --repair.")

    place = None if mirror is None else str(mirror.resolve())
    command = StoreFsck(repair=repair, mirror=place)
    what = "Repairing the store" if repair else "Reading the store"
    report = _answer(execution, command, FsckReport, None if as_json else what)
    if as_json:
        print_json(report)
    else:
        if report.repair is not None:
            _print_repair(report.repair)

        _print_fsck(report)
        if (report.damages or report.missing) and not repair:
            click.echo("`hankweave fsck --repair` writes again what can be found.", err=True)

    sys.exit(ExitCode.FAILED if report.damages or report.missing else ExitCode.DONE)


def _print_repair(repair: StoreRepair) -> None:
    click.echo(f"{len(repair.rewritten)} objects were written again")
    for sha in repair.lost:
        click.echo(f"checkpoint {sha} is lost: not all of it could be found")

    for sha in repair.unknown_permissions:
        click.echo(f"checkpoint {sha}: permissions and empty folders may be lost")

    for moved in repair.moved_refs:
        now = "was moved aside" if moved.now is None else f"goes to {moved.now[:12]} now"
        click.echo(f"{moved.ref} named {moved.was[:12]}, and {now}")

    if repair.quarantine is not None:
        click.echo(f"What was damaged lies in {repair.quarantine}")


def _print_fsck(report: FsckReport) -> None:
    for hit in report.damages:
        click.echo(f"checkpoint {hit.checkpoint} is damaged:")
        for each in hit.damages:
            click.echo(f"  {each.kind} {each.sha}{f' at {each.path!r}' if each.path else ''}")

    for sha in report.missing:
        click.echo(f"checkpoint {sha} is missing: it is in the journal and was not pruned")

    bad = len(report.damages) + len(report.missing)
    if bad == 0:
        click.echo(f"{report.checked} checkpoints are whole, down to every file.")
    else:
        click.echo(f"{report.checked} checkpoints were read; {bad} cannot be rolled back to.")


@click.command()
@click.argument("sha", shell_complete=completions.checkpoints)
@execution_option
@click.option("--name", help="Name for the checkpoint.")
@click.option("--remove", is_flag=True, help="Unpin the checkpoint.")
@json_option
def pin(sha: str, execution: Path | None, name: str | None, remove: bool, as_json: bool) -> None:
    """Protect checkpoint SHA from pruning. SHA may be abbreviated.

    \b
    hankweave pin 6dc2daae --name "the good one"
    hankweave pin 6dc2daae --remove
    """
    if remove and name is not None:
        raise click.UsageError("--remove and --name exclude each other.")

    if name is not None and not 1 <= len(name) <= 200:
        raise click.UsageError("A name has 1 to 200 characters.")

    execution = root_to_change(execution)
    command = CheckpointPin(checkpoint_sha=sha, name=name, pinned=not remove)
    record = _answer(execution, command, CheckpointRecord, None if as_json else "Pinning")
    if as_json:
        print_json(record)
    elif record.pinned:
        click.echo(f"{record.sha[:12]} is pinned{f' as {record.name!r}' if record.name else ''}")
    else:
        click.echo(f"{record.sha[:12]} is not pinned")


COMMANDS = (gc, fsck, pin)
