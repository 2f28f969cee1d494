"""Claims about repositories of every kind: git has nothing to correct afterwards."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hankweave_server.architect import (
    CheckpointError,
    CheckpointManager,
    CheckpointWarning,
)
from hankweave_server.features.architect.checkpoints import has_repository
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.user_git import workspace
from hankweave_server.user_git.errors import RepositoryBusy, UnsupportedRepository
from hankweave_server.user_git.workspace import opened
from support.person_repository import PersonRepository

pytestmark = pytest.mark.feature("architect")


@pytest.fixture(name="repo")
def _repo(tmp_path: Path) -> PersonRepository:
    repo = PersonRepository.made(tmp_path / "project")
    repo.commit("begin", {"app.py": "one\n", "part/code.py": "a\n", "other/code.py": "b\n"})
    return repo


def assert_there_and_back(repo: PersonRepository, root: Path | None = None) -> None:
    """Make a checkpoint, change files, roll back and undo; check with git each time."""
    root = root or repo.root
    manager = CheckpointManager(str(root), repository="workspace")
    PersonRepository(root).write({"made": "1\n", "sub/made.txt": "text\nlines\n"})
    made = manager.create(1)
    assert made is not None
    assert repo.status() == ""
    PersonRepository(root).write({"made": "2\n", "later": "x", "sub/made.txt": "other\nlines\n"})
    before = repo.status(), repo.standing()
    assert manager.rollback(step=1)
    assert repo.status() == ""
    assert (root / "made").read_text() == "1\n"
    assert not (root / "later").exists()
    assert manager.undo()
    assert (repo.status(), repo.standing()) == before
    repo.assert_sound()


def test_a_subdirectory_touches_nothing_outside_it(repo: PersonRepository) -> None:
    """Files, index entries and changes outside the workspace stay unchanged and uncommitted."""
    repo.write({"other/code.py": "staged\n"})
    repo.git("add", "other/code.py")
    repo.write({"other/code.py": "edited\n", "other/new": "new", "app.py": "edited\n"})
    outside = repo.status()
    manager = CheckpointManager(str(repo.root / "part"))
    repo.write({"part/code.py": "a2\n", "part/new": "n"})
    made = manager.create(1)
    assert made is not None
    assert made.files_changed == ["code.py", "new"]
    assert repo.status() == outside
    assert repo.git("show", "--name-only", "--format=").split() == ["part/code.py", "part/new"]
    repo.write({"part/code.py": "a3\n"})
    assert manager.rollback(step=1)
    assert repo.status() == outside
    assert (repo.root / "part/code.py").read_text() == "a2\n"
    assert manager.rollback(commit="HEAD~1")
    assert repo.status() == outside
    assert not (repo.root / "part/new").exists()
    assert manager.undo()
    assert repo.status() == outside
    repo.assert_sound()


def test_two_subdirectories_do_not_mix_their_steps(repo: PersonRepository) -> None:
    """Each workspace goes back to its own step 1, and the other one's checkpoints stay."""
    one, two = (CheckpointManager(str(repo.root / name)) for name in ("part", "other"))
    repo.write({"part/code.py": "part 1", "other/code.py": "other 1"})
    one.create(1)
    two.create(1)
    repo.write({"part/code.py": "part 2"})
    assert one.rollback(step=1)
    assert (repo.root / "part/code.py").read_text() == "part 1"
    assert (repo.root / "other/code.py").read_text() == "other 1"
    assert repo.status() == ""
    assert len(one.list_checkpoints()) == len(two.list_checkpoints()) == 1
    assert len(CheckpointManager(str(repo.root)).list_checkpoints()) == 2


def test_a_linked_worktree_has_its_own_line(repo: PersonRepository, tmp_path: Path) -> None:
    """The branch of the worktree moves, and the main one does not."""
    linked = PersonRepository(tmp_path / "linked")
    repo.git("worktree", "add", "-q", "-b", "side", str(linked.root))
    before = repo.head(), repo.status()
    assert_there_and_back(linked)
    assert (repo.head(), repo.status()) == before


