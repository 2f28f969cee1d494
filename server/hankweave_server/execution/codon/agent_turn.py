"""Run the agent of one codon: its first conversation and the extensions that follow.

`assignment` builds the task of a codon: prompt, limits and the session it continues. `AgentWork`
starts the agent, records its signals, and sends it on while the hank asks for that. After a
rollback the agent gets a notice, so that it does not trust what it remembers of the files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import assert_never

import msgspec

from hankweave_protocol.events import CodonExtended, CodonStartedEvent, RollbackTold
from hankweave_protocol.hank import Codon
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import Conversation, Notice
from hankweave_protocol.state import InitializingCodon, PlanEntry, StartingCodon
from hankweave_protocol.transitions import AgentTold, ExtensionCountUpdated
from hankweave_server.agents.base import (
    Agent,
    AgentError,
    AgentKilled,
    AgentLimits,
    AgentOutcome,
    AgentSession,
    AgentSignal,
    AgentTask,
    Exited,
    MessageReceived,
    SessionStarted,
    TimedOut,
)
from hankweave_server.background_tasks import alongside
from hankweave_server.confinement.policy import Fence
from hankweave_server.domain import lifecycle, variables
from hankweave_server.domain.execution_thread import previous_session
from hankweave_server.domain.lifecycle import CodonFailure, CodonSuccess, ContextFull, Ending, judge
from hankweave_server.domain.limits import Limit, NoWait
from hankweave_server.domain.permissions import can_refuse, permissions_of
from hankweave_server.domain.plan import awaits_full_context
from hankweave_server.execution.codon.confinement import FenceReporter, agent_fence
from hankweave_server.execution.codon.environment import AgentAccess, agent_access, offered
from hankweave_server.execution.codon.event_recorder import EventRecorder
from hankweave_server.execution.codon.limits import BudgetWatch, Refusals
from hankweave_server.execution.codon.permissions import Permits
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.codon.waits import (
    LimitWaits,
    Subject,
    continued,
    limit_in,
    subjects_of,
)
from hankweave_server.execution.context import ExecutionContext, known
from hankweave_server.execution.resume import taken_up
from hankweave_server.hank.prompts import ResolvedPrompt, render
from hankweave_server.ledger.batch import Entry


def text_of(notice: Notice) -> str:
    """Return the notice as text: where to, why, and what to do about it."""
    what = "The files in your working directory were"
    if notice.paths is not None:
        what = f"These files in your working directory were: {', '.join(notice.paths)};"

    moved = {"back": "rolled back to", "undo": "restored to", "redo": "rolled back again to"}
    where = f"checkpoint {notice.target.checkpoint_sha[:12]}"
    if notice.target.codon_id is not None:
        where += f" of {notice.target.codon_id}"

    reason = "" if notice.reason is None else f" The reason given: {notice.reason}"
    return (
        f"Note from Hankweave ({notice.timestamp}): {what} {moved[notice.direction]} {where}."
        f"{reason} Read files again before you rely on what you remember of them."
    )


def with_notice(system_prompt: str | None, notice: Notice | None) -> str | None:
    """Add the notice, if one is due, to the system prompt an agent starts with."""
    if notice is None:
        return system_prompt

    return text_of(notice) if system_prompt is None else f"{system_prompt}\n\n{text_of(notice)}"


def receipt_entries(notice: Notice, codon_id: CodonId, *, live: bool) -> tuple[Entry, ...]:
    """Return what is journaled once an agent has received the notice."""
    return (
        AgentTold(operation_id=notice.operation_id),
        RollbackTold(
            operation_id=notice.operation_id,
            codon_id=codon_id,
            target=notice.target,
            text=text_of(notice),
            how="live" if live else "prompt",
        ),
    )


KILL_GRACE = timedelta(seconds=1.5)
"""Between INT and TERM, and between TERM and KILL: an orderly end has eight seconds in all."""


def assignment(
    ctx: ExecutionContext, run_id: RunId, entry: PlanEntry, access: AgentAccess
) -> AgentTask:
    """Return the codon's own task; raise AgentError if the hank or the thread lacks a part."""
    codon, prompts = entry.codon, prompts_of(ctx, entry)
    idle = _idle_limit(ctx, codon)
    conversation = taken_up(ctx, entry)
    return AgentTask(
        prompt=prompts.prompt,
        system_prompt=with_notice(prompts.system_prompt, ctx.state.notice),
        model=ctx.model_for(codon),
        work_tree=ctx.layout.work_tree,
        data_dir=ctx.layout.data_path,
        log_path=ctx.layout.agent_log(run_id, entry.codon_id),
        resume_session=_session_to_resume(ctx, entry, conversation),
        environment=codon.env,
        run_id=run_id,
        codon_id=entry.codon_id,
        processes_dir=ctx.layout.agent_processes,
        limits=AgentLimits(idle=idle, total=_limit(codon.timeout_seconds), kill_grace=KILL_GRACE),
        forks=True,
        fork_at=None if conversation is None else conversation.message_id,
        continues=conversation is not None,
        asks=_asks(ctx, entry),
        tools=offered(ctx, run_id, entry.codon_id, access.socket),
        access_folder=access.folder,
        socket=access.socket,
        redactor=ctx.ledger.redactor,
        traceparent=ctx.traceparent(run_id, entry.codon_id),
    )


