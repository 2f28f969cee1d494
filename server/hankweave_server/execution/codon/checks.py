"""Running a codon's checks: shell commands that say whether its agent did the work."""

from __future__ import annotations

from typing import Literal

from hankweave_protocol.events import CheckCompleted
from hankweave_protocol.hank import Check
from hankweave_protocol.state import FailureReason
from hankweave_server.agents.process.subprocess_task import Errands
from hankweave_server.execution.codon.data_access import command_environment
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.codon.setup import below_a_keeper
from hankweave_server.execution.context import Surroundings
from hankweave_server.worktree.rigs import CommandFailed, RigError, run_rig_command

OUTPUT_LIMIT = 4_000
"""Characters of a check's output that its event carries: the last ones, where the error stands."""


class Checks:
    """The checks of one codon, one after the other."""

    def __init__(self, around: Surroundings, record: CodonRecord) -> None:
        self._around = around
        self._record = record

    async def failure(self) -> FailureReason | None:
        """Runs them up to the first that fails and may not; gives why the codon has failed."""
        checks = self._record.entry.codon.checks
        for index, check in enumerate(checks):
            failed = await self._run(check, index)
            if failed is not None and not check.allow_failure:
                sentence = f"Check {index + 1} of {len(checks)} failed: {failed}"
                return FailureReason(type="check-failed", retriable=True, message=sentence)

        return None

    async def _run(self, check: Check, index: int) -> RigError | None:
        """Runs one and tells how it went; gives what went wrong."""
        begun, output = self._around.clock.monotonic(), _Output()
        errands = Errands(
            self._record.run_id, self._record.entry.codon_id, self._around.layout.agent_processes
        )
        fault: RigError | None = None
        try:
            await run_rig_command(
                check.run,
                start=below_a_keeper(errands),
                cwd=self._around.layout.work_tree,
                env=command_environment(self._around.layout, self._record.entry.codon),
                timeout_seconds=check.timeout_seconds,
                on_line=output.take,
            )
        except RigError as error:
            fault = error

        await self._record.tell(
            CheckCompleted(
                codon_id=self._record.entry.codon_id,
                check_index=index,
                command=check.run,
                passed=fault is None,
                duration_ms=round((self._around.clock.monotonic() - begun) * 1000),
                output=output.text,
                exit_code=_exit_code(fault),
                message=None if fault is None else str(fault),
                ignored=check.allow_failure,
            )
        )
        return fault


def _exit_code(fault: RigError | None) -> int | None:
    if fault is None:
        return 0

    return fault.exit_code if isinstance(fault, CommandFailed) else None


class _Output:
    """The end of what a command writes; more than is told is not kept."""

    def __init__(self) -> None:
        self._text = ""

    async def take(self, _stream: Literal["stdout", "stderr"], line: str) -> None:
        self._text = f"{self._text}{line}\n"[-OUTPUT_LIMIT:]

    @property
    def text(self) -> str:
        return self._text.removesuffix("\n")
