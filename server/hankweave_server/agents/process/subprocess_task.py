"""A command that is no agent, run below a keeper all the same: nothing of it outlives its end.

Neither its end nor the server's: the keeper ends the whole tree when its pipe to us breaks, and
what gets away even so is found by its mark at the next start.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from hankweave_protocol.ids import CodonId, RunId
from hankweave_server.agents.base import AgentStartFailed, AgentUnkillable, Exited
from hankweave_server.agents.process.child import AgentProcess, Launch
from hankweave_server.agents.process.environment import MARK
from hankweave_server.agents.process.stdio import PipeReader


@dataclass(frozen=True, slots=True)
class Errands:
    """Starts commands on behalf of one codon."""

    run_id: RunId
    codon_id: CodonId
    processes_dir: Path

    @asynccontextmanager
    async def start(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> AsyncIterator[Errand]:
        """Runs a command until the context is left, which ends all its processes.

        Its stdin is empty. Raises AgentStartFailed, and on leaving AgentUnkillable.
        """
        mark = secrets.token_hex(16)
        marked = {**environment, MARK: mark}
        launch = Launch(command, marked, folder, mark, self.run_id, self.codon_id)
        try:
            process = AgentProcess(launch)
        except ValueError as error:  # A NUL in what should be a word, or a name with `=` in it.
            raise AgentStartFailed(f"The command could not be started: {error}") from error

        try:
            async with self._kept(process):
                yield Errand(process)
        finally:
            process.close()

    @asynccontextmanager
    async def _kept(self, process: AgentProcess) -> AsyncIterator[None]:
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.follow)
            tasks.start_soon(process.watch_keeper)
            try:
                await process.started()
                process.stdin.close()
                process.record.remember(self.processes_dir)
                yield
            except Exception as error:
                failure = error  # Raised below: the group would wrap it for our caller.
            finally:
                survivors = await process.end()
                tasks.cancel_scope.cancel()

        if survivors:
            raise AgentUnkillable(survivors) from failure

        process.record.forget(self.processes_dir)
        if failure is not None:
            raise failure


class Errand:
    """A command that runs."""

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
        """As a shell's child: what it gave, or minus the signal that ended it."""
        ending = self._process.ending
        return ending.code if isinstance(ending, Exited) else -ending.signal

    async def ended(self) -> None:
        """Returns when the command has ended, and with it all that it had started."""
        await self._process.ended()

    async def terminate(self) -> None:
        await self._process.terminate()
