"""Claims about rollbacks among crashes, other programs and hostile work trees."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hankweave_server.architect import CheckpointManager
from hankweave_server.user_git import restore
from hankweave_server.user_git.errors import RollbackIncomplete, UnsupportedRepository
from support.person_repository import PersonRepository
from support.refused_calls import refused

pytestmark = pytest.mark.feature("architect")

DEEDS = frozenset(
    {
        "open",
        "os.rename",
        "os.remove",
        "os.link",
        "os.symlink",
        "os.mkdir",
        "os.rmdir",
        "os.chmod",
        "ctypes.call_function",
    }
)
"""Audit events that Python raises before a call; refs move between two of these."""

STRIDE = 1 if "HANKWEAVE_LONG_TIER" in os.environ else 4
"""The long tier kills at every call, the fast one at every fourth."""


@pytest.fixture(name="repo")
def _repo(tmp_path: Path) -> PersonRepository:
    repo = PersonRepository.made(tmp_path / "project")
    shutil.rmtree(repo.root / ".git/hooks")
    repo.commit("begin", {"a": "1\n", "d/b": "1\n", "d/e/c": "1\n"})
    return repo


def calls_to_read() -> int:
    """Return how often this process has called read(2) and its like (proc(5), io)."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["syscr"])


def killed_at(number: int, act: Callable[[], object]) -> bool:
    """Run an action in a process of its own, killed before its audited call of that number."""
    child = os.fork()
    if child == 0:
        left = number

        def hook(event: str, _: object) -> None:
            nonlocal left
            if event in DEEDS:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            act()
        finally:
            os._exit(0)

    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def seen(repo: PersonRepository) -> tuple[object, ...]:
    """Return the visible state of a repository, without commits that differ only in time."""
    tree = repo.git("rev-parse", "HEAD^{tree}")
    return repo.subjects()[0], tree, repo.status(), repo.git("diff", "--cached"), repo.standing()


def blobs_at_hand(repo: PersonRepository) -> set[str]:
    """Return every content in the work tree, the index, or a commit that a git ref leads to."""
    found = {line.split()[0] for line in repo.git("rev-list", "--objects", "--all").splitlines()}
    found |= {line.split()[1] for line in repo.git("ls-files", "-s").splitlines()}
    names = [name for name, what in repo.standing().items() if isinstance(what, bytes)]
    return found | set(repo.git("hash-object", "--", *names).split())


def states_after_kills(
    template: PersonRepository, work: Path, act: Callable[[Path], object]
) -> tuple[int, list[tuple[object, ...]]]:
    """Kill at each audited call in turn, let the next call recover, and return the states."""
    found: list[tuple[object, ...]] = []
    number = 1
    while True:
        shutil.copytree(template.root, work, symlinks=True)
        repo = PersonRepository(work)
        repo.status()  # So that git knows the copies.
        precious = blobs_at_hand(repo)
        was_killed = killed_at(number, lambda: act(work))
        assert precious <= blobs_at_hand(repo), "git alone does not find all of it"
        repo.git("fsck")
        manager = CheckpointManager(str(work))
        manager.has_changes_since("HEAD")
        now = seen(repo)
        assert not (work / ".git/hankweave-rollback.intent").exists()
        if now not in found:
            found.append(now)

        repo.write({"afterwards": "x"})
        assert manager.create(99), "the next checkpoint cannot be made"
        assert repo.status() == ""
        shutil.rmtree(work)
        if not was_killed:
            return number, found

        number += STRIDE


def test_a_kill_anywhere_in_a_rollback_leaves_before_or_after(
    repo: PersonRepository, tmp_path: Path
) -> None:
    """Whenever the process dies, the next call finds or completes one of the two states."""
    manager = CheckpointManager(str(repo.root))
    repo.write({"a": "2\n", "later/x": "x"})
    manager.create(1)
    repo.write({"a": "3\n", "d/b": "3\n", "later/y": "y", "staged": "s"})
    (repo.root / "d/e/c").unlink()
    (repo.root / "link").symlink_to("a")
    manager.create(2)
    repo.write({"a": "4\n", "new": "n"})
    repo.git("add", "a")
    repo.write({"a": "5\n"})
    before = seen(repo)
    points, states = states_after_kills(
        repo, tmp_path / "work", lambda root: CheckpointManager(str(root)).rollback(step=1)
    )
    assert points > 30
    assert states[0] == before
    assert len(states) == 2
    assert states[1][2] == ""


