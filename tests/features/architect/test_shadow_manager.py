"""Claims about `CheckpointManager(repository="shadow")`: seed 003's API beside the project."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hankweave_client.discovery import discover
from hankweave_client.errors import NotRunning
from hankweave_server.architect import CheckpointManager, UnknownCheckpoint
from hankweave_server.user_git.errors import WorkspaceMissing
from hankweave_server.user_git.labels import label_of, mark_in
from support.running_server import environment, running_server, tree
from support.waiting import LIMIT


@contextlib.contextmanager
def shadow(root: Path) -> Iterator[CheckpointManager]:
    with CheckpointManager(str(root), repository="shadow") as manager:
        yield manager


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("one")
    return root


def files(root: Path) -> dict[str, bytes]:
    """Return the files of a project; the server's own may go while they are read."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.relative_to(root).parts[0] != ".hankweave"
    }


def is_served(root: Path) -> bool:
    try:
        discover(root)
    except NotRunning:
        return False

    return True


def fingerprint(folder: Path) -> dict[str, str]:
    return {
        name: hashlib.sha256(text).hexdigest() + str((folder / name).stat().st_mtime_ns)
        for name, text in tree(folder).items()
    }


# --- what is documented ---------------------------------------------------------------------------


def test_the_documented_methods_do_what_they_say_and_more_exactly(project: Path) -> None:
    """create, list, rollback, get_latest and has_changes_since work in a folder without git."""
    with shadow(project) as manager:
        assert manager.list_checkpoints() == []
        assert manager.get_latest() is None
        assert manager.undo() is False
        assert not (project / ".hankweave").exists()

        first = manager.create(1, "pipes | and -- dashes")
        assert (first.step, first.message) == (1, "pipes | and -- dashes")
        assert first.files_changed == ["a.txt"]
        assert first.short_hash() == first.commit_hash[:7]
        assert manager.create(2, "nothing has changed") is None

        (project / "grün\n.txt").write_text("new")
        second = manager.create(2)
        assert second.files_changed == ["grün\n.txt"]
        assert manager.list_checkpoints() == [second, first]
        assert manager.get_latest() == second

        (project / "untracked.txt").write_text("later")
        assert manager.has_changes_since(second.commit_hash)
        assert manager.rollback(step=1) is True
        assert files(project) == {"a.txt": b"one"}
        assert not manager.has_changes_since(first.short_hash())
        assert manager.get_latest() == first
        assert manager.list_checkpoints() == [second, first]
        assert manager.create(3, "the files are those of step 1") is None

        assert manager.undo() is True
        assert set(files(project)) == {"a.txt", "grün\n.txt", "untracked.txt"}
        assert manager.get_latest() == second
        assert manager.undo() is False

    assert not is_served(project)


def test_what_is_no_target_is_false_and_touches_nothing(project: Path) -> None:
    """No target, a missing step and an invalid commit return False; a bad hash raises."""
    with shadow(project) as manager:
        made = manager.create(1)
        assert made is not None
        (project / "a.txt").write_text("edited")
        assert manager.rollback() is False
        assert manager.rollback(commit="") is False
        assert manager.rollback(step=7) is False
        assert manager.rollback(step=0) is False
        assert manager.rollback(commit="f" * 40) is False
        assert manager.rollback(step=1, commit="f" * 40) is False
        assert files(project) == {"a.txt": b"edited"}
        for bad in ("f" * 40, "no hash", ""):
            with pytest.raises(UnknownCheckpoint):
                manager.has_changes_since(bad)

        assert manager.rollback(step=7, commit=made.commit_hash) is True
        assert files(project) == {"a.txt": b"one"}


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    """A missing folder raises `WorkspaceMissing`, and is not reported as an empty list."""
    with pytest.raises(WorkspaceMissing, match="no folder"):
        CheckpointManager(str(tmp_path / "missing"), repository="shadow")


@pytest.mark.parametrize(
    ("label", "step", "name", "text"),
    [
        ("architect:checkpoint:step-12", 12, None, ""),
        ("architect:checkpoint:step-1 -- a -- b", 1, None, "a -- b"),
        ("architect:checkpoint:fix-step-2", None, "fix-step-2", ""),
        ("architect:checkpoint:step-2b", None, "step-2b", ""),
        ("architect:checkpoint:step-2\n\nSigned-off-by: Ada", 2, None, ""),
        ("architect:checkpoint:implement -- done", None, "implement", "done"),
    ],
)
def test_a_named_step_is_no_numbered_one(
    label: str, step: int | None, name: str | None, text: str
) -> None:
    """The whole label must be the number; a label that only contains `step-2` is a name."""
    mark = mark_in(label)
    assert (mark.step, mark.name, mark.text) == (step, name, text)


@pytest.mark.parametrize("label", [None, "", "my architect:checkpoint:step-2", "before rollback"])
def test_what_only_mentions_the_prefix_is_no_checkpoint_of_a_step(label: str | None) -> None:
    """A label of Architect's begins with the prefix; any other label is not a step's checkpoint."""
    assert mark_in(label) is None


