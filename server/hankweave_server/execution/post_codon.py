"""What follows a codon's success: its output files are handed out, then files are archived.

Before such a codon begins, `aftermath.intent` names it; it goes when all is done. So a crash at any
moment after the success is made good before the next codon begins, and so is what failed. After a
rollback to a codon's end its files are archived anew: the next codon finds what it found before.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio.to_thread

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.hank import Loop, RigCopy
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import AftermathIntent, ArchivePlace
from hankweave_protocol.state import (
    CompletedCodon,
    FailedCodon,
    PlanEntry,
    SkippedCodon,
    TerminalCodon,
)
from hankweave_server import fsutil
from hankweave_server.domain import plan as plans
from hankweave_server.domain.history import end_checkpoint, is_done, plan_entry, thread
from hankweave_server.domain.standing import restored_checkpoint
from hankweave_server.execution.archive import Archives, Archiving
from hankweave_server.execution.context import Surroundings
from hankweave_server.execution.outputs import OutputFailed, Outputs
from hankweave_server.fsutil import is_full
from hankweave_server.worktree.patterns import UnsupportedPattern
from hankweave_server.worktree.selection import literally


class AftermathFailed(Exception):
    """What follows a success could not be done; the codon stays completed, the run fails."""


@dataclass(frozen=True, slots=True)
class Due:
    """What is left to do for the newest codon of the thread."""

    entry: PlanEntry
    terminal: TerminalCodon
    with_outputs: bool
    """False: they were handed out, and a rollback has only brought back what was archived."""


class Aftermath:
    """Does what follows a codon's success, exactly as far as it is not done."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._archives = Archives(around)
        self._outputs = Outputs(around)

    def interrupt(self) -> None:
        """Ends a command that prepares output files; the next start runs it again."""
        self._outputs.interrupt()

    async def expect(self, run_id: RunId, entry: PlanEntry) -> None:
        """Makes durable, before a codon begins, that its success will have consequences."""
        loop = self._loop_of(entry)
        leaves = bool(_patterns(entry)) or (loop is not None and bool(loop.archive_on_success))
        if not leaves and not self._outputs.are_wanted(entry):
            return

        intent = codec.encode(AftermathIntent(run_id=run_id, codon_id=entry.codon_id))
        path = self._around.layout.aftermath_intent
        await self._around.ledger.space.insist(
            lambda: anyio.to_thread.run_sync(fsutil.replace_durably, path, intent)
        )

    async def after_codon(
        self, run_id: RunId, entry: PlanEntry, completed: CompletedCodon, *, outputs: bool = True
    ) -> None:
        """Hands out a codon's files, then archives; raises AftermathFailed."""
        if outputs and self._outputs.are_wanted(entry):
            try:
                await self._outputs.hand_out(run_id, entry, completed)
            except OutputFailed as error:
                raise AftermathFailed(str(error)) from error

        patterns, context = _patterns(entry), entry.loop_context
        if patterns:
            place = None if context is None else f"{context.loop_id}-{context.iteration}"
            name = entry.codon_id.replace("#", "-")
            await self._archive(
                Archiving(
                    run_id=run_id,
                    codon_id=entry.codon_id,
                    archived_for=entry.codon_id,
                    checkpoint=completed.completion_checkpoint,
                    folder=name if place is None else f"{place}/{name}",
                    patterns=patterns,
                    loop_context=_place_of(entry),
                )
            )

    async def after_loop(
        self, run_id: RunId, loop: Loop, entry: PlanEntry, terminal: TerminalCodon
    ) -> None:
        """Archives, once, what a loop that has ended leaves; raises AftermathFailed."""
        if loop.archive_on_success:
            await self._archive(
                Archiving(
                    run_id=run_id,
                    codon_id=entry.codon_id,
                    archived_for=loop.id,
                    checkpoint=end_checkpoint(terminal),
                    folder=f"{loop.id}-loop",
                    patterns=loop.archive_on_success,
                    loop_context=_place_of(entry),
                )
            )

    async def done(self) -> None:
        """Forgets what was expected: it is done, or its codon did not succeed."""
        path = self._around.layout.aftermath_intent
        if await anyio.to_thread.run_sync(path.exists):
            await anyio.to_thread.run_sync(fsutil.remove_durably, path)

    async def due(self, upcoming: CodonId | None) -> Due | None:
        """What is left to do before a codon may begin; nothing before that very codon again."""
        state = self._around.state
        plan, entries = state.execution_plan, thread(state)
        if not entries:
            return None

        codon = entries[-1].codon
        entry = plan_entry(plan, codon.codon_id)
        if entry is None or codon.codon_id == upcoming or not is_done(codon, plan):
            return None

        assert isinstance(codon, CompletedCodon | FailedCodon | SkippedCodon), "what is done ended"

        named = AftermathIntent(run_id=entries[-1].run_id, codon_id=codon.codon_id)
        is_expected = await anyio.to_thread.run_sync(self._expected) == named
        if not is_expected and restored_checkpoint(state) != end_checkpoint(codon):
            return None

        return Due(entry, codon, with_outputs=is_expected)

    async def catch_up(self, run_id: RunId, due: Due) -> None:
        """Does what is left; raises AftermathFailed."""
        if isinstance(due.terminal, CompletedCodon):
            await self.after_codon(run_id, due.entry, due.terminal, outputs=due.with_outputs)

        loop = self._loop_of(due.entry)
        if loop is not None and plans.is_loop_finished(loop, due.entry, due.terminal):
            await self.after_loop(run_id, loop, due.entry, due.terminal)

        await self.done()

    async def _archive(self, wanted: Archiving) -> None:
        try:
            await self._archives.archive(wanted)
        except (Refused, UnsupportedPattern, OSError) as error:
            if isinstance(error, OSError) and is_full(error):
                raise

            raise AftermathFailed(f"Archiving for {wanted.archived_for}: {error}") from error

    def _expected(self) -> AftermathIntent | None:
        try:
            data = self._around.layout.aftermath_intent.read_bytes()
            return codec.decode_value(AftermathIntent, data)
        except (FileNotFoundError, Refused):
            return None

    def _loop_of(self, entry: PlanEntry) -> Loop | None:
        return plans.loop_of(self._around.hank.hank, entry)


def _patterns(entry: PlanEntry) -> tuple[str, ...]:
    """What a codon archives: what its rig copied, where that says so, and what it lists itself."""
    copies = (item for item in entry.codon.rig_setup if isinstance(item, RigCopy))
    rigs = (literally(item.copy.to) for item in copies if item.archive_on_success)
    return (*rigs, *entry.codon.archive_on_success)


def _place_of(entry: PlanEntry) -> ArchivePlace | None:
    context = entry.loop_context
    if context is None:
        return None

    return ArchivePlace(loop_id=context.loop_id, iteration=context.iteration)
