"""The requests of a person to the server from `attach`, and their outcomes in words."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal

from hankweave_client.calls import Calls
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import (
    CodonRedo,
    OnRunning,
    RollbackPreview,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackUndo,
)
from hankweave_protocol.errors import reason_of
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import CodonCheckpointType, RollbackReport
from hankweave_protocol.state import State
from hankweave_server.cli.attach.steps import title_of_step
from hankweave_server.cli.output.text import section_on
from hankweave_server.local.hints import terminal_hint
from hankweave_server.plain_text import counted, one_line

DIFFERENCES = 200
"""Files of a comparison that are shown."""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for the person who has asked for something."""

    text: str
    is_complaint: bool = False


@dataclass(frozen=True, slots=True)
class RollbackGoal:
    """The target of a rollback: a codon's checkpoint, a checkpoint, or an undo or redo."""

    title: str
    """The question, such as `Back to before Check every row`."""
    codon_id: CodonId | None = None
    kind: CodonCheckpointType | None = None
    sha: str | None = None
    direction: Literal["undo", "redo"] | None = None
    restarts: bool = False
    """Whether the plan continues at once."""

    @classmethod
    def before(cls, state: State, step: CodonId) -> RollbackGoal:
        """Return the files and the place in the plan before a step."""
        title = f"Back to before {title_of_step(state, step)}"
        return cls(title, codon_id=step, kind="start")

    @classmethod
    def again(cls, state: State, step: CodonId) -> RollbackGoal:
        """Return the same, from where the step runs again at once."""
        title = f"Run {title_of_step(state, step)} again, from its first files"
        return cls(title, codon_id=step, kind="start", restarts=True)

    async def preview(self, calls: Calls, *, keep_edits: bool) -> RollbackReport:
        return await calls.send(
            RollbackPreview(
                checkpoint_sha=self.sha,
                codon_id=self.codon_id,
                checkpoint_type=self.kind,
                direction=self.direction,
                keep_edits=keep_edits,
            )
        )


@dataclass(frozen=True, slots=True)
class Journey:
    """A rollback that was previewed for a run, and agreed to."""

    target: RollbackGoal
    keep_edits: bool
    on_running: OnRunning
    run_id: RunId | None

    async def go(self, calls: Calls) -> RollbackReport:
        target, keep, running, run = self.target, self.keep_edits, self.on_running, self.run_id
        if target.direction == "undo":
            return await calls.send(
                RollbackUndo(on_running=running, keep_edits=keep, expected_run_id=run)
            )

        if target.direction == "redo":
            return await calls.send(
                RollbackRedo(on_running=running, keep_edits=keep, expected_run_id=run)
            )

        if target.sha is not None:
            return await calls.send(
                RollbackToCheckpoint(
                    checkpoint_sha=target.sha,
                    on_running=running,
                    keep_edits=keep,
                    expected_run_id=run,
                )
            )

        assert target.codon_id is not None, "a target names something"
        assert target.kind is not None, "a codon has several checkpoints"
        return await calls.send(
            RollbackToCodon(
                codon_id=target.codon_id,
                checkpoint_type=target.kind,
                auto_restart=target.restarts,
                on_running=running,
                keep_edits=keep,
                expected_run_id=run,
            )
        )


@dataclass(frozen=True, slots=True)
class Redo:
    """The newest step again, on the files as they are."""

    run_id: RunId | None

    async def go(self, calls: Calls) -> None:
        await calls.send(CodonRedo(expected_run_id=self.run_id))


async def outcome(request: Awaitable[object], done: str = "") -> Note:
    """Wait for a request, and return what came of it: `done`, the report, or the refusal."""
    try:
        answer = await request
    except CommandRefused as refused:
        section = section_on(refused.code)
        parts = (refused.message, terminal_hint(refused.hint), section and f"See docs: {section}")
        return Note(one_line(" ".join(filter(None, parts))), is_complaint=True)
    except ConnectionError as lost:
        return Note(
            one_line(
                "The connection was lost, and the command may or may not "
                f"have been executed: {reason_of(lost)}"
            ),
            is_complaint=True,
        )

    return Note(_summary(answer) if isinstance(answer, RollbackReport) else done)


def _summary(report: RollbackReport) -> str:
    counts = report.counts
    changed = counts.added + counts.updated + counts.removed
    left = counts.cannot_restore
    but = f", {counted(left, 'path')} could not be restored (see the log)" if left else ""
    kept = f", {counted(counts.kept, 'edit')} of yours kept" if counts.kept else ""
    return f"Done: {counted(changed, 'file')} changed{kept}{but}. u takes it back."
