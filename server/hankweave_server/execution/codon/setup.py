"""Run a codon's rig and its checks.

A rig is a list of copies and commands, run and reported in order as in Hankweave. Checks are shell
commands that decide whether the agent did the work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import anyio.from_thread
import anyio.to_thread

from hankweave_protocol.events import (
    CheckCompleted,
    Info,
    RigOutput,
    RigSetupCompleted,
    RigSetupFailed,
)
from hankweave_protocol.hank import Check, RigCommand, RigCopy, RigItem
from hankweave_protocol.ids import RunId
from hankweave_protocol.state import FailureReason, PlanEntry
from hankweave_server.agents.base import AgentError, AgentStartFailed
from hankweave_server.agents.process.subprocess_task import SubprocessTasks
from hankweave_server.confinement.policy import Fence
from hankweave_server.execution.codon.confinement import (
    FenceReporter,
    command_fence,
)
from hankweave_server.execution.codon.environment import command_environment
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.ledger.batch import Entry
from hankweave_server.worktree.rigs import (
    RigCommandFailed,
    RigError,
    RunningCommand,
    Start,
    copy_rig,
    run_rig_command,
)


class RigFailed(Exception):
    """A rig operation failed, and the hank does not allow that."""

    def __init__(self, reason: FailureReason) -> None:
        super().__init__(reason.message)
        self.reason = reason


async def set_up_rig(ctx: ExecutionContext, run_id: RunId, entry: PlanEntry) -> None:
    """Run every operation of the rig; raise RigFailed at the first one that must not fail."""
    rig = _Rig(ctx, run_id, entry)
    await rig.set_up()


class _Rig:
    def __init__(self, ctx: ExecutionContext, run_id: RunId, entry: PlanEntry) -> None:
        self._ctx = ctx
        self._run_id = run_id
        self._entry = entry
        self._subprocess_tasks = SubprocessTasks(run_id, entry.codon_id, ctx.layout.agent_processes)
        self._refusals = FenceReporter(ctx, entry.codon, entry.codon_id)
        self._last_copied: Path | None = None

    async def set_up(self) -> None:
        items = self._entry.codon.rig_setup
        begun = self._ctx.clock.monotonic()
        await self._post(Info(message="Rig setup started"))
        for index, item in enumerate(items):
            await self._post(Info(message=f"Rig operation {index + 1}/{len(items)}"))
            try:
                await self._operate(item, index)
            except RigError as error:
                await self._failed(item, index, error)

        await self._post(
            Info(message="Rig setup completed"),
            RigSetupCompleted(
                codon_id=self._entry.codon_id,
                rig_type="command" if len(items) == 1 else "commands",
                command_count=len(items),
                duration_ms=round((self._ctx.clock.monotonic() - begun) * 1000),
                created_checkpoint="rig-setup" in self._ctx.safe_points,
            ),
        )

    async def _operate(self, item: RigItem, index: int) -> None:
        work_tree = self._ctx.layout.work_tree
        match item:
            case RigCopy(copy=spec):
                source = self._ctx.hank.directory / spec.source
                # If the codon is ended meanwhile, the copy stops too, and nothing of it stays.
                self._last_copied = await anyio.to_thread.run_sync(
                    copy_rig, source, work_tree, spec.to, anyio.from_thread.check_cancelled
                )
            case RigCommand(command=spec):
                copied = self._last_copied
                in_copied = spec.working_directory == "lastCopied" and copied is not None
                fence = await command_fence(self._ctx, self._entry.codon)
                await run_rig_command(
                    spec.run,
                    start=below_a_keeper(replace(self._subprocess_tasks, fence=fence)),
                    cwd=copied if in_copied and copied is not None else work_tree,
                    env=command_environment(self._ctx.layout, self._entry.codon),
                    timeout_seconds=spec.timeout_seconds,
                    on_line=partial(self._line, index, fence),
                )

    async def _line(
        self, index: int, fence: Fence | None, stream: Literal["stdout", "stderr"], line: str
    ) -> None:
        output = RigOutput(
            codon_id=self._entry.codon_id, stream=stream, line=line[:500], command_index=index
        )
        await self._post(output, *await self._refusals.in_text(line, fence))

    async def _failed(self, item: RigItem, index: int, error: RigError) -> None:
        is_ignored = item.allow_failure or self._ctx.ignore_rig_failures
        exit_code = error.exit_code if isinstance(error, RigCommandFailed) else None
        await self._post(
            RigSetupFailed(
                codon_id=self._entry.codon_id,
                failure_type=error.failure_type,
                exit_code=exit_code,
                command_index=index,
                ignored=is_ignored,
                message=str(error),
            )
        )
        if not is_ignored:
            raise RigFailed(
                FailureReason(type="unknown", retriable=True, message=f"Rig setup: {error}")
            )

    async def _post(self, *entries: Entry) -> None:
        await self._ctx.ledger.post(*entries, run_id=self._run_id, codon_id=self._entry.codon_id)


def below_a_keeper(subprocess_tasks: SubprocessTasks) -> Start:
    """Return a starter that runs commands under a keeper, as agents are.

    They end even if this process dies.
    """

    @asynccontextmanager
    async def start(
        command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> AsyncIterator[RunningCommand]:
        try:
            async with subprocess_tasks.start(command, folder, environment) as child:
                yield child
        except AgentStartFailed as error:
            raise RigError(f"The command could not be started: {error}") from error
        except AgentError as error:
            raise RigError(f"The command could not be stopped: {error}") from error

    return start


OUTPUT_LIMIT = 4_000
"""Last characters of a check's output that its event carries: errors are usually at the end."""