def _asks(ctx: ExecutionContext, entry: PlanEntry) -> bool:
    """Return whether the codon has permissions; raise AgentError if its agent would not ask."""
    permissions = permissions_of(entry.codon, ctx.hank.hank.overrides)
    if permissions is None:
        return False

    agent = ctx.agent_for(entry.codon)
    if can_refuse(permissions) and not agent.can_ask:
        raise AgentError(
            (
                f"Codon {entry.codon.id} has permissions, but {agent.name} cannot ask for "
                "permission."
            ),
            hint="Choose another agent, or remove the permissions.",
        )

    return True


def extension(ctx: ExecutionContext, task: AgentTask, session_id: str, prompt: str) -> AgentTask:
    """Return the task that continues an agent in its own session (`exhaustWithPrompt`)."""
    return replace(
        task,
        prompt=_rendered(ctx, prompt),
        resume_session=session_id,
        forks=False,
        fork_at=None,
        continues=False,
    )


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a codon as its agent gets them."""

    prompt: str
    system_prompt: str | None
    extension: str | None
    """The prompt of `exhaustWithPrompt`."""


def prompts_of(ctx: ExecutionContext, entry: PlanEntry) -> Prompts:
    """Return a codon's prompts with all variables filled in; raise AgentError if it has none."""
    prompt, more = prompt_of(ctx, entry), entry.codon.exhaust_with_prompt
    return Prompts(
        prompt=_rendered(ctx, prompt.text),
        system_prompt=_rendered(ctx, prompt.system_prompt) if prompt.system_prompt else None,
        extension=None if more is None else _rendered(ctx, more),
    )


def prompt_of(ctx: ExecutionContext, entry: PlanEntry) -> ResolvedPrompt:
    prompt = ctx.hank.prompts.get(entry.codon.id)
    if prompt is None:
        raise AgentError(
            f"Codon {entry.codon.id} is in the execution plan, but not in hank.json.",
            hint="Restore it, or start a new execution with `hankweave run --new`.",
        )

    return prompt


def _rendered(ctx: ExecutionContext, text: str) -> str:
    layout = ctx.layout
    text = render(text, agent_root=layout.work_tree, data_dir=layout.data_path)
    return variables.render(text, known(ctx))


def _idle_limit(ctx: ExecutionContext, codon: Codon) -> timedelta | None:
    """Return how long the agent may be silent.

    A codon's own limit counts first, then the one given at this start, the hank's, and the default.
    The hank's limit was copied into codons without one when the hank was loaded.
    """
    overrides = ctx.hank.hank.overrides
    of_hank = None if overrides is None else overrides.shim_idle_timeout
    own = codon.shim_idle_timeout
    if ctx.idle_override is not None and own in (None, of_hank):
        return ctx.idle_override

    return _limit(own) or ctx.idle_timeout