def test_a_detached_head_stays_detached(repo: PersonRepository) -> None:
    """Checkpoints are added on top of HEAD; no branch moves."""
    repo.git("checkout", "-q", "--detach")
    assert_there_and_back(repo)
    assert repo.git("rev-parse", "--abbrev-ref", "HEAD").strip() == "HEAD"
    assert repo.subjects("main") == ["begin"]


def test_an_unborn_branch_is_born_and_unborn_again(tmp_path: Path) -> None:
    """The first checkpoint creates the branch; a rollback elsewhere and its undo leave none."""
    repo = PersonRepository.made(tmp_path / "new")
    assert_there_and_back(repo)
    repo.git("checkout", "-q", "--orphan", "empty")
    repo.git("rm", "-rfq", "--cached", ".")
    before = repo.status()
    manager = CheckpointManager(str(repo.root))
    assert manager.rollback(commit="main")
    assert manager.undo()
    assert repo.status() == before
    assert subprocess.run(["git", "rev-parse", "-q", "--verify", "HEAD"], cwd=repo.root).returncode


def test_submodules_and_inner_repositories_stay(repo: PersonRepository, tmp_path: Path) -> None:
    """A folder with its own repository is neither committed, moved nor removed."""
    module = PersonRepository.made(tmp_path / "module")
    module.commit("module", {"m": "1"})
    repo.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(module.root), "mod")
    repo.commit("with module")
    inner = PersonRepository.made(repo.root / "inner")
    inner.commit("inner", {"i": "1"})
    pointed = repo.git("ls-tree", "HEAD", "mod")
    PersonRepository(repo.root / "mod").git("checkout", "-q", "--detach")
    PersonRepository(repo.root / "mod").git("config", "user.email", "a@b")
    PersonRepository(repo.root / "mod").git("config", "user.name", "a")
    PersonRepository(repo.root / "mod").commit("further", {"m": "2"})
    manager = CheckpointManager(str(repo.root))
    repo.write({"app.py": "two\n"})
    made = manager.create(1)
    assert made is not None
    assert made.files_changed == ["app.py"]
    assert repo.git("ls-tree", "HEAD", "mod") == pointed
    assert repo.status() == " M mod\n?? inner/\n"
    assert manager.rollback(commit="HEAD~2")
    assert (repo.root / "mod/m").read_text() == "2"
    assert (inner.root / "i").read_text() == "1"
    assert manager.undo()
    assert repo.status() == " M mod\n?? inner/\n"
    repo.assert_sound()


def test_hooks_and_signing_are_not_run(repo: PersonRepository, tmp_path: Path) -> None:
    """A failing hook or a missing signing key does not prevent the checkpoint."""
    for name in ("pre-commit", "commit-msg", "post-commit", "reference-transaction"):
        hook = repo.root / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
        hook.chmod(0o755)

    repo.git("config", "commit.gpgsign", "true")
    repo.git("config", "gpg.program", "/nonexistent")
    manager = CheckpointManager(str(repo.root))
    repo.write({"app.py": "two\n"})
    assert manager.create(1)
    repo.write({"app.py": "three\n"})
    assert manager.create(2)
    assert manager.rollback(step=1)
    assert manager.undo()
    assert not (tmp_path / "ran").exists()
    assert repo.subjects() == [
        "architect:checkpoint:step-2",
        "architect:checkpoint:step-1",
        "begin",
    ]


