"""Commands that go back: the target is resolved here, the work is done by `execution.rollback`."""

from __future__ import annotations

from hankweave_protocol.commands import (
    RollbackCommand,
    RollbackPreview,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackToLastSuccess,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.records import RollbackReport
from hankweave_server.checkpoints.errors import RestoreIncomplete
from hankweave_server.domain import targets
from hankweave_server.domain.targets import RollbackTarget
from hankweave_server.execution.rollback import Rollback
from hankweave_server.execution.surroundings import Surroundings


class Rollbacks:
    def __init__(self, around: Surroundings, rollback: Rollback) -> None:
        self._around = around
        self._rollback = rollback

    async def perform(
        self, command: RollbackCommand, causes: tuple[int | str, ...]
    ) -> RollbackReport:
        """Rolls back; the reply comes after `rollback.completed` (DESIGN 9)."""
        target = self._target(command)
        try:
            return await self._rollback.perform(
                target,
                auto_restart=command.auto_restart,
                stop_running=command.on_running == "stop",
                causes=causes,
            )
        except RestoreIncomplete as error:
            raise Refused(
                ErrorCode.INTERNAL_ERROR,
                f"The rollback could not finish: {len(error.unfinished)} paths are not restored.",
                hint="The next start of the server finishes it; see the rollback.failed event.",
            ) from None

    async def preview(self, command: RollbackPreview) -> RollbackReport:
        return await self._rollback.preview(self._previewed(command))

    def _target(self, command: RollbackCommand) -> RollbackTarget:
        state, known = self._around.state, self._around.checkpointer.known
        match command:
            case RollbackToCheckpoint(checkpoint_sha=prefix):
                return targets.of_prefix(state, known, prefix)
            case RollbackToCodon(codon_id=codon_id, checkpoint_type=kind):
                return targets.of_codon(state, known, codon_id, kind)
            case RollbackToLastSuccess():
                return targets.last_success(state, known)
            case _:
                raise AssertionError(f"{command.TYPE} is no rollback")

    def _previewed(self, command: RollbackPreview) -> RollbackTarget:
        state, known = self._around.state, self._around.checkpointer.known
        match command:
            case RollbackPreview(checkpoint_sha=None, codon_id=None, checkpoint_type=None):
                return targets.last_success(state, known)
            case RollbackPreview(checkpoint_sha=str() as prefix, codon_id=None):
                return targets.of_prefix(state, known, prefix)
            case RollbackPreview(checkpoint_sha=None, codon_id=str() as codon_id):
                kind = command.checkpoint_type or "end"
                return targets.of_codon(state, known, codon_id, kind)
            case _:
                raise Refused(
                    ErrorCode.INVALID_COMMAND,
                    "A preview has one target: checkpointSha, or codonId and checkpointType.",
                    path="$.data",
                )
