"""Claims about `events.query` in the server: quick over a long journal, and in nobody's way."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import anyio
import msgspec
import pytest

from hankweave_protocol.commands import EventsQuery
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import Info
from hankweave_protocol.queries import Condition, Order, Reduction
from hankweave_server.clock import SystemClock
from hankweave_server.commands import query as query_module
from hankweave_server.commands.query import Queries
from hankweave_server.domain.query import checked
from hankweave_server.domain.query_answer import LINES_AT_ONCE, answer
from hankweave_server.layout import Layout
from hankweave_server.ledger.journal import Journal
from hankweave_server.ledger.ledger import Ledger

MANY = 100_000

LOOKS_INTO_DATA = EventsQuery(
    where=(
        Condition(field="data.codonId", op="in", value=["observe", "review#1"]),
        Condition(field="data.usage.output", op="gte", value=50),
    ),
    order_by=Order(field="data.cost", direction="desc"),
    limit=100,
)
ADDS_UP = EventsQuery(reduce=Reduction(type="sum", field="data.cost", group_by=("data.codonId",)))
FOLLOWS_CAUSES = EventsQuery(descendants_of=1, reduce=Reduction(type="count"))


@pytest.fixture(scope="module")
def long_journal(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """A hundred thousand events of four hundred bytes."""
    layout = Layout.of_execution(tmp_path_factory.mktemp("long"))
    layout.journal.parent.mkdir(parents=True)
    with layout.journal.open("wb") as journal:
        journal.writelines(line(seq) for seq in range(1, MANY + 1))

    return layout


def line(seq: int) -> bytes:
    event = {
        "id": f"6c9b2a54-8f0e-4d7b-9a43-{seq:012x}",
        "seq": seq,
        "timestamp": "2025-01-04T12:01:30.000Z",
        "type": "token.usage" if seq % 3 else "tool.result",
        "data": {
            "codonId": f"review#{seq % 5}" if seq % 2 else "observe",
            "cost": (seq * 7919 % 1000) / 1000,
            "usage": {"input": seq % 1000, "output": seq % 97},
            "text": "x" * 150,
        },
        "runId": "1736000000000-abc123-def456",
        "causes": [seq - 1] if seq % 4 else ["c-1"],
    }
    return msgspec.json.encode(event) + b"\n"


@asynccontextmanager
async def queries_over(layout: Layout) -> AsyncIterator[tuple[Queries, Ledger]]:
    clock = SystemClock()
    ledger = await Ledger.open(layout, clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        yield Queries(ledger, clock), ledger
        await ledger.aclose()


@pytest.mark.parametrize("query", [LOOKS_INTO_DATA, ADDS_UP, FOLLOWS_CAUSES])
def test_a_hundred_thousand_events_are_asked_within_a_second(
    long_journal: Layout, query: EventsQuery
) -> None:
    """Counted in the processor's time, so that a busy machine changes nothing."""
    journal = Journal.for_reading(long_journal.journal)
    try:
        began = time.thread_time()
        page = answer(checked(query), journal.read, journal.last_seq)
        assert time.thread_time() - began <= 1.0
    finally:
        journal.close()

    assert page.events or page.rows


async def test_the_loop_goes_on_while_a_query_is_answered(long_journal: Layout) -> None:
    """Many turns of the loop happen meanwhile; it is never away for long."""
    async with queries_over(long_journal) as (queries, _):
        turns: list[float] = []
        done = anyio.Event()

        async def turn() -> None:
            while not done.is_set():
                turns.append(time.perf_counter())
                await anyio.sleep(0.001)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            for _ in range(3):
                await queries.answer(ADDS_UP)

            done.set()

    gaps = sorted(later - earlier for earlier, later in pairwise(turns))
    assert len(gaps) > 50
    assert gaps[len(gaps) * 9 // 10] < 0.025


async def test_a_query_sees_what_was_told_and_nothing_that_comes_later(tmp_path: Path) -> None:
    """Its pages hold while the journal goes on."""
    async with queries_over(Layout.of_execution(tmp_path)) as (queries, ledger):
        await ledger.record(*(Info(message=str(number)) for number in range(5)))
        first = await queries.answer(EventsQuery(limit=3))
        assert first.cursor is not None
        await ledger.record(Info(message="later"))
        second = await queries.answer(EventsQuery(limit=3, cursor=first.cursor))
        told = [*(first.events or ()), *(second.events or ())]
        assert [msgspec.json.decode(event)["seq"] for event in told] == [1, 2, 3, 4, 5]
        assert second.cursor is None
        assert [bytes(event) for event in told] == ledger.history(0, 5)


async def test_a_query_that_takes_too_long_is_ended(
    long_journal: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RESULT_TOO_LARGE with what to do; the next one is answered as usual."""
    async with queries_over(long_journal) as (queries, _):
        with monkeypatch.context() as patch:
            patch.setattr(query_module, "PATIENCE_SECONDS", 0.001)
            with pytest.raises(Refused) as refused:
                await queries.answer(ADDS_UP)

        assert refused.value.code is ErrorCode.RESULT_TOO_LARGE
        assert refused.value.hint
        assert (await queries.answer(EventsQuery(limit=1))).events


async def test_whoever_goes_away_stops_the_query(
    long_journal: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled query reads no further, and the thread is free for the next one."""
    async with queries_over(long_journal) as (queries, ledger):
        pages: list[int] = []
        history = ledger.history

        def read(since: int, limit: int | None = None) -> list[bytes]:
            pages.append(since)
            return history(since, limit)

        monkeypatch.setattr(ledger, "history", read)
        with anyio.move_on_after(0.01) as scope:
            await queries.answer(ADDS_UP)

        assert scope.cancelled_caught
        assert len(pages) < MANY // LINES_AT_ONCE
        assert (await queries.answer(EventsQuery(limit=1))).events
