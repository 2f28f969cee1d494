"""Adopt the result of an attempt: go to it, or merge what it has changed into the present files.

To go to a result is a rollback to its checkpoint. A merge is for an execution that has moved on:
the plan stays where it is, and only files change. Both sides are compared with the checkpoint from
which the attempt began, so the edits of people are changes like any others. The merge is stored as
a checkpoint of its own, and a rollback of the changed paths to it does the rest: safety checkpoint,
intent, undo. With a conflict nothing is stored.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from hankweave_protocol.attempts import AttemptRecord, Exploration
from hankweave_protocol.commands import ExplorationAdopt
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_server.api.rollback import meant_paths
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.domain import targets
from hankweave_server.domain.execution_thread import thread
from hankweave_server.domain.path_merge import ConflictPolicy, Decision
from hankweave_server.execution.codon.file_changes import FileChangeReporter
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.rollback.planner import RollbackRequest
from hankweave_server.plain_text import acted_on
from hankweave_server.worktree.names import shown

Causes = tuple[int | str, ...]

_NAMED = 10
"""Conflicts that a refusal names."""


def adoption_reason(attempt: AttemptRecord) -> str:
    """Return the reason of the rollback by which an attempt is adopted."""
    return f"Adopted attempt {attempt.attempt_id}."


async def take_present(ctx: ExecutionContext, label: str, causes: Causes) -> CheckpointRecord:
    """Take a checkpoint of the files as they are; report the edits of people first."""
    entries, run = thread(ctx.state), ctx.state.runs[0]
    return await ctx.checkpointer.take(
        "manual",
        run_id=run.run_id,
        codon=entries[-1].codon if entries else None,
        codon_name=label,
        patterns=ctx.patterns(),
        label=label,
        causes=causes,
        waits_for_space=False,
        report=partial(FileChangeReporter(ctx).report_captured, run_id=run.run_id),
    )


async def merge_result(
    ctx: ExecutionContext,
    exploration: Exploration,
    attempt: AttemptRecord,
    result: Sha,
    command: ExplorationAdopt,
    causes: Causes,
) -> RollbackRequest | None:
    """Store the merge of a result with the present files, and return the rollback to it.

    None if the attempt has changed nothing that the present files do not have. A checkpoint of the
    present files is taken first. Raises Refused, with no file changed.
    """
    paths, policy = meant_paths(command.paths), ConflictPolicy(command.on_conflict)
    folder = new_folder(command.conflicts_in, ctx.layout.work_tree)
    present = await take_present(ctx, f"before adopting {attempt.attempt_id}", causes)
    try:
        outcome = await ctx.checkpointer.merge(
            exploration.checkpoint_sha,
            present,
            result,
            paths=paths,
            policy=policy,
            conflicts_in=folder,
            label=f"attempt {attempt.attempt_id}, merged",
            causes=causes,
        )
    except (CheckpointNotFound, CheckpointDamaged) as error:
        raise adoption_damage(error) from None

    if outcome.conflicts:
        raise conflict(outcome.conflicts, folder)

    if outcome.record is None:
        return None

    known = ctx.checkpointer.known
    return RollbackRequest(
        targets.target_of(ctx.state, known, outcome.record.sha),
        paths=outcome.changed,
        reason=adoption_reason(attempt),
    )


def new_folder(path: str | None, work_tree: Path) -> Path | None:
    """Return the folder for conflicts; refuse one that exists, or lies in the work tree."""
    if path is None:
        return None

    folder = Path(path)
    is_inside = folder.resolve().is_relative_to(work_tree.resolve())
    if not folder.is_absolute() or is_inside or os.path.lexists(folder):
        raise Refused(
            ErrorCode.INVALID_PATH,
            f"{path!r} is not the absolute path of a new folder outside of the work tree.",
            path="$.data.conflictsIn",
            hint="Name a folder that does not exist.",
        )

    if not folder.parent.is_dir():
        raise Refused(
            ErrorCode.INVALID_PATH,
            f"There is no directory {folder.parent}.",
            path="$.data.conflictsIn",
            hint="Create it first, or name another folder.",
        )

    return folder


def adoption_damage(error: CheckpointNotFound | CheckpointDamaged) -> Refused:
    """Return the refusal of a merge whose checkpoints cannot be read."""
    return Refused(
        ErrorCode.CHECKPOINT_DAMAGED,
        f"The checkpoints to merge cannot be read: {error}",
        hint="`hankweave fsck --repair` restores what can be found.",
    )


def conflict(conflicts: tuple[Decision, ...], folder: Path | None) -> Refused:
    """Return the refusal of a merge with conflicts, whose versions may be in a folder."""
    named = ", ".join(f"{shown(each.path)} ({each.conflict})" for each in conflicts[:_NAMED])
    more = f" and {len(conflicts) - _NAMED} more" if len(conflicts) > _NAMED else ""
    seen = "" if folder is None else f" Their versions are in {folder}."
    return Refused(
        ErrorCode.MERGE_CONFLICT,
        f"{acted_on(len(conflicts), 'file')} changed on both sides: {named}{more}.{seen}",
        path="$.data.onConflict",
        hint=Hint.CONFLICT,
    )