def test_without_an_identity_ours_is_taken(tmp_path: Path) -> None:
    """The first checkpoint needs no configured name."""
    repo = PersonRepository.made(tmp_path / "anonymous")
    repo.git("config", "--unset", "user.name")
    repo.git("config", "--unset", "user.email")
    repo.write({"a": "1"})
    assert CheckpointManager(str(repo.root)).create(1)
    assert repo.git("log", "-1", "--format=%an <%ae>") == "Hankweave <hankweave@localhost>\n"


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_persons_own_configuration_counts(tmp_path: Path, is_alone: bool) -> None:
    """Name, line ends and ignored files of ~/.gitconfig apply in the daemon's process too."""
    if is_alone:
        subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bare.git"], check=True)
        ShadowRepo(tmp_path / "bare.git").close()

    home = tmp_path / "home"
    (home / "work.config").write_text("[user]\n\temail = grace@work.example\n")
    (home / "mine").write_text("*.mine\n")
    (home / "attributes").write_text("*.bat text eol=crlf\n")
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Grace\n\temail = grace@home.example\n"
        "[core]\n\tautocrlf = input\n\texcludesFile = ~/mine\n\tattributesFile = ~/attributes\n"
        f'[includeIf "gitdir:{tmp_path}/jobs/"]\n\tpath = work.config\n'
    )
    repo = PersonRepository.made(tmp_path / "jobs/project")
    repo.git("config", "--unset", "user.name")
    repo.git("config", "--unset", "user.email")
    repo.write({"a.txt": "one\r\ntwo\r\n", "b.bat": "x\r\ny\r\n", "no.mine": "m"})
    assert CheckpointManager(str(repo.root)).create(1)
    assert repo.status() == ""
    assert repo.files() == {"a.txt": b"one\ntwo\n", "b.bat": b"x\ny\n"}
    assert repo.git("log", "-1", "--format=%an <%ae>") == "Grace <grace@work.example>\n"


ATTRIBUTES = (
    "*.txt text\n*.bat text eol=crlf\n*.sh text eol=lf\n*.auto text=auto\n*.raw -text\n"
    "*.id ident\n*.bin binary\n/docs/** text=auto eol=crlf\nold.* crlf\n[attr]win text eol=crlf\n"
    "*.win win\nspaced[[:space:]]name text eol=crlf\n"
)
CONTENTS = {
    "lf": b"one\ntwo\n",
    "crlf": b"one\r\ntwo\r\n",
    "mixed": b"one\r\ntwo\nthree",
    "lonecr": b"one\rtwo\r\n",
    "nul": b"one\0\r\ntwo\r\n",
    "odd": bytes(range(1, 9)) * 9 + b"\r\n",
    "id": b"$Id$ and $Id: old $ \r\n",
    "none": b"",
}
ENDINGS = ("txt", "bat", "sh", "auto", "raw", "id", "bin", "win", "other")


@pytest.mark.parametrize("autocrlf", ["false", "true", "input"])
@pytest.mark.parametrize("eol", ["native", "crlf"])
@pytest.mark.filterwarnings("ignore::hankweave_server.architect.CheckpointWarning")
def test_line_ends_are_stored_and_restored_as_git_does(
    tmp_path: Path, autocrlf: str, eol: str
) -> None:
    """For every attribute, setting and content: git's blobs, git's files, a clean status."""
    repo = PersonRepository.made(tmp_path / "project")
    repo.git("config", "core.autocrlf", autocrlf)
    repo.git("config", "core.eol", eol)
    files = {f"{what}.{end}": content for what, content in CONTENTS.items() for end in ENDINGS}
    files |= {f"docs/deep/{what}": content for what, content in CONTENTS.items()}
    files |= {"spaced name": b"a\nb\n", "old.1": b"a\r\nb\r\n"}
    repo.write({".gitattributes": ATTRIBUTES, **files})
    manager = CheckpointManager(str(repo.root))
    made = manager.create(1)
    assert made is not None
    assert repo.status() == ""
    repo.git("reset", "-q", "--soft", repo.git("commit-tree", "-m", "e", EMPTY).strip())
    repo.git("rm", "-rq", "--cached", ".")
    repo.git("add", "-A")
    assert (
        repo.git("write-tree").strip()
        == repo.git("rev-parse", f"{made.commit_hash}^{{tree}}").strip()
    )
    for name in repo.standing():
        (repo.root / name).unlink()

    repo.git("reset", "-q", "--hard", made.commit_hash)
    as_git_writes_them = repo.standing()

    repo.write({name: content + b"changed\n" for name, content in files.items()})
    assert manager.create(2)
    assert repo.status() == ""
    assert manager.rollback(step=1)
    assert repo.standing() == as_git_writes_them
    assert repo.status() == ""
    repo.git("update-index", "--really-refresh")
    assert repo.git("diff-index", "--name-only", "HEAD") == ""


EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def test_without_file_modes_the_index_decides(repo: PersonRepository) -> None:
    """With core.fileMode=false an executable stays one, whatever its mode on the disk is."""
    repo.write({"tool": "#!/bin/sh\n"})
    (repo.root / "tool").chmod(0o755)
    repo.commit("tool")
    repo.git("config", "core.fileMode", "false")
    (repo.root / "tool").chmod(0o644)
    (repo.root / "app.py").chmod(0o755)
    assert_there_and_back(repo)
    assert repo.git("ls-tree", "HEAD", "tool").startswith("100755")
    assert repo.git("ls-tree", "HEAD", "app.py").startswith("100644")


def test_an_executable_bit_is_a_change(repo: PersonRepository) -> None:
    """Setting it makes a checkpoint; rolling back clears it and rewrites no content."""
    manager = CheckpointManager(str(repo.root))
    (repo.root / "app.py").chmod(0o755)
    assert manager.create(1)
    inode = (repo.root / "app.py").stat().st_ino
    assert manager.rollback(commit="HEAD~1")
    assert (repo.root / "app.py").stat().st_mode & 0o777 == 0o644
    assert (repo.root / "app.py").stat().st_ino == inode
    assert repo.status() == ""


def test_links_are_links_unless_git_is_configured_otherwise(repo: PersonRepository) -> None:
    """A link is stored as a link; with core.symlinks=false a link's file stays a link in git."""
    manager = CheckpointManager(str(repo.root))
    (repo.root / "link").symlink_to("app.py")
    made = manager.create(1)
    assert made is not None
    assert repo.git("ls-tree", "HEAD", "link").startswith("120000")
    repo.git("config", "core.symlinks", "false")
    (repo.root / "link").unlink()
    repo.write({"link": "part/code.py"})
    assert manager.create(2)
    assert repo.git("ls-tree", "HEAD", "link").startswith("120000")
    assert repo.status() == ""
    assert manager.rollback(step=1)
    assert (repo.root / "link").read_text() == "app.py"
    assert not (repo.root / "link").is_symlink()
    assert repo.status() == ""


@pytest.mark.parametrize("name", ["lfs", "git-crypt"])
def test_content_of_another_program_stays_as_it_is(repo: PersonRepository, name: str) -> None:
    """Paths with a filter, installed or not, are not committed or restored, and are reported."""
    repo.commit("lfs", {".gitattributes": f"*.big filter={name}\n", "a.big": "pointer\n"})
    repo.git("config", f"filter.{name}.clean", "/nonexistent/program")
    repo.git("config", f"filter.{name}.smudge", "/nonexistent/program")
    repo.git("config", f"filter.{name}.required", "true")
    repo.write({"a.big": "changed content\n", "b.big": "new\n", "app.py": "two\n"})
    manager = CheckpointManager(str(repo.root))
    with pytest.warns(CheckpointWarning, match=r"a\.big, b\.big are managed by another program"):
        made = manager.create(1)

    assert made is not None
    assert made.files_changed == ["app.py"]
    assert repo.files()["a.big"] == b"pointer\n"
    with pytest.warns(CheckpointWarning):
        assert manager.rollback(commit="HEAD~1")

    assert (repo.root / "a.big").read_text() == "changed content\n"
    assert (repo.root / "b.big").read_text() == "new\n"
    assert (repo.root / "app.py").read_text() == "one\n"


