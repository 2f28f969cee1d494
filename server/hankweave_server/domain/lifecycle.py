"""The life of a codon: its eight states, the moves between them, and the verdict on its end.

A codon execution is one attempt at one step of the plan: prepare the work tree, start an agent,
let it work, let the sentinels finish, take the last checkpoint. That takes minutes or hours, and
three parties read its record meanwhile: the server that runs it, the clients that watch it, and
the next server, which may find nothing but this record after a power cut.

    preparing -> starting -> initializing -> running -> completing-sentinels -> completed
    any state that is not terminal -> failed | skipped

What must hold:

- A record moves one step at a time. `running` moves directly to `completed` when no sentinel has
  to finish, and `preparing` does so when the budget is spent before an agent can start, or when
  the codon takes over an earlier result. There is no other shortcut.
- `completed`, `failed` and `skipped` are final. A retry appends a new record with a higher
  `attempt`; it never reopens an old one. Only the `sentinels` field of a terminal record may still
  change, because sentinels see the end of their codon last (`reducer._with_sentinels`).
- Each state has its own type, with exactly the fields that are known by then. Code that needs the
  session ID asks for a `RunningCodon`, and the type checker does the rest.
- A codon that has met its provider's limit stays in its state and has a `wait`: its agent has
  ended, and the same conversation continues when the limit ends. This survives the server.
- Every field survives to the end. Cost, tokens, session ID, log path, process ID and the rig's
  checkpoint are carried into the terminal record, because rollback, retry and conversation resume
  start from them.

What can go wrong, and the answer to it:

- Two causes end the same codon: the agent exits while a client sends `codon.skip`, or a time limit
  fires. Every move is checked twice: `MOVES` has to allow it, and the reducer compares the
  transition's `from_status` with the state at that moment. The second of the two causes therefore
  raises `Impossible`, and the state is unchanged.
- The server dies. Every move is in the journal before it is acknowledged, so the next start finds
  the codon in some active state and calls `fail` on it (`execution/recovery.py`). This is why every
  active state can fail, and why `fail` and `skip` accept each of the five active types: `_Known`
  collects what that state knows and leaves the rest empty.
- The agent reports one thing and its process another. `judge` decides, from facts alone. Success
  takes exit code 0 and a result without an error: agents report billing errors as a "success"
  with a non-zero exit code, as Hankweave found too. Time limits are checked first, because a
  process that the server killed has an exit code that explains nothing. A full context completes
  the codon if the hank waits for it (`plan.awaits_full_context`), and fails it otherwise.
- The server is asked to stop. `state.json` calls such a codon `failed`, as Hankweave does. The text
  of the reason tells it from a failure of its own (`reason_of_stop`, `was_stopped`), so that
  clients can show it as stopped; the next start resumes from its last checkpoint.

Nothing here knows why a move is made, what the time is or where a checkpoint comes from: the caller
passes facts in, and `execution/codon` performs what was decided.

Read `MOVES` and `advance` first, then the moves in the order of the states (`start_agent` to
`skip`), then `judge`. `reducer.py` applies the moves to a whole state; `execution/codon/record.py`
makes them durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias, TypedDict, assert_never

import msgspec
from msgspec.structs import replace

from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.instants import from_text, milliseconds_between
from hankweave_protocol.state import (
    NO_SENTINELS,
    NO_TOKENS,
    ActiveCodon,
    ActiveStatus,
    BudgetExceeded,
    Captured,
    CodonExecution,
    CodonStatus,
    CodonWait,
    CompletedCodon,
    CompletingSentinelsCodon,
    ExecutedSentinels,
    FailedCodon,
    FailureReason,
    InitializingCodon,
    LoadedSentinels,
    LoopContext,
    PreparingCodon,
    ReusedResult,
    RunningCodon,
    SkippedCodon,
    StartingCodon,
    TerminalCodon,
    Tokens,
    WorkingCodon,
)
from hankweave_server.domain.failures import classify

MOVES: Mapping[CodonStatus, frozenset[CodonStatus]] = {
    "preparing": frozenset({"starting", "completed", "failed", "skipped"}),
    "starting": frozenset({"initializing", "failed", "skipped"}),
    "initializing": frozenset({"running", "failed", "skipped"}),
    "running": frozenset({"completing-sentinels", "completed", "failed", "skipped"}),
    "completing-sentinels": frozenset({"completed", "failed", "skipped"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "skipped": frozenset(),
}


class Impossible(Exception):
    """A transition that contradicts the state; the state is unchanged."""


class IllegalTransition(Impossible):
    """A move that `MOVES` does not allow; the state is unchanged."""

    def __init__(self, codon_id: CodonId, from_status: CodonStatus, to_status: CodonStatus) -> None:
        super().__init__(f"codon {codon_id} cannot go from {from_status} to {to_status}")
        self.codon_id = codon_id
        self.from_status = from_status
        self.to_status = to_status


def advance(current: CodonExecution, to: CodonExecution) -> CodonExecution:
    """Return the record `to`; raise IllegalTransition unless `MOVES` allows the move to it."""
    before, after = status_of(current), status_of(to)
    if current.codon_id != to.codon_id or after not in MOVES[before]:
        raise IllegalTransition(current.codon_id, before, after)

    return to


def status_of(codon: CodonExecution) -> CodonStatus:
    match codon:
        case PreparingCodon() | StartingCodon() | InitializingCodon():
            return active_status_of(codon)
        case RunningCodon() | CompletingSentinelsCodon():
            return active_status_of(codon)
        case CompletedCodon():
            return "completed"
        case FailedCodon():
            return "failed"
        case SkippedCodon():
            return "skipped"
        case _:
            assert_never(codon)


def active_status_of(codon: ActiveCodon) -> ActiveStatus:
    match codon:
        case PreparingCodon():
            return "preparing"
        case StartingCodon():
            return "starting"
        case InitializingCodon():
            return "initializing"
        case RunningCodon():
            return "running"
        case CompletingSentinelsCodon():
            return "completing-sentinels"
        case _:
            assert_never(codon)


def is_terminal(codon: CodonExecution) -> bool:
    return isinstance(codon, TerminalCodon)


def is_active(codon: CodonExecution) -> bool:
    return not is_terminal(codon)


def active(codon: CodonExecution) -> ActiveCodon:
    """Return the same record, typed as active; raise IllegalTransition for a terminal one."""
    if isinstance(codon, TerminalCodon):
        raise IllegalTransition(codon.codon_id, status_of(codon), status_of(codon))

    return codon


def cost_of(codon: CodonExecution) -> float:
    """Return the final, partial or current cost in USD, whichever the state has."""
    match codon:
        case PreparingCodon() | StartingCodon() | InitializingCodon():
            return 0.0
        case RunningCodon() | CompletingSentinelsCodon():
            return codon.current_cost
        case CompletedCodon():
            return codon.final_cost
        case FailedCodon() | SkippedCodon():
            return codon.partial_cost
        case _:
            assert_never(codon)


def sentinel_cost_of(codon: CodonExecution) -> float:
    """Return the cost of the codon's sentinels in USD; `cost_of` never includes it."""
    return 0.0 if isinstance(codon, PreparingCodon) else codon.sentinels.total_cost


