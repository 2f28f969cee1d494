"""Session snapshots: their size, their content, and their state after a crash."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.model import Skipped
from hankweave_server.checkpoints.session_snapshots import PIECE
from hankweave_server.paths import Layout
from support.crashes import crash_after

REF = "refs/hankweave/memory"
LINE = b'{"step": "0123456789"}\n'


class Mind:
    """Some session files and the engine that stores them."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout.of_execution(root / "execution")
        self.layout.work_tree.mkdir(parents=True)
        self.home = root / "home"
        self.home.mkdir()
        self.engine = CheckpointEngine.open(self.layout)

    def places(self) -> dict[str, Path]:
        return {f"sessions/{path.name}": path for path in self.home.iterdir()}

    def save(self, beyond: int = 0) -> int:
        epoch = self.engine.sessions.save(self.places(), beyond=beyond)
        self.engine._repo.publish(None, {})  # As the next checkpoint does.
        return epoch

    def rewind(self, epoch: int) -> tuple[Skipped, ...]:
        return self.engine.sessions.rewind(epoch, self.place_of, ())

    def place_of(self, name: str) -> Path:
        return self.home / name.removeprefix("sessions/")

    def content(self) -> Mapping[str, bytes]:
        return {path.name: path.read_bytes() for path in self.home.iterdir()}

    def reopen(self) -> None:
        self.engine.close()
        self.engine = CheckpointEngine.open(self.layout)

    def git(self, *words: str) -> str:
        repository = str(self.layout.shadow_repository)
        done = subprocess.run(
            ["git", "--git-dir", repository, *words], capture_output=True, check=True, text=True
        )
        return done.stdout

    def objects(self) -> dict[str, int]:
        shape = "--batch-check=%(objectname) %(objectsize)"
        lines = self.git("cat-file", "--batch-all-objects", shape).splitlines()
        return {name: int(size) for name, _, size in (line.partition(" ") for line in lines)}


@pytest.fixture
def mind(tmp_path):
    mind = Mind(tmp_path)
    yield mind
    mind.engine.close()


def test_each_state_of_the_files_is_an_epoch_that_comes_back(mind):
    """Files of any size and name are restored; equal states share a snapshot; number 0 is empty."""
    assert mind.save() == 0
    states = {}
    for content in (b"", b"short", b"x" * PIECE, os.urandom(3 * PIECE + 7)):
        (mind.home / "a ü%2F.json").write_bytes(content)
        epoch = mind.save()
        states[epoch] = mind.content()
        assert mind.save() == epoch

    assert list(states) == [1, 2, 3, 4]
    for epoch in (2, 4, 1, 3):
        assert mind.rewind(epoch) == ()
        assert mind.content() == states[epoch]

    mind.git("fsck", "--strict", "--full")


def test_a_transcript_that_grew_costs_its_end(mind):
    """For a growing file only the last piece is stored again."""
    path = mind.home / "s.jsonl"
    path.write_bytes(LINE * 100_000)
    mind.save()
    before = mind.objects()
    with path.open("ab") as file:
        file.write(LINE)

    mind.save()
    new = [size for name, size in mind.objects().items() if name not in before]
    assert sum(new) < 2 * PIECE


def test_a_line_that_is_being_written_is_not_remembered_yet(mind):
    """A torn last line is cut, whatever its length; files without lines are kept whole."""
    (mind.home / "s.jsonl").write_bytes(LINE * 3 + b"t" * (2 * PIECE))
    (mind.home / "never.jsonl").write_bytes(b"torn")
    (mind.home / "h.json").write_bytes(b"[1")
    epoch = mind.save()
    assert mind.rewind(epoch) == ()
    assert mind.content() == {"s.jsonl": LINE * 3, "never.jsonl": b"", "h.json": b"[1"}


def test_what_is_no_readable_file_is_not_remembered(mind):
    """Links, folders and pipes are skipped, and a pipe does not block."""
    (mind.home / "s.jsonl").write_bytes(LINE)
    (mind.home / "link").symlink_to("/etc/passwd")
    (mind.home / "folder").mkdir()
    os.mkfifo(mind.home / "pipe")
    epoch = mind.save()
    assert mind.git("ls-tree", "-r", "--name-only", REF).split() == [
        f"0000000/0{epoch}/sessions%2Fs.jsonl"
    ]


def test_a_rewind_that_fails_leaves_the_file_and_says_why(mind, tmp_path):
    """A folder in its place, an unknown place or damaged content is the reported reason."""
    path = mind.home / "s.jsonl"
    path.write_bytes(LINE)
    first = mind.save()
    path.unlink()
    path.mkdir()
    assert [skip.reason for skip in mind.rewind(first)] == ["not-ours"]
    assert mind.engine.sessions.rewind(first, lambda _name: None, ()) == (
        Skipped(b"sessions/s.jsonl", "no-place"),
    )
    path.rmdir()
    path.write_bytes(b"now")
    for pack in mind.layout.shadow_repository.glob("objects/pack/*"):
        pack.chmod(0o600)
        pack.write_bytes(bytes(len(pack.read_bytes())))

    mind.reopen()
    assert {skip.reason for skip in mind.rewind(first)} <= {"damaged", "memory-lost"}
    assert path.read_bytes() == b"now"


def test_what_is_put_back_is_private_and_leaves_nothing_beside_it(mind):
    """A restored file has mode 0600 and no temporary file beside it; folders are recreated."""
    path = mind.home / "s.jsonl"
    path.write_bytes(LINE)
    epoch = mind.save()
    path.write_bytes(b"")
    path.chmod(0o644)
    mind.rewind(epoch)
    assert (stat.S_IMODE(path.stat().st_mode), mind.content()) == (0o600, {"s.jsonl": LINE})
    path.unlink()
    mind.home.rmdir()
    mind.rewind(epoch)
    assert stat.S_IMODE(mind.home.stat().st_mode) == 0o700
    assert mind.content() == {"s.jsonl": LINE}


def test_new_numbers_follow_those_that_checkpoints_name(mind):
    """New numbers follow those that checkpoints name, even of lost snapshots and beyond 100."""
    path = mind.home / "s.jsonl"
    path.write_bytes(LINE)
    assert mind.save(beyond=98) == 99
    for count in (2, 3):
        path.write_bytes(LINE * count)
        mind.reopen()
        assert mind.save() == 98 + count

    mind.git("update-ref", "-d", REF)
    mind.reopen()
    assert mind.save(beyond=101) == 102
    assert mind.rewind(100) == (Skipped(REF.encode(), "memory-lost"),)


@pytest.mark.parametrize("name", ["rename", "fsync", "unlink", "replace"])
def test_a_crash_while_memory_is_saved_or_rewound_leaves_the_old_or_the_new(tmp_path, name):
    """A crash before any disk-changing call leaves earlier snapshots intact and the file whole."""
    for number in range(8):
        mind = Mind(tmp_path / str(number))
        path = mind.home / "s.jsonl"
        path.write_bytes(LINE)
        first = mind.save()
        path.write_bytes(LINE * 2)
        second = 0
        with crash_after(number, (os, name)):
            second = mind.save()
            mind.rewind(first)

        mind.reopen()
        assert path.read_bytes() in (LINE, LINE * 2)
        assert mind.rewind(first) == ()
        assert mind.content() == {"s.jsonl": LINE}
        assert mind.save() in {first + 1, first + 2, first, second}
        mind.git("fsck", "--strict", "--full")
        mind.engine.close()
