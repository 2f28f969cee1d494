"""Claims of seed 003 about `CheckpointManager`, on a person's own repository."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hankweave_server.architect import (
    CHECKPOINT_PREFIX,
    Checkpoint,
    CheckpointManager,
    CheckpointWarning,
)
from hankweave_server.user_git.errors import (
    NotARepository,
    UndoImpossible,
    UnknownCheckpoint,
    WorkspaceMissing,
)
from hankweave_server.user_git.store import WorkspaceGit
from support.person_repository import PersonRepository, alone_with_git
from support.waiting import LIMIT


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone_with_git(monkeypatch, tmp_path / "home")


@pytest.fixture(name="repo")
def _repo(tmp_path: Path) -> PersonRepository:
    repo = PersonRepository.made(tmp_path / "project")
    repo.commit("begin", {"app.py": "one\n", "docs/read.md": "hello\n"})
    return repo


@pytest.fixture(name="manager")
def _manager(repo: PersonRepository) -> CheckpointManager:
    return CheckpointManager(str(repo.root))


def test_a_checkpoint_is_a_commit_that_git_finds(repo: PersonRepository) -> None:
    """The documented `git log --grep` prints the documented lines, newest first."""
    workspace = WorkspaceGit(repo.root)
    for name in ("implement", "optimize"):
        repo.write({"app.py": name})
        workspace.commit(f"{CHECKPOINT_PREFIX}:{name}")

    printed = subprocess.run(
        'git log --oneline --grep="architect:checkpoint"',
        shell=True,
        cwd=repo.root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.fullmatch(
        r"[0-9a-f]{7} architect:checkpoint:optimize\n"
        r"[0-9a-f]{7} architect:checkpoint:implement\n",
        printed,
    )
    repo.assert_sound()


def test_create_takes_everything_and_leaves_a_clean_status(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """Changed, new and removed files are committed on the branch, and `git status` is clean."""
    repo.write({"app.py": "two\n", "new/file.txt": "new\n"})
    (repo.root / "docs/read.md").unlink()
    made = manager.create(3, "did it")
    assert made == Checkpoint(
        3,
        repo.head(),
        "did it",
        made.timestamp if made else 0,
        ["app.py", "docs/read.md", "new/file.txt"],
    )
    assert repo.subjects("-1") == ["architect:checkpoint:step-3 -- did it"]
    assert repo.status() == ""
    assert repo.files() == {"app.py": b"two\n", "new/file.txt": b"new\n"}
    assert (
        repo.git("log", "-1", "--format=%an %ae %at")
        == f"Ada ada@example.org {int(made.timestamp)}\n"
    )
    repo.assert_sound()


def test_nothing_changed_is_none(repo: PersonRepository, manager: CheckpointManager) -> None:
    """Without a change, no commit is made and the result is None."""
    before = repo.head()
    assert manager.create(1) is None
    assert repo.head() == before


def test_a_list_is_what_create_gave(repo: PersonRepository, manager: CheckpointManager) -> None:
    """A list has every field of every checkpoint, including the changed files and the time."""
    made = []
    for number in (1, 2, 3):
        repo.write({"app.py": str(number), f"n{number}": ""})
        made.append(manager.create(number, f"message {number}"))

    assert manager.list_checkpoints() == made[::-1]
    assert manager.get_latest() == made[-1]


def test_the_first_commit_names_its_files(tmp_path: Path) -> None:
    """In a repository without a commit, the checkpoint is the first commit, with all files."""
    repo = PersonRepository.made(tmp_path / "empty")
    manager = CheckpointManager(str(repo.root))
    assert manager.create(1) is None
    assert manager.list_checkpoints() == []
    assert manager.get_latest() is None
    repo.write({"a": "1", "b": "2"})
    made = manager.create(1)
    assert made.files_changed == ["a", "b"]
    assert manager.list_checkpoints() == [made]
    assert repo.status() == ""


@pytest.mark.parametrize(
    "message",
    [
        "a | b | 12",
        "tab\tand 'quotes\"",
        "zeile eins\nzeile zwei\n",
        " -- ",
        "größer ✓",
        "\udcff\udc80",
        " ",
    ],
)
def test_a_message_comes_back_exactly(
    repo: PersonRepository, manager: CheckpointManager, message: str
) -> None:
    """Any message is read back exactly, with its time."""
    repo.write({"app.py": "two\n"})
    made = manager.create(7, message)
    assert made.message == message
    assert manager.list_checkpoints() == [made]


def test_names_are_exact(repo: PersonRepository, manager: CheckpointManager) -> None:
    """Names with newlines, quotes or bytes that are not UTF-8 are neither quoted nor escaped."""
    names = [
        "größe.txt",
        'a"b',
        "line\nbreak",
        "a|b",
        b"raw\xff".decode("utf-8", "surrogateescape"),
    ]
    repo.write(dict.fromkeys(names, "x"))
    made = manager.create(1)
    assert sorted(made.files_changed) == sorted(names)
    assert manager.list_checkpoints()[0].files_changed == made.files_changed
    assert repo.status() == ""


def test_a_named_step_keeps_its_name(repo: PersonRepository, manager: CheckpointManager) -> None:
    """A pipeline's named step is listed and reached by its name, and never by the number 0."""
    workspace = WorkspaceGit(repo.root)
    repo.write({"app.py": "fixed"})
    workspace.commit(f"{CHECKPOINT_PREFIX}:fix-step-2")
    repo.write({"app.py": "later"})
    workspace.commit(f"{CHECKPOINT_PREFIX}:later")
    assert [(c.step, c.message) for c in manager.list_checkpoints()] == [
        (0, "later"),
        (0, "fix-step-2"),
    ]
    assert not manager.rollback(step=0)
    assert not manager.rollback(step=2)
    assert manager.rollback(step="fix-step-2")
    assert (repo.root / "app.py").read_text() == "fixed"


