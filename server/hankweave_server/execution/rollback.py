"""Going back to a checkpoint, so that a crash at any moment of it is finished at the next start.

    plan       read the whole target, compute what will change, check the space: refuse here
    quiesce    no codon runs; nothing else begins
    safety     a checkpoint of every path that will be touched: nothing can be lost
    intent     `rollback.intent` durable, then `rollback.started` in the journal
    restore    safety -> target, per path, idempotent
    tell       one batch: what was passed, the old run's end, the new run, the plan, the report
    forget     the intent is removed

Until the batch is in the journal the rollback has not happened for anybody: a start that finds an
intent and no run of its name restores again and then tells (`recovered: true`). Once the run is in
the journal, all that is left is to remove the intent (DESIGN 8; seed 000, "Rolling Back").
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator

import anyio.to_thread
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import (
    FailedDirectory,
    RollbackCodonCheckpoint,
    RollbackCompleted,
    RollbackFailed,
    RollbackProgress,
    RollbackRigCleanup,
    RollbackStarted,
    WorkspaceInvalidated,
)
from hankweave_protocol.hank import RigCopy
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import (
    CheckpointRecord,
    Coordinate,
    KeptFile,
    RollbackIntent,
    RollbackReport,
    TouchedFile,
)
from hankweave_protocol.state import (
    CodonExecution,
    Continuation,
    ContinuationSource,
    Run,
    State,
)
from hankweave_protocol.transitions import PlanSet, RunStarted
from hankweave_server import files
from hankweave_server.checkpoints.errors import (
    CheckpointDamaged,
    InsufficientSpace,
    RestoreIncomplete,
)
from hankweave_server.checkpoints.model import PathEntry, RestorePlan, RestoreReport, Skipped
from hankweave_server.domain.history import (
    end_checkpoint,
    newest_run,
    plan_entry,
    rig_checkpoint,
    run_named,
    thread,
)
from hankweave_server.domain.targets import RollbackTarget, target_of
from hankweave_server.execution.codon_run import Halt
from hankweave_server.execution.reentry import reentered_by
from hankweave_server.execution.runner import Runner, closing, new_run
from hankweave_server.execution.surroundings import Surroundings
from hankweave_server.ledger.batch import Entry

TOLD_WITHIN = 500
"""How far back in the journal the end of a rollback is looked for: its batch is far smaller."""


class Rollback:
    """Performs rollbacks of one execution, one at a time."""

    def __init__(self, around: Surroundings, runner: Runner) -> None:
        self._around = around
        self._runner = runner

    async def preview(self, target: RollbackTarget) -> RollbackReport:
        """Says what `perform` would do now; touches nothing."""
        plan = await self._plan(target)
        return RollbackReport(
            target=target.checkpoint.coordinate,
            source=self._now(),
            safety=None,
            added=_touched(plan.added),
            updated=_touched(plan.updated),
            removed=_touched(plan.removed),
            kept=(),
            conflicts=(),
            skipped=_kept(plan.kept),
            recovered=False,
        )

    async def perform(
        self,
        target: RollbackTarget,
        *,
        auto_restart: bool,
        stop_running: bool,
        causes: tuple[int | str, ...] = (),
    ) -> RollbackReport:
        """Rolls back; raises Refused, with nothing touched, or RestoreIncomplete."""
        with self._runner.rolling_back():
            if not stop_running:
                self._runner.refuse_while_running()

            await self._plan(target)
            await self._runner.quiesce(
                Halt(f"Rolled back to {target.checkpoint.sha[:12]} while it ran.")
            )
            plan = await self._plan(target)
            intent = await self._prepare(target, plan, auto_restart=auto_restart)
            await self._announce(intent, causes, recovered=False)
            report = await self._restore_and_tell(intent, plan, causes, recovered=False)

        await self._around.ledger.record(self._runner.snapshot(), causes=causes)
        await self._continue(intent)
        return report

    async def finish_interrupted(self) -> RollbackReport | None:
        """Finishes at a start the rollback that a crash cut short; None where there was none."""
        path = self._around.layout.rollback_intent
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None

        intent = codec.decode_value(RollbackIntent, data)
        if run_named(self._around.state, intent.to_run) is not None:
            await self._tell_the_rest(intent)
            await anyio.to_thread.run_sync(files.remove_durably, path)
            return None

        with self._runner.rolling_back():
            # What stands there now may be the target's, the past's, or a person's work since the
            # crash: it is saved once more, so that the restore may replace all of it.
            target = self._target_again(intent)
            plan = await self._plan(target)
            present = await self._save(target, plan, intent.from_run)
            await self._announce(intent, (), recovered=True)
            return await self._restore_and_tell(
                intent, plan, (), recovered=True, present=present.sha
            )

    # --- steps ---------------------------------------------------------------------------------

    async def _tell_the_rest(self, intent: RollbackIntent) -> None:
        """Tells the end of a batch of which a power cut kept only the beginning."""
        ending = f'"toRun":"{intent.to_run}"'.encode()
        if any(ending in line for line in self._around.ledger.tail(TOLD_WITHIN)):
            return

        nothing = RestoreReport(added=(), updated=(), removed=(), kept=(), skipped=())
        report = _report(intent, nothing, (), recovered=True)
        await self._around.ledger.record(*self._ending(intent, report), run_id=intent.to_run)

    def _target_again(self, intent: RollbackIntent) -> RollbackTarget:
        known, sha = self._around.checkpointer.known, intent.target.sha
        if sha not in known:
            raise Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                f"A rollback to {sha[:12]} was cut short, and that checkpoint is gone",
            )

        return target_of(self._around.state, known, sha)

    async def _plan(self, target: RollbackTarget) -> RestorePlan:
        checkpointer = self._around.checkpointer
        sha = target.checkpoint.sha
        try:
            return await checkpointer.run(
                checkpointer.engine.plan_restore, sha, self._around.patterns()
            )
        except CheckpointDamaged as error:
            first = error.damages[0]
            raise Refused(
                ErrorCode.CHECKPOINT_DAMAGED,
                f"Checkpoint {sha[:12]} cannot be read: {len(error.damages)} objects are damaged.",
                hint=f"First: {first.kind} {first.sha} at {os.fsdecode(first.path)!r}.",
            ) from None
        except InsufficientSpace as error:
            raise Refused(
                ErrorCode.INSUFFICIENT_SPACE,
                f"The rollback needs {error.need} bytes and {error.free} are free.",
                hint="Free some space and send the command again; nothing was touched.",
            ) from None

    async def _prepare(
        self, target: RollbackTarget, plan: RestorePlan, *, auto_restart: bool
    ) -> RollbackIntent:
        """Takes the safety checkpoint, then makes the intent durable."""
        around = self._around
        run = newest_run(around.state)
        assert run is not None, "where there is a checkpoint there is a run"
        source = self._now()
        safety = await self._save(target, plan, run.run_id)
        intent = RollbackIntent(
            operation_id=uuid.uuid4().hex,
            target=target.checkpoint,
            safety=safety,
            source=source,
            from_run=run.run_id,
            to_run=around.new_run_id(),
            after_codon=target.after_codon,
            checkpoint_type=target.checkpoint.kind,
            codons_to_process=tuple(entry.codon.codon_id for entry in target.passed),
            auto_restart=auto_restart,
            started_at=around.now_text(),
        )
        await anyio.to_thread.run_sync(
            files.replace_durably, around.layout.rollback_intent, codec.encode(intent)
        )
        return intent

    async def _save(
        self, target: RollbackTarget, plan: RestorePlan, run_id: RunId
    ) -> CheckpointRecord:
        """Takes the safety checkpoint: every path that will be touched, tracked or not."""
        return await self._around.checkpointer.take(
            "safety",
            run_id=run_id,
            codon=None,
            codon_name="Before a rollback",
            patterns=self._around.patterns(),
            label=f"before rollback to {target.checkpoint.sha[:12]}",
            before=plan,
        )

    async def _announce(
        self, intent: RollbackIntent, causes: tuple[int | str, ...], *, recovered: bool
    ) -> None:
        newest = thread(self._around.state)
        await self._around.ledger.record(
            RollbackStarted(
                from_run=intent.from_run,
                from_codon=newest[-1].codon.codon_id if newest else None,
                to_codon=intent.target.coordinate.codon_id,
                to_checkpoint=intent.target.sha,
                checkpoint_type=intent.checkpoint_type,
                codons_to_process=intent.codons_to_process,
                source=intent.source,
                target=intent.target.coordinate,
                recovered=recovered,
            ),
            run_id=intent.from_run,
            causes=causes,
        )

    async def _restore_and_tell(
        self,
        intent: RollbackIntent,
        plan: RestorePlan,
        causes: tuple[int | str, ...],
        *,
        recovered: bool,
        present: Sha | None = None,
    ) -> RollbackReport:
        checkpointer = self._around.checkpointer
        safety = present or intent.safety.sha
        try:
            restored = await checkpointer.run(
                checkpointer.engine.restore, intent.target.sha, safety
            )
        except RestoreIncomplete as error:
            self._runner.blocked = True
            await self._around.ledger.record(
                RollbackFailed(target=intent.target.coordinate, message=_unfinished(error)),
                causes=causes,
            )
            raise

        self._runner.blocked = False
        await checkpointer.detach(intent.target.sha)
        report = _report(intent, restored, plan.kept, recovered=recovered)
        await self._around.ledger.record(
            *self._story(intent, report), run_id=intent.to_run, causes=causes
        )
        await anyio.to_thread.run_sync(files.remove_durably, self._around.layout.rollback_intent)
        return report

    def _story(self, intent: RollbackIntent, report: RollbackReport) -> Iterator[Entry]:
        """Everything a rollback tells, in Hankweave's order (facts of its section 3.4)."""
        around, state = self._around, self._around.state
        yield from self._passed(intent, report)
        yield _codon_checkpoint(intent)
        old = run_named(state, state.current_run_id)
        if old is not None:
            yield closing(old, around.now_text(), state.execution_plan)

        run = self._continuation(intent)
        yield RunStarted(run=run)
        plan = reentered_by(run, state, around.hank.hank)
        if plan != state.execution_plan:
            yield PlanSet(execution_plan=plan)

        yield from self._ending(intent, report)

    def _ending(self, intent: RollbackIntent, report: RollbackReport) -> Iterator[Entry]:
        """What a client waits for: after these the rollback has happened."""
        yield RollbackCompleted(
            from_run=intent.from_run,
            to_run=intent.to_run,
            checkpoint=intent.target.sha,
            codon_id=intent.target.coordinate.codon_id,
            codon_name=intent.target.codon_name,
            checkpoint_type=intent.checkpoint_type,
            auto_restart=intent.auto_restart,
            report=report,
        )
        paths = (*report.added, *report.updated, *report.removed)
        yield WorkspaceInvalidated(paths=tuple(file.path for file in paths), reason="rollback")

    def _passed(self, intent: RollbackIntent, report: RollbackReport) -> Iterator[Entry]:
        """The codons that were rolled back through, newest first; their files are gone already.

        Hankweave restores each of them in turn; the end is the same, so only the story is told.
        """
        total = len(intent.codons_to_process) + 1
        by_id = {entry.codon.codon_id: entry.codon for entry in thread(self._around.state)}
        for step, codon_id in enumerate(intent.codons_to_process, start=1):
            entry = plan_entry(self._around.state.execution_plan, codon_id)
            name = codon_id if entry is None else entry.codon.name
            yield RollbackProgress(
                current_step=step, total_steps=total, message=f"Rolling back through {name}"
            )
            codon = by_id.get(codon_id)
            passed = None if codon is None else self._checkpoint_of(codon)
            if passed is not None:
                yield RollbackCodonCheckpoint(
                    codon_id=codon_id,
                    codon_name=name,
                    checkpoint=passed.sha,
                    checkpoint_type=passed.kind,
                    message=f"Passed {name}",
                )

            yield from self._rig_cleanup(codon_id, name, report)

        yield RollbackProgress(
            current_step=total, total_steps=total, message="Applying final checkpoint"
        )

    def _checkpoint_of(self, codon: CodonExecution) -> CheckpointRecord | None:
        """The codon's best checkpoint; None where it has none, or the repository has lost it."""
        sha = end_checkpoint(codon) or rig_checkpoint(codon)
        return None if sha is None else self._around.checkpointer.known.get(sha)

    def _rig_cleanup(
        self, codon_id: CodonId, name: str, report: RollbackReport
    ) -> Iterator[RollbackRigCleanup]:
        """Tells which rig directories of a passed codon are gone.

        Only what a checkpoint holds is ever removed, so a directory may stay for files of others.
        """
        entry = plan_entry(self._around.state.execution_plan, codon_id)
        items = () if entry is None else entry.codon.rig_setup
        directories = tuple(item.copy.to for item in items if isinstance(item, RigCopy))
        if not directories:
            return

        stays = [
            directory
            for directory in directories
            if os.path.lexists(self._around.layout.work_tree / directory)
        ]
        yield RollbackRigCleanup(
            codon_id=codon_id, codon_name=name, directories=directories, status="started"
        )
        yield RollbackRigCleanup(
            codon_id=codon_id,
            codon_name=name,
            directories=directories,
            status="partial" if stays else "completed",
            successful_cleanups=tuple(d for d in directories if d not in stays),
            failed_cleanups=tuple(
                FailedDirectory(directory=d, error="It is part of the target, or not tracked.")
                for d in stays
            )
            or None,
        )

    def _continuation(self, intent: RollbackIntent) -> Run:
        conditions = Continuation(
            source=ContinuationSource(
                run_id=intent.target.coordinate.run_id,
                after_codon=intent.after_codon,
                checkpoint_sha=intent.target.sha,
            ),
            reason="rollback",
        )
        run = new_run(self._around, conditions)
        return msgspec.structs.replace(
            run,
            run_id=intent.to_run,
            run_folder=str(self._around.layout.run_folder(intent.to_run)),
            git_branch=f"run-{intent.to_run}",
        )

    async def _continue(self, intent: RollbackIntent) -> None:
        if self._runner.is_busy or self._runner.is_rolling_back:
            return  # Another client was quicker; what it started tells its own story.

        if intent.auto_restart:
            await self._runner.start_next_if_any()
        else:
            await self._runner.idle("rollback-completed", "Rolled back; waiting for a command.")

    def _now(self) -> Coordinate | None:
        return now_coordinate(self._around.state, self._around.ledger.last_seq)


