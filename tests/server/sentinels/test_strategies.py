"""Claims about the four strategies and the backlog, none of which has its own clock."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.sentinels import SentinelConfig
from hankweave_server.sentinels.strategies import (
    BUFFER_LIMIT,
    Backlog,
    PendingTrigger,
    Strategy,
    strategy_of,
)
from support.sentinels import a_sentinel


def strategy(**execution: Any) -> Strategy:
    return strategy_of(msgspec.convert(a_sentinel(execution=execution), SentinelConfig), 100.0)


def frame(number: int) -> tuple[bytes]:
    return (str(number).encode(),)


def test_a_debounce_waits_for_quiet() -> None:
    """Each firing postpones the call, and the call contains all of them."""
    debounce = strategy(strategy="debounce", milliseconds=500)
    assert debounce.add(frame(1), 100.0) == debounce.add(frame(2), 100.4) == []
    assert debounce.due() == pytest.approx(100.9)
    assert debounce.at(100.8) == []
    assert debounce.at(100.9) == [(b"1", b"2")]
    assert debounce.due() is None


def test_a_debounce_that_is_never_quiet_calls_early_instead_of_dropping() -> None:
    """A full buffer causes a call; nothing in it is lost."""
    debounce = strategy(strategy="debounce", milliseconds=500)
    batches = [debounce.add(frame(number), 100.0) for number in range(BUFFER_LIMIT)]
    assert len(batches[-1][0]) == BUFFER_LIMIT
    assert debounce.flush() == []


def test_a_count_makes_exact_batches() -> None:
    """The remainder stays for the next batch."""
    count = strategy(strategy="count", threshold=2)
    batches = [batch for number in range(5) for batch in count.add(frame(number), 100.0)]
    assert batches == [(b"0", b"1"), (b"2", b"3")]
    assert count.flush() == [(b"4",)]


def test_a_time_window_keeps_to_its_schedule() -> None:
    """Windows end at fixed times since the start; an empty window makes no call."""
    window = strategy(strategy="timeWindow", milliseconds=1000)
    assert window.due() is None
    window.add(frame(1), 102.7)
    assert window.due() == pytest.approx(103.0)
    assert window.at(102.9) == []
    assert window.at(103.0) == [(b"1",)]
    window.add(frame(2), 103.0)
    assert window.due() == pytest.approx(104.0)


@given(
    st.sampled_from(
        [
            {"strategy": "immediate"},
            {"strategy": "debounce", "milliseconds": 300},
            {"strategy": "count", "threshold": 3},
            {"strategy": "timeWindow", "milliseconds": 700},
        ]
    ),
    st.lists(st.floats(0, 1), max_size=40),
)
def test_no_strategy_loses_or_reorders_events(
    execution: dict[str, Any], pauses: list[float]
) -> None:
    """Everything that enters comes out once and in order when all is flushed."""
    chosen, now, out = strategy(**execution), 100.0, list[bytes]()
    for number, pause in enumerate(pauses):
        now += pause
        for batch in (*chosen.at(now), *chosen.add(frame(number), now)):
            out.extend(batch)

    for batch in chosen.flush():
        out.extend(batch)

    assert out == [str(number).encode() for number in range(len(pauses))]


def waiting(number: int, size: int = 1) -> PendingTrigger:
    return PendingTrigger(number, (b"x" * size,), "2025-01-04T12:00:00.000Z")


def test_a_full_backlog_drops_its_oldest_and_says_so() -> None:
    """The backlog is bounded by number and by bytes; the newest entry always stays."""
    backlog = Backlog(limit=3, bytes_limit=100)
    assert [backlog.push(waiting(number)) for number in range(5)] == [0, 0, 0, 1, 1]
    assert backlog.push(waiting(5, size=99)) == 2
    assert backlog.push(waiting(6, size=500)) == 2
    first = backlog.pop()
    assert first is not None
    assert first.number == 6
    assert backlog.pop() is None