def tokens_of(codon: CodonExecution) -> Tokens:
    match codon:
        case PreparingCodon() | StartingCodon() | InitializingCodon():
            return NO_TOKENS
        case RunningCodon() | CompletingSentinelsCodon():
            return codon.current_tokens
        case CompletedCodon():
            return codon.final_tokens
        case FailedCodon() | SkippedCodon():
            return codon.partial_tokens
        case _:
            assert_never(codon)


def wait_of(codon: CodonExecution) -> CodonWait | None:
    """Return the wait of a codon for the end of a limit, if it waits now."""
    return codon.wait if isinstance(codon, StartingCodon | WorkingCodon) else None


def waited_ms_at(codon: CodonExecution, moment: str) -> int:
    """Return how long a codon has waited for limits until a moment, a wait of now included."""
    wait = wait_of(codon)
    if wait is None:
        return codon.waited_ms

    lasted = milliseconds_between(from_text(wait.since), from_text(moment))
    return codon.waited_ms + max(0, lasted)


def with_wait(
    codon: CodonExecution, wait: CodonWait | None, waited_ms: int, session_id: str | None
) -> CodonExecution:
    """Return the record of a codon that begins or ends a wait; raise Impossible if it cannot."""
    match codon:
        case StartingCodon():
            return replace(codon, wait=wait, waited_ms=waited_ms)
        case RunningCodon():
            session = session_id or codon.claude_session_id
            return replace(codon, wait=wait, waited_ms=waited_ms, claude_session_id=session)
        case _:
            raise Impossible(f"Codon {codon.codon_id} is {status_of(codon)}: it cannot wait.")


