"""Run one codon from `preparing` to a terminal state.

A codon is the unit of everything users do: they watch it, skip it, stop it, roll back to its ends.
Two things make running one hard. The server can die between any two steps, so the journal must
never claim more than has happened. And commands arrive from other tasks at any moment (skip, stop,
freeze for a rollback), so every step must be interruptible.

The steps, and the state that the journal shows during each of them:

    (none yet)           note user edits
    preparing            for `onFailure: retry` take a safety checkpoint of the attempt's
                         start; evaluate condition and budget; run the rig; take over an earlier
                         result, if reuse is wanted and there is one (`reuse`)
    starting             load the sentinels, announce the rig's files, take the
                         `rig-setup` checkpoint, start the agent's process
    initializing         the process runs, its session has not begun
    running              the agent works: one conversation, then extensions; afterwards the checks
    completing-sentinels the agent has ended well, sentinels finish their work
    completed | failed | skipped

Order of durable writes. Every step is recorded before the next begins. User edits come before
`preparing`, because the codon's own patterns then widen what is tracked, and files that only become
tracked then are not edits. The rig's checkpoint comes before the agent. At the end, the checkpoint
comes before the terminal state, so that every terminal state has files to go back to, and terminal
state and `codon.completed` event are one batch. Only then do sentinels and clients see the end.

A codon whose agent has met a limit of its provider waits, in the state that it is in (`waits`). It
is the only one that goes on under another server: `_resume` continues the conversation.

After a crash the record stands in some non-terminal state. Unless it waits, it is not resumed:
`recovery` marks it failed and rolls the files back to the last success, and the plan runs the codon
again. This is why nothing in this module has to be idempotent.

However a codon ends, `run` returns its terminal record. There are six ways:

- the agent ends: `judge` decides between success, a full context and failure; a success must also
  pass the codon's checks.
- it never starts: the condition is false, nothing is left of the budget, the rig fails, a required
  sentinel cannot be loaded, or the agent cannot be started.
- it takes over an earlier result: it is complete without an agent.
- its budget is exceeded while it works: it is complete with what it has done, unless the hank wants
  a failure.
- a command interrupts it: `Skip` or `Halt`.
- the server stops: `Halt` with a checkpoint of kind `exit`. The next start rolls this work back, as
  after a crash.

Errors of the ledger or the store end the server instead; there is no record to keep then.

Interruption. `interrupt` runs in the caller's task. It stores the first interruption, then ends
whatever the codon may be waiting for: sentinels, pending permission requests, shell commands (by a
cancel scope), the agent. `run` itself is never cancelled; it notices `_interruption` after each
step and ends the codon in the ordinary order, checkpoint included. An interruption that arrives
while the agent is being started finds no session yet, so the agent's task checks for it once more
after the start.

Freezing. A rollback may move files under a living agent. `frozen` holds the recorder's lock
`files`, which every scan and checkpoint of the codon takes, and pauses the agent's processes.
What the agent has done so far is announced and checkpointed first; otherwise it would count as a
user edit. During checks there is no agent to pause, so freezing is refused.

Read `run`, `_run`, `_set_up`, `_take_over`, `_prepare` and `_conclude`, then `interrupt` and
`frozen`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

import anyio
import msgspec

from hankweave_protocol.events import CodonKeyed, FileSource
from hankweave_protocol.ids import RunId, Sha
from hankweave_protocol.instants import from_text
from hankweave_protocol.records import CheckpointKind, Notice
from hankweave_protocol.state import (
    BudgetExceeded,
    FailureReason,
    PlanEntry,
    PreparingCodon,
    RunningCodon,
    TerminalCodon,
)
from hankweave_server.agents.base import (
    AgentError,
)
from hankweave_server.domain import lifecycle
from hankweave_server.domain.budget.allowance import Overrun
from hankweave_server.domain.lifecycle import CodonFailure, CodonSuccess, ContextFull, Ending
from hankweave_server.domain.permissions import permissions_of
from hankweave_server.domain.targets import ATTEMPT_START
from hankweave_server.execution.codon.agent_turn import NO_PROCESS, AgentWork, text_of
from hankweave_server.execution.codon.environment import restore_data_link
from hankweave_server.execution.codon.event_recorder import EventRecorder
from hankweave_server.execution.codon.file_changes import PERSON, FileChangeReporter
from hankweave_server.execution.codon.limits import BudgetWatch, Refusals
from hankweave_server.execution.codon.permissions import Permits
from hankweave_server.execution.codon.record import CodonEnds, CodonRecord
from hankweave_server.execution.codon.reuse import NotRestored, Takeover, keyed
from hankweave_server.execution.codon.sentinels import (
    SentinelsNotLoaded,
    SentinelWatch,
    sentinels_of,
)
from hankweave_server.execution.codon.setup import Checks, FailedCheck, RigFailed, set_up_rig
from hankweave_server.execution.codon.waits import Attention, LimitWaits, Suspended
from hankweave_server.execution.context import ExecutionContext, holds
from hankweave_server.execution.post_codon import publish
from hankweave_server.execution.resume import taken_up
from hankweave_server.installed import parts
from hankweave_server.sentinels.failures import UnloadReason
from hankweave_server.settings import SafePoint


@dataclass(frozen=True, slots=True)
class Skip:
    """A request to continue the plan without this codon."""


@dataclass(frozen=True, slots=True)
class Halt:
    """A request to end the codon as failed, for a reason outside the codon."""

    reason: str
    checkpoint_kind: Literal["error", "exit"] = "error"


Interruption: TypeAlias = Skip | Halt


class CodonRun:
    """The execution of one plan entry; `interrupt` may be called at any moment of it."""

    def __init__(
        self,
        ctx: ExecutionContext,
        run_id: RunId,
        entry: PlanEntry,
        *,
        restored_rig: Sha | None,
        skip_rig: bool = False,
        is_resumed: bool = False,
        may_reuse: bool = False,
    ) -> None:
        """`is_resumed`: the codon waits for the end of a limit since an earlier server.

        `may_reuse`: it takes over an earlier result of the same inputs, if there is one.
        """
        self._ctx = ctx
        self._entry = entry
        self._is_resumed = is_resumed
        self._restored_rig = restored_rig
        self._skip_rig = skip_rig
        self._may_reuse = may_reuse
        self._inputs: CodonKeyed | None = None
        self._was_influenced = False
        """The agent got a message, or files were moved under it."""
        self._edits_before: Mapping[str, str] = {}
        self._interruption: Interruption | None = None
        self._commands = anyio.CancelScope()
        """Scope of the shell commands of its rig and of its checks."""
        self._is_checked = False
        """The agent has ended and checks read the files: nothing could be frozen."""
        self._sentinels: SentinelWatch | None = None
        self._record = CodonRecord(ctx, run_id, entry)
        self._budget = BudgetWatch(ctx, self._record)
        permissions = permissions_of(entry.codon, ctx.hank.hank.overrides)
        self._narrator = EventRecorder(
            ctx,
            run_id,
            entry.codon_id,
            on_safe_point=self._safe_point,
            on_turn=self._budget.after_turn,
            written_by_sentinels=lambda: (
                frozenset() if self._sentinels is None else self._sentinels.written
            ),
            saves_before_tools=permissions is not None,
        )
        self._waits = LimitWaits(
            ctx, self._record, attention=self._attention, before=self._before_wait
        )
        self._refusals = Refusals()
        self._permits = Permits(
            ctx, self._record, permissions, self._narrator.files, on_denied=self._refusals.deny
        )
        self._work = AgentWork(
            ctx,
            self._record,
            self._narrator,
            self._budget,
            permits=self._permits,
            refusals=self._refusals,
            waits=self._waits,
            is_interrupted=lambda: self._interruption is not None,
        )
        self._ends = CodonEnds(
            ctx,
            self._record,
            checkpoint=self._checkpoint,
            drain_sentinels=self._drain_sentinels,
            has_result=lambda: self._narrator.conversation.result is not None,
            answer=lambda name: self._narrator.conversation.captured_as(name),
            warning=lambda: self._refusals.warning(entry.codon_id),
            reuse_key=self._reuse_key,
        )

    @property
    def entry(self) -> PlanEntry:
        return self._entry

    @property
    def first_seq(self) -> int:
        return self._record.first_seq

    @property
    def was_halted(self) -> bool:
        return isinstance(self._interruption, Halt)

    @property
    def _is_last(self) -> bool:
        """Return whether the server stops, and the codon with it."""
        ended = self._interruption
        return isinstance(ended, Halt) and ended.checkpoint_kind == "exit"

    @property
    def is_waiting(self) -> bool:
        """Return whether it waits for the end of a limit, without an agent."""
        return self._waits.is_waiting

    def end_wait(self) -> None:
        """Let the agent continue now, although the limit may not have ended."""
        self._waits.end()

    def _reuse_key(self) -> str | None:
        """Return the key of a result that depends on the inputs alone, and not on people."""
        now = self._ctx.state.edits
        is_influenced = (
            self._was_influenced
            or self._permits.has_asked_people
            or any(self._edits_before.get(path) != digest for path, digest in now.items())
        )
        return None if self._inputs is None or is_influenced else self._inputs.reuse_key

    def _attention(self) -> Attention:
        if self._interruption is None:
            return "stay"

        return "suspend" if self._is_last else "leave"

    @property
    def _sentinel_watch(self) -> SentinelWatch:
        assert self._sentinels is not None, "they are there before the codon begins"
        return self._sentinels

    async def interrupt(self, interruption: Interruption) -> None:
        """End the codon early; return when its agent is dead. The first interruption counts."""
        if self._interruption is None:
            self._interruption = interruption

        if self._sentinels is not None:
            self._sentinels.shorten_drain()

        self._permits.end("The codon is ending.")
        self._commands.cancel()
        self._waits.wake()
        if self._work.session is not None:
            await self._work.session.stop()

    def refuse_unless_pausable(self) -> None:
        """Raise Refused unless the agent works now."""
        if self.is_waiting:
            self._record.refuse_to_freeze("waits for a limit", "Continue it first")

        if self._work.session is None or not self._record.is_running:
            self._record.refuse_to_freeze("is still starting", "Wait until it has started")

        if self._is_checked:
            self._record.refuse_to_freeze("is being checked", "Wait until it has ended")

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Freeze the agent and its files while the block runs.

        What it did until now is announced and checkpointed first: it is the agent's work, not a
        user edit.
        """
        assert self._work.session is not None, "refuse_unless_pausable comes first"
        async with self._narrator.files:
            self.refuse_unless_pausable()  # The agent may have ended while we waited.
            self._was_influenced = True
            await self._work.session.pause()
            try:
                await self._narrator.announce_frozen_work()
                await self._take("tool")
                yield
            finally:
                await self._work.session.resume()

    async def stop_agent(self) -> bool:
        """Stop the agent's processes; return whether there is an agent. Records nothing."""
        session = self._work.session
        if session is None:
            return False

        await session.pause()
        return True

    async def continue_agent(self) -> None:
        """Let them continue."""
        if self._work.session is not None:
            await self._work.session.resume()

    async def announce_changes(self) -> None:
        """Report what changed until now, each change as the agent's or a person's.

        A checkpoint that others take meanwhile would hide that from the recovery after a crash.
        """
        await self._narrator.announce_work(FileSource(kind="tool_use"))

    async def leave_notice(self, notice: Notice) -> None:
        """Leave a notice for the agent, if there is one; it may end before it reads it."""
        self._was_influenced = True
        if self._work.session is not None:
            await self._work.session.leave_message(notice.operation_id, text_of(notice))

    async def run(self) -> TerminalCodon | None:
        """Run the codon to its end and return its terminal record.

        None if the server stops while the codon waits for the end of a limit: it goes on later.
        """
        async with sentinels_of(self._ctx, self._record) as sentinels:
            self._sentinels = sentinels
            try:
                terminal = await (self._resume() if self._is_resumed else self._run())
            except Suspended:
                terminal = None
            finally:
                self._waits.release()

            reason: UnloadReason = "shutdown" if self._is_last else "codon-complete"
            await sentinels.finish(self._narrator.announce_files, reason=reason)
            return terminal

    async def _run(self) -> TerminalCodon:
        await self._begin()
        condition = self._entry.codon.condition
        if condition is not None and not holds(condition, self._ctx):
            return await self._ends.skip(NO_PROCESS, condition=condition)

        if (overrun := self._budget.open()) is not None:
            return await self._end_over_budget(overrun, NO_PROCESS)

        try:
            has_run_rig = await self._set_up()
            if self._interruption is None and (reused := await self._take_over()) is not None:
                return reused

            if self._interruption is None:
                await self._prepare(has_run_rig)

            if self._interruption is None:
                ending = await self._work.do()
                return await self._conclude(ending)
        except SentinelsNotLoaded as missing:
            return await self._ends.fail(missing.reason, NO_PROCESS)
        except RigFailed as failed:
            return await self._ends.fail(failed.reason, NO_PROCESS)
        except AgentError as error:
            return await self._ends.fail(_reason_of(error), NO_PROCESS)

        return await self._end_interrupted(NO_PROCESS)

    async def _resume(self) -> TerminalCodon:
        """Continue a codon that waits since an earlier server."""
        await FileChangeReporter(self._ctx).scan_and_report(PERSON, self._record.run_id, None)
        self._record.take_over()
        current = self._record.current
        if isinstance(current, RunningCodon):
            self._narrator.take_over(
                current.claude_session_id, current.current_cost, current.current_tokens
            )

        if (overrun := self._budget.open()) is not None:
            return await self._end_over_budget(overrun, NO_PROCESS)

        try:
            await self._sentinel_watch.load()
            return await self._conclude(await self._work.resume())
        except SentinelsNotLoaded as missing:
            return await self._ends.fail(missing.reason, NO_PROCESS)
        except AgentError as error:
            return await self._ends.fail(_reason_of(error), NO_PROCESS)

    # --- before the agent ----------------------------------------------------------------------

    async def _begin(self) -> None:
        # Before the codon's own patterns count: files that these add are not user edits.
        news = await FileChangeReporter(self._ctx).scan_and_report(
            PERSON, self._record.run_id, None
        )
        await self._record.begin()
        if self._entry.codon.on_failure == "retry":
            attempt = self._record.current.attempt
            await self._record.take("safety", f"{ATTEMPT_START} {attempt}")
        elif news.any:
            self._narrator.has_unsaved()

    async def _set_up(self) -> bool:
        """Run the rig unless the work tree was just restored to the state after it.

        Return whether it has run.
        """
        codon = self._entry.codon
        is_midway = taken_up(self._ctx, self._entry) is not None
        is_set_up = self._skip_rig or self._restored_rig is not None or is_midway
        rig_wanted = bool(codon.rig_setup) and not is_set_up
        await self._restore_data_link()
        if rig_wanted:
            with self._commands:
                await set_up_rig(self._ctx, self._record.run_id, self._entry)

            await self._restore_data_link()

        return rig_wanted

    async def _take_over(self) -> TerminalCodon | None:
        """Take over an earlier result; None if there is none, so that the agent has to run."""
        record, inputs = self._record, await keyed(self._ctx, self._entry)
        self._inputs, self._edits_before = inputs, self._ctx.state.edits
        # What is done under a notice, which the hank does not contain, is not offered to others.
        self._was_influenced |= self._ctx.state.notice is not None
        if not self._may_reuse:
            await self._ctx.ledger.post(
                inputs, run_id=record.run_id, codon_id=record.entry.codon_id
            )
            return None

        inputs = msgspec.structs.replace(inputs, wanted=True)
        takeover = Takeover(self._ctx, record, inputs)
        found = await takeover.find()
        if isinstance(found, str):
            await record.append(msgspec.structs.replace(inputs, reason=found))
            return None

        await record.append(inputs)
        if self._interruption is not None:
            return None

        try:
            async with self._narrator.files:
                restored = await takeover.restore(found)
        except NotRestored as fault:
            return await self._ends.fail(fault.reason, NO_PROCESS)

        if restored is None:
            self._inputs = None  # They may have changed since.
            return None

        await self._restore_data_link()
        await self._narrator.announce_files(FileSource(kind="codon-end"))
        if self._interruption is not None:
            return None

        async with self._narrator.files:
            completed = await takeover.complete(restored)

        await publish(self._ctx, record, self._entry.codon.checkpoint_label)
        return completed

    async def _prepare(self, rig_wanted: bool) -> None:
        """Load the sentinels, and announce the files that the agent starts from."""
        await self._record.move(lifecycle.start_agent(self._record.expect(PreparingCodon)))
        await self._sentinel_watch.load()
        if rig_wanted:
            await self._narrator.announce_files(FileSource(kind="rig"))
            if "rig-setup" in self._ctx.safe_points:
                await self._checkpoint("rig-setup")

        elif self._restored_rig is not None:
            await self._note_restored_rig(self._restored_rig)

        await self._narrator.announce_files(FileSource(kind="codon-start"))

    async def _restore_data_link(self) -> None:
        await restore_data_link(self._ctx, self._record.run_id, self._entry.codon_id)

    async def _note_restored_rig(self, sha: Sha) -> None:
        record, checkpointer = self._record, self._ctx.checkpointer
        await record.append(checkpointer.reattached(sha, record.run_id, self._entry.codon_id))

    # --- the end -------------------------------------------------------------------------------

    async def _conclude(self, ending: Ending) -> TerminalCodon:
        await self._restore_data_link()  # Checks and output commands read the data too.
        await self._narrator.announce_work(FileSource(kind="codon-end"))
        if self._interruption is not None:
            return await self._end_interrupted(ending.exit_code)

        if self._budget.overrun is not None:
            return await self._end_over_budget(self._budget.overrun, ending.exit_code)

        match self._work.judged(ending):
            case CodonSuccess():
                return await self._succeed(ending.exit_code)
            case ContextFull():
                return await self._succeed(ending.exit_code, context_exceeded=True)
            case CodonFailure(reason=reason):
                return await self._ends.fail(reason, ending.exit_code)
            case other:
                assert_never(other)

    async def _succeed(
        self,
        exit_code: int,
        *,
        context_exceeded: bool = False,
        budget_exceeded: BudgetExceeded | None = None,
    ) -> TerminalCodon:
        """Complete the codon if its checks pass."""
        if self._entry.codon.checks:
            failed, self._is_checked = None, True
            self._commands = anyio.CancelScope()
            with self._commands:
                failed = await Checks(self._ctx, self._record).failure()

            await self._narrator.announce_files(FileSource(kind="codon-end"))
            if self._interruption is not None:
                return await self._end_interrupted(exit_code)

            if failed is not None:
                return await self._fail_check(failed, exit_code, budget_exceeded)

        completed = await self._ends.complete(
            exit_code, context_exceeded=context_exceeded, budget_exceeded=budget_exceeded
        )
        await publish(self._ctx, self._record, self._entry.codon.checkpoint_label)
        return completed

    async def _fail_check(
        self, failed: FailedCheck, exit_code: int, budget_exceeded: BudgetExceeded | None
    ) -> TerminalCodon:
        """Fail the codon; if the check wants it, first search for the call that broke it."""
        wanted, codon = failed.check.on_failure, self._entry.codon
        if wanted is None:
            reason = failed.reason()
            return await self._ends.fail(reason, exit_code, budget_exceeded=budget_exceeded)

        await self._drain_sentinels(completing=False)  # They may write files, too.
        sha, more = await self._checkpoint("error"), ""
        begun = from_text(self._record.current.start_time)
        self._commands = anyio.CancelScope()
        if self._interruption is not None:
            return await self._end_interrupted(exit_code)

        with self._commands:
            for part in parts("failed_check"):
                more = await part.explain(
                    self._ctx, wanted, begun, sha, self._record.append, codon.env
                )

        if self._interruption is not None:
            return await self._end_interrupted(exit_code)

        return await self._ends.fail(
            failed.reason(more), exit_code, budget_exceeded=budget_exceeded, checkpoint=sha
        )

    async def _end_over_budget(self, overrun: Overrun, exit_code: int) -> TerminalCodon:
        """End a codon at its limit: it is complete with what it has done, as in Hankweave.

        If nothing was left from the beginning, no agent starts. Hankweave starts it and ends it at
        its first message, with the same outcome and that much more spent. A codon whose time ran
        out while its agent was starting is skipped: there is no session that could be complete.
        """
        exceeded = overrun.exceeded
        if overrun.fails:
            return await self._ends.fail(overrun.reason, exit_code, budget_exceeded=exceeded)

        current = self._record.current
        if isinstance(current, RunningCodon):
            return await self._succeed(exit_code, budget_exceeded=exceeded)

        if isinstance(current, PreparingCodon):
            return await self._ends.complete_unstarted(exceeded)

        return await self._ends.skip(exit_code, budget_exceeded=exceeded)

    async def _end_interrupted(self, exit_code: int) -> TerminalCodon:
        match self._interruption:
            case Skip():
                return await self._ends.skip(exit_code)
            case Halt(reason=text, checkpoint_kind=kind):
                reason = FailureReason(type="unknown", retriable=True, message=text)
                return await self._ends.fail(reason, exit_code, kind)
            case None:
                raise AssertionError("an uninterrupted codon ends by its own verdict")
            case other:
                assert_never(other)

    async def _drain_sentinels(self, completing: bool) -> None:
        await self._sentinel_watch.drain(completing=completing)

    # --- checkpoints ---------------------------------------------------------------------------

    async def _before_wait(self, label: str) -> None:
        await self._restore_data_link()
        await self._narrator.announce_work(FileSource(kind="codon-end"))
        await self._checkpoint("turn", label)

    async def _safe_point(self, point: SafePoint, label: str | None) -> None:
        await self._checkpoint("tool" if point == "before-tool" else point, label)
        await publish(self._ctx, self._record, label)

    async def _checkpoint(self, kind: CheckpointKind, label: str | None = None) -> Sha:
        async with self._narrator.files:
            return await self._take(kind, label)

    async def _take(self, kind: CheckpointKind, label: str | None = None) -> Sha:
        narrator = self._narrator
        sha = await self._record.take(
            kind, label, message_id=narrator.message_id, tools=narrator.tools
        )
        narrator.has_saved()
        return sha


def _reason_of(error: AgentError) -> FailureReason:
    message = error.message if error.hint is None else f"{error.message} {error.hint}"
    return FailureReason(type="unknown", retriable=False, message=message)
