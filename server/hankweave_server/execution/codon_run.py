"""One codon from `preparing` to its end.

Every step is on record before the next begins: the rig's checkpoint before the agent starts, the
end's checkpoint before the terminal state, the terminal state before anybody is told. However the
codon ends (success, failure, a person, the daemon's own stop), `run` brings its record to a
terminal state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, TypeVar, assert_never

import anyio

from hankweave_protocol import instants
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import (
    CodonCompletedEvent,
    CodonStartedEvent,
    ExitStatus,
    FileSource,
    PromptMetadata,
)
from hankweave_protocol.ids import RunId, Sha
from hankweave_protocol.records import CheckpointKind, Notice
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    CompletingSentinelsCodon,
    FailedCodon,
    FailureReason,
    InitializingCodon,
    PlanEntry,
    PreparingCodon,
    RunningCodon,
    SkippedCodon,
    StartingCodon,
    TerminalCodon,
)
from hankweave_protocol.transitions import CodonStarted, CodonTransitioned
from hankweave_server.agents.base import (
    AgentError,
    AgentLimits,
    AgentOutcome,
    AgentSession,
    AgentTask,
    Exited,
    Killed,
    PermissionAsked,
    SessionStarted,
    TimedOut,
    WordReceived,
)
from hankweave_server.domain import lifecycle
from hankweave_server.domain.history import previous_session, run_named
from hankweave_server.domain.verdict import Ending, Failure, Success, judge
from hankweave_server.execution.file_news import PERSON, FileNews
from hankweave_server.execution.narrator import Narrator
from hankweave_server.execution.notices import text_of, told, with_notice
from hankweave_server.execution.rig_setup import RigFailed, set_up_rig
from hankweave_server.execution.surroundings import Surroundings
from hankweave_server.hanks.prompts import ResolvedPrompt, render
from hankweave_server.settings import SafePoint


@dataclass(frozen=True, slots=True)
class Skip:
    """A person wants the plan to go on without this codon."""


@dataclass(frozen=True, slots=True)
class Halt:
    """The codon is to fail now, for a reason that is not its own."""

    reason: str
    checkpoint_kind: Literal["error", "exit"] = "error"


Interruption: TypeAlias = Skip | Halt

_Kind = TypeVar("_Kind", bound=CodonExecution)

KILL_GRACE = timedelta(seconds=1.5)
"""Between INT and TERM, and between TERM and KILL: an orderly end has eight seconds in all."""

NO_PROCESS = -1
"""The exit code of a codon whose agent never ran, or was ended by a time limit."""


class CodonRun:
    """The execution of one plan entry; `interrupt` may be called at any moment of it."""

    def __init__(
        self,
        around: Surroundings,
        run_id: RunId,
        entry: PlanEntry,
        *,
        restored_rig: Sha | None,
        skip_rig: bool = False,
    ) -> None:
        self._around = around
        self._run_id = run_id
        self._entry = entry
        self._restored_rig = restored_rig
        self._skip_rig = skip_rig
        self._interruption: Interruption | None = None
        self._session: AgentSession | None = None
        self._rig_scope = anyio.CancelScope()
        self._notice: Notice | None = None
        """What the agent is told at its start."""
        self._narrator = Narrator(around, run_id, entry.codon_id, self._safe_point)

    @property
    def entry(self) -> PlanEntry:
        return self._entry

    @property
    def was_halted(self) -> bool:
        return isinstance(self._interruption, Halt)

    async def interrupt(self, interruption: Interruption) -> None:
        """Ends the codon early; returns when its agent is dead. The first interruption counts."""
        if self._interruption is None:
            self._interruption = interruption

        self._rig_scope.cancel()
        if self._session is not None:
            await self._session.stop()

    def refuse_unless_pausable(self) -> None:
        """Refuses to freeze a codon whose agent does not work yet."""
        if self._session is None or not isinstance(self._current, RunningCodon):
            raise Refused(
                ErrorCode.CODON_RUNNING,
                f"Codon {self._entry.codon_id} is only beginning and cannot be frozen.",
                path="$.data.onRunning",
                hint="Wait for codon.started, or end it with onRunning: stop.",
            )

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Holds the agent where it is, and its files, while the block runs.

        What it did until now is told and checkpointed first: it is the agent's, not a person's.
        """
        assert self._session is not None, "refuse_unless_pausable comes first"
        async with self._narrator.files:
            await self._session.pause()
            try:
                await self._narrator.announce_frozen_work()
                await self._take("tool")
                yield
            finally:
                await self._session.resume()

    async def tell_of_rollback(self) -> None:
        """Leaves word for the agent; until one has acknowledged it, the next is told as well."""
        notice = self._around.state.notice
        if notice is not None and self._session is not None:
            await self._session.leave_word(notice.operation_id, text_of(notice))

    async def run(self) -> TerminalCodon:
        """Runs the codon to its end and returns its terminal record."""
        await self._begin()
        try:
            await self._set_up()
            if self._interruption is None:
                ending = await self._drive_agent()
                return await self._conclude(ending)
        except RigFailed as failed:
            return await self._fail(failed.reason, NO_PROCESS)
        except AgentError as error:
            message = error.message if error.hint is None else f"{error.message} {error.hint}"
            return await self._fail(
                FailureReason(type="unknown", retriable=False, message=message), NO_PROCESS
            )

        return await self._end_interrupted(NO_PROCESS)

    # --- steps ---------------------------------------------------------------------------------

    async def _begin(self) -> None:
        # Before the codon's own patterns count: what these find anew is not a person's edit.
        await FileNews(self._around).tell(PERSON, self._run_id, None)
        run = run_named(self._around.state, self._run_id)
        before = () if run is None else run.codons
        attempts = sum(codon.codon_id == self._entry.codon_id for codon in before)
        record = PreparingCodon(
            codon_id=self._entry.codon_id,
            start_time=self._around.now_text(),
            loop_context=self._entry.loop_context,
            attempt=attempts + 1,
        )
        await self._around.ledger.record(
            CodonStarted(run_id=self._run_id, codon=record),
            run_id=self._run_id,
            codon_id=self._entry.codon_id,
        )

    async def _set_up(self) -> None:
        """Runs the rig unless the work tree was just restored to the state after it."""
        codon = self._entry.codon
        rig_wanted = bool(codon.rig_setup) and not self._skip_rig and self._restored_rig is None
        if rig_wanted:
            with self._rig_scope:
                await set_up_rig(self._around, self._run_id, self._entry)

        if self._interruption is not None:
            return

        starting = lifecycle.start_agent(_expect(self._current, PreparingCodon))
        await self._move(starting)
        if rig_wanted:
            await self._narrator.announce_files(FileSource(kind="rig"))
            if "rig-setup" in self._around.safe_points:
                await self._checkpoint("rig-setup")

        elif self._restored_rig is not None:
            await self._note_restored_rig(self._restored_rig)

        await self._narrator.announce_files(FileSource(kind="codon-start"))

    async def _note_restored_rig(self, sha: Sha) -> None:
        await self._around.ledger.record(
            self._around.checkpointer.reattached(sha, self._run_id, self._entry.codon_id),
            run_id=self._run_id,
            codon_id=self._entry.codon_id,
        )

    async def _drive_agent(self) -> Ending:
        task = self._task()
        agent = self._around.agent_for(self._entry.codon)
        async with agent.start(task) as session:
            self._session = session
            await self._await_session(session, task)
            if self._interruption is not None:
                await session.stop()

            async for signal in session.signals():
                match signal:
                    case SessionStarted():
                        await self._session_started(signal)
                    case WordReceived(operation_id=operation_id):
                        await self._told(operation_id, live=True)
                    case _:
                        pass

                await self._narrator.tell(signal)
                if isinstance(signal, PermissionAsked):
                    await session.answer(signal)

            outcome = await session.wait()

        return self._ending(outcome)

    async def _await_session(self, session: AgentSession, task: AgentTask) -> None:
        log = session.log_path.relative_to(self._around.layout.root)
        await self._move(
            lifecycle.await_session(
                _expect(self._current, StartingCodon),
                pid=session.pid,
                log_path=str(log),
                previous_session_id=task.resume_session,
            )
        )

    async def _session_started(self, signal: SessionStarted) -> None:
        current = self._current
        if not isinstance(current, InitializingCodon):
            return

        await self._move(lifecycle.begin(current, session_id=signal.session_id))
        await self._around.ledger.record(
            CodonStartedEvent(
                codon_id=self._entry.codon_id,
                codon_name=self._entry.codon.name,
                codon_description=self._entry.codon.description,
                session_id=signal.session_id,
                previous_session_id=current.previous_session_id,
                start_time=current.start_time,
                prompt_metadata=self._prompt_metadata(),
            ),
            run_id=self._run_id,
            codon_id=self._entry.codon_id,
        )
        if self._notice is not None:
            await self._told(self._notice.operation_id, live=False)

    async def _told(self, operation_id: str, *, live: bool) -> None:
        notice = self._around.state.notice
        if notice is not None and notice.operation_id == operation_id:
            await self._around.ledger.record(
                *told(notice, self._entry.codon_id, live=live),
                run_id=self._run_id,
                codon_id=self._entry.codon_id,
            )

    async def _conclude(self, ending: Ending) -> TerminalCodon:
        await self._narrator.announce_files(FileSource(kind="codon-end"))
        if self._interruption is not None:
            return await self._end_interrupted(ending.exit_code)

        match judge(ending):
            case Success():
                return await self._complete(ending)
            case Failure(reason=reason):
                return await self._fail(reason, ending.exit_code)
            case other:
                assert_never(other)

    # --- ends ----------------------------------------------------------------------------------

    async def _complete(self, ending: Ending) -> TerminalCodon:
        sha = await self._checkpoint("completed")
        current = _expect_working(self._current)
        done = lifecycle.complete(
            current,
            end_time=self._around.now_text(),
            exit_code=ending.exit_code,
            result_received=self._narrator.result is not None,
            checkpoint=sha,
        )
        return await self._end(done, ExitStatus(type="success"))

    async def _fail(
        self, reason: FailureReason, exit_code: int, kind: CheckpointKind = "error"
    ) -> TerminalCodon:
        sha = await self._checkpoint(kind)
        failed = lifecycle.fail(
            self._active,
            end_time=self._around.now_text(),
            exit_code=exit_code,
            reason=reason,
            checkpoint=sha,
        )
        return await self._end(failed, ExitStatus(type="error", code=exit_code))

    async def _end_interrupted(self, exit_code: int) -> TerminalCodon:
        match self._interruption:
            case Skip():
                sha = await self._checkpoint("skipped")
                skipped = lifecycle.skip(
                    self._active, end_time=self._around.now_text(), checkpoint=sha
                )
                return await self._end(skipped, ExitStatus(type="error", code=exit_code))
            case Halt(reason=text, checkpoint_kind=kind):
                reason = FailureReason(type="unknown", retriable=True, message=text)
                return await self._fail(reason, exit_code, kind)
            case None:
                raise AssertionError("an uninterrupted codon ends by its own verdict")
            case other:
                assert_never(other)

    async def _end(self, terminal: TerminalCodon, status: ExitStatus) -> TerminalCodon:
        """Records the terminal state and the event that tells of it in one batch."""
        start = instants.from_text(terminal.start_time)
        end = instants.from_text(terminal.end_time)
        event = CodonCompletedEvent(
            codon_id=terminal.codon_id,
            success=isinstance(terminal, CompletedCodon),
            cost=lifecycle.cost_of(terminal),
            duration=max(0, instants.milliseconds_between(start, end)),
            exit_status=status,
            failure_reason=(terminal.failure_reason if isinstance(terminal, FailedCodon) else None),
            failure_ignored=(
                True
                if isinstance(terminal, FailedCodon) and self._entry.codon.on_failure == "ignore"
                else None
            ),
            skipped=True if isinstance(terminal, SkippedCodon) else None,
        )
        await self._around.ledger.record(
            self._transition(terminal), event, run_id=self._run_id, codon_id=terminal.codon_id
        )
        return terminal

    # --- small things --------------------------------------------------------------------------

    @property
    def _current(self) -> CodonExecution:
        run = run_named(self._around.state, self._run_id)
        assert run is not None, "a codon runs inside a run"
        return run.codons[-1]

    @property
    def _active(self) -> lifecycle.Active:
        current = self._current
        assert not isinstance(current, CompletedCodon | FailedCodon | SkippedCodon)
        return current

    def _transition(self, to: CodonExecution) -> CodonTransitioned:
        return CodonTransitioned(
            run_id=self._run_id, from_status=lifecycle.status_of(self._current), codon=to
        )

    async def _move(self, to: CodonExecution) -> None:
        await self._around.ledger.record(
            self._transition(to), run_id=self._run_id, codon_id=to.codon_id
        )

    async def _safe_point(self, point: SafePoint, label: str | None) -> None:
        await self._checkpoint("tool" if point == "before-tool" else point, label)

    async def _checkpoint(self, kind: CheckpointKind, label: str | None = None) -> Sha:
        async with self._narrator.files:
            return await self._take(kind, label)

    async def _take(self, kind: CheckpointKind, label: str | None = None) -> Sha:
        current = self._current
        started = instants.from_text(current.start_time)
        elapsed = instants.milliseconds_between(started, self._around.clock.now())
        record = await self._around.checkpointer.take(
            kind,
            run_id=self._run_id,
            codon=current,
            codon_name=self._entry.codon.name,
            patterns=self._around.patterns(),
            duration_ms=max(0, elapsed),
            label=label,
        )
        self._narrator.has_saved()
        return record.sha

    def _task(self) -> AgentTask:
        around, codon = self._around, self._entry.codon
        prompt = self._prompt()
        system_prompt = self._rendered(prompt.system_prompt) if prompt.system_prompt else None
        self._notice = around.state.notice
        limits = AgentLimits(idle=around.idle_timeout, kill_grace=KILL_GRACE)
        if codon.shim_idle_timeout is not None:
            idle = timedelta(seconds=codon.shim_idle_timeout)
            limits = AgentLimits(idle=idle, kill_grace=KILL_GRACE)

        return AgentTask(
            prompt=self._rendered(prompt.text),
            system_prompt=with_notice(system_prompt, self._notice),
            model=codon.model,
            work_tree=around.layout.work_tree,
            data_dir=around.layout.data_source,
            log_path=around.layout.agent_log(self._run_id, self._entry.codon_id),
            resume_session=self._session_to_resume(),
            environment=codon.env,
            run_id=self._run_id,
            codon_id=self._entry.codon_id,
            processes_dir=around.layout.agent_processes,
            limits=limits,
        )

    def _rendered(self, text: str) -> str:
        layout = self._around.layout
        return render(text, agent_root=layout.work_tree, data_dir=layout.data_source)

    def _session_to_resume(self) -> str | None:
        if self._entry.codon.continuation_mode == "fresh":
            return None

        session = previous_session(self._around.state, self._entry.codon_id)
        if session is None:
            raise AgentError(
                f"Codon {self._entry.codon_id} continues the previous session, but there is none.",
                hint="Run the codon before it first, or set continuationMode to fresh.",
            )

        return session

    def _prompt(self) -> ResolvedPrompt:
        prompt = self._around.hank.prompts.get(self._entry.codon.id)
        if prompt is None:
            raise AgentError(
                f"Codon {self._entry.codon.id} is in the execution plan, but not in hank.json.",
                hint="Put it back, or begin anew with --new.",
            )

        return prompt

    def _prompt_metadata(self) -> PromptMetadata | None:
        return self._prompt().metadata

    def _ending(self, outcome: AgentOutcome) -> Ending:
        exit_code, timed_out = _exit_of(outcome)
        result = self._narrator.result
        return Ending(
            exit_code=exit_code,
            timed_out=timed_out,
            request_timed_out=self._narrator.request_timed_out,
            had_session=isinstance(self._current, RunningCodon),
            result_success=None if result is None else result.success,
            text=self._narrator.last_words,
        )


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


def _expect(codon: CodonExecution, kind: type[_Kind]) -> _Kind:
    assert isinstance(codon, kind), f"codon {codon.codon_id} is {type(codon).__name__}"
    return codon


def _expect_working(codon: CodonExecution) -> RunningCodon | CompletingSentinelsCodon:
    assert isinstance(codon, RunningCodon | CompletingSentinelsCodon)
    return codon
