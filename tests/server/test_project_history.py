"""The history that a start continues: folders moved, copied, replaced, cleaned and adopted.

Each start is one in process: the execution is chosen, its state put in place and locked, and its
metadata written, as by a server. A file in the state stands for the history.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from hankweave_protocol import codec
from hankweave_protocol.events import HistoryIdentified
from hankweave_protocol.state_directory import (
    IDENTITY,
    MARKER,
    Identity,
    marker_of,
    private_folder_of,
    read_identity,
    state_directory_of,
)
from hankweave_server import fsutil
from hankweave_server.clock import SystemClock
from hankweave_server.confinement.policy import Level
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.load import no_hank
from hankweave_server.local import executions, project_state, targeting
from hankweave_server.local.removal import remove_execution
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.held import HeldLock, acquire
from hankweave_server.settings import RunSettings
from support.crashes import crash_after

CLOCK = SystemClock()


@dataclass(frozen=True)
class Started:
    layout: Layout
    note: HistoryIdentified | None

    @property
    def finding(self) -> str | None:
        return None if self.note is None else self.note.finding

    @property
    def history(self) -> str | None:
        """Return the record that the first start of this history wrote."""
        path = self.layout.state_directory / "history"
        return path.read_text() if path.exists() else None


class Machine:
    """A user's machine, whose projects have their state outside or in them."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._patch = patch
        patch.setenv("XDG_STATE_HOME", str(root / "home"))
        patch.delenv("HANKWEAVE_RUNTIME_CONFINEMENT", raising=False)
        self.confines_by(Level.LANDLOCK)

    def confines_by(self, level: Level) -> None:
        self._patch.setattr(executions, "probe", lambda: SimpleNamespace(level=level))

    def project(self, name: str = "workspace") -> Path:
        root = self.root / name
        root.mkdir()
        (root / "a.py").write_text(name)
        return root

    def serve(
        self, root: Path, *, state_folder: Path | None = None, adopted: Path | None = None
    ) -> tuple[Started, HeldLock]:
        settings = RunSettings(
            hank=None, data=None, workspace=root, state_folder=state_folder, adopted_state=adopted
        )
        chosen = executions.settled(executions.choose(settings, CLOCK))
        layout = chosen.layout
        fsutil.make_private_directory(layout.state_directory)
        executions.hide(layout)
        held = acquire(layout, CLOCK)
        try:
            changes = executions.prepare(chosen, no_hank(root), settings, CLOCK)
            project_state.record_beginning(layout, "5" * 40)
        except BaseException:
            with contextlib.suppress(BaseException):
                held.release()  # The end of a process frees the lock.

            raise

        return Started(layout, changes.history), held

    def start(
        self, root: Path, *, state_folder: Path | None = None, adopted: Path | None = None
    ) -> Started:
        """Start a server and stop it."""
        started, held = self.serve(root, state_folder=state_folder, adopted=adopted)
        held.release()
        return started

    def begin(self, root: Path, history: str, *, state_folder: Path | None = None) -> Started:
        """Start a project's history, whose first start says so."""
        started = self.start(root, state_folder=state_folder)
        assert started.history is None
        (started.layout.state_directory / "history").write_text(history)
        return started


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system."""
    disks = (path for path in ("/dev/shm", "/var/tmp") if os.access(path, os.W_OK))
    place = next((p for p in disks if os.stat(p).st_dev != tmp_path.stat().st_dev), None)
    if place is None:
        pytest.skip("there is no second file system")

    with tempfile.TemporaryDirectory(prefix="hankweave-", dir=place) as name:
        yield Path(name)


BOTH = pytest.mark.parametrize("level", [Level.LANDLOCK, Level.NAMESPACE])


# --- the same, another, moved, copied -------------------------------------------------------------


@BOTH
def test_the_same_project_goes_on_without_a_message(machine: Machine, level: Level) -> None:
    """Its state is where it was, also when the level of confinement changes in between."""
    machine.confines_by(level)
    root = machine.project()
    first = machine.begin(root, "A")
    assert (first.layout.private_folder is None) == (level is Level.NAMESPACE)
    for now in (level, Level.LANDLOCK, Level.NAMESPACE):
        machine.confines_by(now)
        again = machine.start(root)
        assert (again.history, again.note) == ("A", None)
        assert again.layout.state_directory == first.layout.state_directory


def test_another_project_at_the_same_path_has_a_history_of_its_own(machine: Machine) -> None:
    """The former one's is kept, named, and can be adopted as the message says.

    Commands that read see nothing of it either, before the first start and after.
    """
    a = machine.project()
    machine.begin(a, "A")
    a.rename(machine.root / "away")
    b = machine.project()
    assert not state_directory_of(b).exists()
    started = machine.start(b)
    assert (started.finding, started.history) == ("other-project", None)
    assert started.note is not None
    assert started.note.kept_at is not None
    kept = Path(started.note.kept_at)
    assert (kept / ".hankweave" / "history").read_text() == "A"
    assert f"hankweave run --workspace {b} --adopt-state {kept}" in started.note.message
    assert machine.start(b).note is None

    (started.layout.state_directory / "history").write_text("B")
    adopted = machine.start(b, adopted=kept)
    assert (adopted.finding, adopted.history) == ("adopted", "A")
    assert adopted.note is not None
    assert adopted.note.kept_at is not None
    assert (Path(adopted.note.kept_at) / ".hankweave" / "history").read_text() == "B"
    assert (machine.start(b).history, machine.start(b).note) == ("A", None)


def test_a_removed_folders_inode_is_not_its_identity(machine: Machine) -> None:
    """A new folder that gets the inode of a removed one is another project."""
    a = machine.project()
    state = machine.begin(a, "A").layout.state_directory
    shutil.rmtree(a)
    b = machine.project()
    known, inode = read_identity(state), b.stat().st_ino
    assert known is not None
    assert known.born is not None
    reused = Identity(id=known.id, path=known.path, device=1, inode=inode, born=known.born)
    (state / IDENTITY).write_bytes(codec.encode(reused))
    assert machine.start(b).finding == "other-project"


def test_a_project_that_comes_back_finds_its_history(machine: Machine) -> None:
    """A was moved away, B was served at its path, both come back: each has its own history."""
    a = machine.project()
    machine.begin(a, "A")
    away = a.rename(machine.root / "away")
    b = machine.project()
    machine.begin(b, "B")
    b = b.rename(machine.root / "b")
    away.rename(a)
    assert machine.start(a).history == "A"
    moved = machine.start(b)
    assert (moved.finding, moved.history) == ("moved", "B")


@BOTH
def test_a_moved_project_finds_its_history_again(machine: Machine, level: Level) -> None:
    """Its marker and its folder say which one; commands find it from then on."""
    machine.confines_by(level)
    machine.begin(machine.project("old"), "A")
    new = (machine.root / "old").rename(machine.root / "new")
    moved = machine.start(new)
    assert (moved.finding, moved.history) == ("moved", "A")
    assert moved.note is not None
    assert str(machine.root / "old") in moved.note.message
    assert state_directory_of(new) == moved.layout.state_directory
    assert machine.start(new).note is None
    assert not private_folder_of(machine.root / "old").exists()


def test_a_project_that_moved_to_another_disk_is_known_by_its_marker(
    machine: Machine, other_disk: Path
) -> None:
    """Device and inode are others then; without the marker, it would be a new project."""
    old = machine.project("old")
    machine.begin(old, "A")
    new = Path(shutil.move(old, other_disk / "new"))
    moved = machine.start(new)
    assert (moved.finding, moved.history) == ("moved", "A")


@BOTH
def test_the_copy_of_a_project_has_a_history_of_its_own(machine: Machine, level: Level) -> None:
    """The original keeps its own. A state in the project was copied, so the copy begins with it."""
    machine.confines_by(level)
    original = machine.project("original")
    first = machine.begin(original, "A")
    copy = machine.root / "copy"
    subprocess.run(["cp", "-a", original, copy], check=True)
    started = machine.start(copy)
    assert started.finding == "copied"
    assert started.history == ("A" if level is Level.NAMESPACE else None)
    ids = {read_identity(each.layout.state_directory) for each in (first, started)}
    assert len({each.id for each in ids if each is not None}) == 2
    assert (machine.start(original).history, machine.start(original).note) == ("A", None)
    assert machine.start(copy).note is None


def test_a_copy_in_the_place_of_its_original_is_the_project(machine: Machine) -> None:
    """Restored from a backup, a project has another inode, and continues without a word."""
    root = machine.project()
    machine.begin(root, "A")
    subprocess.run(["cp", "-a", root, machine.root / "backup"], check=True)
    shutil.rmtree(root)
    (machine.root / "backup").rename(root)
    started = machine.start(root)
    assert (started.history, started.note) == ("A", None)


def test_two_histories_of_one_marker_are_asked_for(machine: Machine, other_disk: Path) -> None:
    """The refusal names both; its hint works and is needed once."""
    root = machine.project()
    folder = machine.begin(root, "A").layout.private_folder
    assert folder is not None
    shutil.copytree(folder, folder.with_name("0" * 32))
    new = Path(shutil.move(root, other_disk / "new"))
    with pytest.raises(Stop) as stopped:
        machine.start(new)

    assert stopped.value.exit_code == ExitCode.USAGE
    assert stopped.value.hint is not None
    chosen = Path(stopped.value.hint.rpartition("--adopt-state ")[2])
    assert machine.start(new, adopted=chosen).history == "A"
    assert machine.start(new).note is None


# --- a start that is killed -----------------------------------------------------------------------


CHANGES = (
    (Path, "rename"),
    (Path, "replace"),
    (Path, "symlink_to"),
    (Path, "rmdir"),
    (Path, "unlink"),
    (Path, "mkdir"),
    (fsutil, "sync_filesystem"),
    (shutil, "rmtree"),
)
"""The changes of a start on the disk."""


@pytest.mark.full
@BOTH
@pytest.mark.parametrize("case", ["moved", "moved, with a state dir", "relocated", "to a disk"])
def test_a_start_that_is_killed_while_it_moves_a_history_loses_nothing(
    machine: Machine,
    level: Level,
    case: str,
    request: pytest.FixtureRequest,
) -> None:
    """Killed before each of its changes, it leaves a history that the next start continues."""
    machine.confines_by(level)
    states = machine.root / "states"
    if case == "to a disk":
        states = request.getfixturevalue("other_disk")

    for kill in range(100):
        old = machine.project(f"old-{kill}")
        machine.begin(old, "A", state_folder=states if "with" in case else None)
        new = old.rename(machine.root / f"new-{kill}") if "moved" in case else old
        folder = None if "moved" in case else states
        with crash_after(kill, *CHANGES) as crash:
            machine.start(new, state_folder=folder)

        assert machine.start(new).history == "A", kill
        assert machine.start(new, state_folder=folder).history == "A", kill
        assert (machine.start(new).history, machine.start(new).note) == ("A", None)
        if not crash.happened:
            assert kill > 5
            return

    raise AssertionError("a start makes more than 100 changes")


@pytest.mark.full
@pytest.mark.parametrize("folder", [None, "states"])
def test_a_start_that_is_killed_while_another_history_makes_room_loses_neither(
    machine: Machine, folder: str | None
) -> None:
    """Killed before each of its changes, B's start leaves A's history, and B begins its own."""
    for kill in range(100):
        a = machine.project(f"workspace-{kill}")
        states = None if folder is None else machine.root / folder
        machine.begin(a, "A", state_folder=states)
        away = a.rename(machine.root / f"away-{kill}")
        b = machine.project(f"workspace-{kill}")
        with crash_after(kill, *CHANGES) as crash:
            machine.start(b, state_folder=states)

        assert machine.start(b).history is None, kill
        assert machine.start(away).history == "A", kill
        assert machine.start(b).history is None
        if not crash.happened:
            assert kill > 5
            return

    raise AssertionError("a start makes more than 100 changes")


# --- what agents can do to the marker -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["removed", "other id", "link", "fifo", "file", "damaged"])
def test_a_marker_that_an_agent_changed_changes_nothing(machine: Machine, kind: str) -> None:
    """The folder counts first. The server follows no link and replaces nothing but its own."""
    root = machine.project()
    machine.begin(root, "A")
    victim = machine.begin(machine.project("victim"), "V").layout.state_directory
    marker = root / MARKER
    shutil.rmtree(marker)
    match kind:
        case "other id":
            marker.mkdir()
            (marker / IDENTITY).write_text('{"id":"ffff"}')
        case "link":
            marker.symlink_to(victim)
        case "fifo":
            marker.mkdir()
            os.mkfifo(marker / IDENTITY)
        case "file":
            marker.write_text("mine")
        case "damaged":
            marker.mkdir()
            (marker / IDENTITY).write_text("{")
        case _:
            pass

    before = {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()}
    started = machine.start(root)
    assert (started.history, started.note) == ("A", None)
    assert {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()} == before
    if kind in ("link", "file"):
        assert marker.is_symlink() or marker.read_text() == "mine"
    else:
        assert marker_of(root) is not None


def test_a_marker_that_links_to_another_projects_state_names_nothing(
    machine: Machine, other_disk: Path
) -> None:
    """Moved to another disk, a project cannot take the history that a link leads to."""
    victim = machine.begin(machine.project("victim"), "V").layout.state_directory
    new = other_disk / "new"
    new.mkdir()
    (new / MARKER).symlink_to(victim)
    started = machine.start(new)
    assert (started.history, started.note) == (None, None)


def test_the_marker_is_hidden_from_the_projects_git(machine: Machine) -> None:
    """`git status` does not show it, and no checkpoint holds names that begin with .hankweave."""
    root = machine.project()
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    machine.begin(root, "A")
    assert (root / MARKER / IDENTITY).exists()
    assert MARKER not in git(root, "status", "--porcelain", "--untracked-files=all")


# --- git clean ------------------------------------------------------------------------------------


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


def test_the_start_after_git_clean_says_that_the_history_is_gone(machine: Machine) -> None:
    """It says so once, with the command that keeps the next one; that command works."""
    machine.confines_by(Level.NAMESPACE)
    root = machine.project()
    git(root, "init", "--quiet")
    machine.begin(root, "A")
    git(root, "clean", "-fdx")
    assert not (root / ".hankweave").exists()
    started = machine.start(root)
    assert (started.finding, started.history) == ("gone", None)
    assert started.note is not None
    assert "git clean -fdx" in started.note.message
    assert f"hankweave run --workspace {root} --state-dir " in started.note.message
    assert machine.start(root).note is None

    (started.layout.state_directory / "history").write_text("B")
    folder = machine.root / "states"
    assert machine.start(root, state_folder=folder).finding == "relocated"
    git(root, "clean", "-fdx")
    again = machine.start(root)
    assert (again.history, again.note) == ("B", None)
    assert again.layout.state_directory.is_relative_to(folder)


def test_a_history_outside_survives_git_clean(machine: Machine) -> None:
    """Only the marker is removed, and written again."""
    root = machine.project()
    git(root, "init", "--quiet")
    machine.begin(root, "A")
    git(root, "clean", "-fdx")
    assert marker_of(root) is None
    started = machine.start(root)
    assert (started.history, started.note) == ("A", None)
    assert marker_of(root) is not None


def test_a_removed_project_leaves_no_message_for_its_successor(machine: Machine) -> None:
    """A new project at the path of a removed one is simply new, and so is one after `cleanup`."""
    machine.confines_by(Level.NAMESPACE)
    root = machine.project()
    machine.begin(root, "A")
    shutil.rmtree(root)
    root = machine.project()
    assert machine.begin(root, "B").note is None
    remove_execution(root, CLOCK, managed=False)
    assert machine.start(root).note is None


def test_a_lost_state_home_is_reported(machine: Machine) -> None:
    """The marker shows that there was a history, as in a container without its volume."""
    root = machine.project()
    machine.begin(root, "A")
    shutil.rmtree(machine.root / "home")
    started = machine.start(root)
    assert (started.finding, started.history) == ("gone", None)


# --- --state-dir ----------------------------------------------------------------------------------


@BOTH
def test_state_dir_keeps_the_history_outside_of_the_project(machine: Machine, level: Level) -> None:
    """Starts and commands find it without the option; several projects share the directory."""
    machine.confines_by(level)
    states = machine.root / "states"
    roots = [machine.project(name) for name in ("a", "b")]
    for root in roots:
        machine.begin(root, root.name, state_folder=states)

    for root in roots:
        started = machine.start(root)
        assert (started.history, started.note) == (root.name, None)
        assert state_directory_of(root) == started.layout.state_directory
        assert started.layout.state_directory.is_relative_to(states)
        assert not (root / ".hankweave").exists()
        targeting.require_execution(root)
        assert executions.enclosing(root) == root


@BOTH
@pytest.mark.parametrize("disk", ["same", "other"])
def test_state_dir_moves_a_history_that_exists(
    machine: Machine, level: Level, disk: str, request: pytest.FixtureRequest
) -> None:
    """The former place is empty then; a second start with the option changes nothing."""
    machine.confines_by(level)
    root = machine.project()
    top = machine.root if disk == "same" else request.getfixturevalue("other_disk")
    former = machine.begin(root, "A").layout.state_directory
    os.mkfifo(former / "left by an agent")
    started = machine.start(root, state_folder=top / "states")
    assert (started.finding, started.history) == ("relocated", "A")
    assert not former.exists() or former == private_folder_of(root) / ".hankweave"
    assert state_directory_of(root).is_relative_to(top / "states")
    again = machine.start(root, state_folder=top / "states")
    assert (again.history, again.note) == ("A", None)


def test_a_crash_while_a_history_is_copied_to_another_disk_loses_nothing(
    machine: Machine, other_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the copy is complete and durable, the history is where it was."""
    root = machine.project()
    machine.begin(root, "A")
    with monkeypatch.context() as crash:

        def dies(_path: Path) -> None:
            raise KeyboardInterrupt

        crash.setattr(fsutil, "sync_filesystem", dies)
        with pytest.raises(KeyboardInterrupt):
            machine.start(root, state_folder=other_disk)

    assert machine.start(root).history == "A"
    assert machine.start(root, state_folder=other_disk).history == "A"