# --- the moves ----------------------------------------------------------------------------------


class CodonIdentity(TypedDict):
    """The fields of an execution that are the same in all its states."""

    codon_id: CodonId
    start_time: str
    loop_context: LoopContext | None
    attempt: int


def identity_of(codon: CodonExecution) -> CodonIdentity:
    return CodonIdentity(
        codon_id=codon.codon_id,
        start_time=codon.start_time,
        loop_context=codon.loop_context,
        attempt=codon.attempt,
    )


def start_agent(codon: PreparingCodon) -> StartingCodon:
    return StartingCodon(
        **identity_of(codon),
        waited_ms=codon.waited_ms,
        sentinels=NO_SENTINELS,
    )


def await_session(
    codon: StartingCodon, *, pid: int, log_path: str, previous_session_id: str | None
) -> InitializingCodon:
    return InitializingCodon(
        **identity_of(codon),
        waited_ms=codon.waited_ms,
        sentinels=codon.sentinels,
        rig_setup_checkpoint=codon.rig_setup_checkpoint,
        claude_pid=pid,
        claude_log_path=log_path,
        previous_session_id=previous_session_id,
    )


def begin(codon: InitializingCodon, *, session_id: str) -> RunningCodon:
    return RunningCodon(
        **identity_of(codon),
        waited_ms=codon.waited_ms,
        sentinels=codon.sentinels,
        rig_setup_checkpoint=codon.rig_setup_checkpoint,
        claude_pid=codon.claude_pid,
        claude_log_path=codon.claude_log_path,
        previous_session_id=codon.previous_session_id,
        claude_session_id=session_id,
        current_cost=0.0,
        current_tokens=NO_TOKENS,
        assistant_message_count=0,
    )


def finish_sentinels(codon: RunningCodon) -> CompletingSentinelsCodon:
    """Move on when the agent has ended and its sentinels have not."""
    return CompletingSentinelsCodon(
        **identity_of(codon),
        waited_ms=codon.waited_ms,
        sentinels=codon.sentinels,
        rig_setup_checkpoint=codon.rig_setup_checkpoint,
        claude_pid=codon.claude_pid,
        claude_log_path=codon.claude_log_path,
        previous_session_id=codon.previous_session_id,
        claude_session_id=codon.claude_session_id,
        current_cost=codon.current_cost,
        current_tokens=codon.current_tokens,
        assistant_message_count=codon.assistant_message_count,
        extension_count=codon.extension_count,
    )


