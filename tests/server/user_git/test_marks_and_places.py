"""Claims about git's marks on single files, and about where git keeps its own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hankweave_server.architect import CheckpointError, CheckpointManager
from support.person_repository import PersonRepository

pytestmark = pytest.mark.feature("architect")


@pytest.fixture(name="repo")
def _repo(tmp_path: Path) -> PersonRepository:
    repo = PersonRepository.made(tmp_path / "project")
    repo.commit("begin", {"a": "a\n", "b": "b\n", "s/a": "1\n"})
    return repo


def test_files_marked_skip_worktree_are_left_alone(repo: PersonRepository) -> None:
    """A local change that git was told to ignore is not committed, and keeps its mark."""
    repo.git("update-index", "--skip-worktree", "a")
    repo.write({"a": "local\n", "b": "2\n"})
    manager = CheckpointManager(str(repo.root))
    made = manager.create(1)
    assert made is not None
    assert made.files_changed == ["b"]
    assert manager.rollback(commit="HEAD~1")
    assert repo.standing()["a"] == b"local\n"
    assert repo.git("ls-files", "-v", "a") == "S a\n"


def test_a_git_directory_apart_knows_its_work_tree(tmp_path: Path) -> None:
    """With `git init --separate-git-dir`, files beside the git directory belong to no work tree."""
    (tmp_path / "apart").mkdir()
    repo = PersonRepository.made(
        tmp_path / "work", "--separate-git-dir", str(tmp_path / "apart/store")
    )
    repo.commit("begin", {"a": "1\n"})
    (tmp_path / "apart/precious").write_text("precious")
    manager = CheckpointManager(str(repo.root))
    repo.write({"a": "2\n"})
    made = manager.create(1)
    assert made is not None
    assert made.files_changed == ["a"]
    assert repo.status() == ""
    assert manager.rollback(commit="HEAD~1")
    assert manager.undo()
    assert repo.standing() == {"a": b"2\n"}
    assert (tmp_path / "apart/precious").read_text() == "precious"


def test_another_name_of_a_branch_is_followed(repo: PersonRepository) -> None:
    """Where HEAD's branch is a symbolic ref, its target moves, and the ref stays symbolic."""
    repo.git("branch", "trunk")
    repo.git("symbolic-ref", "refs/heads/main", "refs/heads/trunk")
    manager = CheckpointManager(str(repo.root))
    repo.write({"a": "2\n"})
    assert manager.create(1)
    assert repo.git("symbolic-ref", "refs/heads/main") == "refs/heads/trunk\n"
    assert repo.status() == ""
    assert manager.rollback(commit="HEAD~1")
    assert manager.undo()
    assert repo.subjects("trunk") == ["architect:checkpoint:step-1", "begin"]


def test_missing_content_is_reported_before_anything_changes(repo: PersonRepository) -> None:
    """In a partial clone or a damaged repository no file changes, and the next call works."""
    blob = repo.git("rev-parse", "HEAD:a").strip()
    manager = CheckpointManager(str(repo.root))
    repo.write({"a": "2\n", "b": "2\n"})
    assert manager.create(1)
    (repo.root / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(CheckpointError, match="content of 'a' is not in this repository"):
        manager.rollback(commit="HEAD~1")

    assert repo.standing()["b"] == b"2\n"
    assert repo.status() == ""
    assert len(manager.list_checkpoints()) == 1


def test_permissions_come_back_with_an_undo(repo: PersonRepository) -> None:
    """Undo restores permissions of replaced files, of lost bits, and of removed folders."""
    manager = CheckpointManager(str(repo.root))
    (repo.root / "a").unlink()
    (repo.root / "a").symlink_to("b")
    assert manager.create(1)
    (repo.root / "a").unlink()
    repo.write({"a": "private\n", "kept/apart/x": "secret\n"})
    for name, permissions in {"a": 0o600, "b": 0o711, "kept/apart": 0o700, "kept": 0o750}.items():
        (repo.root / name).chmod(permissions)

    before = {name: mode_of(repo.root / name) for name in ("a", "b", "kept", "kept/apart")}
    assert manager.rollback(step=1)
    assert not (repo.root / "kept").exists()
    assert manager.undo()
    assert {name: mode_of(repo.root / name) for name in before} == before


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_no_excludes_file_is_none(repo: PersonRepository, tmp_path: Path) -> None:
    """An empty `core.excludesFile` means no file, not the default one."""
    usual = tmp_path / "home/.config/git"
    usual.mkdir(parents=True)
    (usual / "ignore").write_text("new\n")
    repo.git("config", "core.excludesFile", "")
    repo.write({"new": "x"})
    assert repo.status() == "?? new\n"
    assert CheckpointManager(str(repo.root)).create(1)
    assert repo.status() == ""


def test_a_folder_with_an_empty_dot_git_is_no_repository(repo: PersonRepository) -> None:
    """Git descends into it, so the checkpoint has its files."""
    (repo.root / "s/.git").mkdir()
    repo.write({"s/a": "2\n", "s/new": "x"})
    assert repo.status() == " M s/a\n?? s/new\n"
    made = CheckpointManager(str(repo.root)).create(1)
    assert made is not None
    assert made.files_changed == ["s/a", "s/new"]
    assert repo.status() == ""


def test_an_ignore_file_that_is_checked_out_nowhere_counts(repo: PersonRepository) -> None:
    """A sparse checkout leaves out `.gitignore` files; the files that they hide stay hidden."""
    repo.commit("rules", {"s/.gitignore": "*.log\n"})
    repo.git("sparse-checkout", "set", "--no-cone", "/a")
    assert not os.path.lexists(repo.root / "s")
    repo.write({"s/x.log": "x", "s/new": "x"})
    assert repo.status() == "?? s/new\n"
    made = CheckpointManager(str(repo.root)).create(1)
    assert made is not None
    assert made.files_changed == ["s/new"]
