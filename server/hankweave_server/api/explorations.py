"""Handle the commands of explorations; to adopt an attempt is a rollback to its result."""

from __future__ import annotations

from hankweave_protocol.attempts import AttemptRecord, Exploration
from hankweave_protocol.commands import (
    CheckpointDiff,
    ExplorationAdopt,
    ExplorationCompare,
    ExplorationDiscard,
    ExplorationShow,
    ExplorationStart,
    RollbackPreview,
    RollbackToCheckpoint,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import RollbackReport
from hankweave_protocol.replies import DiffPage, ExplorationPage
from hankweave_server.api.past import Looks
from hankweave_server.api.rollback import Rollbacks, meant_paths
from hankweave_server.domain.exploration.explorations import (
    adoption_preview,
    attempt_named,
    exploration_named,
    result_of,
)
from hankweave_server.domain.path_merge import ConflictPolicy
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.exploration.adoption import (
    MergeOptions,
    adoption_reason,
    merge_result,
)
from hankweave_server.execution.exploration.explorer import Explorations
from hankweave_server.execution.runner import Runner

Causes = tuple[int | str, ...]


class Explorer:
    """The handler of `exploration.*`."""

    def __init__(
        self,
        ctx: ExecutionContext,
        runner: Runner,
        explorations: Explorations,
        rollbacks: Rollbacks,
        looks: Looks,
    ) -> None:
        self._ctx = ctx
        self._runner = runner
        self._explorations = explorations
        self._rollbacks = rollbacks
        self._looks = looks

    async def start(self, command: ExplorationStart, causes: Causes) -> Exploration:
        return await self._explorations.start(command, causes)

    def list(self) -> ExplorationPage:
        return ExplorationPage(explorations=tuple(reversed(self._ctx.state.explorations)))

    def show(self, command: ExplorationShow) -> Exploration:
        return exploration_named(self._ctx.state, command.exploration_id)

    async def compare(self, command: ExplorationCompare) -> DiffPage:
        """Compare the results of two attempts, or that of one with its beginning."""
        exploration, attempt = attempt_named(
            self._ctx.state, command.attempt_id, "$.data.attemptId"
        )
        new, old = result_of(attempt, "$.data.attemptId"), exploration.checkpoint_sha
        if command.other_id is not None:
            _, other = attempt_named(self._ctx.state, command.other_id, "$.data.otherId")
            new, old = result_of(other, "$.data.otherId"), new

        return await self._looks.diff(
            CheckpointDiff(
                from_sha=old,
                to_sha=new,
                paths=command.paths,
                patch=command.patch,
                limit=command.limit,
                cursor=command.cursor,
            )
        )

    async def adopt(self, command: ExplorationAdopt, causes: Causes) -> RollbackReport:
        exploration, attempt = attempt_named(
            self._ctx.state, command.attempt_id, "$.data.attemptId"
        )
        sha = result_of(attempt, "$.data.attemptId")
        if command.merge:
            return await self._merge(command, exploration, attempt, sha, causes)

        if command.preview:
            return await self._rollbacks.preview(adoption_preview(self._ctx.state, command), causes)

        back = RollbackToCheckpoint(
            checkpoint_sha=sha,
            paths=command.paths,
            on_running=command.on_running,
            keep_edits=command.keep_edits,
            rewind_memory=command.paths is None,
            reason=adoption_reason(attempt),
        )
        return await self._rollbacks.perform(back, causes)

    async def _merge(
        self,
        command: ExplorationAdopt,
        exploration: Exploration,
        attempt: AttemptRecord,
        sha: Sha,
        causes: Causes,
    ) -> RollbackReport:
        if command.keep_edits:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                "A merge keeps the edits of people in any case.",
                path="$.data.keepEdits",
            )

        self._runner.refuse_while_running()
        options = MergeOptions(
            paths=meant_paths(command.paths),
            policy=ConflictPolicy(command.on_conflict),
            conflicts_in=command.conflicts_in,
        )
        request = await merge_result(self._ctx, exploration, attempt, sha, options, causes)
        if request is None:
            # Nothing differs: report it in the words of a rollback to where the files are.
            head = await self._ctx.checkpointer.call(lambda engine: engine.head())
            preview = RollbackPreview(checkpoint_sha=head, paths=command.paths)
            return await self._rollbacks.preview(preview, causes)

        return await self._rollbacks.move_files(request, causes, only_preview=command.preview)

    async def discard(self, command: ExplorationDiscard, causes: Causes) -> Exploration:
        return await self._explorations.discard(command.exploration_id, command.attempt_id, causes)
