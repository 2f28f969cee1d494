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
    CodonNext,
    CodonRedo,
    CodonSkip,
    CodonStart,
    ExecutionBranch,
    PermissionAnswer,
    ServerForceShutdown,
    ServerShutdown,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import BranchMade, CodonChosen
from hankweave_server.api.caller import Request
from hankweave_server.api.dispatch import handles
from hankweave_server.api.lookup import target_named
from hankweave_server.domain.execution_thread import newest_run, thread
from hankweave_server.domain.permissions import PermissionVerdict
from hankweave_server.execution.branch.branch import Branching
from hankweave_server.execution.codon.file_changes import FileChangeReporter
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.runner import Runner


class Control:
    """The handler of what starts, stops and answers codons, and ends the server."""

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

    @handles(CodonStart)
    async def start(self, command: CodonStart) -> None:
        self._runner.start(command.codon_id, skip_rig=command.skip_pre_commands)

    @handles(CodonNext)
    async def next(self, command: CodonNext) -> CodonChosen:
        return CodonChosen(codon_id=self._runner.start_next())

    @handles(CodonRedo)
    async def redo(self, command: CodonRedo) -> CodonChosen:
        return CodonChosen(codon_id=self._runner.redo())

    @handles(CodonSkip)
    async def skip(self, command: CodonSkip) -> None:
        await self._runner.skip()

    @handles(CodonForceStop)
    async def force_stop(self, command: CodonForceStop) -> None:
        await self._runner.force_stop(command.reason)

    @handles(PermissionAnswer)
    async def answer_permission(self, command: PermissionAnswer, request: Request) -> None:
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
            client_id=request.caller.client_id,
            message=command.message,
            causes=request.causes,
            always=command.always,
        )
        await self._ctx.permission_requests.answer(command.request_id, answer)

    @handles(CheckpointCreate)
    async def checkpoint(self, command: CheckpointCreate, request: Request) -> CheckpointRecord:
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
            causes=request.causes,
            waits_for_space=False,
            report=report,
        )

    @handles(ServerShutdown)
    async def shut_down(self, command: ServerShutdown) -> None:
        self._stop(command.reason)

    @handles(ServerForceShutdown)
    async def force_shut_down(self, command: ServerForceShutdown) -> None:
        self._kill(command.reason)


class Branches:
    """The handler of `execution.branch`."""

    def __init__(self, ctx: ExecutionContext, branching: Branching) -> None:
        self._ctx = ctx
        self._branching = branching

    @handles(ExecutionBranch)
    async def make(self, command: ExecutionBranch, request: Request) -> BranchMade:
        """Make a branch; the reply comes after `execution.branched`."""
        target = target_named(command.checkpoint_sha, self._ctx.state, self._ctx.checkpointer)
        return await self._branching.perform(target, command.path, request.causes)