LAST_LINE_LIMIT = 200
"""Characters of its last line in the reason of the failure, which is a line itself."""


class FailedCheck(NamedTuple):
    """A check that has failed its codon, and why."""

    check: Check
    sentence: str

    def reason(self, more: str = "") -> FailureReason:
        """Return why the codon has failed."""
        message = f"{self.sentence} {more}".rstrip()
        return FailureReason(type="check-failed", retriable=True, message=message)


class Checks:
    """The checks of one codon, run one after the other."""

    def __init__(self, ctx: ExecutionContext, record: CodonRecord) -> None:
        self._ctx = ctx
        self._record = record
        self._refusals = FenceReporter(ctx, record.entry.codon, record.entry.codon_id)

    async def failure(self) -> FailedCheck | None:
        """Run the checks up to the first failure that counts; return why the codon has failed."""
        checks = self._record.entry.codon.checks
        for index, check in enumerate(checks):
            failed = await self._run(check, index)
            if failed is not None and not check.allow_failure:
                sentence = f"Check {index + 1} of {len(checks)} failed: {failed}"
                return FailedCheck(check, sentence)

        return None

    async def _run(self, check: Check, index: int) -> str | None:
        """Run one check and report the result; return what went wrong, with its last line."""
        begun, output = self._ctx.clock.monotonic(), _Output()
        codon, fence = self._record.entry.codon, None
        fault: RigError | None = None
        try:
            fence = await command_fence(self._ctx, codon)
            subprocess_tasks = SubprocessTasks(
                self._record.run_id,
                self._record.entry.codon_id,
                self._ctx.layout.agent_processes,
                fence=fence,
            )
            await run_rig_command(
                check.run,
                start=below_a_keeper(subprocess_tasks),
                cwd=self._ctx.layout.work_tree,
                env=command_environment(self._ctx.layout, codon),
                timeout_seconds=check.timeout_seconds,
                on_line=output.take,
            )
        except RigError as error:
            fault = error

        await self._record.append(
            *await self._refusals.in_text(output.text, fence),
            CheckCompleted(
                codon_id=self._record.entry.codon_id,
                check_index=index,
                command=check.run,
                passed=fault is None,
                duration_ms=round((self._ctx.clock.monotonic() - begun) * 1000),
                output=output.text,
                exit_code=_exit_code(fault),
                message=None if fault is None else str(fault),
                ignored=check.allow_failure,
            ),
        )
        return None if fault is None else ": ".join(filter(None, (str(fault), output.last_line)))


def _exit_code(fault: RigError | None) -> int | None:
    if fault is None:
        return 0

    return fault.exit_code if isinstance(fault, RigCommandFailed) else None


class _Output:
    """The end of a command's output; nothing before it is kept."""

    def __init__(self) -> None:
        self._text = ""

    async def take(self, _stream: Literal["stdout", "stderr"], line: str) -> None:
        self._text = f"{self._text}{line}\n"[-OUTPUT_LIMIT:]

    @property
    def text(self) -> str:
        return self._text.removesuffix("\n")

    @property
    def last_line(self) -> str:
        """Return the last line that is not blank, shortened: most programs end with the reason."""
        *_, last = ("", *filter(None, map(str.strip, self._text.splitlines())))
        return last if len(last) <= LAST_LINE_LIMIT else f"{last[:LAST_LINE_LIMIT]}…"