def test_a_commit_that_mentions_checkpoints_is_none(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """A person's message that mentions `architect:checkpoint:step-2` is not a rollback target."""
    repo.commit("revert architect:checkpoint:step-2", {"app.py": "x"})
    repo.commit("about architect:checkpoint\n\narchitect:checkpoint:step-2", {"app.py": "y"})
    assert manager.list_checkpoints() == []
    assert not manager.rollback(step=2)


def test_rollback_without_a_target_is_false(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """No target, an unknown step and a bad commit return False, and nothing is touched."""
    repo.write({"app.py": "uncommitted"})
    before, status = repo.head(), repo.status()
    assert not manager.rollback()
    assert not manager.rollback(commit="")
    assert not manager.rollback(step=99)
    assert not manager.rollback(commit="0123456789abcdef")
    assert not manager.rollback(commit="no such\nthing")
    assert (repo.head(), repo.status()) == (before, status)
    assert (repo.root / "app.py").read_text() == "uncommitted"


def test_a_commit_wins_over_a_step(repo: PersonRepository, manager: CheckpointManager) -> None:
    """If both are given, rollback goes to the commit; any commit is accepted."""
    first = repo.head()
    repo.write({"app.py": "two\n"})
    manager.create(1)
    repo.write({"app.py": "three\n"})
    manager.create(2)
    assert manager.rollback(step=1, commit=first[:10])
    assert (repo.root / "app.py").read_text() == "one\n"


def test_rollback_is_exact_and_moves_the_branch(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """Like `git reset --hard`, it moves the branch back; unlike it, it also removes later files."""
    repo.write({"app.py": "two\n"})
    target = manager.create(1)
    repo.write({"app.py": "three\n", "later/deep/file": "x"})
    manager.create(2)
    repo.write({"untracked/one": "x"})
    assert target is not None
    assert manager.rollback(step=1)
    assert repo.head() == target.commit_hash
    assert repo.standing() == {"app.py": b"two\n", "docs/read.md": b"hello\n"}
    assert sorted(path.name for path in repo.root.iterdir()) == [".git", "app.py", "docs"]
    assert repo.status() == ""
    assert "architect:rollback" in repo.git("reflog", "-1")
    repo.assert_sound()


def test_uncommitted_work_survives_a_rollback_byte_for_byte(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """Edited, staged, new and deleted files are in a safety commit, and undo restores them."""
    repo.write({"app.py": "two\n"})
    manager.create(1)
    repo.write({"app.py": "three\n", "later": "x"})
    manager.create(2)
    repo.write({"staged": "staged\n", "both": "staged\n", "app.py": b"edited\0\xff\r\n"})
    repo.git("add", "staged", "both")
    repo.write({"both": "edited after\n", "private": "only mine"})
    (repo.root / "private").chmod(0o600)
    (repo.root / "docs/read.md").unlink()
    (repo.root / "link").symlink_to("nowhere")
    before = (repo.head(), repo.status(), repo.standing(), repo.git("diff", "--cached", "--binary"))

    assert manager.rollback(step=1)
    assert repo.status() == ""
    assert repo.files("refs/hankweave/safety/1")["app.py"] == b"edited\0\xff\r\n"
    assert repo.files("refs/hankweave/safety/1^2")["both"] == b"staged\n"

    assert manager.undo()
    after = (repo.head(), repo.status(), repo.standing(), repo.git("diff", "--cached", "--binary"))
    assert after == before
    assert (repo.root / "private").stat().st_mode & 0o777 == 0o600
    assert not manager.undo()
    repo.assert_sound()


def test_undo_refuses_when_the_branch_has_moved(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """After a commit on top of the rollback, undo changes nothing and says where the work is."""
    repo.write({"app.py": "two\n"})
    manager.create(1)
    repo.write({"app.py": "three\n"})
    assert manager.rollback(step=1)
    repo.commit("go on", {"app.py": "four\n"})
    with pytest.raises(UndoImpossible, match="refs/hankweave/safety/1"):
        manager.undo()

    assert (repo.root / "app.py").read_text() == "four\n"


def test_what_was_done_after_a_rollback_is_kept_by_an_undo(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """Work between rollback and undo is in a safety commit of its own."""
    repo.write({"app.py": "two\n"})
    manager.create(1)
    repo.write({"app.py": "three\n"})
    assert manager.rollback(step=1)
    repo.write({"app.py": "in between\n"})
    assert manager.undo()
    assert (repo.root / "app.py").read_text() == "three\n"
    assert repo.files("refs/hankweave/safety/2")["app.py"] == b"in between\n"


def test_later_checkpoints_do_not_vanish(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """After a rollback the later steps are still listed, and rollback can go forward to them."""
    for number in (1, 2, 3):
        repo.write({"app.py": str(number)})
        manager.create(number)

    assert manager.rollback(step=1)
    assert [found.step for found in manager.list_checkpoints()] == [3, 2, 1]
    latest = manager.get_latest()
    assert latest.step == 1
    assert manager.rollback(step=3)
    assert (repo.root / "app.py").read_text() == "3"
    assert repo.status() == ""


def test_a_persons_own_commits_are_never_dropped(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """If a person committed after the target, the branch keeps that commit below the old state."""
    repo.write({"app.py": "two\n"})
    target = manager.create(1, "good")
    mine = repo.commit("my own work", {"mine.py": "mine\n"})
    assert target is not None
    assert manager.rollback(step=1)
    assert repo.subjects("-2") == ["architect:rollback:step-1 -- good", "my own work"]
    assert repo.git("rev-parse", "HEAD~1").strip() == mine
    assert repo.files() == repo.files(target.commit_hash)
    assert repo.status() == ""
    assert manager.undo()
    assert repo.head() == mine
    assert (repo.root / "mine.py").read_text() == "mine\n"


def test_of_equal_steps_the_newest_on_the_line_is_meant(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """If two runs use the same number, rollback goes to the newest one on HEAD's line."""
    for content in ("first", "second"):
        repo.write({"app.py": content})
        manager.create(1)

    repo.write({"app.py": "now"})
    assert manager.rollback(step=1)
    assert (repo.root / "app.py").read_text() == "second"


def test_untracked_files_are_changes(repo: PersonRepository, manager: CheckpointManager) -> None:
    """`has_changes_since` sees new files, edits and deletions, and is False without any."""
    head = repo.head()
    assert not manager.has_changes_since(head)
    repo.write({"new": "x"})
    assert manager.has_changes_since(head)
    made = manager.create(1)
    assert made is not None
    assert manager.has_changes_since(head)
    assert not manager.has_changes_since(made.commit_hash)
    (repo.root / "new").unlink()
    assert not manager.has_changes_since(head)


def test_an_invalid_hash_raises(manager: CheckpointManager) -> None:
    """An invalid hash raises instead of reporting `no changes`."""
    for name in ("deadbeef", "", "not a hash"):
        with pytest.raises(UnknownCheckpoint) as caught:
            manager.has_changes_since(name)

        assert isinstance(caught.value, ValueError)
        assert caught.value.hint


def test_a_missing_folder_or_repository_is_reported(tmp_path: Path) -> None:
    """A missing folder or repository raises a clear error, not a git traceback."""
    with pytest.raises(WorkspaceMissing):
        CheckpointManager(str(tmp_path / "gone"), repository="workspace")

    with pytest.raises(NotARepository, match="shadow"):
        CheckpointManager(str(tmp_path), repository="workspace")


def test_secrets_and_our_own_files_are_not_committed(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """`.env`, keys, sessions and worktrees stay in place and are never on the branch."""
    secrets = {".env": "K=1", "conf/prod.key": "k", ".env.local": "x", "id_rsa": "r"}
    ours = {".architect/sessions/s.json": "{}", ".hankweave/state.json": "{}"}
    repo.write({**secrets, **ours, ".env.example": "K=", "id_rsa.pub": "p", "app.py": "two\n"})
    with pytest.warns(CheckpointWarning, match=r"\.env, \.env\.local, conf/prod\.key, id_rsa "):
        made = manager.create(1)

    assert made.files_changed == [".env.example", "app.py", "id_rsa.pub"]
    with pytest.warns(CheckpointWarning):
        assert manager.rollback(commit="HEAD~1")

    assert set(repo.standing()) == {*secrets, *ours, "app.py", "docs/read.md"}


def test_a_tracked_secret_is_captured(repo: PersonRepository, manager: CheckpointManager) -> None:
    """A tracked file with such a name is in the checkpoint."""
    repo.commit("on purpose", {".env": "A=1"})
    repo.write({".env": "A=2"})
    made = manager.create(1)
    assert made.files_changed == [".env"]


def test_what_was_staged_is_not_lost(repo: PersonRepository, manager: CheckpointManager) -> None:
    """Content that is only in the index is kept under a private ref, named for the checkpoint."""
    repo.write({"app.py": "staged\n"})
    repo.git("add", "app.py")
    repo.write({"app.py": "edited\n"})
    made = manager.create(1)
    assert made is not None
    kept = repo.git("for-each-ref", "--format=%(refname)", "refs/hankweave/staged").split()
    assert kept == [f"refs/hankweave/staged/{made.commit_hash[:12]}"]
    assert repo.files(kept[0])["app.py"] == b"staged\n"
    assert repo.status() == ""


def test_threads_and_processes_take_turns(repo: PersonRepository) -> None:
    """Managers that work at once lose nothing: every checkpoint is on the one branch."""
    source = (
        "import sys; from pathlib import Path; from hankweave_server.architect import *\n"
        "root, name = sys.argv[1:]; Path(root, name).write_text(name)\n"
        "CheckpointManager(root).create(5, name)\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", source, str(repo.root), f"p{n}"]) for n in range(2)
    ]

    def work(name: str) -> None:
        for number in range(3):
            repo.write({f"{name}{number}": name})
            CheckpointManager(str(repo.root)).create(number, name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()

    for thread in threads:
        thread.join()

    assert [process.wait(LIMIT) for process in processes] == [0, 0]
    assert {"a0", "a1", "a2", "b0", "b1", "b2", "p0", "p1"} <= set(repo.files())
    assert repo.status() == ""
    repo.assert_sound()


def test_no_git_program_is_needed(repo: PersonRepository) -> None:
    """With an empty PATH everything works as it does with git."""
    source = (
        "import os, sys; os.environ['PATH'] = ''\n"
        "from pathlib import Path; from hankweave_server.architect import CheckpointManager\n"
        "root = Path(sys.argv[1]); m = CheckpointManager(str(root))\n"
        "(root / 'app.py').write_text('two'); assert m.create(1)\n"
        "(root / 'app.py').write_text('three'); assert m.create(2)\n"
        "assert m.rollback(step=1) and (root / 'app.py').read_text() == 'two'\n"
        "assert m.undo() and (root / 'app.py').read_text() == 'three'\n"
    )
    subprocess.run([sys.executable, "-c", source, str(repo.root)], check=True)
    assert repo.status() == ""


def test_a_manager_is_a_context(repo: PersonRepository) -> None:
    """A manager works with and without a `with` block."""
    with CheckpointManager(str(repo.root), repository="workspace") as manager:
        assert manager.list_checkpoints() == []
