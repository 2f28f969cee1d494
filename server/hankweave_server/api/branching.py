"""The command that makes a new execution: the checkpoint is resolved here."""

from __future__ import annotations

from hankweave_protocol.commands import ExecutionBranch
from hankweave_protocol.replies import BranchMade
from hankweave_server.domain import targets
from hankweave_server.execution.branch.branch import Branching
from hankweave_server.execution.context import Surroundings


class Branches:
    def __init__(self, around: Surroundings, branching: Branching) -> None:
        self._around = around
        self._branching = branching

    async def make(self, command: ExecutionBranch, causes: tuple[int | str, ...]) -> BranchMade:
        """Makes a branch; the reply comes after `execution.branched`."""
        known = self._around.checkpointer.known
        target = targets.of_prefix(
            self._around.state,
            known,
            command.checkpoint_sha,
            self._around.checkpointer.missing,
        )
        return await self._branching.perform(target, command.path, causes)
