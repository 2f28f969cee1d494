"""The decision after a failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.hank import RetryConfig
from hankweave_protocol.state import FailureReason
from hankweave_server.domain.failures import (
    Decision,
    GiveUp,
    RetryDecision,
    decide,
    delay_ms,
)

TRANSIENT = FailureReason(type="api-error", retriable=True)
PERMANENT = FailureReason(type="api-error", retriable=False)


def kind(decision: Decision) -> str:
    return type(decision).__name__


@pytest.mark.parametrize(
    ("on_failure", "reason", "attempts", "expected"),
    [
        ("abort", TRANSIENT, 1, "GiveUp"),
        ("abort", PERMANENT, 1, "GiveUp"),
        ("ignore", TRANSIENT, 1, "Ignore"),
        ("ignore", PERMANENT, 99, "Ignore"),
        ("retry", TRANSIENT, 1, "RetryDecision"),
        ("retry", TRANSIENT, 2, "RetryDecision"),
        ("retry", TRANSIENT, 3, "GiveUp"),
        ("retry", TRANSIENT, 4, "GiveUp"),
        ("retry", PERMANENT, 1, "GiveUp"),
    ],
)
def test_policy_reason_and_attempts_decide(on_failure, reason, attempts, expected) -> None:
    """Three attempts are made by default; only transient failures are retried."""
    for headless in (True, False):
        decision = decide(on_failure, None, reason, attempts=attempts, headless=headless)
        assert kind(decision) == expected
        if isinstance(decision, GiveUp):
            assert decision.ends_server is headless
            assert decision.sentence


@pytest.mark.parametrize("on_failure", ["abort", "retry", "ignore"])
def test_what_a_person_stopped_has_no_policy(on_failure) -> None:
    """A stopped codon is neither retried nor ignored, and a headless server ends."""
    for headless in (True, False):
        decision = decide(on_failure, None, TRANSIENT, attempts=1, halted=True, headless=headless)
        assert decision == GiveUp(headless, "It was stopped.")


def test_each_attempt_waits_twice_as_long() -> None:
    """The delay doubles, from `delayMs` after the first failure up to `maxDelayMs`."""
    config = RetryConfig(max_attempts=10, delay_ms=1000, max_delay_ms=10_000)
    waits = []
    for attempts in range(1, 10):
        decision = decide("retry", config, TRANSIENT, attempts=attempts, headless=False)
        assert isinstance(decision, RetryDecision)
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
    decision = decide("retry", RetryConfig(), reason, attempts=1, headless=False)
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
