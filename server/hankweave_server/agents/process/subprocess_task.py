"""Run a command that is not an agent below a keeper, so that none of its processes outlive it.

This holds for the end of the command and for the end of the server: the keeper ends the whole tree
when its pipe to the server breaks, and `leftovers.sweep` finds escaped processes by their mark at
the next start.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol.ids import CodonId, RunId
from hankweave_server.agents.base import AgentStartFailed, Exited
from hankweave_server.agents.process.child import AgentProcess, Launch
from hankweave_server.agents.process.environment import MARK
from hankweave_server.agents.process.stdio import PipeReader
from hankweave_server.confinement.policy import Fence, environment_of


@dataclass(frozen=True, slots=True)
class SubprocessTasks:
    """Starter of commands on behalf of one codon."""

    run_id: RunId
    codon_id: CodonId
    processes_dir: Path
    fence: Fence | None = None
    """What confines the commands; None leaves them unconfined."""

    @asynccontextmanager
    async def start(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> AsyncIterator[SubprocessTask]:
        """Run a command; leaving the context ends all its processes.

        Its stdin is empty. Raises AgentStartFailed, and AgentUnkillable on leaving.
        """
        mark = secrets.token_hex(16)
        moved = {} if self.fence is None else environment_of(self.fence)
        marked = {**environment, **moved, MARK: mark}
        launch = Launch(
            command,
            marked,
            folder,
            mark,
            self.run_id,
            self.codon_id,
            fence=self.fence,
            records=self.processes_dir,
        )
        try:
            process = AgentProcess(launch)
        except ValueError as error:  # A NUL in an argument, or a variable name with `=` in it.
            raise AgentStartFailed(f"The command could not be started: {error}") from error

        try:
            async with process.at_work(self.processes_dir):
                process.stdin.close()
                yield SubprocessTask(process)
        finally:
            process.close()


class SubprocessTask:
    """A running command."""

    def __init__(self, process: AgentProcess) -> None:
        self._process = process

    @property
    def stdout(self) -> PipeReader:
        return self._process.stdout

    @property
    def stderr(self) -> PipeReader:
        return self._process.stderr

    @property
    def exit_code(self) -> int:
        """The exit code, or minus the number of the signal that ended the command."""
        ending = self._process.ending
        return ending.code if isinstance(ending, Exited) else -ending.signal

    async def ended(self) -> None:
        """Wait until the command and all the processes it started have ended."""
        await self._process.ended()

    async def terminate(self) -> None:
        await self._process.terminate()
