"""Handle rollback, undo and redo: resolve the target, then call `execution.rollback`.

`RollbackRequests` also works on the files of an execution that nobody serves.
"""

from __future__ import annotations

from hankweave_protocol.commands import (
    RollbackCommand,
    RollbackPreview,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackToLastSuccess,
    RollbackUndo,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import Direction, RollbackReport, Travel
from hankweave_server.api.caller import Request
from hankweave_server.api.dispatch import handles
from hankweave_server.api.lookup import target_named
from hankweave_server.checkpoints.errors import CheckpointDamaged
from hankweave_server.domain import targets, undo
from hankweave_server.domain.targets import RollbackTarget
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.rollback.planner import PlanContext, RollbackRequest
from hankweave_server.execution.rollback.restoration import CutShort
from hankweave_server.execution.rollback.rollback import Rollback
from hankweave_server.fsutil import is_broken
from hankweave_server.git.errors import ShadowRepositoryError, refusal_of
from hankweave_server.worktree.names import is_out_of_bounds, meanings, meant_by


class Rollbacks:
    def __init__(self, ctx: ExecutionContext, rollback: Rollback) -> None:
        self._ctx = ctx
        self._requests = RollbackRequests(ctx)
        self._rollback = rollback

    @handles(RollbackToCheckpoint, RollbackToCodon, RollbackToLastSuccess)
    async def perform(self, command: RollbackCommand, request: Request) -> RollbackReport:
        """Roll back; the reply comes after `rollback.completed`."""
        target = self._requests.target(command)
        rollback_request = RollbackRequest(
            target,
            paths=await self._requests.paths(command.paths, target),
            on_running=command.on_running,
            keep_edits=command.keep_edits,
            auto_restart=command.auto_restart,
            rewind_memory=command.rewind_memory,
            reason=command.reason,
            reuse_after=_reuse_after(command),
        )
        return await self.move_files(rollback_request, request.causes)

    @handles(RollbackUndo, RollbackRedo)
    async def undo_or_redo(
        self, command: RollbackUndo | RollbackRedo, request: Request
    ) -> RollbackReport:
        """Revert the last rollback, or the last undo."""
        direction: Direction = "undo" if isinstance(command, RollbackUndo) else "redo"
        travel = self._requests.travel(direction)
        rollback_request = RollbackRequest(
            self._requests.target_of(travel),
            direction=direction,
            paths=_paths_of(travel),
            on_running=command.on_running,
            keep_edits=command.keep_edits,
            reason=command.reason,
        )
        return await self.move_files(rollback_request, request.causes)

    @handles(RollbackPreview)
    async def preview(self, command: RollbackPreview, request: Request) -> RollbackReport:
        previewed = await self._requests.previewed(command)
        return await self._rollback.preview(previewed, request.causes, patch=command.patch)

    async def move_files(
        self, rollback_request: RollbackRequest, causes: tuple[int | str, ...]
    ) -> RollbackReport:
        """Perform a rollback that a handler, here or elsewhere, has prepared."""
        try:
            return await self._rollback.perform(rollback_request, causes)
        except CutShort as error:
            raise Refused(
                ErrorCode.INSUFFICIENT_SPACE,
                f"The rollback was interrupted: {error}.",
                hint=Hint.ROLLBACK_NEEDS_ROOM,
            ) from None
        except ShadowRepositoryError as error:
            if not self._ctx.guard.is_half_restored:
                raise

            stops = error.is_of_a_broken_disk or is_broken(error)
            reason = refusal_of(error, self._ctx.layout.root).message
            raise Refused(
                ErrorCode.SHUTTING_DOWN if stops else ErrorCode.ROLLBACK_IN_PROGRESS,
                f"The rollback was interrupted. {reason}",
                hint="The server stops, because its disk has failed; the next start completes the "
                "rollback."
                if stops
                else Hint.ROLLBACK_IS_INCOMPLETE,
            ) from None


class RollbackRequests:
    """Resolve the targets and paths of commands."""

    def __init__(self, ctx: PlanContext) -> None:
        self._ctx = ctx

    def target(self, command: RollbackCommand) -> RollbackTarget:
        state, known = self._ctx.state, self._ctx.checkpointer.known
        match command:
            case RollbackToCheckpoint(checkpoint_sha=prefix):
                return target_named(prefix, state, self._ctx.checkpointer)
            case RollbackToCodon(codon_id=codon_id, checkpoint_type=kind):
                return targets.of_codon(state, known, codon_id, kind)
            case RollbackToLastSuccess():
                return targets.last_success(state, known)
            case _:
                raise AssertionError(f"{command.TYPE} is not a rollback")

    async def previewed(self, command: RollbackPreview) -> RollbackRequest:
        """Return the request whose plan is the preview."""
        if command.direction is not None:
            _refuse_second_target(command)
            travel = self.travel(command.direction)
            target, paths = self.target_of(travel), _paths_of(travel)
        else:
            target = self.target(_as_rollback(command))
            paths = await self.paths(command.paths, target)

        return RollbackRequest(
            target,
            direction=command.direction or "back",
            paths=paths,
            keep_edits=command.keep_edits,
            rewind_memory=command.rewind_memory,
        )

    def travel(self, direction: Direction) -> Travel:
        state = self._ctx.state
        return undo.to_undo(state) if direction == "undo" else undo.to_redo(state)

    def target_of(self, travel: Travel) -> RollbackTarget:
        return targets.of_travel(self._ctx.state, self._ctx.checkpointer.known, travel)

    async def paths(
        self, texts: tuple[str, ...] | None, target: RollbackTarget
    ) -> frozenset[bytes] | None:
        """Return the paths of a command; each must be in the target or in the work tree."""
        if texts is None:
            return None

        _refuse_no_paths(texts)
        meant = [_path(text, index) for index, text in enumerate(texts)]
        sha = target.checkpoint.sha
        try:
            wanted = tuple(path for paths in meant for path in paths)
            known = await self._ctx.checkpointer.call(
                lambda engine: engine.known_paths(sha, wanted)
            )
        except CheckpointDamaged:
            return frozenset(wanted)  # The plan finds and refuses what is damaged.

        found = [next((path for path in paths if path in known), None) for paths in meant]
        for index, path in enumerate(found):
            if path is None:
                raise Refused(
                    ErrorCode.INVALID_PATH,
                    f"{texts[index]!r} is neither in checkpoint {sha[:12]} nor in the work tree.",
                    path=f"$.data.paths[{index}]",
                    hint=Hint.FILES_OF_CHECKPOINT,
                )

        return frozenset(path for path in found if path is not None)


def _reuse_after(command: RollbackCommand) -> CodonId | None:
    """Return the codon that is run again, if the codons after it take over earlier results."""
    if not isinstance(command, RollbackToCodon) or not command.reuse:
        return None

    if command.checkpoint_type != "beginning" or command.paths is not None:
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            "With reuse, the codon itself has to run again, from where it began.",
            path="$.data.reuse",
            hint="Go back to the codon's beginning, with all files.",
        )

    return command.codon_id


