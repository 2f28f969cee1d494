"""Claims about resuming an execution, and starting anew where one exists."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from hankweave_protocol.events import CodonStartedEvent, DataChanged, HankChanged, Info
from hankweave_server.clock import SystemClock
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.held import acquire
from support.command_line import Done, hankweave
from support.running_server import state
from support.scripted_hank import codon, write_hank, writes
from support.watching import events_of

ONE, TWO = codon("one", writes("a.txt", "a")), codon("two", writes("b.txt", "b"))


class Place:
    """A hank, its data, and one directory for the execution."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.data.mkdir()
        (self.data / "rows.csv").write_text("1,2\n")
        self.execution = root / "execution"
        self.hank = write_hank(root / "hank", ONE)

    def run(self, *options: str, code: int = 0, data: bool = True) -> Done:
        words = [str(self.hank), *([str(self.data)] if data else []), "-e", str(self.execution)]
        return hankweave("run", *words, "--headless", *options, code=code)

    def ran(self) -> list[str]:
        return [each.codon_id for each in events_of(self.execution, CodonStartedEvent)]

    def meta(self) -> dict[str, object]:
        path = self.execution / ".hankweave" / "execution-meta.json"
        loaded: dict[str, object] = json.loads(path.read_text())
        return loaded


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# --- again ----------------------------------------------------------------------------------------


@pytest.mark.story("Started again on the same data, the server continues the same execution.")
def test_a_completed_execution_has_nothing_to_do(place: Place) -> None:
    """A second run says so in words and ends with 0; data that lost its link has one again."""
    place.run()
    (place.execution / "read_only_data_source").unlink()
    again = place.run()
    assert (place.execution / "read_only_data_source" / "rows.csv").exists()
    assert "Resumed completed execution: nothing to do" in again.stdout
    assert place.ran() == ["one"]


# --- another hank ---------------------------------------------------------------------------------


def test_codons_that_are_appended_enter_the_plan(place: Place) -> None:
    """Completed codons stay; the new codon runs, and the change is reported once."""
    place.run()
    write_hank(place.root / "hank", ONE, TWO)
    assert "has changed" in place.run().stdout
    assert place.ran() == ["one", "two"]
    assert [entry.codon_id for entry in state(place.execution).execution_plan] == ["one", "two"]
    place.run()
    assert len(events_of(place.execution, HankChanged)) == 1


def test_a_hank_that_changed_what_has_run_is_refused_until_forced(place: Place) -> None:
    """The exit code is 2 with both names, each time; --force continues with the former plan."""
    place.run()
    former = place.meta()["hankHash"]
    write_hank(place.root / "hank", codon("zero"), ONE)
    for _ in range(2):
        refused = place.run(code=2)
        assert "one has run, but the hank now has zero in its place" in refused.stderr
        assert "--force" in refused.stderr
        assert place.meta()["hankHash"] == former

    place.run("--force")
    assert [entry.codon_id for entry in state(place.execution).execution_plan] == ["one"]
    assert place.meta()["hankHash"] != former
    place.run()


# --- other data -----------------------------------------------------------------------------------


def test_other_data_is_refused_until_forced(place: Place) -> None:
    """--force links to it, and the journal records the old and the new path."""
    place.run()
    place.data = place.root / "other"
    place.data.mkdir()
    (place.data / "new.csv").write_text("3\n")
    assert "--force" in place.run(code=2).stderr
    assert events_of(place.execution, DataChanged) == []

    place.run("--force")
    (changed,) = events_of(place.execution, DataChanged)
    assert changed.current_path == str(place.data)
    assert changed.previous_hash != changed.current_hash == place.meta()["dataHash"]
    link = place.execution / "read_only_data_source"
    assert link.readlink() == place.data.resolve()
    place.run()
    assert len(events_of(place.execution, DataChanged)) == 1


