"""How a codon ended, judged from what its agent said and how its process went.

Success needs both: a clean exit and, from an agent that reports results, a result without an
error. A billing error that an agent reports as a "success" is a failure (Hankweave, completion).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hankweave_protocol.state import FailureReason

_RATE_LIMIT = re.compile(r"rate.?limit|too many requests|\b429\b", re.IGNORECASE)
_PERMANENT = re.compile(
    r"credit|billing|insufficient|quota|balance|usage limit|unauthori[sz]ed|authentication"
    r"|invalid api key|permission denied|\b40[0134]\b",
    re.IGNORECASE,
)
_TIMEOUT = re.compile(r"tim(ed|e).?out", re.IGNORECASE)
_TRANSIENT = re.compile(
    r"overloaded|\b5\d\d\b|connection|network|econn|unavailable|reset by peer", re.IGNORECASE
)


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


@dataclass(frozen=True, slots=True)
class Success:
    pass


@dataclass(frozen=True, slots=True)
class Failure:
    reason: FailureReason


def judge(ending: Ending) -> Success | Failure:
    if ending.timed_out is not None:
        message = f"The agent exceeded its {ending.timed_out} time limit and was stopped."
        return Failure(FailureReason(type="timeout", retriable=True, message=message))

    if ending.request_timed_out:
        return Failure(FailureReason(type="timeout", retriable=True, message=ending.text))

    if ending.exit_code == 0 and ending.result_success:
        return Success()

    if ending.exit_code == 0 and ending.result_success is None:
        message = "The agent ended without reporting a result."
        return Failure(FailureReason(type="unknown", retriable=ending.had_session, message=message))

    # Words of success explain no failure: the exit code has to.
    text = "" if ending.result_success else ending.text
    return Failure(classify(text, ending.exit_code, had_session=ending.had_session))


def classify(text: str, exit_code: int, *, had_session: bool) -> FailureReason:
    """Reads the kind of a failure from what was said; text nobody knows is retriable only where
    the agent had got as far as a session."""
    message = text.strip() or f"The agent exited with code {exit_code}."
    if _RATE_LIMIT.search(text):
        return FailureReason(type="rate-limit", retriable=True, message=message)

    if _PERMANENT.search(text):
        return FailureReason(type="api-error", retriable=False, message=message)

    if _TIMEOUT.search(text):
        return FailureReason(type="timeout", retriable=True, message=message)

    if _TRANSIENT.search(text):
        return FailureReason(type="api-error", retriable=True, message=message)

    return FailureReason(type="unknown", retriable=had_session, message=message)