def test_a_moved_project_finds_its_history_in_the_state_dir(machine: Machine) -> None:
    """The history follows under the new name, with a link, and the old link is gone."""
    old = machine.project("old")
    machine.begin(old, "A", state_folder=machine.root / "states")
    new = old.rename(machine.root / "new")
    moved = machine.start(new)
    assert (moved.finding, moved.history) == ("moved", "A")
    assert not os.path.lexists(private_folder_of(old))
    assert len(list((machine.root / "states").iterdir())) == 1
    assert machine.start(new).note is None


def test_a_state_dir_that_is_not_mounted_is_no_new_history(machine: Machine) -> None:
    """The start is refused with the missing folder; mounted again, the history continues."""
    root, states = machine.project(), machine.root / "states"
    machine.begin(root, "A", state_folder=states)
    states.rename(machine.root / "unmounted")
    with pytest.raises(Stop) as stopped:
        machine.start(root)

    assert stopped.value.exit_code == ExitCode.NO_INPUT
    assert str(states) in stopped.value.message
    (machine.root / "unmounted").rename(states)
    assert machine.start(root).history == "A"


def test_a_state_dir_finds_its_histories_on_another_machine(machine: Machine) -> None:
    """A container whose home is new, but not its volumes, continues."""
    root, states = machine.project(), machine.root / "states"
    machine.begin(root, "A", state_folder=states)
    shutil.rmtree(machine.root / "home")
    started = machine.start(root, state_folder=states)
    assert (started.history, started.note) == ("A", None)
    assert machine.start(root).history == "A"