def test_a_copy_of_former_data_is_kept(place: Place) -> None:
    """A copy may be the only one: --force moves it beside the new copy."""
    place.run("--copy")
    (place.data / "rows.csv").write_text("another length\n")
    place.run("--force")
    (kept,) = place.execution.glob("read_only_data_source.backup-*")
    assert (kept / "rows.csv").read_text() == "1,2\n"
    copied = place.execution / "read_only_data_source"
    assert not copied.is_symlink()
    assert (copied / "rows.csv").read_text() == "another length\n"


def test_a_link_becomes_a_copy_when_it_is_asked_for(place: Place) -> None:
    """--copy takes effect on an execution that was linked."""
    place.run()
    place.run("--copy")
    assert not (place.execution / "read_only_data_source").is_symlink()
    assert place.meta()["linkType"] == "copy"


# --- anew -----------------------------------------------------------------------------------------


@pytest.mark.story(
    "A new execution in place of an old one needs `--force`, and keeps the old one as a backup."
)
def test_new_in_an_execution_wants_force_and_loses_nothing(place: Place) -> None:
    """Every old file has another name afterwards, with every byte, and a new execution ran."""
    place.run()
    old = place.execution / "agentRoot" / "a.txt"
    old.write_text("edited by hand")
    assert "--force" in place.run("--new", code=2).stderr
    assert old.read_text() == "edited by hand"

    place.run("--new", "--force", data=False)
    (aside,) = place.execution.glob(".hankweave.backup-*")
    suffix = aside.name.removeprefix(".hankweave")
    assert (place.execution / f"agentRoot{suffix}" / "a.txt").read_text() == "edited by hand"
    assert (aside / "events" / "events.jsonl").stat().st_size > 0
    assert old.read_text() == "a"
    assert place.ran() == ["one"]
    assert (place.execution / "read_only_data_source" / "rows.csv").exists()
    assert any(aside.name in note.message for note in events_of(place.execution, Info))


def test_nothing_is_set_aside_while_a_server_lives(place: Place) -> None:
    """The exit code is 75, and every file keeps its name."""
    place.run()
    held = acquire(Layout.of_execution(place.execution), SystemClock())
    try:
        place.run("--new", "--force", code=75)
    finally:
        held.release()

    assert not list(place.execution.glob("*.backup-*"))


def test_a_hank_that_is_broken_sets_nothing_aside(place: Place) -> None:
    """The faults are reported before any file is moved."""
    place.run()
    place.hank.write_text("{}")
    place.run("--new", "--force", code=2)
    assert not list(place.execution.glob("*.backup-*"))


@pytest.mark.parametrize("moved", ["nothing", "the work tree"])
def test_a_crash_while_setting_aside_is_made_good(place: Place, moved: str) -> None:
    """The next start finishes it with the same suffix, whatever that start was for."""
    place.run()
    layout = Layout.of_execution(place.execution)
    layout.set_aside_intent.write_text(".backup-1736000000000")
    if moved == "the work tree":
        os.rename(layout.work_tree, place.execution / "agentRoot.backup-1736000000000")

    place.run()
    assert (place.execution / "agentRoot.backup-1736000000000" / "a.txt").exists()
    assert (place.execution / ".hankweave.backup-1736000000000" / "state.json").exists()
    assert place.ran() == ["one"]
    assert len(state(place.execution).runs) == 1


# --- without a plan -------------------------------------------------------------------------------


def test_headless_without_a_hank_names_the_one_that_is_there(tmp_path: Path) -> None:
    """The hint is the command that runs it; where there is none, it says how to get one."""
    (tmp_path / "project").mkdir()
    refused = hankweave("run", "-w", "project", "--headless", cwd=tmp_path, code=2).stderr
    assert "--headless requires a hank" in refused
    assert "`hankweave run HANK -w project --headless`" in refused

    write_hank(tmp_path / "project", ONE)
    refused = hankweave("run", "-w", "project", "--headless", cwd=tmp_path, code=2).stderr
    hint = "`hankweave run project/hank.json -w project --headless`"
    assert hint in refused
    hankweave(*shlex.split(hint.strip("`"))[1:], cwd=tmp_path, code=0)
    assert (tmp_path / "project" / "a.txt").read_text() == "a"