def complete(
    codon: RunningCodon | CompletingSentinelsCodon,
    *,
    end_time: str,
    exit_code: int,
    result_received: bool,
    checkpoint: Sha,
    context_exceeded: bool = False,
    budget_exceeded: BudgetExceeded | None = None,
    captured: Captured | None = None,
    warnings: tuple[str, ...] = (),
    reuse_key: str | None = None,
) -> CompletedCodon:
    return CompletedCodon(
        **identity_of(codon),
        waited_ms=waited_ms_at(codon, end_time),
        reuse_key=reuse_key,
        end_time=end_time,
        claude_session_id=codon.claude_session_id,
        claude_log_path=codon.claude_log_path,
        exit_code=exit_code,
        final_cost=codon.current_cost,
        final_tokens=codon.current_tokens,
        result_message_received=result_received,
        completion_checkpoint=checkpoint,
        sentinels=_executed(codon.sentinels),
        rig_setup_checkpoint=codon.rig_setup_checkpoint,
        extension_count=codon.extension_count,
        assistant_message_count=codon.assistant_message_count,
        context_exceeded=context_exceeded,
        budget_exceeded=budget_exceeded,
        captured=captured,
        warnings=warnings,
    )


def complete_unstarted(
    codon: PreparingCodon,
    *,
    end_time: str,
    checkpoint: Sha,
    budget_exceeded: BudgetExceeded | None = None,
) -> CompletedCodon:
    """Complete a codon that starts no agent, as its budget is spent: no session, no log."""
    return CompletedCodon(
        **identity_of(codon),
        waited_ms=waited_ms_at(codon, end_time),
        end_time=end_time,
        claude_session_id="",
        claude_log_path="",
        exit_code=0,
        final_cost=0.0,
        final_tokens=NO_TOKENS,
        result_message_received=False,
        completion_checkpoint=checkpoint,
        sentinels=_executed(NO_SENTINELS),
        budget_exceeded=budget_exceeded,
    )


def complete_reused(
    codon: PreparingCodon,
    source: CompletedCodon,
    reused: ReusedResult,
    *,
    end_time: str,
    checkpoint: Sha,
) -> CompletedCodon:
    """Complete a codon that takes over the result of another: no agent, no cost."""
    return msgspec.structs.replace(
        complete_unstarted(codon, end_time=end_time, checkpoint=checkpoint),
        reuse_key=source.reuse_key,
        claude_session_id=source.claude_session_id,
        claude_log_path=source.claude_log_path,
        exit_code=source.exit_code,
        result_message_received=source.result_message_received,
        captured=source.captured,
        reused=reused,
    )


def fail(
    codon: ActiveCodon,
    *,
    end_time: str,
    exit_code: int,
    reason: FailureReason,
    checkpoint: Sha | None,
    budget_exceeded: BudgetExceeded | None = None,
) -> FailedCodon:
    known = _Known(codon)
    return FailedCodon(
        **identity_of(codon),
        waited_ms=waited_ms_at(codon, end_time),
        end_time=end_time,
        failed_during=active_status_of(codon),
        exit_code=exit_code,
        failure_reason=reason,
        partial_cost=cost_of(codon),
        partial_tokens=tokens_of(codon),
        sentinels=known.sentinels,
        claude_pid=known.pid,
        claude_session_id=known.session_id,
        claude_log_path=known.log_path,
        rig_setup_checkpoint=known.rig,
        error_checkpoint=checkpoint,
        extension_count=known.extensions,
        assistant_message_count=known.messages,
        budget_exceeded=budget_exceeded,
    )


def skip(
    codon: ActiveCodon,
    *,
    end_time: str,
    checkpoint: Sha | None,
    budget_exceeded: BudgetExceeded | None = None,
    condition: str | None = None,
) -> SkippedCodon:
    known = _Known(codon)
    return SkippedCodon(
        **identity_of(codon),
        waited_ms=waited_ms_at(codon, end_time),
        end_time=end_time,
        skipped_during=active_status_of(codon),
        partial_cost=cost_of(codon),
        partial_tokens=tokens_of(codon),
        assistant_message_count=known.messages,
        sentinels=known.sentinels,
        claude_pid=known.pid,
        claude_session_id=known.session_id,
        claude_log_path=known.log_path,
        rig_setup_checkpoint=known.rig,
        skip_checkpoint=checkpoint,
        budget_exceeded=budget_exceeded,
        condition=condition,
    )