def _limit(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _session_to_resume(
    ctx: ExecutionContext, entry: PlanEntry, conversation: Conversation | None
) -> str | None:
    if conversation is not None:
        return conversation.session_id

    if entry.codon.continuation_mode == "fresh":
        return None

    session = previous_session(ctx.state, entry.codon_id)
    if session is None:
        raise AgentError(
            f"Codon {entry.codon_id} continues the previous session, but there is none.",
            hint="Run the codon before it first, or set continuationMode to fresh.",
        )

    return session


NO_PROCESS = -1
"""The exit code of a codon whose agent never ran, or was ended by a time limit."""

NOT_STARTED = Ending(
    exit_code=NO_PROCESS,
    timed_out=None,
    request_timed_out=False,
    had_session=False,
    result_success=None,
    text="",
)
"""The end of an agent that a command interrupted before it was started."""


class AgentWork:
    """The work of a codon's agent: its start, its signals, and the extensions the hank asks for."""

    def __init__(
        self,
        ctx: ExecutionContext,
        record: CodonRecord,
        narrator: EventRecorder,
        budget: BudgetWatch,
        *,
        permits: Permits,
        refusals: Refusals,
        waits: LimitWaits,
        is_interrupted: Callable[[], bool],
    ) -> None:
        self._ctx = ctx
        self._record = record
        self._narrator = narrator
        self._budget = budget
        self._permits = permits
        self._refusals = refusals
        self._waits = waits
        self._chosen: Subject | None = None
        """The model that works now, if not the codon's own."""
        self._no_wait = NoWait("")
        """Why the last limit is not waited for."""
        self._is_interrupted = is_interrupted
        self._awaits_full_context = awaits_full_context(ctx.hank.hank, record.entry)
        self._fence = FenceReporter(ctx, record.entry.codon, record.entry.codon_id)
        self._notice: Notice | None = None
        """The notice that the agent is given at its start."""
        self.session: AgentSession | None = None

    async def do(self) -> Ending:
        """Let the agent work, and extend its work while the hank asks for that.

        Raises Suspended if the server stops while the codon waits for the end of a limit.
        """
        async with self._assigned() as task:
            return await self._begin(task, await self._waits.before_first(self._subjects))

    async def resume(self) -> Ending:
        """Continue the wait of an earlier server, then the agent's work."""
        async with self._assigned() as task:
            session_id = self._narrator.session_id
            subject = await self._waits.resume_wait(self._subjects, session_id)
            return await self._begin(task, subject, session_id)

    @asynccontextmanager
    async def _assigned(self) -> AsyncIterator[AgentTask]:
        """Provide the agent's task, and what it is given of the server while it works."""
        self._notice = self._ctx.state.notice
        run_id, entry = self._record.run_id, self._record.entry
        log_path = self._ctx.layout.agent_log(run_id, entry.codon_id)
        async with agent_access(self._ctx, log_path) as access:
            fence = await agent_fence(self._ctx, entry.codon, access)
            yield replace(assignment(self._ctx, run_id, entry, access), fence=fence)

    async def _begin(
        self, task: AgentTask, subject: Subject | None, session_id: str | None = None
    ) -> Ending:
        """Let a model do the task; None: a command interrupted the wait for one.

        With a session, the agent goes on in it.
        """
        if subject is None:
            return NOT_STARTED

        self._chosen = subject
        task = replace(task, model=subject.model)
        if session_id is not None:
            task = continued(task, self._agent, session_id, subject)

        return await self._continue_turn(task, await self._converse(task))

    async def _continue_turn(self, task: AgentTask, ending: Ending) -> Ending:
        """Continue after limits, and after clean ends while the hank asks for that."""
        first = task
        while not self._is_interrupted():
            if (again := await self._after_limit(task, ending)) is not None:
                task = again
            elif (prompt := self._further_prompt(ending)) is not None:
                session_id = await self._extend(prompt)
                task = extension(self._ctx, first, session_id, prompt)
                task = replace(task, model=self._subject.model)
            else:
                break

            ending = await self._converse(task)

        return ending

    async def _after_limit(self, task: AgentTask, ending: Ending) -> AgentTask | None:
        """Wait if the agent has met a limit, and return the task that continues then."""
        limit = self._limit_in(ending)
        if limit is None or self._budget.check() is not None:
            self._waits.release()
            return None

        session_id = self._session_id()
        chosen = await self._waits.after(
            limit,
            self._subject,
            self._subjects,
            message=ending.text.strip(),
            session_id=session_id,
            has_worked=self._narrator.conversation.has_worked,
        )
        if isinstance(chosen, NoWait):
            self._no_wait = chosen

        if not isinstance(chosen, Subject):
            return None

        self._chosen = chosen
        return continued(task, self._agent, session_id, chosen)

    def _limit_in(self, ending: Ending) -> Limit | None:
        """Return the limit that ended the agent's conversation, if it was one."""
        has_failed = isinstance(self.judged(ending), CodonFailure)
        if not (self._record.is_running and has_failed) or ending.timed_out is not None:
            return None

        facts = self._narrator.conversation.facts
        return limit_in(ending, facts, self._agent, self._record.entry.codon.env, self._ctx.clock)

    @cached_property
    def _subjects(self) -> tuple[Subject, ...]:
        return subjects_of(self._ctx, self._record.entry.codon)

    @property
    def _subject(self) -> Subject:
        return self._chosen or self._subjects[0]

    @property
    def _agent(self) -> Agent:
        return self._ctx.agent_for(self._subject.codon)

    def _session_id(self) -> str:
        return self._narrator.session_id or self._record.working().claude_session_id

    async def _converse(self, task: AgentTask) -> Ending:
        """Start the agent with one prompt and handle its signals until it has ended."""
        agent = self._agent
        self._narrator.begin_conversation(waits=agent.waits_before_tools or task.asks)
        task = replace(task, budget_usd=self._budget.dollars_left)
        async with AsyncExitStack() as stack:
            # The agent's log and record are created before it works: they may wait for disk space.
            session = await self._ctx.ledger.space.retry(
                lambda: stack.enter_async_context(agent.start(task))
            )
            self.session = session
            self._narrator.follow(session)
            stack.enter_context(self._ctx.checkpointer.watching(session.processes))
            await self._await_session(session, task)
            if self._is_interrupted():
                await session.stop()

            async with (
                _unwrapped(),
                alongside(lambda: self._budget.guard(session.stop), self._narrator.watch),
                self._permits.handling() as waits,
            ):
                async for signal in session.signals():
                    await self._handle(signal)
                    await self._report_refusals(signal, task.fence)
                    if self._waits.is_first and self._narrator.conversation.has_worked:
                        self._waits.answered(self._subject)

                    await self._permits.handle(signal, session, waits)

                outcome = await session.wait()

        result = self._narrator.conversation.result
        if result is not None and result.is_over_budget:
            self._budget.agent_stopped()

        return self._ending(outcome)

    async def _handle(self, signal: AgentSignal) -> None:
        self._refusals.handle(signal)
        match signal:
            case SessionStarted():
                await self._session_started(signal)
            case MessageReceived(operation_id=operation_id):
                await self._record_receipt(operation_id, live=True)
            case _:
                pass

        await self._narrator.record(signal)

    async def _report_refusals(self, signal: AgentSignal, fence: Fence | None) -> None:
        events = await self._fence.in_signal(signal, fence)
        if events:
            await self._record.append(*events)

    async def _await_session(self, session: AgentSession, task: AgentTask) -> None:
        if self._record.is_running:
            return  # An extension continues in a session that has begun.

        log = session.log_path.relative_to(self._ctx.layout.state_directory)
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
        await self._record.append(
            CodonStartedEvent(
                codon_id=self._record.entry.codon_id,
                codon_name=self._record.entry.codon.name,
                codon_description=self._record.entry.codon.description,
                session_id=signal.session_id,
                previous_session_id=current.previous_session_id,
                start_time=current.start_time,
                prompt_metadata=prompt_of(self._ctx, self._record.entry).metadata,
            )
        )
        if self._notice is not None:
            await self._record_receipt(self._notice.operation_id, live=False)

    async def _record_receipt(self, operation_id: str, *, live: bool) -> None:
        notice = self._ctx.state.notice
        if notice is not None and notice.operation_id == operation_id:
            await self._record.append(
                *receipt_entries(notice, self._record.entry.codon_id, live=live)
            )

    def _ending(self, outcome: AgentOutcome) -> Ending:
        conversation = self._narrator.conversation
        exit_code, timed_out = _exit_of(outcome)
        return Ending(
            exit_code=exit_code,
            timed_out=timed_out,
            request_timed_out=conversation.request_timed_out,
            had_session=self._record.is_running,
            result_success=None if conversation.result is None else conversation.result.success,
            text=conversation.failure_text,
            context_exceeded=conversation.context_exceeded,
            compacted=conversation.compacted and not self._record.entry.codon.auto_compact,
        )

    def _further_prompt(self, ending: Ending) -> str | None:
        """Return the prompt that extends the work after a clean end; None if it is over."""
        codon = self._record.entry.codon
        if codon.exhaust_with_prompt is None or self._is_interrupted():
            return None

        if self._budget.check() is not None:
            return None

        ended_well = isinstance(self.judged(ending), CodonSuccess)
        may_go_on = self._record.working().extension_count < codon.max_extensions
        return codon.exhaust_with_prompt if ended_well and may_go_on else None

    async def _extend(self, prompt: str) -> str:
        """Record one more extension; return the id of the session that continues."""
        working = self._record.working()
        tokens, number = working.current_tokens, working.extension_count + 1
        session_id = self._session_id()
        await self._record.append(
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

    def judged(self, ending: Ending) -> CodonSuccess | ContextFull | CodonFailure:
        now = self._ctx.clock.now()
        verdict = judge(ending, awaits_full_context=self._awaits_full_context, now=now)
        if isinstance(verdict, CodonFailure) and self._no_wait.sentence:
            reason = verdict.reason
            message = f"{reason.message} {self._no_wait.sentence}"
            return CodonFailure(msgspec.structs.replace(reason, message=message, retriable=False))

        return verdict


@asynccontextmanager
async def _unwrapped() -> AsyncIterator[None]:
    """Raise an exception of a task beside the block as if the block had raised it.

    Callers know its type.
    """
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
        case AgentKilled(signal=signal):
            return 128 + signal, None
        case TimedOut(which=which):
            return NO_PROCESS, which
        case _:
            assert_never(outcome)
