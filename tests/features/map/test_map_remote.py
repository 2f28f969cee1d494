"""Items on machines that share nothing but a storage: processes here, which are killed."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import anyio
import pytest

from hankweave_server.clock import SystemClock
from hankweave_server.domain.execution_thread import active_codon
from hankweave_server.errors import Stop
from hankweave_server.features.map.directory import MapDirectory, MapJournal
from hankweave_server.features.map.executor import ItemExit, ItemLaunch, ItemLimits
from hankweave_server.features.map.inputs import hank_hash, inputs_of, wanted_items
from hankweave_server.features.map.plan import Item, MapEnded
from hankweave_server.features.map.remote.executor import RemoteExecutor, RemoteServer
from hankweave_server.features.map.remote.item import RemoteItem, send
from hankweave_server.features.map.remote.packages import FolderStorage, pack, storage_at, unpack
from hankweave_server.features.map.remote.ray_cluster import require_cluster, slots_of
from hankweave_server.features.map.results import read_state
from hankweave_server.features.map.supervisor import MapSettings, Supervisor
from hankweave_server.paths import Layout
from support.machines import Machines
from support.scripted_hank import Step, codon, waits_for, write_hank
from support.waiting import eventually, limited

COUNTS: Step = {"append": {"path": "count.txt", "text": "{{map.item}}\n"}}


@pytest.fixture(autouse=True)
def _unconfined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANKWEAVE_RUNTIME_CONFINEMENT", "none")


class Remote:
    """A map whose items run on machines."""

    def __init__(self, folder: Path, hank: Path, *inputs: str) -> None:
        for name in inputs:
            (folder / name).write_text(name)

        self.hank = hank
        self.directory = MapDirectory(folder / "map")
        self.storage = folder / "storage"
        self.machines = Machines(folder / "machines", self.storage)
        self.executor = self.new_executor()
        self._paths = [folder / name for name in inputs]

    def new_executor(self) -> RemoteExecutor:
        """Return the executor of another command."""
        storage, scratch = FolderStorage(self.storage), self.directory.root / "scratch"
        return RemoteExecutor(self.machines, storage, scratch, hank_hash(self.hank), ItemLimits())

    async def run(self, **settings: Any) -> MapEnded:
        journal = MapJournal(self.directory)
        wanted = wanted_items(journal, [*inputs_of(self._paths)], None, SystemClock())
        asked = MapSettings(self.hank, hank_hash(self.hank), parallel=2, **settings)
        supervisor = Supervisor(
            journal, wanted, asked, self.executor, SystemClock(), lambda *_told: None
        )
        try:
            with limited():
                return await supervisor.run()
        finally:
            journal.close()

    def item(self, name: str) -> Item:
        return self.directory.state().items[name]

    def work_tree(self, name: str) -> Path:
        return self.directory.items / name / "agentRoot"


async def test_inputs_go_to_machines_and_results_come_back(tmp_path: Path) -> None:
    """The execution is as if it had run here, and nothing else is left."""
    hank = write_hank(
        tmp_path / "hank",
        codon(
            "one",
            {"run": "cp {{map.input}} copy.txt"},
            {"cost": 0.5},
            outputFiles=[{"copy": ["copy.txt"]}],
        ),
    )
    remote = Remote(tmp_path, hank, "a.txt")
    ended = await remote.run(output=tmp_path / "out")
    assert (ended.outcome, ended.cost) == ("completed", 0.5)
    assert (remote.work_tree("a.txt") / "copy.txt").read_text() == "a.txt"
    assert (remote.work_tree("a.txt") / "read_only_data_source" / "a.txt").read_text() == "a.txt"
    assert (tmp_path / "out" / "a.txt" / "copy.txt").read_text() == "a.txt"
    assert FolderStorage(remote.storage).names("a.txt.1") == []
    assert remote.machines.workers == {}


async def test_an_item_whose_machine_dies_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    """On another one; completed codons are not run again, and the time lost is recorded."""
    gate = tmp_path / "gate"
    hank = write_hank(tmp_path / "hank", codon("one", COUNTS), codon("two", waits_for(gate)))
    remote = Remote(tmp_path, hank, "a.txt")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(remote.run)
        await eventually(lambda: is_stored_in(remote, "a.txt.1", "two", tmp_path / "looked-at"))
        worker = remote.machines.workers["a.txt.1"]
        course = RemoteServer(worker, worker.item, remote.executor).course()
        assert course.codon == "two"
        worker.kill()
        gate.touch()

    assert worker.machines == 2
    assert (remote.work_tree("a.txt") / "count.txt").read_text() == "a.txt\n"
    item = remote.item("a.txt")
    assert item.status == "completed"
    assert (item.started.start, item.ended.moves) == (1, 1)
    assert item.ended.lost_ms > 0


def is_stored_in(remote: Remote, folder: str, codon_id: str, place: Path) -> bool:
    """Return whether a snapshot is stored that was taken in a codon."""
    for package in (remote.storage / folder).glob("[0-9]*"):
        unpack(package, place)

    state = read_state(Layout.of_execution(place / "execution"))
    active = None if state is None else active_codon(state)
    return active is not None and active.codon_id == codon_id


def test_a_package_keeps_modes_links_and_contents(tmp_path: Path) -> None:
    """Links are not followed, nor are sockets and FIFOs packed; what is left out is."""
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "tool").write_text("run")
    (top / "sub" / "tool").chmod(0o751)
    (top / "again").hardlink_to(top / "sub" / "tool")
    (top / "away").symlink_to("/etc/passwd")
    (top / "own").write_text("left out")
    os.mkfifo(top / "fifo")
    pack(tmp_path / "package", {"a/b": top}, [top / "own"])
    unpack(tmp_path / "package", tmp_path / "there")
    found = tmp_path / "there" / "a" / "b"
    assert sorted(os.listdir(found)) == ["again", "away", "sub"]
    assert (found / "away").readlink() == Path("/etc/passwd")
    assert (found / "again").read_text() == "run"
    assert (found / "sub" / "tool").stat().st_mode & 0o777 == 0o751


def test_a_package_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    """Nothing of it is written outside."""
    (tmp_path / "file").write_text("content")
    for name in ("../out", "a/../../out"):
        pack(tmp_path / "package", {name: tmp_path / "file"})
        with pytest.raises(OSError, match="outside of it"):
            unpack(tmp_path / "package", tmp_path / "there")

    assert not (tmp_path / "out").exists()


def test_a_hank_travels_with_the_files_that_it_names(tmp_path: Path) -> None:
    """By their names in it, also through a link; others stay."""
    hank = write_hank(tmp_path / "hank", codon("one", promptFile="prompts/one.md"))
    (tmp_path / "hank" / "prompts").mkdir()
    (tmp_path / "hank" / "real.md").write_text("do it")
    (tmp_path / "hank" / "prompts" / "one.md").symlink_to("../real.md")
    (tmp_path / "hank" / "other.md").write_text("not named")
    for name in ("data", "variables"):
        (tmp_path / name).write_text("{}")

    layout = Layout.of_execution(tmp_path / "execution")
    paths = (layout, hank, tmp_path / "data", tmp_path / "variables")
    launch = ItemLaunch("a", 1, *paths, log=tmp_path / "log")
    storage = FolderStorage(tmp_path / "storage")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    send(RemoteItem(launch, "a.1", "hank-1", ItemLimits()), storage, scratch)
    assert storage.names("") == ["a.1", "hank-1"]
    unpack(tmp_path / "storage" / "hank-1", tmp_path / "there")
    assert (tmp_path / "there" / "prompts" / "one.md").read_text() == "do it"
    assert not (tmp_path / "there" / "other.md").exists()


async def test_what_ended_while_no_command_was_there_is_collected(tmp_path: Path) -> None:
    """The next executor finds neither worker nor execution here, but the end in the storage."""
    hank = write_hank(tmp_path / "hank", codon("one", COUNTS))
    for name in ("a.txt", "variables"):
        (tmp_path / name).write_text('{"map.item": "a"}')

    layout = Layout.of_execution(tmp_path / "items" / "a")
    paths = (layout, hank, tmp_path / "a.txt", tmp_path / "variables")
    launch = ItemLaunch("a", 1, *paths, log=tmp_path / "log")
    machines = Machines(tmp_path / "machines", tmp_path / "storage")
    storage = FolderStorage(tmp_path / "storage")
    executor = RemoteExecutor(machines, storage, tmp_path / "scratch", "h", ItemLimits())
    assert await executor.find(launch) is None
    server = await executor.start(launch)
    with limited():
        await server.worker.ended()

    machines.workers.clear()
    found = await executor.find(launch)
    assert await found.result() == ItemExit(0)
    assert (layout.work_tree / "count.txt").read_text() == "a\n"
    await executor.forget(launch)
    assert storage.names("a.1") == []


def test_a_wrong_address_is_refused_at_once() -> None:
    """Whether nothing answers there, or something else does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    with pytest.raises(Stop, match="no Ray cluster"):
        require_cluster(f"127.0.0.1:{port}")

    with pytest.raises(Stop, match="Ray's clients"):
        require_cluster("127.0.0.1:10001")


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_storage_in_a_folder_needs_no_library(tmp_path: Path, scheme: str) -> None:
    """Whether it is named by its path or by its URL."""
    storage, package = storage_at(f"{scheme}{tmp_path}/shared"), tmp_path / "package"
    package.write_text("content")
    storage.put("item.1/start", package)
    assert (tmp_path / "shared" / "item.1" / "start").read_text() == "content"
    assert storage.names("item.1") == ["start"]


def test_room_in_a_cluster_is_what_all_resources_allow() -> None:
    """At least one item runs at a time, so that one that fits nowhere waits visibly."""
    available = {"CPU": 8.0, "GPU": 2.0}
    assert slots_of(available, {"CPU": 2.0}) == 4
    assert slots_of(available, {"CPU": 1.0, "GPU": 1.0}) == 2
    assert slots_of(available, {"CPU": 0.0}) == 8
    assert slots_of(available, {"CPU": 16.0}) == 1
