"""The journal entries of a rollback, in Hankweave's order, and its report.

Everything here is pure except for one check of which rig directories still exist. `rollback`
records what this module builds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from hankweave_protocol.events import (
    ArchiveCompleted,
    CheckpointRollback,
    FailedDirectory,
    FailedPath,
    RollbackArchiveRestore,
    RollbackCodonCheckpoint,
    RollbackCompleted,
    RollbackProgress,
    RollbackRigCleanup,
    RollbackStarted,
    WorkspaceInvalidated,
)
from hankweave_protocol.hank import RigCopy
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import (
    ArchiveTravel,
    CheckpointRecord,
    Conversation,
    Coordinate,
    Direction,
    ForeseenDiff,
    KeptFile,
    Movement,
    Notice,
    RestoreWarning,
    RollbackIntent,
    RollbackReport,
    RunsAgain,
    TouchedFile,
    Travel,
)
from hankweave_protocol.state import CodonExecution, Continuation, ContinuationSource, Run, State
from hankweave_protocol.transitions import PlanSet, RunStarted, TimeTravelled
from hankweave_server.checkpoints.model import FileDiff, PathEntry, RestoreReport, Skipped
from hankweave_server.domain import undo
from hankweave_server.domain.checkpoints.titles import title_of
from hankweave_server.domain.execution_thread import (
    end_checkpoint,
    open_run,
    plan_entry,
    rig_checkpoint,
    run_named,
    thread,
)
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.resume import reentered_by
from hankweave_server.execution.rollback.unrestored import exceptions_of
from hankweave_server.execution.runs import closing, new_run
from hankweave_server.ledger.batch import Entry
from hankweave_server.listing import first_of
from hankweave_server.plain_text import counted
from hankweave_server.worktree.names import shown


def place_of(intent: RollbackIntent) -> Coordinate:
    """Return the moment of the execution from which work continues."""
    return intent.place or intent.target.coordinate


class RollbackEvents:
    """The journal entries of a rollback, built from its intent."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx

    def beginning(self, intent: RollbackIntent, *, recovered: bool) -> Iterator[Entry]:
        """Yield the start event; a rollback that moves only files is reported when it is done."""
        if intent.to_run is None:
            return

        newest = thread(self._ctx.state)
        yield RollbackStarted(
            from_run=intent.from_run,
            from_codon=newest[-1].codon.codon_id if newest else None,
            to_codon=place_of(intent).codon_id,
            to_checkpoint=intent.target.sha,
            checkpoint_type=intent.checkpoint_type,
            codons_to_process=intent.codons_to_process,
            source=intent.source,
            target=intent.target.coordinate,
            recovered=recovered,
        )

    def whole(
        self,
        intent: RollbackIntent,
        report: RollbackReport,
        archived: ArchiveTravel | None = None,
    ) -> Iterator[Entry]:
        """Yield everything from the first passed codon to the last event, as one batch."""
        if intent.to_run is not None:
            yield from self._passed(intent)
            yield from _of_archives(intent, archived)
            yield _codon_checkpoint(intent)
            yield from self._new_run(intent)

        yield from self._ending(intent, report)

    def rest(
        self, intent: RollbackIntent, report: RollbackReport, *, has_checkpoint_event: bool
    ) -> Iterator[Entry]:
        """Return the missing rest of a batch of which a power cut kept at least the new run.

        `has_checkpoint_event` is true if its `checkpoint.rollback` event was kept.
        """
        state = self._ctx.state
        run = run_named(state, intent.to_run)
        if run is not None and not undo.is_recorded(state, intent.operation_id):
            others = tuple(other for other in state.runs if other is not run)
            yield from self._replanned(run, msgspec.structs.replace(state, runs=others))

        yield from self._ending(intent, report, has_checkpoint_event=has_checkpoint_event)

    def _ending(
        self,
        intent: RollbackIntent,
        report: RollbackReport,
        *,
        has_checkpoint_event: bool = False,
    ) -> Iterator[Entry]:
        """Yield the events that clients wait for: after them the rollback has happened."""
        direction = intent.direction
        if not undo.is_recorded(self._ctx.state, intent.operation_id):
            yield self._journey(intent, direction)

        if not has_checkpoint_event:
            yield _checkpoint_rollback(intent, report)

        if intent.to_run is not None:
            yield _completed(intent, intent.to_run, report)

        yield _invalidated(report)

    def _journey(self, intent: RollbackIntent, movement: Movement) -> TimeTravelled:
        # An agent whose conversation is back where its codon began remembers nothing else.
        is_news = movement != "retry" and intent.reuse_after is None
        direction: Direction = "back" if movement == "retry" else movement
        return TimeTravelled(
            direction=direction,
            travel=Travel(
                operation_id=intent.operation_id,
                safety=intent.safety.sha,
                source=intent.source,
                # The undo of a retry returns to the end of the failed attempt, also in the plan.
                in_place=intent.to_run is None and movement != "retry",
                paths=intent.paths,
                edits=intent.edits,
                rewound_memory=intent.rewind_memory,
            ),
            restored_edits=intent.restored_edits,
            notice=self._notice(intent, direction) if is_news else None,
        )

    def _notice(self, intent: RollbackIntent, direction: Direction) -> Notice:
        return Notice(
            operation_id=intent.operation_id,
            direction=direction,
            target=place_of(intent),
            timestamp=self._ctx.now_text(),
            paths=intent.paths,
            reason=intent.reason,
        )

    def _new_run(self, intent: RollbackIntent) -> Iterator[Entry]:
        ctx, state = self._ctx, self._ctx.state
        old = open_run(state)
        if old is not None and old.run_id != intent.to_run:
            yield closing(old, ctx.now_text(), state.execution_plan)

        run = self._continuation(intent)
        yield RunStarted(run=run)
        others = tuple(other for other in state.runs if other.run_id != run.run_id)
        yield from self._replanned(run, msgspec.structs.replace(state, runs=others))

    def unchanged(self, intent: RollbackIntent, report: RollbackReport) -> Iterator[Entry]:
        """Yield the events of a rollback to where the execution already is."""
        yield from self.beginning(intent, recovered=False)
        yield from self._passed(intent)
        yield _codon_checkpoint(intent)
        yield _checkpoint_rollback(intent, report)
        assert intent.to_run is not None, "a rollback of files alone tells nothing of runs"
        yield _completed(intent, intent.to_run, report)

    def _replanned(self, run: Run, before: State) -> Iterator[PlanSet]:
        plan = reentered_by(run, before, self._ctx.recorded.hank)
        if plan != before.execution_plan:
            yield PlanSet(execution_plan=plan)

    def _conversation(self, intent: RollbackIntent) -> Conversation | None:
        """Return the conversation that was rewound to, if the target lies inside a codon's work."""
        known = self._ctx.checkpointer.known.get(place_of(intent).checkpoint_sha)
        if known is None or not intent.rewind_memory:
            return None

        is_midway = known.coordinate.codon_id not in (None, intent.after_codon)
        return known.conversation if is_midway else None

    def _continuation(self, intent: RollbackIntent) -> Run:
        assert intent.to_run is not None
        place = place_of(intent)
        conditions = Continuation(
            source=ContinuationSource(
                run_id=place.run_id,
                after_codon=intent.after_codon,
                checkpoint_sha=place.checkpoint_sha,
                conversation=self._conversation(intent),
            ),
            reason="rollback",
        )
        return msgspec.structs.replace(
            new_run(self._ctx, conditions),
            run_id=intent.to_run,
            run_folder=str(self._ctx.layout.run_folder(intent.to_run)),
            git_branch=f"run-{intent.to_run}",
            reuse_after=intent.reuse_after,
        )

    def _passed(self, intent: RollbackIntent) -> Iterator[Entry]:
        """Yield the codons that were rolled back through, newest first.

        Their files are gone already. Hankweave restores each of them in turn. The result is the
        same, so only the events are emitted.
        """
        total = len(intent.codons_to_process) + 1
        by_id = {entry.codon.codon_id: entry.codon for entry in thread(self._ctx.state)}
        for step, codon_id in enumerate(intent.codons_to_process, start=1):
            entry = plan_entry(self._ctx.state.execution_plan, codon_id)
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

            yield from self._rig_cleanup(codon_id, name)

        yield RollbackProgress(
            current_step=total, total_steps=total, message="Applying final checkpoint"
        )

    def _checkpoint_of(self, codon: CodonExecution) -> CheckpointRecord | None:
        """Return the codon's best checkpoint; None if it has none or the repository has lost it."""
        sha = end_checkpoint(codon) or rig_checkpoint(codon)
        return None if sha is None else self._ctx.checkpointer.known.get(sha)

    def _rig_cleanup(self, codon_id: CodonId, name: str) -> Iterator[RollbackRigCleanup]:
        """Yield an event for the rig directories of a passed codon that are gone.

        Only files that a checkpoint holds are ever removed, so a directory may stay because of
        other files.
        """
        entry = plan_entry(self._ctx.state.execution_plan, codon_id)
        items = () if entry is None else entry.codon.rig_setup
        directories = tuple(item.copy.to for item in items if isinstance(item, RigCopy))
        if not directories:
            return

        stays = [
            directory
            for directory in directories
            if os.path.lexists(self._ctx.layout.work_tree / directory)
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


def report_of(
    intent: RollbackIntent,
    restored: RestoreReport,
    *,
    skipped: Iterable[Skipped] = (),
    conflicts: Iterable[KeptFile] = (),
    effects: tuple[str, ...] = (),
    warnings: tuple[RestoreWarning, ...] = (),
    again: RunsAgain | None = None,
    recovered: bool,
) -> RollbackReport:
    """Return the report of a restore; `skipped` are the paths that its plan had excluded."""
    passed_over = {item.path: item for item in (*skipped, *restored.skipped)}
    return shortened(
        RollbackReport(
            target=intent.target.coordinate,
            target_title=title_of(intent.target),
            source=intent.source,
            safety=None if intent.safety.sha == intent.target.sha else intent.safety.coordinate,
            added=touched(restored.added),
            updated=touched(restored.updated),
            removed=touched(restored.removed),
            kept=tuple(KeptFile(path=os.fsdecode(e.path), reason="edited") for e in restored.kept),
            conflicts=tuple(conflicts),
            skipped=left_alone(passed_over[path] for path in sorted(passed_over)),
            recovered=recovered,
            external_effects=effects,
            note=intent.note,
            warnings=warnings,
            cannot_restore=exceptions_of(restored.unrestored),
            runs_again=again,
            in_words=summary_of_edits(intent),
        )
    )


NAMED = 5
"""Files that a sentence names."""


def summary_of_edits(intent: RollbackIntent) -> str | None:
    """Return which edits by people were kept and which taken back; None if there were none."""
    taken = sorted({*intent.edits, *intent.contested})
    words = []
    if intent.keep:
        words.append(f"Kept {_edits(sorted(map(shown, intent.keep)))}.")

    if taken:
        safety = intent.safety.sha[:12]
        words.append(
            f"Took back {_edits(taken)}; safety checkpoint {safety} has the files as they were."
        )

    return " ".join(words) or None


def _edits(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return f"{counted(len(paths), 'edit')} by people: {', '.join(paths[:NAMED])}{more}"


def shortened(report: RollbackReport) -> RollbackReport:
    """Return the report with bounded lists, and with totals if one of them was too long."""
    short = msgspec.structs.replace(
        report,
        added=first_of(report.added),
        updated=first_of(report.updated),
        removed=first_of(report.removed),
        kept=first_of(report.kept),
        conflicts=first_of(report.conflicts),
        skipped=first_of(report.skipped),
        cannot_restore=first_of(report.cannot_restore),
        runs_again=_shortened(report.runs_again),
    )
    if short.counts == report.counts:
        return report

    return msgspec.structs.replace(short, totals=report.counts)


def _shortened(again: RunsAgain | None) -> RunsAgain | None:
    if again is None:
        return None

    return msgspec.structs.replace(again, codon_ids=first_of(again.codon_ids))


def preview_diff(diff: FileDiff) -> ForeseenDiff:
    patch = (diff.patch or b"").decode("utf-8", "replace")
    return ForeseenDiff(
        path=os.fsdecode(diff.path),
        status=diff.status,
        added=diff.added,
        removed=diff.removed,
        patch=patch,
    )


def touched(entries: Iterable[PathEntry]) -> tuple[TouchedFile, ...]:
    return tuple(TouchedFile(path=os.fsdecode(e.path), bytes=e.size) for e in entries)


def left_alone(skipped: Iterable[Skipped]) -> tuple[KeptFile, ...]:
    return tuple(KeptFile(path=os.fsdecode(s.path), reason=s.reason) for s in skipped)


def _invalidated(report: RollbackReport) -> WorkspaceInvalidated:
    counts = report.counts
    total = counts.added + counts.updated + counts.removed
    paths = first_of(file.path for file in (*report.added, *report.updated, *report.removed))
    return WorkspaceInvalidated(
        paths=paths, reason="rollback", total=total if total > len(paths) else None
    )


def _checkpoint_rollback(intent: RollbackIntent, report: RollbackReport) -> CheckpointRollback:
    return CheckpointRollback(
        operation_id=intent.operation_id,
        checkpoint=intent.target.sha,
        source=intent.source,
        target=intent.target.coordinate,
        paths=intent.paths,
        report=report if intent.to_run is None else None,
        direction=intent.direction,
        reason=intent.reason,
        exceptions=report.counts.cannot_restore,
    )


def _completed(intent: RollbackIntent, to_run: RunId, report: RollbackReport) -> RollbackCompleted:
    return RollbackCompleted(
        from_run=intent.from_run,
        to_run=to_run,
        checkpoint=intent.target.sha,
        codon_id=place_of(intent).codon_id,
        codon_name=intent.target.codon_name,
        checkpoint_type=intent.checkpoint_type,
        auto_restart=intent.auto_restart,
        report=report,
        operation_id=intent.operation_id,
        direction=intent.direction,
        reason=intent.reason,
        exceptions=report.counts.cannot_restore,
    )


def _of_archives(intent: RollbackIntent, moved: ArchiveTravel | None) -> Iterator[Entry]:
    """Yield the files that came back from the rig archive and those that an undo archived again."""
    if moved is None:
        return

    if moved.restored or moved.failed:
        yield RollbackArchiveRestore(
            codon_id=intent.target.sha,
            restored_paths=tuple(entry.source_path for entry in moved.restored),
            status=_status_of(moved),
            failed_paths=tuple(
                FailedPath(path=path, error=moved.failed[path]) for path in sorted(moved.failed)
            )
            or None,
        )

    for name in dict.fromkeys(entry.codon_id for entry in moved.archived):
        again = (entry for entry in moved.archived if entry.codon_id == name)
        paths = tuple(entry.source_path for entry in again)
        yield ArchiveCompleted(codon_id=CodonId(name), archived_paths=paths)


def _status_of(moved: ArchiveTravel) -> Literal["completed", "partial", "failed"]:
    if not moved.failed:
        return "completed"

    return "partial" if moved.restored else "failed"


def _codon_checkpoint(intent: RollbackIntent) -> RollbackCodonCheckpoint:
    return RollbackCodonCheckpoint(
        codon_id=place_of(intent).codon_id,
        codon_name=intent.target.codon_name,
        checkpoint=intent.target.sha,
        checkpoint_type=intent.checkpoint_type,
        message=f"Restored {intent.target.codon_name}",
    )
