"""Handle commands that control the execution.

Start, skip and stop codons, answer permission requests, take checkpoints, make branches, and end
the server.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonForceStop,
    CodonStart,
    ExecutionBranch,
    PermissionAnswer,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import ClientId, CodonId
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import BranchMade
from hankweave_server.domain import targets
from hankweave_server.domain.execution_thread import newest_run, thread
from hankweave_server.domain.permissions import PermissionVerdict
from hankweave_server.execution.branch.branch import Branching
from hankweave_server.execution.codon.file_changes import FileChangeReporter
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.runner import Runner


class Control:
    def __init__(
        self,
        ctx: ExecutionContext,
        runner: Runner,
        *,
        stop: Callable[[str], None],
        kill: Callable[[str], None],
    ) -> None:
        self._ctx = ctx
        self._runner = runner
        self._stop = stop
        self._kill = kill

    def start(self, command: CodonStart) -> None:
        self._runner.start(command.codon_id, skip_rig=command.skip_pre_commands)

    def next(self) -> CodonId:
        return self._runner.start_next()

    def redo(self) -> CodonId:
        return self._runner.redo()

    async def skip(self) -> None:
        await self._runner.skip()

    async def force_stop(self, command: CodonForceStop) -> None:
        await self._runner.force_stop(command.reason)

    async def answer_permission(
        self, command: PermissionAnswer, client_id: ClientId, causes: tuple[int | str, ...]
    ) -> None:
        """Allow or deny a call that an agent waits to make."""
        if command.always is not None and command.decision != "allow":
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                "A rule is added only by an answer that allows the call.",
                path="$.data.always",
                hint="Leave out always. To deny such calls, add the rule to permissions.deny.",
            )

        answer = PermissionVerdict(
            command.decision,
            "client",
            client_id=client_id,
            message=command.message,
            causes=causes,
            always=command.always,
        )
        await self._ctx.desk.answer(command.request_id, answer)

    async def checkpoint(
        self, command: CheckpointCreate, causes: tuple[int | str, ...]
    ) -> CheckpointRecord:
        """Take a `manual` checkpoint of what is tracked at this moment."""
        self._ctx.guard.refuse_checkpoint()
        run = newest_run(self._ctx.state)
        if run is None:
            raise Refused(ErrorCode.UNKNOWN_RUN, "There is no run yet to take a checkpoint of.")

        report = None
        if (active := self._runner.active) is not None:
            await active.announce_changes()
        elif not self._runner.is_busy:
            report = functools.partial(
                FileChangeReporter(self._ctx).report_captured, run_id=run.run_id
            )

        entries = thread(self._ctx.state)
        return await self._ctx.checkpointer.take(
            "manual",
            run_id=run.run_id,
            codon=entries[-1].codon if entries else None,
            codon_name=command.label or "Manual checkpoint",
            patterns=self._ctx.patterns(),
            label=command.label,
            causes=causes,
            waits_for_room=False,
            report=report,
        )

    def shut_down(self, reason: str) -> None:
        self._stop(reason)

    def force_shut_down(self, reason: str) -> None:
        self._kill(reason)


class Branches:
    def __init__(self, ctx: ExecutionContext, branching: Branching) -> None:
        self._ctx = ctx
        self._branching = branching

    async def make(self, command: ExecutionBranch, causes: tuple[int | str, ...]) -> BranchMade:
        """Make a branch; the reply comes after `execution.branched`."""
        known = self._ctx.checkpointer.known
        target = targets.of_prefix(
            self._ctx.state,
            known,
            command.checkpoint_sha,
            self._ctx.checkpointer.missing,
            self._ctx.checkpointer.renamed,
        )
        return await self._branching.perform(target, command.path, causes)
