"""`events.query` in the server does not block other work."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.from_thread
import msgspec
import pytest

from hankweave_protocol.commands import EventsQuery
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import Info
from hankweave_server.api import inspect as query_module
from hankweave_server.api.inspect import Queries
from hankweave_server.clock import SystemClock
from hankweave_server.domain.event_filter import LINES_AT_ONCE
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout
from support.waiting import LIMIT

PAGES = 5
"""Number of chunks in which a query reads the journal."""

COUNTS = EventsQuery(count=True)


@pytest.fixture(scope="module")
def long_journal(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Return the layout of a journal that is longer than one read."""
    layout = Layout.of_execution(tmp_path_factory.mktemp("long"))
    layout.journal.parent.mkdir(parents=True)
    with layout.journal.open("wb") as journal:
        journal.writelines(line(seq) for seq in range(1, PAGES * LINES_AT_ONCE + 1))

    return layout


def line(seq: int) -> bytes:
    event = {
        "id": f"6c9b2a54-8f0e-4d7b-9a43-{seq:012x}",
        "seq": seq,
        "timestamp": "2025-01-04T12:01:30.000Z",
        "type": "token.usage",
        "data": {"codonId": "observe", "cost": 0.5},
        "runId": "1736000000000-abc123-def456",
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


async def test_the_loop_goes_on_while_a_query_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop runs while a query reads the journal: the read here waits for the loop."""
    turned, original = threading.Event(), Ledger.read

    def read(ledger: Ledger, since: int, limit: int | None = None) -> list[bytes]:
        assert turned.wait(LIMIT), "the loop stood still"
        return original(ledger, since, limit)

    async with queries_over(Layout.of_execution(tmp_path)) as (queries, ledger):
        await ledger.record(Info(message="one"))
        monkeypatch.setattr(Ledger, "read", read)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queries.answer, EventsQuery(limit=1))
            await anyio.wait_all_tasks_blocked()
            turned.set()


async def test_a_query_sees_published_events_and_none_that_come_later(tmp_path: Path) -> None:
    """The pages of a query end at the journal's length at the first page."""
    async with queries_over(Layout.of_execution(tmp_path)) as (queries, ledger):
        await ledger.record(*(Info(message=str(number)) for number in range(5)))
        first = await queries.answer(EventsQuery(limit=3))
        assert first.cursor is not None
        await ledger.record(Info(message="later"))
        second = await queries.answer(EventsQuery(limit=3, cursor=first.cursor))
        lines = [*(first.events or ()), *(second.events or ())]
        assert [msgspec.json.decode(event)["seq"] for event in lines] == [1, 2, 3, 4, 5]
        assert second.cursor is None
        assert [bytes(event) for event in lines] == ledger.read(0, 5)


async def test_a_query_that_takes_too_long_is_ended(
    long_journal: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query over its time limit gets RESULT_TOO_LARGE with a hint; the next one is answered."""
    async with queries_over(long_journal) as (queries, _):
        with monkeypatch.context() as patch:
            patch.setattr(query_module, "QUERY_SECONDS", -1.0)
            with pytest.raises(Refused) as refused:
                await queries.answer(COUNTS)

        assert refused.value.code is ErrorCode.RESULT_TOO_LARGE
        assert refused.value.hint
        assert (await queries.answer(EventsQuery(limit=1))).events


async def test_a_client_that_disconnects_stops_its_query(
    long_journal: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled query stops reading, and its thread is free for the next one."""
    async with queries_over(long_journal) as (queries, ledger):
        pages: list[int] = []
        original = ledger.read

        def read(since: int, limit: int | None = None) -> list[bytes]:
            pages.append(since)
            anyio.from_thread.run_sync(scope.cancel)
            return original(since, limit)

        with monkeypatch.context() as patch, anyio.CancelScope() as scope:
            patch.setattr(ledger, "read", read)
            await queries.answer(COUNTS)

        assert scope.cancelled_caught
        assert len(pages) == 1
        assert (await queries.answer(EventsQuery(limit=1))).events
