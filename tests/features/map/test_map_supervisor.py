"""A supervisor with an executor of another kind, which shows what it requires of one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hankweave_server.clock import SystemClock
from hankweave_server.errors import ExitCode
from hankweave_server.features.map.directory import MapDirectory, MapJournal
from hankweave_server.features.map.executor import ItemExit, ItemLaunch
from hankweave_server.features.map.plan import (
    Item,
    ItemAdded,
    ItemEnded,
    ItemStarted,
    MapEnded,
    MapRecord,
    WantedItem,
)
from hankweave_server.features.map.supervisor import MapSettings, Supervisor

AT = "2026-01-01T00:00:00.000Z"


@dataclass(eq=False)
class EndedServer:
    exit_code: int | None
    overrun: str | None = None
    stops: int = 0

    def stop(self) -> None:
        self.stops += 1

    def course(self) -> None:
        return None

    async def result(self) -> ItemExit:
        return ItemExit(self.exit_code, self.overrun)


@dataclass
class Elsewhere:
    """An executor whose servers end at once with the codes that it is given."""

    codes: list[int | None]
    found: list[int | None] = field(default_factory=list)
    """The exit codes of servers that are found, one for each search; none if it is empty."""
    overrun: str | None = None
    launched: list[ItemLaunch] = field(default_factory=list)
    forgotten: list[ItemLaunch] = field(default_factory=list)
    slots = 1

    async def start(self, launch: ItemLaunch) -> EndedServer:
        self.launched.append(launch)
        return EndedServer(self.codes.pop(0), self.overrun)

    async def find(self, launch: ItemLaunch) -> EndedServer | None:
        return EndedServer(self.found.pop(0)) if self.found else None

    async def forget(self, launch: ItemLaunch) -> None:
        self.forgotten.append(launch)


def started(name: str, **fields: Any) -> ItemStarted:
    given = {"execution": f"items/{name}", "input_hash": "1", "hank_hash": "h"} | fields
    return ItemStarted(at=AT, item=name, **given)


def completed(name: str, cost: float, **fields: Any) -> list[MapRecord]:
    return [
        started(name, **fields),
        ItemEnded(at=AT, item=name, outcome="completed", cost=cost),
    ]


async def run(
    root: Path,
    executor: Elsewhere,
    *names: str,
    before: Sequence[MapRecord] = (),
    **settings: Any,
) -> tuple[MapEnded, Supervisor]:
    journal = MapJournal(MapDirectory(root))
    journal.append(
        [ItemAdded(at=AT, item=name, key=name, kind="file", path=f"/{name}") for name in names]
    )
    journal.append(before)
    wanted = [WantedItem(name, "1") for name in names]
    supervisor = Supervisor(
        journal,
        wanted,
        MapSettings(Path("/hank.json"), "h", **settings),
        executor,
        SystemClock(),
        lambda _record, _counted: None,
    )
    ended = await supervisor.run()
    journal.close()
    return ended, supervisor


def item_of(supervisor: Supervisor, name: str) -> Item:
    return next(item for item in supervisor.items if item.name == name)


async def test_a_server_that_finds_the_directory_owned_gives_way(tmp_path: Path) -> None:
    """The owner is waited for: a server that a killed supervisor was about to start."""
    executor = Elsewhere([ExitCode.LOCK_HELD], found=[ExitCode.FAILED])
    _, supervisor = await run(tmp_path, executor, "a")
    ended = item_of(supervisor, "a").ended
    assert (len(executor.launched), ended.exit_code) == (1, ExitCode.FAILED)


async def test_a_server_that_refuses_to_start_fails_its_item(tmp_path: Path) -> None:
    """It is not started again: it would refuse again. Others go on."""
    executor = Elsewhere([ExitCode.CONFIGURATION, ExitCode.CONFIGURATION])
    ended, _ = await run(tmp_path, executor, "a", "b")
    assert (ended.outcome, ended.failed, len(executor.launched)) == ("failed", 2, 2)


async def test_a_server_that_ends_by_itself_is_started_three_times(tmp_path: Path) -> None:
    """Then its item has failed, and the command ends."""
    ended, supervisor = await run(tmp_path, Elsewhere([-9] * 3), "a")
    assert ended.failed == 1
    record = item_of(supervisor, "a").ended
    assert "3 times" in (record.message or "")


async def test_what_ran_when_the_supervisor_was_killed_is_waited_for(tmp_path: Path) -> None:
    """Nothing is started; the end of the server is recorded."""
    executor = Elsewhere([], found=[ExitCode.FAILED])
    ended, _ = await run(tmp_path, executor, "a", before=[started("a")])
    assert (ended.failed, executor.launched) == (1, [])


async def test_what_was_about_to_be_started_is_started_once(tmp_path: Path) -> None:
    """The record is written first, so a killed supervisor may have started nothing."""
    executor = Elsewhere([ExitCode.CONFIGURATION])
    await run(tmp_path, executor, "a", before=[started("a")])
    assert [launch.layout.root for launch in executor.launched] == [tmp_path / "items" / "a"]


async def test_what_was_only_about_to_be_started_has_not_crashed(tmp_path: Path) -> None:
    """It is resumed by a later command, if the budget of this one does not allow a start."""
    before = [*completed("b", 3.0), started("a")]
    await run(tmp_path, Elsewhere([]), "a", "b", before=before, max_cost=3.0)
    item = MapDirectory(tmp_path).state().items["a"]
    assert (item.status, item.crashes, item.ended.message) == ("stopped", 0, None)


async def test_an_item_beyond_a_limit_fails_with_that(tmp_path: Path) -> None:
    """It is not started again: it would grow again."""
    executor = Elsewhere([-15], overrun="It used too much.")
    _, supervisor = await run(tmp_path, executor, "a")
    item = item_of(supervisor, "a")
    assert (item.status, item.ended.message) == ("failed", "It used too much.")


async def test_nothing_is_started_after_the_first_failure_if_that_is_asked(tmp_path: Path) -> None:
    """The rest is waiting."""
    executor = Elsewhere([ExitCode.CONFIGURATION])
    ended, _ = await run(tmp_path, executor, "a", "b", "c", fail_fast=True)
    assert (ended.outcome, ended.failed, ended.waiting) == ("failed", 1, 2)


@pytest.mark.parametrize("others", [{"input_hash": "2"}, {"hank_hash": "other"}])
async def test_a_finished_item_runs_again_only_if_it_has_changed(
    tmp_path: Path, others: dict[str, str]
) -> None:
    """Until then it counts as waiting, with what it has cost before."""
    before = [*completed("a", 2.0), *completed("b", 1.0, **others)]
    executor = Elsewhere([])
    ended, supervisor = await run(tmp_path, executor, "a", "b", before=before, max_cost=3.0)
    assert (ended.outcome, ended.completed, ended.waiting) == ("budget", 1, 1)
    assert (ended.cost, executor.launched) == (3.0, [])
    assert item_of(supervisor, "b").ended is None


async def test_the_command_line_of_an_item_names_its_execution(tmp_path: Path) -> None:
    """With options that let no prompt get in the way, and its variables in a file."""
    executor = Elsewhere([ExitCode.FAILED])
    options = {"--model": "opus", "--copy": True}
    await run(tmp_path, executor, "a", options=options, max_cost=2.0)
    (launch,) = executor.launched
    execution = str(tmp_path / "items" / "a")
    assert launch.arguments[:5] == ("run", "/hank.json", "/a", "--execution", execution)
    assert launch.arguments[-3:] == ("--model", "opus", "--copy")
    assert {"--headless", "--yes", "--force"} <= set(launch.arguments)
    assert launch.arguments[launch.arguments.index("--max-cost") + 1] == "2.0"
    file = launch.arguments[launch.arguments.index("--variables") + 1]
    assert json.loads(Path(file).read_text()) == {
        "map.item": "a",
        "map.input": "read_only_data_source/a",
    }