def test_another_project_at_the_path_of_one_with_a_state_dir(machine: Machine) -> None:
    """Its history is kept as well, and found by a later start without the option."""
    a, states = machine.project(), machine.root / "states"
    machine.begin(a, "A", state_folder=states)
    away = a.rename(machine.root / "away")
    b = machine.project()
    started = machine.start(b, state_folder=states)
    assert (started.finding, started.history) == ("other-project", None)
    moved = machine.start(away)
    assert (moved.finding, moved.history) == ("moved", "A")
    assert machine.start(b).note is None


@pytest.mark.parametrize(
    ("folder", "code"),
    [
        ("workspace/states", ExitCode.USAGE),  # Agents could change it there.
        ("file", ExitCode.USAGE),
        ("file/below", ExitCode.USAGE),
        ("/proc/states", ExitCode.IO_ERROR),
    ],
)
def test_a_state_dir_that_cannot_be_is_refused(
    machine: Machine, folder: str, code: ExitCode
) -> None:
    """Each refusal names the path and what to do, and the history stays where it was."""
    machine.confines_by(Level.NAMESPACE)
    root = machine.project()
    (machine.root / "file").write_text("mine")
    machine.begin(root, "A")
    before = sorted(os.listdir(root))
    with pytest.raises(Stop) as stopped:
        machine.start(root, state_folder=machine.root / folder)

    assert stopped.value.exit_code == code
    assert str(machine.root / folder.removesuffix("/below")) in stopped.value.message
    assert "--state-dir" in (stopped.value.hint or "")
    assert sorted(os.listdir(root)) == before
    assert machine.start(root).history == "A"


