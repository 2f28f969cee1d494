"""The start of a server, from the opened execution until it can be served.

It records what it found before anything is done about it. Then it completes what the previous
server left unrecorded, compares the state with folders and repository, recovers, and begins what a
new execution lacks.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import (
    HankChanged,
    Info,
    ServerStarted,
    StateRecovered,
)
from hankweave_protocol.ids import RunId, Sha
from hankweave_protocol.records import StateValidation
from hankweave_server import __version__, fsutil
from hankweave_server.agents.process.process_table import containment
from hankweave_server.app import App, OpenedExecution
from hankweave_server.clock import Clock
from hankweave_server.domain.liveness import PreviousOwner
from hankweave_server.domain.validation import corrected, validate
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.execution.branch.location import TEMPORARY
from hankweave_server.execution.codon.environment import data_location
from hankweave_server.execution.recovery import Recovered
from hankweave_server.execution.resume import PlanConflict
from hankweave_server.local.executions import (
    ExecutionChanges,
    take_hank,
)
from hankweave_server.local.project_state import record_beginning
from hankweave_server.logs import logger
from hankweave_server.paths import Layout

log = logger(__name__)


COLLECTED_WITHIN = 600.0
"""Seconds after which a full garbage collection visits all objects again."""


def collect_garbage_rarely(clock: Clock) -> None:
    """Let a full garbage collection visit all objects only every ten minutes.

    It stops every thread: with 100,000 files, for a third of a second. Collections of young objects
    go on; of the cycles that survive them, few are ever made.
    """
    gc.freeze()
    unfrozen = clock.monotonic()

    def note(phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        nonlocal unfrozen
        if phase == "stop" or info["generation"] < 2:  # Not a full one.
            return

        now = clock.monotonic()
        if now - unfrozen > COLLECTED_WITHIN:
            unfrozen = now
            gc.unfreeze()
        else:
            gc.freeze()

    gc.callbacks.append(note)


@dataclass(frozen=True, slots=True)
class StartFindings:
    """Findings of a start: traces of the previous server, and changes since then."""

    differences: ExecutionChanges
    agents: tuple[int, ...]
    files: tuple[str, ...]
    unlisted: str | None = None
    """Why `hankweave ls` may not list the execution."""


async def recover(app: App, opened: OpenedExecution, past: StartFindings) -> None:
    """Bring an opened execution to the point where it can be served; raise Stop if it cannot."""
    await _announce(opened, past)
    recorded = opened.ledger.digest.checkpoints()
    await app.checkpointer.load(recorded.standing)
    await app.branching.recall_inheritance()
    await app.branching.copy_conversations()
    for part in app.parts:
        await part.begin()

    if pruned := await app.housekeeper.finish_interrupted(recorded):
        log.warning("Recorded %d checkpoints that the previous server had pruned", pruned)
        recorded = opened.ledger.digest.checkpoints()
        app.checkpointer.note_recorded(recorded.standing)

    await app.housekeeper.drop_unreachable_rollbacks()
    await _validate(app, opened, recorded.pruned)
    recovery = app.recovery(recorded.standing)
    with _refusing_what_cannot_be_restored():
        recovered = await recovery.recover(keeps_wait=opened.settings.begin_at is None)

    await _finish_branch(app, opened.layout)
    other_hank = past.differences.hank_hash is not None
    with _refusing_what_cannot_begin():
        await recovery.begin_if_new(
            other_hank=other_hank,
            keep_plan=opened.settings.force,
            begin_at=opened.settings.begin_at,
        )

    if (current := opened.ledger.state.current_run_id) is not None:
        make_run_folder(opened.layout, current)

    if opened.layout.is_in_place:
        record_beginning(opened.layout, opened.ledger.state.initial_checkpoint)

    # The hank counts as known only once the plan that follows it is recorded.
    await opened.ledger.flush()
    take_hank(opened.layout, opened.hank, opened.settings)
    _log_recovery(recovered)
    app.runner.resume_wait()
    app.open_for_commands()


async def _announce(opened: OpenedExecution, past: StartFindings) -> None:
    """Record what was found, before anything is done about it."""
    ledger, previous = opened.ledger, opened.lock.previous
    started = ServerStarted(
        server_version=__version__,
        pid=os.getpid(),
        previous_pid=None if previous is None else previous.pid,
        previous_heartbeat_age_ms=_milliseconds(previous),
        previous_pid_reused=False if previous is None else previous.pid_reused,
        leftover_agents_killed=past.agents,
        leftovers_removed=past.files,
        containment=containment(),
    )
    if previous is not None:
        log.warning("Found dead server: pid %d", previous.pid)

    found = [item for item in (ledger.repair, ledger.recovery) if item is not None]
    await ledger.record(started, *found)
    if past.unlisted is not None:
        log.warning("%s", past.unlisted)
        await ledger.record(Info(message=f"Warning: {past.unlisted}"))

    await _announce_changes(opened, past.differences)


async def _announce_changes(opened: OpenedExecution, found: ExecutionChanges) -> None:
    ledger = opened.ledger
    if found.history is not None:
        await ledger.record(found.history)

    if found.hank_hash is not None:
        log.warning("hank.json has changed since this execution began")
        await ledger.record(
            HankChanged(previous_hash=found.hank_hash, current_hash=opened.hank.hank_hash)
        )

    if found.data is not None:
        await ledger.record(found.data)

    if found.displaced is not None:
        await ledger.record(Info(message=found.displaced.sentence))

    if (sentence := data_location(opened.layout)) is not None:
        await ledger.record(Info(message=sentence))

    if found.set_aside:
        names = ", ".join(found.set_aside)
        await ledger.record(Info(message=f"The previous execution was set aside: {names}."))


async def _validate(app: App, opened: OpenedExecution, pruned: frozenset[Sha]) -> None:
    """Record where the state disagrees with folders, repository or journal.

    Pruned checkpoints do not count as missing.
    """
    recomputed = opened.ledger.digest.costs()

    def judged() -> StateValidation:
        return validate(
            opened.ledger.state,
            run_folders=frozenset(path.name for path in opened.layout.runs.iterdir()),
            checkpoint_exists=(pruned | app.checkpointer.known.keys()).__contains__,
            recorded_missing=app.checkpointer.missing,
            recomputed_costs=recomputed,
        )

    found = judged()
    source: Literal["primary", "journal"] = "primary"
    warnings = found.warnings
    if any(warning.type == "cost_mismatch" for warning in warnings):
        # The journal is the truth; state.json only saves the time of folding it.
        await opened.ledger.refold()
        found, source = judged(), "journal"
        standing = found.warnings
        warnings = tuple(each if each in standing else corrected(each) for each in warnings)

    if found.errors or warnings:
        log.warning("state.json: %d errors, %d warnings", len(found.errors), len(warnings))
        await opened.ledger.record(
            StateRecovered(source=source, errors=found.errors, warnings=warnings)
        )


@contextmanager
def _refusing_what_cannot_be_restored() -> Iterator[None]:
    try:
        yield
    except Refused as refused:
        raise Stop(
            f"The files cannot be restored to the execution's current checkpoint: {refused}",
            ExitCode.BAD_DATA,
            hint="This start has changed no files. `hankweave fsck` reports what is "
            "missing; `hankweave run --new --force` sets everything aside and "
            "starts a new execution.",
        ) from None


async def _finish_branch(app: App, layout: Layout) -> None:
    try:
        if await app.branching.finish_interrupted():
            log.warning("Recorded the branch that the previous server had created")
    except (OSError, RecursionError) as error:
        log.warning("The remains of a branch cannot be removed yet: %s", error)
    except Refused as fault:
        raise Stop(
            f"{layout.branch_intent} cannot be read: {fault.message}",
            ExitCode.BAD_DATA,
            hint=(
                f"Remove it, and any {TEMPORARY}* left in the directory where a branch "
                "was being created."
            ),
        ) from None


@contextmanager
def _refusing_what_cannot_begin() -> Iterator[None]:
    """Turn refusals into Stop: the hank does not fit the past, or the codon is unknown."""
    try:
        yield
    except Refused as refused:
        is_unknown = refused.code is ErrorCode.UNKNOWN_CODON
        raise Stop(
            refused.message,
            ExitCode.USAGE if is_unknown else ExitCode.UNAVAILABLE,
            hint=refused.hint,
            code=refused.code,
        ) from None
    except PlanConflict as conflict:
        raise Stop(
            f"The hank no longer matches what has already run: {conflict}.",
            ExitCode.USAGE,
            hint="--new creates a new execution; --force continues with the previous plan.",
        ) from None


def make_run_folder(layout: Layout, run_id: RunId) -> None:
    """Create the folder of a run."""
    # If this fails, the first codon creates it, and reports an error if it cannot.
    with suppress(OSError):
        fsutil.make_private_directory(layout.run_folder(run_id))


def _milliseconds(previous: PreviousOwner | None) -> int | None:
    if previous is None or previous.heartbeat_age is None:
        return None

    return previous.heartbeat_age // timedelta(milliseconds=1)


def _log_recovery(recovered: Recovered) -> None:
    if recovered.crashed_run is not None:
        codon = recovered.crashed_codon
        log.warning(
            "Run %s crashed%s",
            recovered.crashed_run.run_id,
            "" if codon is None else f" in codon {codon.codon_id}",
        )

    if recovered.adopted:
        log.warning("Adopted %d unrecorded checkpoints", recovered.adopted)

    if recovered.finished_rollback:
        log.warning("Completed an interrupted rollback")
