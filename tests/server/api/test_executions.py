"""Claims about the list of executions on the wire: its order, its pages, and who may see it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol import instants
from hankweave_protocol.commands import ExecutionsList, GetExecutionAddress
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.executions import ExecutionAddress, ListedExecution, MapProgress
from hankweave_server.api.executions import PAGE, RECENT, Executions, page_of_executions
from support.histories import SteppingClock

NOW = SteppingClock().now()
ADDRESS = ExecutionAddress(page_url="http://127.0.0.1:4242/", token="0" * 64)


def before(**ago: int) -> str:
    return instants.to_text(NOW - timedelta(**ago))


def row(name: str, state: Any = "completed", **facts: Any) -> ListedExecution:
    known = {"hank_name": name, "last_activity": before(hours=1)}
    return ListedExecution(path=f"/runs/{name}", state=state, **(known | facts))


def names(rows: list[ListedExecution], **asked: Any) -> list[str]:
    page = page_of_executions(ExecutionsList(**asked), rows, NOW)
    return [Path(each.path).name for each in page.executions]


def test_who_waits_for_a_person_comes_first() -> None:
    """Permissions, then failures, then what runs, then the rest; the newest first in each."""
    rows = [
        row("done"),
        row("runs", "running", server_pid=1),
        row("failed", "failed"),
        row("crashed", "crashed", last_activity=before(minutes=1)),
        row("asks", "running", server_pid=1, waits_for="Write a.txt", last_activity=before(days=9)),
        row("stopped", "stopped", last_activity=before(minutes=1)),
    ]
    assert names(rows) == ["asks", "crashed", "failed", "runs", "stopped", "done"]
    assert page_of_executions(ExecutionsList(), rows, NOW).needing == 3


def test_not_every_failure_needs_a_person() -> None:
    """One of an attempt does not, nor one of long ago whose server has ended."""
    old = instants.to_text(NOW - RECENT - timedelta(seconds=1))
    rows = [
        row("attempt", "failed", attempt="x-1"),
        row("old", "failed", last_activity=old),
        row("served", "failed", last_activity=old, server_pid=1),
    ]
    assert names(rows) == ["served", "attempt", "old"]
    assert page_of_executions(ExecutionsList(), rows, NOW).needing == 1


def test_an_idle_server_whose_codon_has_failed_needs_a_person() -> None:
    """One that is idle for another reason comes after those that run."""
    rows = [
        row("idle", "running", server_pid=1, is_idle=True, last_activity=before(minutes=1)),
        row("runs", "running", server_pid=1, last_activity=before(days=1)),
        row("failed", "running", server_pid=1, is_idle=True, failure="It failed."),
    ]
    assert names(rows) == ["failed", "runs", "idle"]
    assert page_of_executions(ExecutionsList(), rows, NOW).needing == 1


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("", ["a", "b"]),
        ("QUAKES", ["a"]),
        ("runs/b", ["b"]),
        ("review 0", ["a"]),
        ("quakes review", ["a"]),
        ("quakes csv", []),
        ("csv", ["b"]),
        ("[", []),
    ],
)
def test_a_search_finds_every_word_in_hank_path_data_or_step(search: str, found: list[str]) -> None:
    rows = [row("a", hank_name="Quakes", last_codon="review#0"), row("b", data="/d/x.csv")]
    assert names(rows, search=search) == found


def test_a_list_comes_in_pages() -> None:
    """The pages together are the whole list; no request makes one larger than the limit."""
    rows = [row(f"{number:04}") for number in range(PAGE + 50)]
    first = page_of_executions(ExecutionsList(limit=10_000), rows, NOW)
    assert (len(first.executions), first.total) == (PAGE, PAGE + 50)
    rest = page_of_executions(ExecutionsList(cursor=first.cursor), rows, NOW)
    assert rest.cursor is None
    assert {each.path for each in (*first.executions, *rest.executions)} == {
        each.path for each in rows
    }
    assert len(names(rows, limit=3)) == 3


@pytest.mark.parametrize("cursor", ["", "-1", "x", "1.5", "١", "9" * 40])
def test_a_cursor_of_something_else_is_refused(cursor: str) -> None:
    with pytest.raises(Refused) as refused:
        page_of_executions(ExecutionsList(cursor=cursor), [], NOW)

    assert refused.value.code is ErrorCode.INVALID_COMMAND
    assert refused.value.path == "$.data.cursor"


# --- who may see them -----------------------------------------------------------------------------


def handler(*, exposes_rows: bool = True, exposes_tokens: bool = True) -> Executions:
    def address_of(path: str) -> ExecutionAddress | None:
        return ADDRESS if path == "/runs/served" else None

    return Executions(
        lambda: [row("served", "running", server_pid=1), row("done")],
        lambda since: (NOW - since) / timedelta(hours=1),
        address_of,
        SteppingClock(),
        exposes_rows=exposes_rows,
        exposes_tokens=exposes_tokens,
    )


async def test_the_address_of_a_listed_server_is_included() -> None:
    """Nothing is read for a path that no list has, whatever is there."""
    assert await handler().address(GetExecutionAddress(execution_path="/runs/served")) == ADDRESS
    for path in ("/runs/done", "/runs/served/", "/runs/../runs/served", "/etc"):
        with pytest.raises(Refused) as refused:
            await handler().address(GetExecutionAddress(execution_path=path))

        assert refused.value.path == "$.data.executionPath"


async def test_costs_since_a_time_are_included_if_requested() -> None:
    asked = ExecutionsList(search="none", spent_since=before(hours=3))
    assert (await handler().list(asked)).spent == 3
    assert (await handler().list(ExecutionsList())).spent is None
    with pytest.raises(Refused) as refused:
        await handler().list(ExecutionsList(spent_since="today"))

    assert refused.value.code is ErrorCode.INVALID_COMMAND
    assert refused.value.path == "$.data.spentSince"


async def test_a_server_without_tokens_discloses_nothing_of_others() -> None:
    """Anybody on the machine can ask it."""
    silent = handler(exposes_rows=False)
    for asked in (
        silent.list(ExecutionsList()),
        silent.address(GetExecutionAddress(execution_path="/runs/served")),
    ):
        with pytest.raises(Refused) as refused:
            await asked

        assert refused.value.code is ErrorCode.INSUFFICIENT_PERMISSIONS


async def test_a_server_beyond_loopback_lists_but_discloses_no_tokens() -> None:
    """Its clients may be elsewhere, where the addresses of the others lead nowhere."""
    public = handler(exposes_tokens=False)
    assert (await public.list(ExecutionsList())).total == 2
    with pytest.raises(Refused) as refused:
        await public.address(GetExecutionAddress(execution_path="/runs/served"))

    assert refused.value.code is ErrorCode.INSUFFICIENT_PERMISSIONS


def test_a_map_is_one_row_that_leads_to_its_executions() -> None:
    """They are listed if they are asked for, or found by words; their failures are the map's."""
    whole = MapProgress(inputs=2, completed=1, failed=1, running=0)
    rows = [
        row("map", "failed", map=whole),
        row("one", map_of="/runs/map"),
        row("two", "failed", map_of="/runs/map"),
        row("other"),
    ]
    assert sorted(names(rows)) == ["map", "other"]
    assert page_of_executions(ExecutionsList(), rows, NOW).needing == 1
    assert sorted(names(rows, map_path="/runs/map")) == ["one", "two"]
    assert names(rows, search="two") == ["two"]
