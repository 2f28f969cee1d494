"""Claims about git, users and garbage collection at work before, between and after steps."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hankweave_server.architect import CheckpointManager
from hankweave_server.user_git import repository, restore, store, workspace
from hankweave_server.user_git.errors import (
    RepositoryBusy,
    RollbackIncomplete,
    UnsupportedRepository,
)
from hankweave_server.worktree.stat_index import Signature, signature_of
from support.person_repository import PersonRepository

pytestmark = pytest.mark.feature("architect")

INTENT = ".git/hankweave-rollback.intent"


@pytest.fixture(name="repo")
def _repo(tmp_path: Path) -> PersonRepository:
    repo = PersonRepository.made(tmp_path / "project")
    repo.commit("begin", {"a": "1\n", "b": "1\n"})
    return repo


@pytest.fixture(name="manager")
def _manager(repo: PersonRepository) -> CheckpointManager:
    return CheckpointManager(str(repo.root))


def killed_with_the_intent(
    repo: PersonRepository, act: Callable[[CheckpointManager], object]
) -> None:
    """Kill a process right after it has recorded its intent; then a person tidies up."""
    child = os.fork()
    if child == 0:
        store.move = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        try:
            act(CheckpointManager(str(repo.root)))
        finally:
            os._exit(0)

    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert (repo.root / INTENT).exists()
    (repo.root / ".git/index.lock").unlink()


def collect_garbage(repo: PersonRepository) -> None:
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("repack", "-adq")
    repo.git("gc", "-q", "--prune=now")


def test_garbage_collection_after_a_crash_takes_no_checkpoint(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """A checkpoint that died before the branch moved is finished, though git pruned meanwhile."""
    repo.write({"a": "2\n"})
    killed_with_the_intent(repo, lambda manager: manager.create(1))
    collect_garbage(repo)
    assert [each.step for each in manager.list_checkpoints()] == [1]
    assert repo.files()["a"] == b"2\n"
    assert repo.status() == ""


def test_garbage_collection_after_a_crash_takes_no_rollback(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """A rollback and an undo that died are finished after a prune; none of their refs is left."""
    repo.write({"a": "2\n"})
    manager.create(1)
    repo.commit("a person's", {"a": "3\n"})
    (repo.root / ".git/info/exclude").write_text("later\n")
    repo.write({"a": "4\n", "later": "ignored"})
    before = repo.standing()
    killed_with_the_intent(repo, lambda manager: manager.rollback(step=1))
    collect_garbage(repo)
    assert manager.list_checkpoints()
    assert repo.standing() == {"a": b"2\n", "b": b"1\n", "later": b"ignored"}
    killed_with_the_intent(repo, lambda manager: manager.undo())
    collect_garbage(repo)
    assert manager.list_checkpoints()
    assert repo.standing() == before
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/hankweave").split()
    assert refs == ["refs/hankweave/safety/1", "refs/hankweave/safety/2"]
    repo.assert_sound()


def test_garbage_collection_waits_for_us(repo: PersonRepository) -> None:
    """During a step, `git gc` reports that another one runs already; afterwards it runs."""
    common = repo.root / ".git"
    with workspace.gc_held_off(common):
        refused = subprocess.run(
            ["git", "gc", "--prune=now"], cwd=repo.root, capture_output=True, check=False
        )
        assert b"gc is already running" in refused.stderr

    repo.git("gc", "-q")
    gone = subprocess.Popen(["true"])
    gone.wait()
    (common / "gc.pid").write_text(f"{gone.pid} {os.uname().nodename}")
    with workspace.gc_held_off(common):
        assert (common / "gc.pid").read_text().startswith(f"{os.getpid()} ")

    (common / "gc.pid").write_text(f"{os.getppid()} {os.uname().nodename}")
    with workspace.gc_held_off(common):
        assert (common / "gc.pid").read_text().startswith(f"{os.getppid()} ")

    assert (common / "gc.pid").exists()


def test_who_went_on_after_a_crash_is_left_alone(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """An interrupted step does not touch later work on another branch; this is reported."""
    repo.write({"a": "2\n", "new": "n"})
    manager.create(1)
    repo.write({"b": "uncommitted\n"})
    killed_with_the_intent(repo, lambda manager: manager.rollback(commit="HEAD~1"))
    repo.git("switch", "-qc", "theirs")
    repo.git("commit", "-qam", "went on")
    before = repo.standing(), repo.status(), repo.head()
    with pytest.raises(RollbackIncomplete, match="kept as refs/hankweave/safety/1"):
        manager.list_checkpoints()

    assert (repo.standing(), repo.status(), repo.head()) == before
    assert repo.files("refs/hankweave/safety/1")["b"] == b"uncommitted\n"
    assert len(manager.list_checkpoints()) == 1


def test_a_merge_begun_after_a_crash_is_not_destroyed(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """Conflicts stay in the index until the user has resolved them."""
    repo.git("branch", "side")
    repo.commit("ours", {"b": "ours\n"})
    repo.git("switch", "-q", "side")
    repo.commit("theirs", {"b": "theirs\n"})
    repo.git("switch", "-q", "main")
    repo.write({"a": "2\n"})
    manager.create(1)
    killed_with_the_intent(repo, lambda manager: manager.rollback(commit="HEAD~1"))
    subprocess.run(["git", "merge", "side"], cwd=repo.root, capture_output=True, check=False)
    assert repo.status() == "UU b\n"
    with pytest.raises(RepositoryBusy):
        manager.list_checkpoints()

    assert repo.status() == "UU b\n"
    repo.git("merge", "--abort")
    assert manager.list_checkpoints()
    assert repo.standing()["a"] == b"1\n"


def test_what_was_staged_after_a_crash_is_kept(
    repo: PersonRepository, manager: CheckpointManager
) -> None:
    """Finishing a rollback rewrites the index; content that only the index had gets a ref."""
    repo.write({"a": "2\n"})
    manager.create(1)
    killed_with_the_intent(repo, lambda manager: manager.rollback(commit="HEAD~1"))
    repo.write({"b": "staged only\n"})
    repo.git("add", "b")
    repo.write({"b": "1\n"})
    manager.list_checkpoints()
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/hankweave/staged").split()
    assert [repo.files(ref)["b"] for ref in refs] == [b"staged only\n"]


def test_a_branch_that_moves_under_a_checkpoint_makes_it_fail(
    repo: PersonRepository, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that cannot go on the branch is an error, never an unreferenced hash."""
    tree = repo.git("rev-parse", "HEAD^{tree}").strip()
    other = repo.git("commit-tree", "-m", "other", tree).strip()
    repo.write({"a": "2\n"})
    real = store.keep_staged

    def meddled(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        repo.git("update-ref", "refs/heads/main", other)

    monkeypatch.setattr(store, "keep_staged", meddled)
    with pytest.raises(RepositoryBusy, match="moved the branch"):
        manager.create(1)

    assert repo.subjects() == ["other"]
    assert repo.status() == " M a\n"
    assert not (repo.root / INTENT).exists()


def test_a_branch_that_moves_under_a_rollback_is_reported(
    repo: PersonRepository, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a user switches branches between files and branch, theirs stays and the ref is named."""
    repo.write({"a": "2\n"})
    manager.create(1)
    repo.write({"b": "uncommitted\n"})
    real = restore.Restoring.run

    def meddled(self: restore.Restoring, changes: object) -> restore.Restored:
        done = real(self, changes)  # type: ignore[arg-type]
        repo.git("switch", "-qc", "theirs")
        return done

    monkeypatch.setattr(restore.Restoring, "run", meddled)
    with pytest.raises(RollbackIncomplete, match="kept as refs/hankweave/safety/1"):
        manager.rollback(commit="HEAD~1")

    assert repo.subjects("theirs") == repo.subjects("main")
    assert repo.files("refs/hankweave/safety/1")["b"] == b"uncommitted\n"


def test_a_lock_that_is_not_ours_any_more_stays(repo: PersonRepository) -> None:
    """A program that removes this index.lock and creates its own keeps its lock."""
    lock = repo.root / ".git/index.lock"
    with workspace.index_held(repo.root / ".git"):
        lock.unlink()
        lock.write_bytes(b"another program's")

    assert lock.read_bytes() == b"another program's"


def test_who_was_waited_for_and_died_is_finished_first(
    repo: PersonRepository, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that waits for one that then dies does not take its partial work for a user's."""
    repo.write({"a": "2\n"})
    manager.create(1)
    real = store.alone

    def dies_meanwhile(common_dir: Path) -> object:
        monkeypatch.setattr(store, "alone", real)
        killed_with_the_intent(repo, lambda other: other.rollback(commit="HEAD~1"))
        return real(common_dir)

    monkeypatch.setattr(store, "alone", dies_meanwhile)
    assert manager.create(2) is None
    assert repo.subjects() == ["begin"]
    assert repo.standing()["a"] == b"1\n"


def test_a_change_at_the_moment_of_the_check_is_not_overwritten(
    repo: PersonRepository, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two writes that the disk's clock cannot tell apart, the second is not captured content."""
    repo.write({"a": "old\n"})
    real = store.save

    def meddled(*arguments: object) -> object:
        seen = (repo.root / "a").stat()
        repo.write({"a": "new\n"})
        os.utime(repo.root / "a", ns=(seen.st_atime_ns, seen.st_mtime_ns))
        return real(*arguments)  # type: ignore[arg-type]

    def coarse(status: os.stat_result) -> Signature:
        return signature_of(status)._replace(ctime_ns=0)

    monkeypatch.setattr(store, "save", meddled)
    monkeypatch.setattr(restore, "signature_of", coarse)
    monkeypatch.setattr(restore, "INSTANT_NS", 60 * 10**9)
    target = repo.git("commit-tree", "-m", "target", "HEAD^{tree}").strip()
    with pytest.raises(RollbackIncomplete):
        manager.rollback(commit=target)

    assert (repo.root / "a").read_text() == "new\n"


def test_a_folder_of_objects_that_a_gc_removes_under_our_hands_is_made_again(
    repo: PersonRepository, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libgit2 fails where git retries; a repository that cannot be written stays refused."""
    real, tries = repository.put, 0

    def meddled(*arguments: object) -> bytes:
        nonlocal tries
        tries += 1
        if tries % 3:
            raise KeyError("failed to rename lockfile: No such file or directory")

        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(repository, "put", meddled)
    repo.write({"a": "2\n"})
    assert manager.create(1)
    assert repo.status() == ""
    assert tries > 3

    def refused(*_: object) -> bytes:
        raise KeyError("Permission denied")

    monkeypatch.setattr(repository, "put", refused)
    repo.write({"a": "3\n"})
    with pytest.raises(UnsupportedRepository):
        manager.create(2)