def test_a_negative_step_is_refused() -> None:
    """A negative step is refused, because it could not be read back."""
    with pytest.raises(ValueError, match="-1"):
        label_of(-1, "")


# --- beside a git repository ----------------------------------------------------------------------


def git(root: Path, *words: str, **variables: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.org", *words],
        cwd=root,
        env=environment(GIT_CONFIG_NOSYSTEM="1", HOME=str(root), **variables),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_git_repository_with_uncommitted_work_is_not_touched(project: Path) -> None:
    """No byte of .git changes; checkpoints of a subdirectory move nothing outside it."""
    git(project, "init", "--quiet")
    git(project, "add", "a.txt")
    git(project, "commit", "--quiet", "--message", "mine")
    inner = project / "inner"
    inner.mkdir()
    (inner / "b.txt").write_text("staged")
    git(project, "add", "inner")
    (inner / "b.txt").write_text("and edited")
    (project / "a.txt").write_text("uncommitted")
    status = git(project, "status", "--porcelain")
    before = fingerprint(project / ".git")
    with shadow(inner) as manager:
        manager.create(1)
        (inner / "b.txt").write_text("spoiled")
        (inner / "c.txt").write_text("new")
        assert manager.rollback(step=1)
        assert files(inner) == {"b.txt": b"and edited"}

    assert fingerprint(project / ".git") == before
    assert (project / "a.txt").read_text() == "uncommitted"
    assert git(project, "status", "--porcelain", GIT_OPTIONAL_LOCKS="0") == status


def test_stock_git_lists_the_labels_of_the_shadow_repository(project: Path) -> None:
    """With GIT_DIR as in seed 000, seed 003's own command finds the labels."""
    with shadow(project) as manager:
        made = manager.create(1, "hello")
        assert made is not None

    listed = git(
        project,
        *("log", "--oneline", "--grep=architect:checkpoint"),
        GIT_DIR=".hankweave/checkpoints/.hankweavecheckpoints",
    )
    assert listed.splitlines()[0].startswith(made.short_hash())
    assert "architect:checkpoint:step-1 -- hello" in listed


# --- where it is called from ----------------------------------------------------------------------


def test_it_works_inside_an_event_loop_and_from_several_threads(project: Path) -> None:
    """The client has its own event loop; threads wait for one another, and lose nothing."""
    with shadow(project) as manager:

        async def inside() -> None:
            assert manager.create(0) is not None

        asyncio.run(inside())
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                (project / f"{number}.txt").write_text("x")
                manager.create(number)
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()

        for thread in threads:
            thread.join(LIMIT)

        assert failures == []
        listed = manager.list_checkpoints()
        changed = {name for each in listed for name in each.files_changed}
        assert changed == {"a.txt", *(f"{number}.txt" for number in range(1, 5))}


async def test_a_server_that_runs_is_used_and_stays(project: Path) -> None:
    """The manager uses a running server, starts no second one, and does not stop it."""
    async with running_server(None, None, project, place="--workspace") as server:
        with shadow(project) as manager:
            assert manager.create(1) is not None

        assert server.process.returncode is None
        assert is_served(project)


_FORGETFUL = """
import os, sys
from hankweave_server.architect import CheckpointManager
manager = CheckpointManager(sys.argv[1], repository="shadow")
assert manager.create(1) is not None
print(open(sys.argv[1] + "/.hankweave/runtime.lock").read(), flush=True)
if len(sys.argv) > 2:
    sys.stdin.read()
"""


def _script(project: Path, *words: str, **variables: str) -> subprocess.Popen[bytes]:
    packages = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    return subprocess.Popen(
        [sys.executable, "-c", _FORGETFUL, str(project), *words],
        env=environment(PYTHONPATH=packages, **variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_who_forgets_to_close_it_leaves_no_server_and_needs_no_git(project: Path) -> None:
    """An unclosed manager's server ends with the interpreter; no program is looked up on PATH."""
    with _script(project, PATH="/nonexistent") as script:
        out, _ = script.communicate(timeout=LIMIT)

    assert script.returncode == 0
    assert b"pid" in out
    assert not is_served(project)


def test_a_killed_program_leaves_no_server(project: Path) -> None:
    """After `kill -9` of the program, its ephemeral server shuts down cleanly by itself."""
    with _script(project, "stay") as script:
        assert b"pid" in script.stdout.readline()
        pidfd = os.pidfd_open(pid_of_server(project))
        script.send_signal(signal.SIGKILL)
        try:
            assert select.select([pidfd], [], [], LIMIT)[0]  # Readable at the process's end.
        finally:
            os.close(pidfd)

    assert not (project / ".hankweave" / "runtime.lock").exists()
    with shadow(project) as manager:
        assert [each.step for each in manager.list_checkpoints()] == [1]


def pid_of_server(project: Path) -> int:
    lock: dict[str, int] = json.loads((project / ".hankweave" / "runtime.lock").read_bytes())
    return lock["pid"]
