"""Take over an execution directory: refuse a moved store, end old agents, open store and ledger.

The caller holds the runtime lock, except for `refuse_moved_store`, which comes before it.
"""

from __future__ import annotations

import functools
import os
import shlex
from pathlib import Path

import anyio.to_thread
import msgspec

from hankweave_protocol.state import State
from hankweave_protocol.state_directory import STATE_DIRECTORY
from hankweave_server.agents.process import leftovers
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.records import record_of
from hankweave_server.checkpoints.repo_init import StoreMoved, refuse_links
from hankweave_server.clock import Clock
from hankweave_server.domain.checkpoints.records import on_record, salvage
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.fsutil import described, next_step, os_error_in
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.ledger.journal import JournalCorrupt
from hankweave_server.ledger.state_file import NewerState
from hankweave_server.ledger.writer import Ledger, LedgerFailed
from hankweave_server.local.journals import journal_lines
from hankweave_server.paths import DATA_SOURCE, Layout
from hankweave_server.plain_text import acted_on, counted
from hankweave_server.redaction.redactor import NOTHING_KNOWN, Redactor


def refuse_moved_store(layout: Layout) -> None:
    """Raise Stop if the state is a link, or its checkpoints are gone; change nothing."""
    try:
        refuse_links(layout)
    except StoreMoved as moved:
        raise disk_stop(moved, layout.root) from None

    if layout.checkpoints.exists():
        return

    _refuse_lost_state(layout)
    try:
        named = len(on_record(journal_lines(layout)).standing)
    except (OSError, Stop, msgspec.MsgspecError):
        return  # Opening the journal will report what is wrong with it.

    if named:
        raise Stop(
            f"{layout.checkpoints} is missing, but the journal lists "
            f"{counted(named, 'checkpoint')} in it.",
            ExitCode.BAD_DATA,
            hint="Nothing was changed. Move it back and start again; to continue without "
            f"these checkpoints: mkdir {shlex.quote(str(layout.checkpoints))}",
        )


def _refuse_lost_state(layout: Layout) -> None:
    """Raise Stop if there are files of agents, but no record of their execution."""
    if layout.is_in_place or any(
        path.exists() for path in (layout.meta, layout.state, layout.journal)
    ):
        return

    if any(layout.root.glob(f"{STATE_DIRECTORY}.backup-*")):
        return  # `--new --force --no-wipe` set the state aside and kept the files.

    names = {path.name for path in layout.work_tree.iterdir()} if layout.work_tree.is_dir() else ()
    if set(names) - {DATA_SOURCE}:
        raise Stop(
            f"{layout.state_directory} contains no state, but {layout.work_tree} contains files.",
            ExitCode.BAD_DATA,
            hint=f"Nothing was changed. If {STATE_DIRECTORY} was moved away, move it back; "
            "otherwise, name another --execution directory.",
        )


async def sweep_agents(layout: Layout) -> tuple[int, ...]:
    """Kill the agents that the previous server left behind; return their pids."""
    killed = await leftovers.sweep(layout.agent_processes)
    survivors = [str(each.pid) for each in killed if each.survived]
    if survivors:
        raise Stop(
            f"Agents of the previous server cannot be killed: pids {', '.join(survivors)}.",
            ExitCode.UNAVAILABLE,
            hint=(
                "Kill these processes, then start again: nothing may change the files "
                "during recovery."
            ),
        )

    return tuple(each.pid for each in killed)


async def open_engine(layout: Layout, *, watches: bool = False) -> CheckpointEngine:
    """Open the checkpoints of an execution whose lock is held; raise Stop."""
    try:
        return await anyio.to_thread.run_sync(
            functools.partial(CheckpointEngine.open, layout, watches=watches)
        )
    except (InsufficientSpace, ShadowRepositoryError) as error:
        raise disk_stop(error, layout.root) from None


async def open_ledger(
    layout: Layout,
    clock: Clock,
    engine: CheckpointEngine,
    redactor: Redactor = NOTHING_KNOWN,
) -> Ledger:
    """Open the ledger of an execution whose lock is held; raise Stop."""

    def from_repository() -> State:
        records = [record_of(facts) for facts in engine.commits()]
        return salvage(reversed(records), runs_folder=str(layout.runs), server_pid=os.getpid())

    try:
        return await Ledger.open(
            layout,
            clock,
            rebuild=from_repository,
            known_shas=lambda: [facts.sha for facts in engine.commits()],
            redactor=redactor,
        )
    except (JournalCorrupt, NewerState) as error:
        raise Stop(
            str(error),
            ExitCode.BAD_DATA,
            hint="Nothing was changed. Move the damaged file aside to rebuild without it.",
        ) from None


def disk_stop(failure: BaseException, root: Path) -> Stop:
    """Return the Stop for a failure of the disk of an execution.

    Acknowledged data is safe, the rest is not claimed.
    """
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]

    moved = failure.__cause__ if isinstance(failure, LedgerFailed) else failure
    if isinstance(moved, StoreMoved):
        return Stop(f"{moved}.", ExitCode.BAD_DATA, hint=moved.hint)

    problem = os_error_in(failure)
    if problem is None:
        reason, step = str(failure.__cause__ or failure).rstrip("."), "Check the disk, then start."
    else:
        reason, step = described(problem, root), next_step(problem)

    match failure:
        case LedgerFailed(unsaved=unsaved):
            lost = f" {acted_on(unsaved, 'event')} not saved." if unsaved else ""
            sentence = f"The journal or the state could not be written: {reason}.{lost}"
        case InsufficientSpace():
            sentence = f"A checkpoint could not be saved: {reason}."
        case _:
            sentence = f"The shadow repository could not be used: {reason}."

    hint = f"{step} Everything that was acknowledged is safe."
    return Stop(sentence, ExitCode.IO_ERROR, hint=hint)