def meant_paths(texts: tuple[str, ...] | None) -> frozenset[bytes] | None:
    """Return every path that the paths of a command may mean; raise Refused for bad ones."""
    if texts is None:
        return None

    _refuse_no_paths(texts)
    return frozenset(path for index, text in enumerate(texts) for path in _path(text, index))


def _refuse_no_paths(texts: tuple[str, ...]) -> None:
    if not texts:
        raise Refused(
            ErrorCode.INVALID_PATH,
            "The list of paths is empty.",
            path="$.data.paths",
            hint="Name files or folders, or leave paths out to restore everything.",
        )


def _path(text: str, index: int) -> tuple[bytes, ...]:
    """Return what a path may mean, the likelier first."""
    paths = meanings(text.rstrip("/"))
    if any(is_out_of_bounds(path) for path in paths):
        raise Refused(
            ErrorCode.INVALID_PATH,
            f"{text!r} is not a path that a rollback may change.",
            path=f"$.data.paths[{index}]",
            hint="Paths are relative to the work tree, without . or .., and never in .git.",
        )

    return paths


def _paths_of(travel: Travel) -> frozenset[bytes] | None:
    return None if travel.paths is None else meant_by(travel.paths)


def _refuse_second_target(command: RollbackPreview) -> None:
    others = (command.checkpoint_sha, command.codon_id, command.checkpoint_type, command.paths)
    if any(other is not None for other in others):
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            f"A preview of {command.direction} takes no target and no paths.",
            path="$.data",
        )


def _as_rollback(command: RollbackPreview) -> RollbackCommand:
    match command:
        case RollbackPreview(checkpoint_sha=None, codon_id=None, checkpoint_type=None):
            return RollbackToLastSuccess()
        case RollbackPreview(checkpoint_sha=str() as prefix, codon_id=None):
            return RollbackToCheckpoint(checkpoint_sha=prefix)
        case RollbackPreview(checkpoint_sha=None, codon_id=str() as codon_id):
            return RollbackToCodon(
                codon_id=codon_id, checkpoint_type=command.checkpoint_type or "end"
            )
        case _:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                "A preview takes one target: a checkpoint, or a codon and its kind of checkpoint.",
                path="$.data",
            )
