"""How a codon ended, judged from what its agent said and how its process went.

Success needs both: a clean exit and, from an agent that reports results, a result without an
error. A billing error that an agent reports as a "success" is a failure (Hankweave, completion).
A full context is an end like any other where the hank waits for it, and a failure elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from hankweave_protocol.state import FailureReason
from hankweave_server.domain.failures import classify


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
