"""The life of a codon: eight states, and every move between them in one table.

Two rules. Everything that decides which state may follow which stands in `MOVES`; and nothing here
knows why a move is made. A state that is not terminal can always fail or be skipped; the way
forward is one step at a time, with two exceptions: a codon without sentinels goes from `running` to
`completed` directly, and one whose budget is spent before it begins from `preparing`. The terminal
states are in the table too, with nowhere to go (seed 002).

The functions below the table build the next state's record out of the former one and the facts of
the move. They carry forward what seed 002 keeps, and rename `sentinels.loaded` to
`sentinels.executed` where a codon ends.

How a codon ended, judged from what its agent said and how its process went.

Success needs both: a clean exit and, from an agent that reports results, a result without an
error. A billing error that an agent reports as a "success" is a failure (Hankweave, completion).
A full context is an end like any other where the hank waits for it, and a failure elsewhere.

Codons that a server's orderly end cut short.

state.json calls such a codon `failed`, as Hankweave does, and its reason tells it from a failure of
its own. People are told that it was stopped: the next start goes on from its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias, assert_never

from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.state import (
    NO_SENTINELS,
    NO_TOKENS,
    ActiveCodon,
    ActiveStatus,
    BudgetExceeded,
    Captured,
    CodonExecution,
    CodonStatus,
    CompletedCodon,
    CompletingSentinelsCodon,
    ExecutedSentinels,
    FailedCodon,
    FailureReason,
    InitializingCodon,
    LoadedSentinels,
    PreparingCodon,
    RunningCodon,
    SkippedCodon,
    StartingCodon,
    Tokens,
)
from hankweave_server.domain.failures import classify

Active = ActiveCodon

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
    """Something that cannot have happened to this state; nothing is changed."""


class IllegalTransition(Impossible):
    """A move that the table does not have; the state is unchanged."""

    def __init__(self, codon_id: CodonId, from_status: CodonStatus, to_status: CodonStatus) -> None:
        super().__init__(f"codon {codon_id} cannot go from {from_status} to {to_status}")
        self.codon_id = codon_id
        self.from_status = from_status
        self.to_status = to_status


def advance(current: CodonExecution, to: CodonExecution) -> CodonExecution:
    """Returns the record that follows; raises IllegalTransition unless the table has the move."""
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
    return not MOVES[status_of(codon)]


def is_active(codon: CodonExecution) -> bool:
    return not isinstance(codon, CompletedCodon | FailedCodon | SkippedCodon)


def active(codon: CodonExecution) -> ActiveCodon:
    """The same record, known to be active; a terminal one is the caller's mistake."""
    if isinstance(codon, CompletedCodon | FailedCodon | SkippedCodon):
        raise IllegalTransition(codon.codon_id, status_of(codon), status_of(codon))

    return codon


def cost_of(codon: CodonExecution) -> float:
    """USD: final, partial or current, whichever the state has (seed 002's own example)."""
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
    """USD that the codon's sentinels cost; never part of `cost_of`."""
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


# --- the moves ----------------------------------------------------------------------------------


def start_agent(codon: PreparingCodon) -> StartingCodon:
    return StartingCodon(
        codon_id=codon.codon_id,
        start_time=codon.start_time,
        loop_context=codon.loop_context,
        attempt=codon.attempt,
        sentinels=NO_SENTINELS,
    )


def await_session(
    codon: StartingCodon, *, pid: int, log_path: str, previous_session_id: str | None
) -> InitializingCodon:
    return InitializingCodon(
        codon_id=codon.codon_id,
        start_time=codon.start_time,
        loop_context=codon.loop_context,
        attempt=codon.attempt,
        sentinels=codon.sentinels,
        rig_setup_checkpoint=codon.rig_setup_checkpoint,
        claude_pid=pid,
        claude_log_path=log_path,
        previous_session_id=previous_session_id,
    )