class _Known:
    """The facts that an active codon already has, in any of its states."""

    def __init__(self, codon: ActiveCodon) -> None:
        self.pid: int | None = None
        self.log_path: str | None = None
        self.session_id: str | None = None
        self.rig: Sha | None = None
        self.messages = self.extensions = 0
        self.sentinels = _executed(NO_SENTINELS)
        if not isinstance(codon, PreparingCodon):
            self.rig = codon.rig_setup_checkpoint
            self.sentinels = _executed(codon.sentinels)

        if isinstance(codon, InitializingCodon | RunningCodon | CompletingSentinelsCodon):
            self.pid, self.log_path = codon.claude_pid, codon.claude_log_path

        if isinstance(codon, RunningCodon | CompletingSentinelsCodon):
            self.session_id = codon.claude_session_id
            self.messages = codon.assistant_message_count
            self.extensions = codon.extension_count


def _executed(sentinels: LoadedSentinels) -> ExecutedSentinels:
    return ExecutedSentinels(executed=sentinels.loaded, total_cost=sentinels.total_cost)


@dataclass(frozen=True, slots=True)
class Ending:
    """The facts of an agent's end."""

    exit_code: int
    """The exit code of the process; 128 + n for signal n, -1 without a process."""
    timed_out: str | None
    """The time limit that ended it: start, idle or total."""
    request_timed_out: bool
    had_session: bool
    result_success: bool | None
    """The agent's own verdict; None if it reported none."""
    text: str
    """The text of the result, or the last output on stderr."""
    context_exceeded: bool = False
    """True if the model refused more input."""
    compacted: bool = False
    """True if the agent's context was full and was compacted so that it could continue."""


@dataclass(frozen=True, slots=True)
class CodonSuccess:
    pass


@dataclass(frozen=True, slots=True)
class ContextFull:
    """The agent's context is full, and the hank waits for that."""


@dataclass(frozen=True, slots=True)
class CodonFailure:
    reason: FailureReason


Verdict: TypeAlias = CodonSuccess | ContextFull | CodonFailure


def judge(
    ending: Ending, *, awaits_full_context: bool = False, now: datetime | None = None
) -> Verdict:
    if ending.timed_out is not None:
        message = f"The agent exceeded its {ending.timed_out} time limit and was stopped."
        return CodonFailure(FailureReason(type="timeout", retriable=True, message=message))

    if ending.request_timed_out:
        return CodonFailure(FailureReason(type="timeout", retriable=True, message=ending.text))

    if ending.exit_code == 0 and ending.result_success:
        return ContextFull() if ending.compacted and awaits_full_context else CodonSuccess()

    if ending.context_exceeded and awaits_full_context:
        return ContextFull()

    if ending.context_exceeded:
        message = (
            f"The agent's context was exceeded: {ending.text.strip() or 'no details are known'}"
        )
        return CodonFailure(FailureReason(type="api-error", retriable=False, message=message))

    if ending.exit_code == 0 and ending.result_success is None:
        message = "The agent ended without reporting a result."
        return CodonFailure(
            FailureReason(type="unknown", retriable=ending.had_session, message=message)
        )

    # A success text does not explain a failure: classify by the exit code.
    text = "" if ending.result_success else ending.text
    had_session = ending.had_session
    return CodonFailure(classify(text, ending.exit_code, had_session=had_session, now=now))


_BEGINNING = "The server stopped: "


def reason_of_stop(cause: str) -> str:
    """Return the failure reason of a codon that was active when the server stopped."""
    return f"{_BEGINNING}{cause}."


def is_of_stop(message: str | None) -> bool:
    """Return whether a failure message is one of `reason_of_stop`."""
    return message is not None and message.startswith(_BEGINNING)


def was_stopped(reason: FailureReason | None) -> bool:
    """Return whether a codon was cut short by the end of the server."""
    return reason is not None and is_of_stop(reason.message)