def now_coordinate(state: State, last_seq: int) -> Coordinate | None:
    """Where the execution stands: the newest checkpoint of the thread, if there is one."""
    run = newest_run(state)
    for entry in reversed(thread(state)):
        sha = end_checkpoint(entry.codon) or rig_checkpoint(entry.codon)
        if sha is not None and run is not None:
            return Coordinate(
                checkpoint_sha=sha,
                event_seq=last_seq,
                run_id=run.run_id,
                codon_id=entry.codon.codon_id,
                codon_state=str(entry.codon.__struct_config__.tag),
            )

    return None


def _codon_checkpoint(intent: RollbackIntent) -> RollbackCodonCheckpoint:
    return RollbackCodonCheckpoint(
        codon_id=intent.target.coordinate.codon_id,
        codon_name=intent.target.codon_name,
        checkpoint=intent.target.sha,
        checkpoint_type=intent.checkpoint_type,
        message=f"Restored {intent.target.codon_name}",
    )


def _report(
    intent: RollbackIntent,
    restored: RestoreReport,
    foreseen: tuple[Skipped, ...],
    *,
    recovered: bool,
) -> RollbackReport:
    skipped = {item.path: item for item in (*foreseen, *restored.skipped)}
    return RollbackReport(
        target=intent.target.coordinate,
        source=intent.source,
        safety=intent.safety.coordinate,
        added=_touched(restored.added),
        updated=_touched(restored.updated),
        removed=_touched(restored.removed),
        kept=tuple(KeptFile(path=os.fsdecode(e.path), reason="kept") for e in restored.kept),
        conflicts=(),
        skipped=_kept(skipped[path] for path in sorted(skipped)),
        recovered=recovered,
    )


def _touched(entries: Iterable[PathEntry]) -> tuple[TouchedFile, ...]:
    return tuple(TouchedFile(path=os.fsdecode(e.path), bytes=e.size) for e in entries)


def _kept(skipped: Iterable[Skipped]) -> tuple[KeptFile, ...]:
    return tuple(KeptFile(path=os.fsdecode(s.path), reason=s.reason) for s in skipped)


def _unfinished(error: RestoreIncomplete) -> str:
    first = error.unfinished[0]
    return (
        f"{len(error.unfinished)} paths could not be restored, first "
        f"{os.fsdecode(first.path)!r} ({first.reason}); the next start tries again."
    )