def test_a_kill_anywhere_in_an_undo_leaves_before_or_after(
    repo: PersonRepository, tmp_path: Path
) -> None:
    """An undo that dies is either finished or has not begun."""
    manager = CheckpointManager(str(repo.root))
    repo.write({"a": "2\n"})
    manager.create(1)
    repo.write({"a": "3\n", "new/file": "n"})
    repo.git("add", "a")
    repo.write({"a": "4\n"})
    whole = seen(repo)
    assert manager.rollback(step=1)
    rolled_back = seen(repo)
    _, states = states_after_kills(
        repo, tmp_path / "work", lambda root: CheckpointManager(str(root)).undo()
    )
    assert states == [rolled_back, whole]


def test_a_kill_anywhere_in_a_checkpoint_leaves_before_or_after(
    repo: PersonRepository, tmp_path: Path
) -> None:
    """A checkpoint either exists with a clean status or does not exist."""
    repo.write({"a": "2\n", "new": "n"})
    repo.git("add", "a")
    repo.write({"a": "3\n"})
    before = seen(repo)
    _, states = states_after_kills(
        repo, tmp_path / "work", lambda root: CheckpointManager(str(root)).create(1)
    )
    assert states[0] == before
    assert [state[0] for state in states] == ["begin", "architect:checkpoint:step-1"]


def test_what_does_not_belong_to_git_is_passed_over(repo: PersonRepository) -> None:
    """A FIFO or socket is in no checkpoint, blocks nothing, and is replaced by a file."""
    os.mkfifo(repo.root / "pipe")
    (repo.root / "a").unlink()
    os.mkfifo(repo.root / "a")
    manager = CheckpointManager(str(repo.root))
    made = manager.create(1)
    assert made is not None
    assert made.files_changed == ["a"]
    assert manager.rollback(commit="HEAD~1")
    assert (repo.root / "a").read_text() == "1\n"
    assert (repo.root / "pipe").is_fifo()
    assert repo.status() == ""


def test_an_undo_claims_nothing_that_git_would_believe(repo: PersonRepository) -> None:
    """Staged content is not mistaken for the file's: git sees both without a second read."""
    manager = CheckpointManager(str(repo.root))
    repo.write({"a": "2\n"})
    manager.create(1)
    repo.write({"a": "3\n"})
    repo.git("add", "a")
    repo.write({"a": "4\n"})
    assert manager.rollback(step=1)
    assert manager.undo()
    index = repo.root / ".git/index"
    later = index.stat().st_mtime_ns + 10**10
    os.utime(index, ns=(later, later))
    assert repo.status() == "MM a\n"


def test_files_and_folders_change_places(repo: PersonRepository) -> None:
    """If a folder replaces a file, or a link a folder, rollback and undo are exact."""
    shutil.rmtree(repo.root / "d")
    repo.write({"d": "a file\n"})
    (repo.root / "a").unlink()
    repo.write({"a/in/it": "x"})
    before = repo.standing()
    manager = CheckpointManager(str(repo.root))
    assert manager.create(1)
    assert repo.status() == ""
    assert manager.rollback(commit="HEAD~1")
    assert repo.standing() == {"a": b"1\n", "d/b": b"1\n", "d/e/c": b"1\n"}
    assert repo.status() == ""
    assert manager.undo()
    assert repo.standing() == before
    assert repo.status() == ""


