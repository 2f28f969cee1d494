"""Parsing of the delay that a provider asks for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_server.domain.failures import retry_after_ms

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("retry-after: 30", 30_000),
        ("Retry-After: 2.5", 2_500),
        ("HTTP/1.1 429\r\nRetry-After: 7\r\nx-request-id: req_1", 7_000),
        ("{'retry-after': '12', 'x': 'y'}", 12_000),
        ('{"retry-after":5}', 5_000),
        ("retry-after-ms: 1500", 1_500),
        ("Retry-After: Sat, 21 Nov 2026 12:01:30 GMT", 90_000),
        ("Retry-After: Sat, 21 Nov 2026 11:00:00 GMT", 0),
        ("Rate limit reached for gpt-5 ... Please try again in 12s. Visit", 12_000),
        ("Please try again in 1.242s.", 1_242),
        ("Please try again in 20ms", 20),
        ("Please try again in 1m30s", 90_000),
        ("Please try again in 6m0s.", 360_000),
        ("try again in 1h2m3s", 3_723_000),
        ("Please retry in 33.573245s.", 33_573),
        ('"retryDelay": "33s"', 33_000),
        ("Retry after 5 minutes", 300_000),
        ("wait 1 minute and 10 seconds", 70_000),
        ("Try again in 3 hours", 10_800_000),
    ],
)
def test_what_a_provider_asks_for_is_read(text: str, milliseconds: int) -> None:
    """Headers in seconds or as a date, and the phrases of the large providers are parsed."""
    assert retry_after_ms(text, NOW) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Too many requests",
        "Retry-After: soon",
        "Retry-After: Sat, 99 Nov 2026 12:01:30 GMT",
        "I waited 12s for the tests",
        "try again later",
        "try again in a moment",
        "12 minutes remain",
    ],
)
def test_a_missing_delay_is_not_invented(text: str) -> None:
    """Other numbers and unparsable dates give no delay."""
    assert retry_after_ms(text, NOW) is None


@given(st.text() | st.from_regex(r"(?i)retry-after[:=] ?.{0,30}|try again in .{0,20}"))
def test_no_text_can_hurt(text: str) -> None:
    """Any text gives a non-negative delay or None."""
    waited = retry_after_ms(text, NOW)
    assert waited is None or waited >= 0
