"""Explorations in a server: handle their commands, and run attempts.

To adopt an attempt is a rollback to its result.
"""

from __future__ import annotations

from hankweave_protocol.attempts import AttemptRecord, Exploration
from hankweave_protocol.commands import (
    CheckpointDiff,
    ExplorationAdopt,
    ExplorationCompare,
    ExplorationDiscard,
    ExplorationList,
    ExplorationShow,
    ExplorationStart,
    RollbackPreview,
    RollbackToCheckpoint,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import RollbackReport
from hankweave_protocol.replies import DiffPage, ExplorationPage
from hankweave_server.api.caller import Request
from hankweave_server.api.dispatch import handles
from hankweave_server.api.past import PastReader
from hankweave_server.api.rollback import Rollbacks
from hankweave_server.app import App, OpenedExecution, ServerPart
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.runner import Runner
from hankweave_server.features.exploration.adoption import (
    adoption_damage,
    adoption_reason,
    merge_result,
)
from hankweave_server.features.exploration.child import attempt_options
from hankweave_server.features.exploration.explorations import (
    adoption_preview,
    attempt_named,
    exploration_named,
    result_of,
)
from hankweave_server.features.exploration.explorer import Explorations, ExplorationSettings
from hankweave_server.features.exploration.merge_preview import StoreKeepsChanging, merge_preview


class Explorer:
    """The handler of `exploration.*`."""

    def __init__(
        self,
        ctx: ExecutionContext,
        runner: Runner,
        explorations: Explorations,
        rollbacks: Rollbacks,
        past: PastReader,
    ) -> None:
        self._ctx = ctx
        self._runner = runner
        self._explorations = explorations
        self._rollbacks = rollbacks
        self._past = past

    @handles(ExplorationStart)
    async def start(self, command: ExplorationStart, request: Request) -> Exploration:
        return await self._explorations.start(command, request.causes)

    @handles(ExplorationList)
    async def list(self, command: ExplorationList) -> ExplorationPage:
        return ExplorationPage(explorations=tuple(reversed(self._ctx.state.explorations)))

    @handles(ExplorationShow)
    async def show(self, command: ExplorationShow) -> Exploration:
        return exploration_named(self._ctx.state, command.exploration_id)

    @handles(ExplorationCompare)
    async def compare(self, command: ExplorationCompare) -> DiffPage:
        """Compare the results of two attempts, or that of one with its beginning."""
        exploration, attempt = attempt_named(
            self._ctx.state, command.attempt_id, "$.data.attemptId"
        )
        new, old = result_of(attempt, "$.data.attemptId"), exploration.checkpoint_sha
        if command.other_id is not None:
            _, other = attempt_named(self._ctx.state, command.other_id, "$.data.otherId")
            new, old = result_of(other, "$.data.otherId"), new

        return await self._past.diff(
            CheckpointDiff(
                from_sha=old,
                to_sha=new,
                paths=command.paths,
                patch=command.patch,
                limit=command.limit,
                cursor=command.cursor,
            )
        )

    @handles(ExplorationAdopt)
    async def adopt(self, command: ExplorationAdopt, request: Request) -> RollbackReport:
        exploration, attempt = attempt_named(
            self._ctx.state, command.attempt_id, "$.data.attemptId"
        )
        sha = result_of(attempt, "$.data.attemptId")
        if command.merge:
            return await self._merge(command, exploration, attempt, sha, request)

        if command.preview:
            preview = adoption_preview(self._ctx.state, command)
            return await self._rollbacks.preview(preview, request)

        back = RollbackToCheckpoint(
            checkpoint_sha=sha,
            paths=command.paths,
            on_running=command.on_running,
            keep_edits=command.keep_edits,
            rewind_memory=command.paths is None,
            reason=adoption_reason(attempt),
        )
        return await self._rollbacks.perform(back, request)

    async def _merge(
        self,
        command: ExplorationAdopt,
        exploration: Exploration,
        attempt: AttemptRecord,
        sha: Sha,
        request: Request,
    ) -> RollbackReport:
        if command.keep_edits:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                "A merge keeps the edits of people in any case.",
                path="$.data.keepEdits",
            )

        self._runner.refuse_while_running()
        if command.preview:
            return await self._merge_preview(command)

        merged = await merge_result(self._ctx, exploration, attempt, sha, command, request.causes)
        if merged is None:
            # Nothing differs: report it in the words of a rollback to where the files are.
            head = await self._ctx.checkpointer.call(lambda engine: engine.head())
            preview = RollbackPreview(checkpoint_sha=head, paths=command.paths)
            return await self._rollbacks.preview(preview, request)

        return await self._rollbacks.move_files(merged, request.causes)

    async def _merge_preview(self, command: ExplorationAdopt) -> RollbackReport:
        try:
            return await merge_preview(self._ctx, command, self._ctx.ledger.last_seq)
        except StoreKeepsChanging:
            raise Refused(
                ErrorCode.STORE_UNUSABLE,
                "The checkpoints change while they are read.",
                hint="Wait until the server is idle, and try again.",
            ) from None
        except (CheckpointNotFound, CheckpointDamaged) as error:
            raise adoption_damage(error) from None

    @handles(ExplorationDiscard)
    async def discard(self, command: ExplorationDiscard, request: Request) -> Exploration:
        return await self._explorations.discard(
            command.exploration_id, command.attempt_id, request.causes
        )


def part(opened: OpenedExecution, app: App) -> ServerPart:
    explorations = Explorations(
        app.ctx,
        app.runner,
        app.branching,
        app.rollback,
        ExplorationSettings(attempt_options(opened.settings), app.branch_home),
    )
    handler = Explorer(app.ctx, app.runner, explorations, app.rollbacks, app.past)
    return ServerPart((handler,), run=explorations.run, close=explorations.close)