# --- --adopt-state --------------------------------------------------------------------------------


def test_a_history_that_a_server_uses_is_neither_moved_nor_adopted(machine: Machine) -> None:
    """Another project's start and an adoption are refused; the server keeps its directory."""
    a = machine.project()
    started, held = machine.serve(a)
    folder = started.layout.private_folder
    assert folder is not None
    a.rename(machine.root / "away")
    b = machine.project()
    for adopted in (None, folder):
        with pytest.raises(Stop) as stopped:
            machine.start(b, adopted=adopted)

        assert stopped.value.exit_code == ExitCode.LOCK_HELD
        held.verify()

    with pytest.raises(Stop) as stopped:
        machine.start(machine.root / "away", adopted=folder)

    assert stopped.value.exit_code == ExitCode.LOCK_HELD
    assert not os.path.lexists(private_folder_of(machine.root / "away"))
    held.verify()
    held.release()


def test_a_backup_that_a_server_uses_is_not_adopted_by_another_project(machine: Machine) -> None:
    """The refusal leaves no link, so that the project's next start has its own history."""
    a, b = machine.project("a"), machine.project("b")
    folder = machine.begin(a, "A").layout.private_folder
    assert folder is not None
    folder.rename(machine.root / "backup")
    _, held = machine.serve(a, adopted=machine.root / "backup")
    a.rename(machine.root / "away")
    with pytest.raises(Stop) as stopped:
        machine.start(b, adopted=machine.root / "backup")

    assert stopped.value.exit_code == ExitCode.LOCK_HELD
    held.verify()
    held.release()
    assert machine.start(b).note is None