def test_no_link_is_followed_out_of_the_workspace(
    repo: PersonRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that becomes a link during a rollback leads to no write outside the tree."""
    manager = CheckpointManager(str(repo.root))
    repo.write({"d/b": "2\n", "d/e/c": "2\n"})
    manager.create(1)
    outside = PersonRepository(tmp_path / "outside")
    outside.write({"b": "precious\n", "e/c": "precious\n"})
    real = restore.Restoring.run

    def swapped(self: restore.Restoring, changes: object) -> restore.Restored:
        (repo.root / "d").rename(repo.root / "moved")
        (repo.root / "d").symlink_to(outside.root)
        return real(self, changes)  # type: ignore[arg-type]

    monkeypatch.setattr(restore.Restoring, "run", swapped)
    with pytest.raises(RollbackIncomplete) as caught:
        manager.rollback(commit="HEAD~1")

    assert caught.value.paths == ("d/b", "d/e/c")
    assert outside.standing() == {"b": b"precious\n", "e/c": b"precious\n"}


def test_a_path_that_cannot_be_changed_is_named_with_the_reason(repo: PersonRepository) -> None:
    """All others are restored, and an undo takes back exactly that."""
    manager = CheckpointManager(str(repo.root))
    repo.write({"a": "2\n", "d/b": "2\n"})
    manager.create(1)
    with (
        refused("rename", b"a", errno.EPERM),
        pytest.raises(RollbackIncomplete, match=r"a \(Operation not permitted, EPERM\)") as caught,
    ):
        manager.rollback(commit="HEAD~1")

    assert caught.value.paths == ("a",)
    assert repo.standing() == {"a": b"2\n", "d/b": b"1\n", "d/e/c": b"1\n"}
    assert manager.undo()
    assert repo.standing() == {"a": b"2\n", "d/b": b"2\n", "d/e/c": b"1\n"}


def test_a_file_that_changes_meanwhile_is_left(
    repo: PersonRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write by another program after the safety commit is not overwritten, and is reported."""
    manager = CheckpointManager(str(repo.root))
    repo.write({"a": "2\n", "d/b": "2\n"})
    manager.create(1)
    real = restore.Restoring.run

    def meddled(self: restore.Restoring, changes: object) -> restore.Restored:
        repo.write({"a": "someone else's\n"})
        return real(self, changes)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(restore.Restoring, "run", meddled)
        with pytest.raises(RollbackIncomplete, match=r"is complete, except for files .*: a"):
            manager.rollback(commit="HEAD~1")

    assert repo.standing() == {"a": b"someone else's\n", "d/b": b"1\n", "d/e/c": b"1\n"}
    assert repo.status() == " M a\n"
    assert manager.undo()
    assert repo.standing()["d/b"] == b"2\n"
    assert repo.files("refs/hankweave/safety/2")["a"] == b"someone else's\n"


def test_a_change_within_the_same_instant_is_seen(repo: PersonRepository) -> None:
    """A file of the same size, written in the same instant as the checkpoint, counts as changed."""
    manager = CheckpointManager(str(repo.root))
    for number in range(20):
        repo.write({"a": f"{number:02}\n"})
        made = manager.create(number)
        assert made is not None, number
        assert repo.files()["a"] == f"{number:02}\n".encode()


@pytest.mark.parametrize("name", [b"..", b".git", b".GIT", b"."])
def test_a_hostile_commit_leads_nowhere(repo: PersonRepository, name: bytes) -> None:
    """A commit with a name that would lead out of the work tree, or into .git, is refused."""
    blob = repo.git("hash-object", "-w", "--stdin", stdin="evil").strip()
    entry = b"100644 evil\0" + bytes.fromhex(blob)
    inner = written_tree(repo, entry)
    outer = written_tree(repo, b"40000 " + name + b"\0" + bytes.fromhex(inner))
    commit = repo.git("commit-tree", "-m", "evil", outer).strip()
    before = seen(repo)
    with pytest.raises(UnsupportedRepository, match="not allowed in a work tree"):
        CheckpointManager(str(repo.root)).rollback(commit=commit)

    assert seen(repo) == before
    assert not (repo.root.parent / "evil").exists()
    assert not (repo.root / ".git/evil").exists()


def written_tree(repo: PersonRepository, content: bytes) -> str:
    path = repo.root / ".git/tree"
    path.write_bytes(content)
    return repo.git("hash-object", "-t", "tree", "-w", "--literally", str(path)).strip()


def test_folders_that_lost_their_files_go_and_others_stay(repo: PersonRepository) -> None:
    """Folders that the rollback empties are removed; folders that were empty before stay."""
    manager = CheckpointManager(str(repo.root))
    repo.write({"x/y/z/file": "1"})
    (repo.root / "mine").mkdir()
    manager.create(1)
    assert manager.rollback(commit="HEAD~1")
    assert not (repo.root / "x").exists()
    assert (repo.root / "mine").is_dir()


def test_one_change_among_ten_thousand_files_reads_that_one(tmp_path: Path) -> None:
    """With the index, a checkpoint of one change does not read the other files."""
    repo = PersonRepository.made(tmp_path / "large")
    repo.git("config", "gc.auto", "0")
    repo.write({f"d{n % 100}/f{n}": str(n) for n in range(10_000)})
    repo.git("add", "-A")
    repo.git("commit", "-qm", "large")
    manager = CheckpointManager(str(repo.root))
    repo.write({"d7/new": "x"})
    before = calls_to_read()
    assert manager.create(1)
    assert calls_to_read() - before < 1_000
    assert repo.status() == ""


@pytest.mark.parametrize("rules", ["", "d\n"])
def test_a_link_to_itself_in_a_folders_place_is_the_end_of_its_files(
    repo: PersonRepository, rules: str
) -> None:
    """The checkpoint has the link, and a rollback restores the files; an ignored link stays."""
    shutil.rmtree(repo.root / "d")
    (repo.root / "d").symlink_to("d")
    repo.write({".gitignore": rules})
    manager = CheckpointManager(str(repo.root))
    assert manager.create(1)
    listed = repo.git("ls-tree", "-r", "HEAD", "--format=%(objectmode) %(path)").splitlines()
    link = [] if rules else ["120000 d"]
    assert listed == ["100644 .gitignore", "100644 a", *link]
    if rules:
        with pytest.raises(RollbackIncomplete):
            manager.rollback(commit="HEAD~1")

        assert (repo.root / "d").is_symlink()
    else:
        assert manager.rollback(commit="HEAD~1")
        assert (repo.root / "d/b").read_text() == "1\n"
