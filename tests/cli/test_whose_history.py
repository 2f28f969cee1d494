"""The history that a project has, for its user: git clean, a moved project, and `--state-dir`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hankweave_protocol import codec
from hankweave_protocol.events import HistoryIdentified
from hankweave_protocol.state_directory import state_directory_of
from support.command_line import Done, hankweave
from support.scripted_hank import codon, write_hank, writes


class Place:
    """A project in its own git, a hank, and a home for states."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.project.mkdir()
        (self.project / "mine.txt").write_text("mine")
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.hank = write_hank(root / "hank", codon("one", writes("one.txt", "1")))

    def git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.project, check=True, capture_output=True)

    def run(self, *options: str, **env: str) -> Done:
        words = ("run", str(self.hank), "--workspace", str(self.project), "--headless")
        # Unconfined, a new project has its state in it, whatever this machine can confine.
        return hankweave(*words, *options, code=0, HANKWEAVE_RUNTIME_CONFINEMENT="none", **env)

    def found(self) -> list[str]:
        path = state_directory_of(self.project) / "events" / "events.jsonl"
        events = (codec.decode_event(line) for line in path.read_bytes().splitlines())
        return [each.data.finding for each in events if isinstance(each.data, HistoryIdentified)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    return Place(tmp_path)


@pytest.mark.parametrize("how", ["option", "variable", "file"])
def test_git_clean_is_reported_and_a_state_dir_survives_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The start after it says so; with --state-dir, every command still finds the history."""
    place.run()
    place.git("clean", "-fdx")
    done = place.run()
    assert "warning: The history of this project is gone" in done.stdout
    assert place.found() == ["gone"]

    states = place.root / "states"
    monkeypatch.chdir(place.root)
    match how:
        case "option":
            place.run("--state-dir", str(states))
        case "variable":
            place.run(HANKWEAVE_RUNTIME_STATE_DIR=str(states))
        case _:
            (place.root / "hankweave.json").write_text(json.dumps({"stateDir": str(states)}))
            place.run()
            (place.root / "hankweave.json").unlink()

    assert place.found() == ["gone", "relocated"]
    place.git("clean", "-fdx")
    assert not (place.project / ".hankweave").exists()
    here = ("-e", str(place.project))
    listed = json.loads(hankweave("checkpoints", *here, "--json", code=0).stdout)
    first = listed["checkpoints"][-1]["sha"]
    for words in (("log", *here), ("runs", *here), ("fsck", *here), ("show", first, *here)):
        hankweave(*words, code=0)

    assert not (place.project / "one.txt").exists()
    completed = next(each for each in listed["checkpoints"] if each["kind"] == "completed")
    hankweave("rollback", "--to", completed["sha"], "--yes", *here, code=0)
    assert (place.project / "one.txt").read_text() == "1"
    assert "nothing to do" in place.run().stdout
    assert hankweave("cleanup", *here, "--yes", code=0).returncode == 0
    assert list(states.iterdir()) == []


def test_a_moved_project_is_found_and_another_in_its_place_is_not_it(place: Place) -> None:
    """The hint of a command leads to the start that finds it; the newcomer's hint is complete."""
    states = ("--state-dir", str(place.root / "states"))
    place.run(*states)
    moved, former = place.root / "moved", place.project
    former.rename(moved)
    refused = hankweave("log", "-e", str(moved), code=66)
    assert f"hankweave run --workspace {moved}" in refused.stderr
    former.mkdir()
    newcomer = place.run(*states)
    assert f"--workspace {former} --adopt-state {place.root / 'states'}" in newcomer.stdout
    assert (former / "one.txt").read_text() == "1"
    place.project = moved
    again = place.run()
    assert "nothing to do" in again.stdout
    assert place.found() == ["moved"]


def test_both_options_are_for_projects(place: Place) -> None:
    """Without a project, or with an execution, they are refused, and nothing is made."""
    states = str(place.root / "states")
    for option in ("--state-dir", "--adopt-state"):
        done = hankweave("run", str(place.hank), option, states, "--headless")
        assert (done.returncode, "--workspace" in done.stderr) == (2, True)

    execution = place.root / "execution"
    words = ("run", str(place.hank), "-e", str(execution), "--headless")
    hankweave(*words, "--adopt-state", states, code=2)
    assert not execution.exists()


def test_a_moved_project_finds_the_hank_that_it_was_run_with(place: Place) -> None:
    """The hank may have been named by a path that led through the project."""
    way = place.project / ".." / "hank" / "hank.json"
    words = ("--workspace", str(place.project), "--headless")
    outside = {"HANKWEAVE_RUNTIME_CONFINEMENT": "none"}
    hankweave("run", str(way), *words, code=0, **outside)
    moved = place.project.rename(place.root / "moved")
    again = hankweave("run", "--workspace", str(moved), "--headless", code=0, **outside)
    assert "nothing to do" in again.stdout