def test_what_cannot_be_adopted_is_refused_and_unchanged(machine: Machine) -> None:
    """Each refusal has its exit code: no state, the living project's, and the project's own."""
    root, other = machine.project(), machine.project("other")
    machine.confines_by(Level.NAMESPACE)
    machine.begin(root, "A")
    machine.begin(other, "O")
    (machine.root / "empty").mkdir()
    for path, code in (
        (machine.root / "missing", ExitCode.NO_INPUT),
        (machine.root / "empty", ExitCode.NO_INPUT),
        (other, ExitCode.USAGE),
        (other / ".hankweave", ExitCode.USAGE),
        (root / ".hankweave", ExitCode.USAGE),
    ):
        with pytest.raises(Stop) as stopped:
            machine.start(root, adopted=path)

        assert (stopped.value.exit_code, bool(stopped.value.hint)) == (code, True)

    assert (machine.start(root).history, machine.start(other).history) == ("A", "O")


def test_a_copy_of_a_lost_history_is_adopted_where_it_is(machine: Machine) -> None:
    """After `git clean`, a backup of `.hankweave` continues; the history since then is kept."""
    machine.confines_by(Level.NAMESPACE)
    root = machine.project()
    machine.begin(root, "A")
    backup = machine.root / "backup" / ".hankweave"
    shutil.copytree(root / ".hankweave", backup)
    shutil.rmtree(root / ".hankweave")
    lost = machine.start(root)
    assert lost.finding == "gone"
    (lost.layout.state_directory / "history").write_text("B")
    adopted = machine.start(root, adopted=backup)
    assert (adopted.finding, adopted.history) == ("adopted", "A")
    assert adopted.note is not None
    assert adopted.note.kept_at is not None
    assert (Path(adopted.note.kept_at) / ".hankweave" / "history").read_text() == "B"
    assert not (root / ".hankweave").exists()
    assert (machine.start(root).history, machine.start(root).note) == ("A", None)
    remove_execution(root, CLOCK, managed=False)
    assert backup.parent.is_dir()
    assert not os.path.lexists(private_folder_of(root))


