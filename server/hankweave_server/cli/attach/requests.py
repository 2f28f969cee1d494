"""The requests of a person to the server from `attach`, and their outcomes in words."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass

import msgspec

from hankweave_client.calls import Calls
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import CommandData, OnRunning, RollbackPreview
from hankweave_protocol.errors import reason_of
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import RollbackReport
from hankweave_protocol.state import State
from hankweave_server.cli.attach.steps import title_of_step
from hankweave_server.cli.output.text import section_on
from hankweave_server.cli.remote import rollback_command
from hankweave_server.local.hints import terminal_hint
from hankweave_server.plain_text import counted, one_line

DIFFERENCES = 200
"""Files of a comparison that are shown."""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for the person who has asked for something."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class RollbackGoal:
    """The target of a rollback: a codon's checkpoint, a checkpoint, or an undo or redo."""

    title: str
    """The question, such as `Back to before Check every row`."""
    target: RollbackPreview
    restarts: bool = False
    """Whether the plan continues at once."""

    @classmethod
    def before(cls, state: State, step: CodonId) -> RollbackGoal:
        """Return the files and the place in the plan before a step."""
        title = f"Back to before {title_of_step(state, step)}"
        return cls(title, RollbackPreview(codon_id=step, checkpoint_type="start"))

    @classmethod
    def again(cls, state: State, step: CodonId) -> RollbackGoal:
        """Return the same place, from which the step runs again at once."""
        title = f"Run {title_of_step(state, step)} again, from its first files"
        target = RollbackPreview(codon_id=step, checkpoint_type="start")
        return cls(title, target, restarts=True)

    async def preview(self, calls: Calls, *, keep_edits: bool) -> RollbackReport:
        return await calls.send(msgspec.structs.replace(self.target, keep_edits=keep_edits))

    def command(
        self, *, keep_edits: bool, on_running: OnRunning, run_id: RunId | None
    ) -> CommandData:
        """Return the rollback, which is valid for the run for which it was previewed."""
        restarting = {"auto_restart": True} if self.restarts else {}
        return rollback_command(
            self.target,
            keep_edits=keep_edits,
            on_running=on_running,
            expected_run_id=run_id,
            **restarting,
        )


async def outcome(request: Awaitable[object], done: str = "") -> Note:
    """Wait for a request, and return what came of it: `done`, the report, or the refusal."""
    try:
        answer = await request
    except CommandRefused as refused:
        section = section_on(refused.code)
        parts = (refused.message, terminal_hint(refused.hint), section and f"See docs: {section}")
        return Note(one_line(" ".join(filter(None, parts))), is_error=True)
    except ConnectionError as lost:
        return Note(
            one_line(
                "The connection was lost, and the command may or may not "
                f"have been executed: {reason_of(lost)}"
            ),
            is_error=True,
        )

    return Note(_summary(answer) if isinstance(answer, RollbackReport) else done)


def _summary(report: RollbackReport) -> str:
    counts = report.counts
    changed = counts.added + counts.updated + counts.removed
    left = counts.cannot_restore
    but = f", {counted(left, 'path')} could not be restored (see the log)" if left else ""
    kept = f", {counted(counts.kept, 'edit')} of yours kept" if counts.kept else ""
    return f"Done: {counted(changed, 'file')} changed{kept}{but}. u takes it back."
