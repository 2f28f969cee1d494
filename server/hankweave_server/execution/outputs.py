"""Handing out what a codon made: its `beforeCopy` commands, then its files (Hankweave, 5.3)."""

from __future__ import annotations

from functools import partial
from typing import Literal

import anyio
import anyio.to_thread

from hankweave_protocol import instants
from hankweave_protocol.events import ErrorEvent, FileSource, Info, RigOutput
from hankweave_protocol.hank import OutputFiles, RigCommand
from hankweave_protocol.ids import RunId
from hankweave_protocol.state import CompletedCodon, PlanEntry
from hankweave_server.agents.process.subprocess_task import Errands
from hankweave_server.execution.codon.data_access import command_environment
from hankweave_server.execution.codon.file_changes import FileNews
from hankweave_server.execution.codon.setup import below_a_keeper
from hankweave_server.execution.context import Surroundings
from hankweave_server.worktree.export import HandingOutFailed, hand_out
from hankweave_server.worktree.names import AT_THE_TOP
from hankweave_server.worktree.patterns import UnsupportedPattern
from hankweave_server.worktree.rigs import RigError, run_rig_command


class OutputFailed(Exception):
    """Files that could not be handed out, and why: a sentence for people."""


class Outputs:
    """Hands out the files of codons that have completed."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._scope: anyio.CancelScope | None = None

    def are_wanted(self, entry: PlanEntry) -> bool:
        return bool(entry.codon.output_files) and self._around.output_directory is not None

    def interrupt(self) -> None:
        """Ends the command that runs, if one does; its files are not handed out then."""
        if self._scope is not None:
            self._scope.cancel()

    async def hand_out(self, run_id: RunId, entry: PlanEntry, completed: CompletedCodon) -> None:
        """Runs the commands and copies the files; raises OutputFailed at the first that fails."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                for spec in entry.codon.output_files:
                    await self._prepare(run_id, entry, completed, spec)
                    await self._copy(run_id, entry, spec)
            finally:
                self._scope = None

        if scope.cancelled_caught:
            raise OutputFailed(
                f"The output files of {entry.codon_id} were not handed out: stopped."
            )

    async def _prepare(
        self, run_id: RunId, entry: PlanEntry, completed: CompletedCodon, spec: OutputFiles
    ) -> None:
        for index, command in enumerate(spec.before_copy):
            await self._run(run_id, entry, command, index)

        if spec.before_copy:
            await self._save(run_id, entry, completed)

    async def _run(self, run_id: RunId, entry: PlanEntry, item: RigCommand, index: int) -> None:
        async def told(stream: Literal["stdout", "stderr"], line: str) -> None:
            await self._around.ledger.post(
                RigOutput(
                    codon_id=entry.codon_id, stream=stream, line=line[:500], command_index=index
                ),
                run_id=run_id,
                codon_id=entry.codon_id,
            )

        errands = Errands(run_id, entry.codon_id, self._around.layout.agent_processes)
        try:
            await run_rig_command(
                item.command.run,
                start=below_a_keeper(errands),
                cwd=self._around.layout.work_tree,
                env=command_environment(self._around.layout, entry.codon),
                timeout_seconds=item.command.timeout_seconds,
                on_line=told,
            )
        except RigError as error:
            sentence = f"Before copying the output files of {entry.codon_id}: {error}"
            if not item.allow_failure:
                raise OutputFailed(sentence) from error

            await self._warn(run_id, entry, sentence)

    async def _save(self, run_id: RunId, entry: PlanEntry, completed: CompletedCodon) -> None:
        """Checkpoints what the commands changed: else it would pass for people's edits."""
        around = self._around
        news = FileNews(around)
        if await news.tell(FileSource(kind="codon-end"), run_id, entry.codon_id):
            await around.checkpointer.take(
                "safety",
                run_id=run_id,
                codon=completed,
                codon_name="Before copying output files",
                patterns=around.patterns(),
                label=f"output files of {entry.codon_id} prepared",
            )

    async def _copy(self, run_id: RunId, entry: PlanEntry, spec: OutputFiles) -> None:
        directory, layout = self._around.output_directory, self._around.layout
        assert directory is not None, "are_wanted comes first"
        at_the_top = frozenset[bytes]() if layout.is_in_place else AT_THE_TOP
        copy = partial(
            hand_out,
            layout.work_tree,
            at_the_top,
            spec.copy,
            directory,
            overwrite=self._around.overwrite_output,
            now_ms=instants.epoch_ms(self._around.clock.now()),
        )
        try:
            paths = await anyio.to_thread.run_sync(copy)
        except (HandingOutFailed, UnsupportedPattern) as error:
            raise OutputFailed(f"Copying the output files of {entry.codon_id}: {error}") from error

        if not paths:
            wanted = ", ".join(spec.copy)
            await self._warn(run_id, entry, f"{entry.codon_id} has left no output files: {wanted}.")
            return

        files = "1 output file" if len(paths) == 1 else f"{len(paths)} output files"
        await self._around.ledger.post(
            Info(message=f"Copied {files} of {entry.codon_id} to {directory}"),
            run_id=run_id,
            codon_id=entry.codon_id,
        )

    async def _warn(self, run_id: RunId, entry: PlanEntry, sentence: str) -> None:
        warning = ErrorEvent(
            message=sentence, fatal=False, codon=entry.codon_id, severity="warning"
        )
        await self._around.ledger.record(warning, run_id=run_id, codon_id=entry.codon_id)
