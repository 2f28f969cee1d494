"""The journal of a map on a real disk, and its lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.map.directory import MapDirectory, MapJournal, maps_in
from hankweave_server.features.map.plan import ItemAdded

AT = "2026-01-01T00:00:00.000Z"


def added(name: str) -> ItemAdded:
    return ItemAdded(at=AT, item=name, key=name, kind="file", path=f"/{name}")


def written(root: Path, *names: str) -> MapDirectory:
    directory = MapDirectory(root)
    journal = MapJournal(directory)
    journal.append([added(name) for name in names])
    journal.close()
    return directory


def test_what_was_appended_is_read_again(tmp_path: Path) -> None:
    """The state of the writer and of a reader are the same."""
    directory = written(tmp_path / "map", "a", "b")
    assert list(directory.state().items) == ["a", "b"]
    assert maps_in(tmp_path) == [directory.root]


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_torn_last_line_is_removed(tmp_path: Path, kept: int) -> None:
    """A power cut can leave any part of it; lines before it stay, and the next one is whole."""
    directory = written(tmp_path / "map", "a", "b")
    whole = directory.journal.read_bytes()
    first = whole.index(b"\n") + 1
    directory.journal.write_bytes(whole[:first] + whole[first:][:kept])
    assert list(directory.state().items) == ["a"]
    written(directory.root, "c")
    assert list(directory.state().items) == ["a", "c"]


def test_records_of_a_newer_version_are_passed_over(tmp_path: Path) -> None:
    """An older program can read what it knows."""
    directory = written(tmp_path / "map", "a")
    with directory.journal.open("ab") as file:
        file.write(b'{"type":"item.moved","item":"a"}\n')

    assert list(directory.state().items) == ["a"]


@pytest.mark.parametrize("line", [b"\0\0\0\n", b'{"type":"item.added"}\n'])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    """Nothing is guessed."""
    directory = written(tmp_path / "map", "a")
    with directory.journal.open("ab") as file:
        file.write(line)

    with pytest.raises(Stop, match=r"map\.jsonl:2") as stopped:
        directory.state()

    assert stopped.value.exit_code == ExitCode.BAD_DATA


def test_a_map_has_one_supervisor(tmp_path: Path) -> None:
    """A second one is refused while the first lives, and readers see which process that is."""
    directory = MapDirectory(tmp_path / "map")
    program = (
        "import sys, pathlib; from hankweave_server.features.map.directory import *; "
        "journal = MapJournal(MapDirectory(pathlib.Path(sys.argv[1]))); "
        "print('owned', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(directory.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout.readline() == b"owned\n"
        assert directory.supervisor() == owner.pid
        with pytest.raises(Stop) as stopped:
            MapJournal(directory)

        assert stopped.value.exit_code == ExitCode.LOCK_HELD
        owner.kill()

    assert directory.supervisor() is None
    MapJournal(directory).close()