def begin(codon: InitializingCodon, *, session_id: str) -> RunningCodon:
    return RunningCodon(
        codon_id=codon.codon_id,
        start_time=codon.start_time,
        loop_context=codon.loop_context,
        attempt=codon.attempt,
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
    """The agent has ended, its sentinels have not."""
    return CompletingSentinelsCodon(
        codon_id=codon.codon_id,
        start_time=codon.start_time,
        loop_context=codon.loop_context,
        attempt=codon.attempt,
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
) -> CompletedCodon:
    return CompletedCodon(
        codon_id=codon.codon_id,
        start_time=codon.start_time,
        loop_context=codon.loop_context,
        attempt=codon.attempt,
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
    codon: PreparingCodon, *, end_time: str, checkpoint: Sha, budget_exceeded: BudgetExceeded
) -> CompletedCodon:
    """Complete a codon for which nothing was left to spend: no agent, no session, no log."""
    return CompletedCodon(
        codon_id=codon.codon_id,
        start_time=codon.start_time,
        loop_context=codon.loop_context,
        attempt=codon.attempt,
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
        codon_id=codon.codon_id,
        start_time=codon.start_time,
        loop_context=codon.loop_context,
        attempt=codon.attempt,
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
        codon_id=codon.codon_id,
        start_time=codon.start_time,
        loop_context=codon.loop_context,
        attempt=codon.attempt,
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
    """What an active codon knows already, whichever state it is in."""

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
    """The process's exit code; 128 + n for signal n, -1 where there was no process."""
    timed_out: str | None
    """Which time limit ended it: start, idle or total."""
    request_timed_out: bool
    had_session: bool
    result_success: bool | None
    """The agent's own verdict; None where it gave none."""
    text: str
    """The result's text, or the last words on stderr."""
    context_exceeded: bool = False
    """The model took no more."""
    compacted: bool = False
    """The agent's context was full, and was made smaller so that it could go on."""


@dataclass(frozen=True, slots=True)
class Success:
    pass


@dataclass(frozen=True, slots=True)
class ContextFull:
    """The agent could not go on, and the hank has waited for that."""


@dataclass(frozen=True, slots=True)
class Failure:
    reason: FailureReason


Verdict: TypeAlias = Success | ContextFull | Failure


def judge(
    ending: Ending, *, awaits_full_context: bool = False, now: datetime | None = None
) -> Verdict:
    if ending.timed_out is not None:
        message = f"The agent exceeded its {ending.timed_out} time limit and was stopped."
        return Failure(FailureReason(type="timeout", retriable=True, message=message))

    if ending.request_timed_out:
        return Failure(FailureReason(type="timeout", retriable=True, message=ending.text))

    if ending.exit_code == 0 and ending.result_success:
        return ContextFull() if ending.compacted and awaits_full_context else Success()

    if ending.context_exceeded and awaits_full_context:
        return ContextFull()

    if ending.context_exceeded:
        message = f"The agent's context was exceeded: {ending.text.strip() or 'no more is known'}"
        return Failure(FailureReason(type="api-error", retriable=False, message=message))

    if ending.exit_code == 0 and ending.result_success is None:
        message = "The agent ended without reporting a result."
        return Failure(FailureReason(type="unknown", retriable=ending.had_session, message=message))

    # Words of success explain no failure: the exit code has to.
    text = "" if ending.result_success else ending.text
    had_session = ending.had_session
    return Failure(classify(text, ending.exit_code, had_session=had_session, now=now))


_BEGINNING = "The server stopped: "


def reason_of_stop(cause: str) -> str:
    """Return the reason that a codon has failed for when the server ends in the middle of it."""
    return f"{_BEGINNING}{cause}."


def is_of_stop(message: str | None) -> bool:
    """Say whether the message of a failure is that of a stop."""
    return message is not None and message.startswith(_BEGINNING)


def was_stopped(reason: FailureReason | None) -> bool:
    """Say whether a codon was cut short by the server's end."""
    return reason is not None and is_of_stop(reason.message)
