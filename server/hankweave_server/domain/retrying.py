"""What follows from a codon's failure: another try, going on without it, or the end.

One decision from facts alone. How often the codon was tried is counted from the state, so that a
restart neither forgets attempts nor grants new ones (Hankweave keeps the counters in memory).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from hankweave_protocol.hank import RetryConfig
from hankweave_protocol.state import FailureReason
from hankweave_server.domain.retry_after import LONGEST_MS

OnFailure: TypeAlias = Literal["abort", "retry", "ignore"]

DEFAULT_RETRIES = RetryConfig()


@dataclass(frozen=True, slots=True)
class Retry:
    """The codon is tried again in the same run, from the files of the attempt's start."""

    attempt: int
    """The number of the attempt that comes next: 2 after the first failure."""
    max_attempts: int
    after_ms: int


@dataclass(frozen=True, slots=True)
class Ignore:
    """The failure stays on record and the plan goes on."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The run has failed."""

    ends_server: bool
    """True: nobody is there who could decide otherwise. False: the server waits for a command."""
    sentence: str


Decision: TypeAlias = Retry | Ignore | GiveUp


def decide(
    on_failure: OnFailure,
    config: RetryConfig | None,
    reason: FailureReason,
    *,
    attempts: int,
    headless: bool,
    halted: bool = False,
) -> Decision:
    """Applies a codon's failure policy (Hankweave, failure policy and retries).

    `attempts` counts the one that has just failed. `halted` says that a person, or the server's
    own end, stopped the codon: then no policy applies, for it was meant. Without clients a server
    that has given up ends in every case; with them it stays, so that somebody can roll back.
    """
    if halted:
        return GiveUp(headless, "It was stopped.")

    match on_failure:
        case "ignore":
            return Ignore()
        case "abort":
            return GiveUp(headless, "Its failures end the run.")
        case "retry":
            return _next_try(config or DEFAULT_RETRIES, reason, attempts, headless)
        case _:
            assert_never(on_failure)


def delay_ms(config: RetryConfig, attempts: int, retry_after_ms: int | None = None) -> int:
    """How long to wait after so many failed attempts: 1, 2, 4 ... times `delayMs`.

    What the provider asks for goes before that, up to an hour; `maxDelayMs` caps both.
    """
    asked = retry_after_ms
    if asked is None or asked > LONGEST_MS:
        # An exponent that grows for ever would make numbers that do.
        asked = config.delay_ms * 2 ** min(max(attempts - 1, 0), 32)

    return min(max(asked, 0), config.max_delay_ms)


def _next_try(
    config: RetryConfig, reason: FailureReason, attempts: int, headless: bool
) -> Decision:
    if not reason.retriable:
        return GiveUp(headless, "Trying again would not help.")

    if attempts >= config.max_attempts:
        return GiveUp(headless, f"It has failed {attempts} times.")

    wait = delay_ms(config, attempts, reason.retry_after_ms)
    return Retry(attempts + 1, config.max_attempts, wait)