# --- older versions -------------------------------------------------------------------------------


@BOTH
def test_a_history_of_an_older_version_is_adopted_in_place(machine: Machine, level: Level) -> None:
    """Without an identity, the state at the path is the project's, and gets one."""
    machine.confines_by(level)
    root = machine.project()
    first = machine.begin(root, "A")
    (first.layout.state_directory / IDENTITY).unlink()
    shutil.rmtree(root / MARKER, ignore_errors=True)
    started = machine.start(root)
    assert (started.history, started.note) == ("A", None)
    assert started.layout == first.layout
    assert read_identity(started.layout.state_directory) is not None


def test_a_state_that_lost_its_identity_is_known_by_its_first_checkpoint(machine: Machine) -> None:
    """A backup from before the identity continues; another state there is kept apart."""
    root = machine.project()
    state = machine.begin(root, "A").layout.state_directory
    (state / IDENTITY).unlink()
    (state / "state.json").write_text(f'{{"initialCheckpoint":"{"5" * 40}"}}')
    known = machine.start(root)
    assert (known.history, known.note) == ("A", None)

    (state / IDENTITY).unlink()
    (state / "state.json").write_text(f'{{"initialCheckpoint":"{"6" * 40}"}}')
    other = machine.start(root)
    assert (other.finding, other.history) == ("gone", None)
    assert other.note is not None
    assert other.note.kept_at is not None
    assert (Path(other.note.kept_at) / ".hankweave" / "history").read_text() == "A"


def test_a_cleanup_removes_all_traces_of_a_project(machine: Machine) -> None:
    """State, marker and link are gone; the project's files are not, and it may begin again."""
    for states in (None, machine.root / "states"):
        root = machine.project("p" if states is None else "q")
        machine.begin(root, "A", state_folder=states)
        remove_execution(root, CLOCK, managed=False)
        assert os.listdir(root) == ["a.py"]
        assert not os.path.lexists(private_folder_of(root))
        assert machine.start(root).note is None

    assert os.listdir(machine.root / "states") == []