@pytest.mark.parametrize("sparse_index", ["false", "true"])
def test_a_sparse_checkout_loses_nothing(repo: PersonRepository, sparse_index: str) -> None:
    """Files outside a sparse checkout are no deletions, and stay out of the work tree."""
    repo.git("sparse-checkout", "init", "--cone", *(["--sparse-index"] * (sparse_index == "true")))
    repo.git("sparse-checkout", "set", "part")
    assert not (repo.root / "other").exists()
    assert_there_and_back(repo)
    assert "other/code.py" in repo.files()
    assert not (repo.root / "other").exists()
    repo.git("sparse-checkout", "disable")
    assert (repo.root / "other/code.py").read_text() == "b\n"


def test_assumed_unchanged_files_are_left_alone(repo: PersonRepository) -> None:
    """A file that git was told not to check is not committed, and keeps its mark."""
    repo.git("update-index", "--assume-unchanged", "app.py")
    repo.write({"app.py": "local only\n"})
    assert_there_and_back(repo)
    assert repo.files()["app.py"] == b"one\n"
    assert (repo.root / "app.py").read_text() == "local only\n"
    assert "h app.py" in repo.git("ls-files", "-v")


@pytest.mark.parametrize(
    "settings",
    [
        {"core.splitIndex": "true"},
        {"index.version": "4"},
        {"core.fsmonitor": "/bin/true"},
        {"core.untrackedCache": "true", "feature.manyFiles": "true"},
        {"core.autocrlf": "true", "core.safecrlf": "true"},
        {"i18n.commitEncoding": "latin1", "core.commentChar": "a"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_the_index_do_no_harm(repo: PersonRepository, settings: dict[str, str]) -> None:
    """Split, version 4 and watched indexes are read, and git reads the result."""
    for name, value in settings.items():
        repo.git("config", name, value)

    if "core.splitIndex" in settings:
        repo.git("update-index", "--split-index")
        repo.commit("more", {"c": "1", "app.py": "split\n"})
        (repo.root / "other/code.py").unlink()
        repo.git("add", "-A")
        repo.git("commit", "-qm", "less")
    elif "index.version" in settings:
        repo.git("update-index", "--index-version", "4")

    assert_there_and_back(repo)


def test_ignored_files_are_neither_committed_nor_removed(repo: PersonRepository) -> None:
    """All ignore files count: at every level, .git/info/exclude, and folders as a whole."""
    repo.write(
        {
            ".gitignore": "*.log\n/build/\n!keep.log\n",
            "part/.gitignore": "cache*\n!cached.py\n",
            ".git/info/exclude": "*.local\n",
        }
    )
    ignored = {"a.log": "1", "build/x": "1", "part/cache1": "1", "b.local": "1"}
    repo.write({**ignored, "keep.log": "1", "part/cached.py": "1"})
    manager = CheckpointManager(str(repo.root))
    made = manager.create(1)
    assert made is not None
    assert made.files_changed == [".gitignore", "keep.log", "part/.gitignore", "part/cached.py"]
    assert repo.status() == ""
    assert manager.rollback(commit="HEAD~1")
    assert set(ignored) <= set(repo.standing())


def test_tracked_files_in_ignored_folders_are_captured(repo: PersonRepository) -> None:
    """Tracked files are captured whatever ignores them, and a missing one is a deletion."""
    repo.write({"build/a": "1", "build/b": "1"})
    repo.git("add", "-A")
    repo.commit("tracked", {".gitignore": "build/\n"})
    repo.write({"build/a": "2"})
    (repo.root / "build/b").unlink()
    made = CheckpointManager(str(repo.root)).create(1)
    assert made is not None
    assert made.files_changed == ["build/a", "build/b"]
    assert repo.status() == ""


def test_what_the_target_ignores_stays(repo: PersonRepository) -> None:
    """A build's files are not removed by a rollback to the rules that hide them, nor by undo."""
    manager = CheckpointManager(str(repo.root))
    repo.write({"app.py": "two\n", ".gitignore": "made/\n*.log\n", "made/large": "l", "x.log": "x"})
    assert manager.create(1)
    before = repo.standing()
    assert manager.rollback(commit="HEAD~1")
    assert repo.status() == "?? made/\n?? x.log\n"
    assert manager.undo()
    assert repo.standing() == before
    assert manager.rollback(commit="HEAD~1")
    assert manager.rollback(step=1)
    assert repo.standing() == before
    assert repo.status() == ""


def test_an_ignored_file_that_the_target_has_is_saved_first(repo: PersonRepository) -> None:
    """Where the target tracks a file that is ignored now, its present content is saved first."""
    repo.commit("tracked once", {"result.log": "old\n"})
    old = repo.head()
    repo.git("rm", "-q", "--cached", "result.log")
    repo.commit("ignored now", {".gitignore": "*.log\n"})
    repo.write({"result.log": "precious\n"})
    manager = CheckpointManager(str(repo.root))
    assert manager.rollback(commit=old)
    assert (repo.root / "result.log").read_text() == "old\n"
    assert manager.undo()
    assert (repo.root / "result.log").read_text() == "precious\n"
    assert repo.status() == ""


@pytest.mark.parametrize("what", ["merge", "rebase", "cherry-pick", "bisect"])
def test_what_is_under_way_is_not_disturbed(repo: PersonRepository, what: str) -> None:
    """During a merge, rebase, cherry-pick or bisect nothing is done, and the reason is given."""
    repo.git("checkout", "-q", "-b", "side")
    repo.commit("side", {"app.py": "side\n"})
    repo.git("checkout", "-q", "main")
    repo.commit("main", {"app.py": "main\n"})
    commands = {
        "merge": ["merge", "side"],
        "rebase": ["rebase", "side"],
        "cherry-pick": ["cherry-pick", "side"],
        "bisect": ["bisect", "start"],
    }
    subprocess.run(["git", *commands[what]], cwd=repo.root, capture_output=True)
    before = repo.status(), repo.standing()
    manager = CheckpointManager(str(repo.root))
    for act in (lambda: manager.create(1), lambda: manager.rollback(commit="main"), manager.undo):
        with pytest.raises(RepositoryBusy, match=f"A {what}"):
            act()

    assert (repo.status(), repo.standing()) == before


def test_another_gits_lock_is_respected(
    repo: PersonRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While index.lock exists nothing is changed, and the lock stays in place."""
    monkeypatch.setattr(workspace, "INDEX_TIMEOUT_S", 0.1)
    (repo.root / ".git/index.lock").write_bytes(b"")
    repo.write({"app.py": "two\n"})
    head = repo.head()
    manager = CheckpointManager(str(repo.root))
    with pytest.raises(RepositoryBusy, match=r"index\.lock"):
        manager.create(1)

    assert repo.head() == head
    assert (repo.root / ".git/index.lock").exists()


def test_repositories_that_cannot_be_used_are_reported(tmp_path: Path) -> None:
    """A bare one, one with sha256 names, a damaged index: a sentence and a hint each."""
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bare"], check=True)
    subprocess.run(["git", "init", "-q", "--object-format=sha256", tmp_path / "long"], check=True)
    damaged = PersonRepository.made(tmp_path / "damaged")
    (damaged.root / ".git/index").write_bytes(b"DIRC\0\0\0\2\0\0\0\x09garbage")
    for name in ("bare", "long", "damaged"):
        with pytest.raises(UnsupportedRepository) as caught:
            CheckpointManager(str(tmp_path / name), repository="workspace")

        assert caught.value.hint
        assert isinstance(caught.value, CheckpointError)


def test_a_broken_configuration_of_the_person_is_passed_over(
    repo: PersonRepository, tmp_path: Path
) -> None:
    """A ~/.gitconfig that git itself cannot read does not by itself prevent a checkpoint."""
    os.environ["GIT_CONFIG_GLOBAL"] = str(tmp_path / "bad")
    try:
        (tmp_path / "bad").write_text("[user\nname=")
        repo.write({"app.py": "two\n"})
        assert CheckpointManager(str(repo.root)).create(1)
    finally:
        del os.environ["GIT_CONFIG_GLOBAL"]


def test_our_own_environment_does_not_mislead(
    repo: PersonRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With seed 000's GIT_DIR exported, a checkpoint still goes to the workspace's repository."""
    repo.write({"app.py": "two\n"})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert CheckpointManager(str(repo.root)).create(1)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name)

    assert repo.status() == ""
    assert repo.subjects()[0] == "architect:checkpoint:step-1"


def test_a_folder_that_its_repository_ignores_is_reported(repo: PersonRepository) -> None:
    """None of its files could be committed: that is an error, not `no changes`."""
    repo.write({".gitignore": "scratch/\n", "scratch/work": "x"})
    assert not has_repository(repo.root / "scratch")
    assert has_repository(repo.root)
    manager = CheckpointManager(str(repo.root / "scratch"), repository="workspace")
    with pytest.raises(UnsupportedRepository, match="ignores all of scratch"):
        manager.create(1)


def test_our_readings_of_attributes_are_gits(tmp_path: Path) -> None:
    """For every pattern and path, `git check-attr` gives the same answer."""
    repo = PersonRepository.made(tmp_path / "project")
    repo.write(
        {
            ".gitattributes": (
                "# comment\n*.a text\n/top.a -text\ndir/*.b text=auto\n**/deep/*.c eol=lf\n"
                'x/**/y.d text\nall/** -text\n[ab]?.e text\n"with \\"quote" text\n'
                "!neg text\nfolder/ text\nsub text\n*.f text !eol\n[!a]z.g text\nq[^a]z.g text\n"
                "*.h binary\n[attr]mine text eol=crlf\n*.i mine\n*a*a*a*a*b text\n\\*star text\n"
                "?.j text\n??.j -text\n[!a]?.k text\né*.l text\n"
            ),
            "sub/.gitattributes": "*.a -text\n*.i !mine !text\n/dir/*.b eol=crlf\n",
            ".git/info/attributes": "final.a text=input\n",
        }
    )
    paths = [
        *("top.a", "sub/top.a", "x.a", "dir/1.b", "dir/n/1.b", "a/deep/1.c", "deep/1.c"),
        *("b/a/deep/2.c", "x/y.d", "x/1/y.d", "x/1/2/y.d", "all/1", "all/2/3", "a1.e", "c1.e"),
        *("neg", "!neg", "folder/x", "sub/file", "sub/x.i", "sub/dir/1.b", "x.f", "az.g", "bz.g"),
        *("qaz.g", "qbz.g", "1.h", "1.i", "final.a", "sub/final.a", "aaaab", "xaxaxaxab", "*star"),
        *("tstar", 'with "quote', "a" * 200),
        *("é.j", "a.j", "é.k", "é.l", "à.l"),
    ]
    names = ("text", "eol", "binary", "mine", "diff")
    with opened(repo.root) as place:
        for path in paths:
            attributes = place.observer.attributes.of(path.encode())
            printed = repo.git("check-attr", "-z", *names, "--", path).split("\0")
            shown = dict(zip(printed[1::3], printed[2::3], strict=False))
            words = {True: "set", False: "unset", None: "unspecified"}
            ours = {name: words.get(attributes.get(name), attributes.get(name)) for name in names}  # type: ignore[arg-type]
            assert ours == shown, path
