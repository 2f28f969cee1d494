"""Maps that are removed with all of their executions, and nothing else."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from hankweave_server.clock import SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.map.directory import MapDirectory, MapJournal
from hankweave_server.features.map.listing import map_row
from hankweave_server.features.map.plan import (
    ItemAdded,
    ItemEnded,
    ItemKind,
    ItemStarted,
    MapBegun,
    Placement,
)
from hankweave_server.features.map.removal import remove_map
from hankweave_server.runtime_lock.held import acquire

AT = "2026-01-01T00:00:00.000Z"
META = (
    '{"version": "1.0.0", "readOnlySourceDataPath": "/d", "readOnlySourceResolvedDataPath": "/d",'
    f' "dataHash": "d", "hankHash": "h", "hankPath": "/h", "linkType": "symlink",'
    f' "createdAt": "{AT}", "lastUsed": "{AT}"}}'
)


class FinishedMap:
    """A map of two files and a row, in the form that a command leaves."""

    def __init__(self, folder: Path, root: Path, *, executor: str = "local") -> None:
        self.inputs = folder / "inputs"
        self.output = folder / "output"
        for place in (self.inputs, self.output):
            place.mkdir(exist_ok=True)

        self.directory = MapDirectory(root)
        journal = MapJournal(self.directory)
        begun = MapBegun(
            at=AT,
            hank="/h",
            hank_hash="h",
            items=("a", "b", "row"),
            parallel=2,
            output=str(self.output),
            placement=Placement(executor=executor),
        )
        journal.append([begun])
        row = self.directory.inputs / "0123456789abcdef" / "row.json"
        row.parent.mkdir()
        row.write_text("{}")
        self._item(journal, "a", "file", self.inputs / "a")
        self._item(journal, "b", "file", self.inputs / "b")
        self._item(journal, "row", "row", row)
        journal.close()
        (self.output / "results.jsonl").write_text("{}\n")

    def _item(self, journal: MapJournal, name: str, kind: ItemKind, path: Path) -> None:
        path.write_text(name)
        given = {"item": name, "execution": f"items/{name}", "input_hash": "1", "hank_hash": "h"}
        added = ItemAdded(at=AT, item=name, key=name, kind=kind, path=str(path))
        journal.append([added, ItemStarted(at=AT, **given)])
        journal.append([ItemEnded(at=AT, item=name, outcome="completed", cost=1.0)])
        layout = self.directory.layout(f"items/{name}")
        layout.meta.parent.mkdir(parents=True)
        layout.meta.write_text(META)
        layout.work_tree.mkdir()
        (layout.work_tree / "made.txt").write_text("made")
        layout.data_source.symlink_to(path)
        self.directory.log_of(name).write_text("said")
        self.directory.variables_of(name).write_text("{}")

    def remove(self) -> tuple[str, ...]:
        return remove_map(self.directory, SystemClock()).stays

    @property
    def kept(self) -> dict[str, str]:
        """The inputs and the results, by their names."""
        files = [*self.inputs.iterdir(), *self.output.iterdir()]
        return {path.name: path.read_text() for path in files}


KEPT = {"a": "a", "b": "b", "results.jsonl": "{}\n"}


def test_a_map_goes_with_its_executions_and_without_inputs_and_results(tmp_path: Path) -> None:
    """Nothing is left of its directory; a half-removed execution in it goes as well."""
    made = FinishedMap(tmp_path, tmp_path / "map")
    half = made.directory.layout("items/b")
    half.state_directory.rename(half.removed_state)
    assert made.remove() == ()
    assert not made.directory.root.exists()
    assert made.kept == KEPT


def test_other_files_in_the_directory_of_a_map_stay(tmp_path: Path) -> None:
    """So does the directory then; they are named."""
    made = FinishedMap(tmp_path, tmp_path / "map")
    mine = [made.directory.root / "notes.txt", made.directory.items / "a" / "mine.txt"]
    for path in mine:
        path.write_text("mine")

    assert made.remove() == ("items", "notes.txt")
    assert [path.read_text() for path in mine] == ["mine", "mine"]
    assert sorted(made.directory.root.rglob("*")) == sorted(
        [*mine, mine[1].parent, made.directory.items]
    )


def test_inputs_or_results_among_the_parts_of_a_map_refuse_its_removal(tmp_path: Path) -> None:
    """Nothing is changed, and the message names them."""
    made = FinishedMap(tmp_path, tmp_path / "map")
    with closing(MapJournal(made.directory)) as journal:
        inner = made.directory.items / "a" / "agentRoot" / "made.txt"
        added = ItemAdded(at=AT, item="c", key="c", kind="file", path=str(inner))
        journal.append([added])

    with pytest.raises(Stop, match=str(inner)):
        made.remove()

    assert inner.read_text() == "made"
    assert made.directory.journal.exists()


def test_a_map_on_which_something_works_stays(tmp_path: Path) -> None:
    """A command, a server of an item, or an item that may run in a cluster: exit code 75."""
    local = FinishedMap(tmp_path, tmp_path / "local")
    journal = MapJournal(local.directory)
    expect_refusal(local)
    journal.close()
    held = acquire(local.directory.layout("items/a"), SystemClock())
    expect_refusal(local)
    held.release()
    remote = FinishedMap(tmp_path, tmp_path / "remote", executor="ray")
    started = remote.directory.state().items["a"].started
    assert started is not None
    with closing(MapJournal(remote.directory)) as journal:
        journal.append([started])

    expect_refusal(remote)
    assert local.remove() == ()


def expect_refusal(made: FinishedMap) -> None:
    with pytest.raises(Stop) as refused:
        made.remove()

    assert refused.value.exit_code == ExitCode.LOCK_HELD
    assert made.directory.journal.exists()
    assert len(os.listdir(made.directory.items)) == 3


def dying_at(fatal: int) -> Callable[..., None]:
    """Return an unlink that ends the process at its n-th call."""
    real, calls = os.unlink, itertools.count(1)

    def unlink(name: str, *, dir_fd: int | None = None) -> None:
        if next(calls) == fatal:
            os._exit(9)

        real(name, dir_fd=dir_fd)

    return unlink


def test_a_crash_in_the_middle_is_finished_by_a_second_removal(tmp_path: Path) -> None:
    """After each number of removed files; until then no command continues the map."""
    whole = tmp_path / "whole"
    FinishedMap(tmp_path, whole)
    fatal, is_done = 1, False
    while not is_done:
        root = tmp_path / "map"
        shutil.copytree(whole, root, symlinks=True)
        directory = MapDirectory(root)
        pid = os.fork()
        if pid == 0:
            with patch("os.unlink", dying_at(fatal)):
                remove_map(directory, SystemClock())

            os._exit(0)

        is_done = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        if directory.removed_journal.exists():
            assert map_row(directory, []).state == "removing"
            with pytest.raises(Stop, match="partly removed"):
                MapJournal(directory)

        if not is_done:
            remove_map(directory, SystemClock())

        assert not root.exists()
        fatal += 1

    assert fatal > len(list(whole.rglob("*.txt")))
