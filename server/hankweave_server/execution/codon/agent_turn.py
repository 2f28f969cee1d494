"""What the agent does in one codon: its conversation, and those that send it on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import assert_never

from hankweave_protocol.events import CodonExtended, CodonStartedEvent
from hankweave_protocol.records import Notice
from hankweave_protocol.state import InitializingCodon, StartingCodon
from hankweave_protocol.transitions import ExtensionCountUpdated
from hankweave_server.agents.base import (
    AgentOutcome,
    AgentSession,
    AgentSignal,
    AgentTask,
    Exited,
    Killed,
    SessionStarted,
    TimedOut,
    WordReceived,
)
from hankweave_server.background_tasks import alongside
from hankweave_server.domain import lifecycle
from hankweave_server.domain.plan import awaits_full_context
from hankweave_server.domain.verdict import ContextFull, Ending, Failure, Success, judge
from hankweave_server.execution.codon.assignment import assignment, extension, prompt_of
from hankweave_server.execution.codon.event_recorder import Narrator
from hankweave_server.execution.codon.limits import BudgetWatch
from hankweave_server.execution.codon.notices import told
from hankweave_server.execution.codon.permissions import Permits
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.codon.refusals import Refusals
from hankweave_server.execution.context import Surroundings

NO_PROCESS = -1
"""The exit code of a codon whose agent never ran, or was ended by a time limit."""


class AgentWork:
    """Starts the codon's agent, heeds it, and sends it on while the hank asks for that."""

    def __init__(
        self,
        around: Surroundings,
        record: CodonRecord,
        narrator: Narrator,
        budget: BudgetWatch,
        *,
        permits: Permits,
        refusals: Refusals,
        is_interrupted: Callable[[], bool],
    ) -> None:
        self._around = around
        self._record = record
        self._narrator = narrator
        self._budget = budget
        self._permits = permits
        self._refusals = refusals
        self._is_interrupted = is_interrupted
        self._awaits_full_context = awaits_full_context(around.hank.hank, record.entry)
        self._notice: Notice | None = None
        """What the agent is told at its start."""
        self.session: AgentSession | None = None

    async def do(self) -> Ending:
        """Lets the agent work, and sends it on while the hank asks for that."""
        self._notice = self._around.state.notice
        task = assignment(self._around, self._record.run_id, self._record.entry)
        ending = await self._converse(task)
        while (prompt := self._further_prompt(ending)) is not None:
            session_id = await self._extend(prompt)
            ending = await self._converse(extension(self._around, task, session_id, prompt))

        return ending

    async def _converse(self, task: AgentTask) -> Ending:
        """Starts the agent with one prompt and listens until it has ended."""
        agent = self._around.agent_for(self._record.entry.codon)
        self._narrator.begin_conversation(waits=agent.waits_before_tools or task.asks)
        task = replace(task, budget_usd=self._budget.dollars_left)
        async with AsyncExitStack() as stack:
            # Log and record of the agent are made before it works: they may wait for room.
            session = await self._around.ledger.space.insist(
                lambda: stack.enter_async_context(agent.start(task))
            )
            self.session = session
            stack.enter_context(self._around.checkpointer.watching(session.processes))
            await self._await_session(session, task)
            if self._is_interrupted():
                await session.stop()

            async with (
                _unwrapped(),
                alongside(lambda: self._budget.guard(session.stop), self._narrator.watch),
                self._permits.attending() as waits,
            ):
                async for signal in session.signals():
                    await self._heed(signal)
                    await self._permits.heed(signal, session, waits)

                outcome = await session.wait()

        if self._narrator.result is not None and self._narrator.result.is_over_budget:
            self._budget.agent_stopped()

        return self._ending(outcome)

    async def _heed(self, signal: AgentSignal) -> None:
        self._refusals.heed(signal)
        match signal:
            case SessionStarted():
                await self._session_started(signal)
            case WordReceived(operation_id=operation_id):
                await self._told(operation_id, live=True)
            case _:
                pass

        await self._narrator.tell(signal)

    async def _await_session(self, session: AgentSession, task: AgentTask) -> None:
        if self._record.is_running:
            return  # An extension: it goes on in a session that has begun.

        log = session.log_path.relative_to(self._around.layout.state_directory)
        await self._record.move(
            lifecycle.await_session(
                self._record.expect(StartingCodon),
                pid=session.pid,
                log_path=str(log),
                previous_session_id=task.resume_session,
            )
        )

    async def _session_started(self, signal: SessionStarted) -> None:
        current = self._record.current
        if not isinstance(current, InitializingCodon):
            return

        await self._record.move(lifecycle.begin(current, session_id=signal.session_id))
        await self._record.tell(
            CodonStartedEvent(
                codon_id=self._record.entry.codon_id,
                codon_name=self._record.entry.codon.name,
                codon_description=self._record.entry.codon.description,
                session_id=signal.session_id,
                previous_session_id=current.previous_session_id,
                start_time=current.start_time,
                prompt_metadata=prompt_of(self._around, self._record.entry).metadata,
            )
        )
        if self._notice is not None:
            await self._told(self._notice.operation_id, live=False)

    async def _told(self, operation_id: str, *, live: bool) -> None:
        notice = self._around.state.notice
        if notice is not None and notice.operation_id == operation_id:
            await self._record.tell(*told(notice, self._record.entry.codon_id, live=live))

    def _ending(self, outcome: AgentOutcome) -> Ending:
        narrator = self._narrator
        exit_code, timed_out = _exit_of(outcome)
        return Ending(
            exit_code=exit_code,
            timed_out=timed_out,
            request_timed_out=narrator.request_timed_out,
            had_session=self._record.is_running,
            result_success=None if narrator.result is None else narrator.result.success,
            text=narrator.last_words,
            context_exceeded=narrator.context_exceeded,
            compacted=narrator.compacted and not self._record.entry.codon.auto_compact,
        )

    def _further_prompt(self, ending: Ending) -> str | None:
        """The prompt that sends the agent on after a clean end; None where it is to end."""
        codon = self._record.entry.codon
        if codon.exhaust_with_prompt is None or self._is_interrupted():
            return None

        if self._budget.look() is not None:
            return None

        ended_well = isinstance(self.judged(ending), Success)
        may_go_on = self._record.working().extension_count < codon.max_extensions
        return codon.exhaust_with_prompt if ended_well and may_go_on else None

    async def _extend(self, prompt: str) -> str:
        """Records one more extension; gives the session that goes on."""
        working = self._record.working()
        tokens, number = working.current_tokens, working.extension_count + 1
        session_id = self._narrator.session_id or working.claude_session_id
        await self._record.tell(
            ExtensionCountUpdated(
                run_id=self._record.run_id,
                codon_id=self._record.entry.codon_id,
                extension_count=number,
                session_id=session_id,
            ),
            CodonExtended(
                codon_id=self._record.entry.codon_id,
                codon_name=self._record.entry.codon.name,
                extension_number=number,
                exhaust_with_prompt=prompt,
                cumulative_tokens=tokens.input_tokens + tokens.output_tokens,
                cumulative_cost=working.current_cost,
                tokens=tokens,
            ),
        )
        return session_id

    def judged(self, ending: Ending) -> Success | ContextFull | Failure:
        now = self._around.clock.now()
        return judge(ending, awaits_full_context=self._awaits_full_context, now=now)


@asynccontextmanager
async def _unwrapped() -> AsyncIterator[None]:
    """Raise what a task beside the block raised as if the block had: callers know its type."""
    try:
        yield
    except ExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise

        raise group.exceptions[0] from None


def _exit_of(outcome: AgentOutcome) -> tuple[int, str | None]:
    match outcome:
        case Exited(code=code):
            return code, None
        case Killed(signal=signal):
            return 128 + signal, None
        case TimedOut(which=which):
            return NO_PROCESS, which
        case _:
            assert_never(outcome)
