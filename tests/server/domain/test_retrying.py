"""The decision after a failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.hank import Codon, RetryConfig
from hankweave_protocol.state import FailureReason
from hankweave_server.domain.failures import RetryDecision, delay_ms, retry_of

TRANSIENT = FailureReason(type="api-error", retriable=True)
PERMANENT = FailureReason(type="api-error", retriable=False)


def codon(on_failure: str, config: RetryConfig | None = None) -> Codon:
    return Codon(
        id="one",
        name="One",
        model="sonnet",
        continuation_mode="fresh",
        on_failure=on_failure,
        retry_config=config,
    )


@pytest.mark.parametrize(
    ("on_failure", "reason", "attempts", "is_retried"),
    [
        ("abort", TRANSIENT, 1, False),
        ("abort", PERMANENT, 1, False),
        ("ignore", TRANSIENT, 1, False),
        ("ignore", PERMANENT, 99, False),
        ("retry", TRANSIENT, 1, True),
        ("retry", TRANSIENT, 2, True),
        ("retry", TRANSIENT, 3, False),
        ("retry", TRANSIENT, 4, False),
        ("retry", PERMANENT, 1, False),
    ],
)
def test_policy_reason_and_attempts_decide(on_failure, reason, attempts, is_retried) -> None:
    """Three attempts are made by default; only transient failures are retried."""
    retry = retry_of(codon(on_failure), reason, attempts=attempts)
    assert (retry is not None) is is_retried


def test_each_attempt_waits_twice_as_long() -> None:
    """The delay doubles, from `delayMs` after the first failure up to `maxDelayMs`."""
    config = RetryConfig(max_attempts=10, delay_ms=1000, max_delay_ms=10_000)
    waits = []
    for attempts in range(1, 10):
        decision = retry_of(codon("retry", config), TRANSIENT, attempts=attempts)
        assert decision is not None
        assert (decision.attempt, decision.max_attempts) == (attempts + 1, 10)
        waits.append(decision.after_ms)

    assert waits == [1000, 2000, 4000, 8000, *[10_000] * 5]


@pytest.mark.parametrize(
    ("asked", "waited"),
    [
        (None, 1000),
        (0, 0),
        (250, 250),
        (59_999, 59_999),
        (60_001, 60_000),
        (3_600_000, 60_000),
        (3_600_001, 1000),
    ],
)
def test_the_provider_may_say_how_long(asked: int | None, waited: int) -> None:
    """The provider's delay applies within the hank's limit; more than an hour is ignored."""
    reason = FailureReason(type="rate-limit", retriable=True, retry_after_ms=asked)
    decision = retry_of(codon("retry", RetryConfig()), reason, attempts=1)
    assert decision == RetryDecision(2, 3, waited)


@given(
    config=st.builds(
        RetryConfig,
        max_attempts=st.integers(1, 10),
        delay_ms=st.integers(0, 60_000),
        max_delay_ms=st.integers(0, 600_000),
    ),
    attempts=st.integers(1, 10_000),
    asked=st.none() | st.integers(0, 10**12),
)
def test_no_wait_is_longer_than_allowed(
    config: RetryConfig, attempts: int, asked: int | None
) -> None:
    """No delay exceeds the limit or is negative; without a provider's delay, none is shorter than
    the previous one."""
    assert 0 <= delay_ms(config, attempts, asked) <= config.max_delay_ms
    assert delay_ms(config, attempts) <= delay_ms(config, attempts + 1)
