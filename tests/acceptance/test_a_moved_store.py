"""Claims about an execution whose state or checkpoints are moved away or replaced by a link."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hankweave_protocol.events import ErrorEvent
from support.command_line import Done, hankweave
from support.scripted_hank import codon, write_hank, writes
from support.watching import events_of

AWAY = {"checkpoints": ".hankweave/checkpoints", "state": ".hankweave"}


class Place:
    """An execution of two codons, the first of which moves folders that it must not move."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.execution = root / "execution"
        self.moved = self.execution / "moved"

    def run(self, *commands: str) -> Done:
        steps = [{"run": command} for command in commands]
        hank = write_hank(
            self.root / "hank",
            codon("one", writes("a.txt", "a"), *steps, writes("b.txt", "b")),
            codon("two", writes("c.txt", "c")),
        )
        return hankweave("run", str(hank), "-e", str(self.execution), "--headless")

    def begun(self) -> None:
        assert self.run().returncode == 0

    def shas(self) -> list[str]:
        listed = hankweave("checkpoints", "-e", str(self.execution), code=0).stdout
        return [line.split()[0] for line in listed.splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("what", "code", "sentence"),
    [
        pytest.param("checkpoints", 65, "{folder} was moved", id="the checkpoints"),
        pytest.param("state", 70, "{folder}/runtime.lock.guard is missing", id="the lock as well"),
    ],
)
def test_a_store_that_an_agent_moves_ends_the_server(
    place: Place, what: str, code: int, sentence: str
) -> None:
    """The server names the missing folder, without a traceback.

    A start behind a link in its place writes nothing; with the folder moved back, the execution
    continues to its end.
    """
    folder = place.execution / AWAY[what]
    ended = place.run(f"test -e ../once || {{ touch ../once; mv {folder} ../moved; }}")
    assert ended.returncode == code
    assert sentence.format(folder=folder) in ended.stderr
    assert "Traceback" not in ended.stderr
    before = sorted(path.name for path in place.moved.rglob("*"))
    folder.symlink_to(place.moved)
    again = place.run()
    assert again.returncode == 65
    assert f"{folder} is a link" in again.stderr
    assert sorted(path.name for path in place.moved.rglob("*")) == before
    folder.unlink()
    place.moved.rename(folder)
    done = place.run("test -e ../once")
    assert done.returncode == 0, done.stderr
    assert (place.execution / "agentRoot" / "c.txt").read_text() == "c"
    assert "intact" in hankweave("fsck", "-e", str(place.execution), code=0).stdout


@pytest.mark.parametrize("folder", [*AWAY.values(), ".hankweave/events"])
def test_a_link_is_refused_at_the_start(place: Place, folder: str) -> None:
    """The message says how to put the folder itself there, and following it works."""
    place.begun()
    before = place.shas()
    (place.execution / folder).rename(place.moved)
    (place.execution / folder).symlink_to(place.moved)
    refused = place.run()
    assert refused.returncode == 65
    assert "is a link" in refused.stderr
    assert os.path.islink(place.execution / folder)
    command = refused.stderr.rpartition("start again: ")[2].strip()
    assert command.startswith("rm ")
    assert shutil.which("sh")
    assert os.system(command) == 0
    assert place.run().returncode == 0
    assert place.shas() == before


def test_checkpoints_that_are_gone_are_not_begun_anew(place: Place) -> None:
    """A start without the folder changes nothing, and names both ways to continue."""
    place.begun()
    before = place.shas()
    folder = place.execution / ".hankweave" / "checkpoints"
    folder.rename(place.moved)
    refused = place.run()
    assert refused.returncode == 65
    assert "is missing" in refused.stderr
    assert not folder.exists()
    place.moved.rename(folder)
    assert place.run().returncode == 0
    assert place.shas() == before


def test_one_can_go_on_without_lost_checkpoints(place: Place) -> None:
    """With an empty folder in their place, the execution continues, with a warning.

    An interrupted codon starts again on the current files.
    """
    place.run(f"test -e ../once || {{ touch ../once; mv ../{AWAY['checkpoints']} ../moved; }}")
    (place.execution / ".hankweave" / "checkpoints").mkdir()
    done = place.run("test -e ../once")
    assert done.returncode == 0, done.stderr
    assert (place.execution / "agentRoot" / "c.txt").exists()
    errors = [error.message for error in events_of(place.execution, ErrorEvent)]
    assert any("Recovery degraded" in message for message in errors)


def test_files_without_a_state_are_not_taken_for_a_new_execution(place: Place) -> None:
    """A newly created `.hankweave` does not make agents' files those of another plan."""
    place.begun()
    (place.execution / ".hankweave").rename(place.moved)
    (place.execution / ".hankweave" / "logs").mkdir(parents=True)
    refused = place.run()
    assert refused.returncode == 65
    assert "contains no state" in refused.stderr
    assert sorted(os.listdir(place.execution / ".hankweave")) == ["logs"]
