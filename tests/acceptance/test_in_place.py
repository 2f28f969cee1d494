"""Claims about a person's own project as a work tree: its git is unchanged and no work is lost."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonNext,
    CodonRedo,
    ExecutionBranch,
    GetServerStatus,
    ListCheckpoints,
    RollbackPreview,
    RollbackToCheckpoint,
    RollbackUndo,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import HankChanged, ServerIdle
from hankweave_protocol.state_directory import MARKER, private_folder_of
from support.command_line import aside, hankweave
from support.running_server import (
    RunningServer,
    appears,
    journal,
    running_server,
    served,
    state,
    tree,
)
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.watching import events_of, idle, listed, refused, started, to_end_of

OURS = ".hankweave"


class Project:
    """A person's project, with or without its own git, and the expected content."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, name: str) -> str:
        return (self.root / name).read_text()

    def git(self, *words: str) -> str:
        """Run the person's own git, which never looks at the server's files."""
        done = subprocess.run(
            ["git", *words],
            cwd=self.root,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.root),
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_OPTIONAL_LOCKS": "0",
                **{f"GIT_{who}_NAME": "Ann" for who in ("AUTHOR", "COMMITTER")},
                **{f"GIT_{who}_EMAIL": "ann@example.org" for who in ("AUTHOR", "COMMITTER")},
            },
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def commit(self, message: str = "mine") -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def begin(self) -> Project:
        """Create a repository with a commit, an index, a stash, a branch and a tracing hook."""
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("kept.txt", "kept")
        self.write("changed.txt", "committed")
        self.write(".gitignore", "ignored/\n*.log\n")
        self.commit()
        self.write("kept.txt", "stashed")
        self.git("stash", "--quiet")
        self.git("branch", "other")
        hook = self.root / ".git" / "hooks" / "post-commit"
        hook.write_text("#!/bin/sh\ntouch ../hook-ran\n")
        hook.chmod(0o755)
        return self

    def files(self) -> dict[str, bytes]:
        """Return all files except git's and the server's."""
        found = tree(self.root)
        ours = (".git/", f"{OURS}/", f"{MARKER}/")
        return {n: c for n, c in found.items() if not n.startswith(ours)}


def still(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Return content, time and inode of each file below a folder, or of a single file."""
    files = [folder] if folder.is_file() else [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
            path.stat().st_ino,
        )
        for path in files
    }


@asynccontextmanager
async def serving(
    project: Project, *options: str, hank: Path | None = None, data: Path | None = None
) -> AsyncIterator[tuple[RunningServer, Client]]:
    async with (
        running_server(hank, data, project.root, *options, place="--workspace") as server,
        server.client(since_seq=0) as client,
    ):
        yield server, client


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


# --- a server without a plan ----------------------------------------------------------------------


async def test_without_a_hank_checkpoints_and_rollbacks_work(project: Project) -> None:
    """create, list, preview, rollback and a rollback to the safety checkpoint work.

    Files and modes of the project are restored exactly.
    """
    project.write("src/a.py", "1")
    project.write("tool.sh", "#!/bin/sh\n")
    (project.root / "tool.sh").chmod(0o700)
    async with serving(project) as (_, client):
        await idle(client, "startup")
        before = project.files()
        first = await client.send(CheckpointCreate(label="before the change"))
        assert (first.kind, first.label) == ("manual", "before the change")
        project.write("src/a.py", "2")
        project.write("src/new.py", "new")
        (project.root / "tool.sh").unlink()
        changed = project.files()

        preview = await client.send(RollbackPreview(checkpoint_sha=first.sha))
        assert [file.path for file in preview.added] == ["tool.sh"]
        assert [file.path for file in preview.updated] == ["src/a.py"]
        assert [file.path for file in preview.removed] == ["src/new.py"]
        assert project.files() == changed

        report = await client.send(RollbackToCheckpoint(checkpoint_sha=first.sha))
        assert project.files() == before
        assert (project.root / "tool.sh").stat().st_mode & 0o777 == 0o700

        await client.send(RollbackToCheckpoint(checkpoint_sha=report.safety.checkpoint_sha))
        assert project.files() == changed
        kinds = [each.kind for each in await listed(client)]
        assert kinds.count("initial") == 1
        assert {"manual", "safety"} <= set(kinds)


async def test_what_needs_a_codon_is_refused_without_a_plan(project: Project) -> None:
    """Each command is refused with a code and a message; the server keeps running unchanged."""
    project.write("a", "1")
    async with serving(project) as (_, client):
        await idle(client, "startup")
        status = await client.send(GetServerStatus())
        assert (status.next_codon_id, status.active_codon_id) == (None, None)
        for refused, code in (
            (CodonNext(), ErrorCode.NOTHING_TO_RUN),
            (CodonRedo(), ErrorCode.NOTHING_TO_RUN),
            (
                to_end_of("one"),
                ErrorCode.UNKNOWN_CODON,
            ),
        ):
            with pytest.raises(CommandRefused) as error:
                await client.send(refused)

            assert error.value.code == code

        assert (await client.send(GetServerStatus())).last_event_seq == status.last_event_seq
        await client.send(CheckpointCreate())


async def test_a_restart_goes_on_where_it_was(project: Project) -> None:
    """After a kill or a stop, the checkpoints exist, and no work done meanwhile is lost."""
    project.write("a", "1")
    async with serving(project) as (server, client):
        await idle(client, "startup")
        made = await client.send(CheckpointCreate(label="mine"))
        server.kill()
        await server.ended()

    project.write("a", "2")
    project.write("b", "while nobody served")
    for _ in range(2):
        async with serving(project) as (server, client):
            await idle(client, "startup")
            assert project.read("a") == "2"
            assert project.read("b") == "while nobody served"
            assert made.sha in {c.sha for c in await listed(client)}
            await server.stop()

    async with serving(project) as (_, client):
        report = await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha))
        assert project.files() == {"a": b"1"}
        await client.send(RollbackToCheckpoint(checkpoint_sha=report.safety.checkpoint_sha))
        assert project.read("b") == "while nobody served"


# --- the person's git -----------------------------------------------------------------------------


@pytest.mark.story("Your own git repository is never written, and its status stays the same.")
async def test_the_persons_git_is_never_written(project: Project) -> None:
    """No file below `.git` changes in content, time or inode.

    The repository has uncommitted work, a stash, a branch, a staged file and a hook; the test goes
    through start, codons, checkpoint, rollback and end.
    """
    project.begin()
    project.write("staged.txt", "staged")
    project.git("add", "staged.txt")
    project.write("changed.txt", "not committed")
    project.write("untracked.txt", "untracked")
    status = project.git("status", "--porcelain")
    before = still(project.root / ".git")
    hank = write_hank(
        project.root.parent / "hank",
        codon("one", writes("one.txt", "1"), writes("changed.txt", "by the agent"), tracked=()),
    )
    async with serving(project, hank=hank) as (server, client):
        await idle(client)
        await client.send(CheckpointCreate(label="after"))
        (project.root / "one.txt").unlink()
        initial = (await client.send(ListCheckpoints(kinds=("initial",)))).checkpoints[0]
        await client.send(RollbackToCheckpoint(checkpoint_sha=initial.sha))
        assert await server.stop() == 0

    assert still(project.root / ".git") == before
    assert project.read("changed.txt") == "not committed"
    assert project.git("status", "--porcelain") == status
    assert not (project.root.parent / "hook-ran").exists()


async def test_git_status_shows_nothing_of_ours_at_any_moment(project: Project) -> None:
    """`git status` is clean while the server runs, checkpoints and rolls back, and after a kill.

    It is clean before the start as well.
    """
    project.begin()
    watched = ("status", "--porcelain", "--untracked-files=all")
    assert project.git(*watched) == ""
    async with serving(project) as (server, client):
        assert project.git(*watched) == ""
        made = await client.send(CheckpointCreate())
        assert project.git(*watched) == ""
        await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha))
        assert project.git(*watched) == ""
        assert project.git("status", "--porcelain", "--ignored") == f"!! {OURS}/\n"
        project.git("add", "--all")
        server.kill()
        await server.ended()

    assert project.git(*watched) == ""
    assert not project.git("ls-files", OURS)
    assert {path.name for path in project.root.iterdir()} == {
        *(".git", OURS, ".gitignore", "kept.txt", "changed.txt")
    }


@pytest.mark.story("In your own project, uncommitted work survives every rollback.")
async def test_uncommitted_work_survives_every_rollback(project: Project) -> None:
    """Modified, staged, untracked and deleted files are all in the safety checkpoint.

    The checkpoint is labelled as such, and a rollback to it restores the work.
    """
    project.begin()
    async with serving(project) as (_, client):
        clean = await client.send(CheckpointCreate(label="clean"))
        project.write("changed.txt", "an hour of work")
        project.write("staged.txt", "staged")
        project.git("add", "staged.txt")
        project.write("deep/untracked.txt", "untracked")
        (project.root / "kept.txt").unlink()
        work = project.files()

        report = await client.send(RollbackToCheckpoint(checkpoint_sha=clean.sha))
        assert project.read("changed.txt") == "committed"
        assert project.read("kept.txt") == "kept"
        assert not (project.root / "staged.txt").exists()

        assert report.safety is not None
        saved = next(
            each
            for each in (await client.send(ListCheckpoints(kinds=("safety",)))).checkpoints
            if each.sha == report.safety.checkpoint_sha
        )
        assert saved.codon_name == "Before a rollback"
        assert clean.sha[:12] in (saved.label or "")
        await client.send(RollbackToCheckpoint(checkpoint_sha=saved.sha))
        assert project.files() == work


async def test_what_the_project_ignores_is_neither_kept_nor_touched(project: Project) -> None:
    """Ignored files are in no checkpoint, and no rollback changes them."""
    project.begin()
    project.write("ignored/huge.bin", "1")
    project.write("run.log", "1")
    async with serving(project) as (_, client):
        made = await client.send(CheckpointCreate())
        project.write("ignored/huge.bin", "2")
        project.write("run.log", "2")
        project.write("ignored/more.bin", "2")
        report = await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha))
        assert (report.added, report.updated, report.removed) == ((), (), ())

    assert project.read("ignored/huge.bin") == project.read("run.log") == "2"
    assert project.read("ignored/more.bin") == "2"
    assert set(_shadow(project, "ls-tree", "-r", "--name-only", made.sha).split()) == {
        *(".gitignore", "kept.txt", "changed.txt")
    }


async def test_a_project_in_a_larger_repository_obeys_its_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that a parent `.gitignore` hides are omitted.

    The parent repository is not written, and its git shows nothing of the server.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    outer = Project(tmp_path / "mono")
    outer.begin()
    outer.write(".gitignore", "node_modules/\n/packages/app/dist\n*.log\n")
    outer.write("packages/.gitignore", "!keep.log\n")
    project = Project(outer.root / "packages" / "app")
    for name in ("a.py", "node_modules/x/index.js", "dist/out.js", "b.log", "keep.log", "src/dist"):
        project.write(name, "1")

    outer.commit()
    before = still(outer.root / ".git")
    async with serving(project) as (_, client):
        made = await client.send(CheckpointCreate())
        await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha))
        assert outer.git("status", "--porcelain", "--untracked-files=all") == ""

    assert still(outer.root / ".git") == before
    names = _shadow(project, "ls-tree", "-r", "--name-only", made.sha).split()
    assert set(names) == {"a.py", "keep.log", "src/dist"}


async def test_a_project_that_is_ignored_above_is_served_all_the_same(tmp_path: Path) -> None:
    """The person named the project, so rules that hide all of it do not hide its files."""
    outer = Project(tmp_path / "outer").begin()
    project = Project(outer.root / "ignored" / "app")
    project.write("a.py", "1")
    async with serving(project) as (_, client):
        made = await client.send(CheckpointCreate())

    assert _shadow(project, "ls-tree", "-r", "--name-only", made.sha).split() == ["a.py"]


async def test_a_linked_worktree_and_a_submodule_are_projects_like_any(tmp_path: Path) -> None:
    """A `.git` file and the repository it names are unchanged and in no checkpoint.

    A submodule's files are captured, without their git.
    """
    main = Project(tmp_path / "main").begin()
    library = Project(tmp_path / "library").begin()
    main.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.root))
    main.commit("with a submodule")
    main.git("worktree", "add", "--quiet", str(tmp_path / "linked"))
    linked = Project.__new__(Project)
    linked.root = tmp_path / "linked"
    submodule = Project.__new__(Project)
    submodule.root = main.root / "library"
    for project in (linked, submodule, main):
        assert (project.root / ".git").is_file() is (project is not main)
        before = {**still(main.root / ".git"), **still(project.root / ".git")}
        status = project.git("status", "--porcelain", "--untracked-files=all")
        async with serving(project) as (_, client):
            made = await client.send(CheckpointCreate())
            project.write("changed.txt", "work")
            await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha))
            assert project.read("changed.txt") == "committed"

        assert {**still(main.root / ".git"), **still(project.root / ".git")} == before
        assert project.git("status", "--porcelain", "--untracked-files=all") == status
        names = _shadow(project, "ls-tree", "-r", "--name-only", made.sha).split()
        assert "changed.txt" in names
        assert not [name for name in names if ".git" in name.split("/")]
        if project is main:
            assert "library/changed.txt" in names


@pytest.mark.parametrize("delay", [0.05, 0.3, 0.6])
async def test_a_killed_rollback_leaves_nothing_of_ours_in_the_project(
    project: Project, delay: float
) -> None:
    """After kill -9 during a restore, the project is as before or as requested, never in between.

    The next start leaves it so, and git shows nothing of the server.
    """
    project.git("init", "--quiet")
    for number in range(3000):
        project.write(f"f{number}", "1" * 2000)

    async with serving(project) as (server, client):
        made = await client.send(CheckpointCreate())
        wanted = project.files()
        for number in range(3000):
            project.write(f"f{number}", "2" * 2000)

        work = project.files()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_go_back, client, made.sha)
            await anyio.sleep(delay)
            server.kill()
            await server.ended()
            tasks.cancel_scope.cancel()

    async with serving(project) as (server, client):
        assert project.files() in (work, wanted)
        assert {path.name for path in project.root.iterdir()} == {".git", OURS, *work}
        assert OURS not in project.git("status", "--porcelain", "--untracked-files=all")
        await server.stop()


# --- names, data, places --------------------------------------------------------------------------


async def test_folders_that_have_our_names_are_the_persons(project: Project) -> None:
    """`rigArchive`, `read_only_data_source` and `agentRoot` of a project are captured and restored.

    The data of a hank is linked in a private place.
    """
    names = ("rigArchive/x", "read_only_data_source/x", "agentRoot/x")
    for name in names:
        project.write(name, "mine")

    data = project.root.parent / "data"
    data.mkdir()
    (data / "rows.csv").write_text("1,2\n")
    hank = write_hank(
        project.root.parent / "hank",
        codon("one", {"run": 'cat "$HANKWEAVE_DATA_DIR/rows.csv" > seen.txt'}),
    )
    async with serving(project, hank=hank, data=data) as (_, client):
        await idle(client)
        made = (await listed(client))[0]
        for name in names:
            project.write(name, "broken")

        report = await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha))
        assert {file.path for file in report.updated} == set(names)

    assert [project.read(name) for name in names] == ["mine"] * 3
    assert project.read("seen.txt") == "1,2\n"
    assert (project.root / OURS / "read_only_data_source").resolve() == data.resolve()


@pytest.mark.story("A hank works in your own project and is continued there.")
async def test_a_hank_works_in_the_project_itself_and_is_remembered(project: Project) -> None:
    """Agents write into the project; a second run without the hank's name continues with it."""
    project.begin()
    gate = project.root.parent / "gate"
    hank = write_hank(
        project.root.parent / "hank",
        codon("one", writes("one.txt", "1")),
        codon("two", writes("two.txt", "2"), waits_for(gate)),
    )
    async with serving(project, hank=hank) as (server, client):
        await started(client, "two")
        assert project.read("one.txt") == "1"
        await appears(project.root / "two.txt")
        server.kill()
        await server.ended()

    gate.touch()
    async with serving(project) as (_, client):
        await idle(client)

    assert project.read("two.txt") == "2"
    assert [run.status for run in state(project.root).runs] == ["completed", "crashed"]
    meta = json.loads((project.root / OURS / "execution-meta.json").read_bytes())
    assert (meta["inPlace"], meta["hankPath"]) == (True, str(hank))
    assert project.git("status", "--porcelain") == "?? one.txt\n?? two.txt\n"


async def test_a_project_without_a_plan_may_get_one(project: Project) -> None:
    """A project with checkpoints may get a hank, which runs from its beginning.

    Every earlier checkpoint can still be rolled back to.
    """
    project.write("a", "1")
    async with serving(project) as (server, client):
        made = await client.send(CheckpointCreate(label="before any plan"))
        await server.stop()

    hank = write_hank(project.root.parent / "hank", codon("one", writes("one.txt", "1")))
    async with serving(project, hank=hank) as (_, client):
        await idle(client)
        assert project.read("one.txt") == "1"
        await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha))
        assert project.files() == {"a": b"1"}
        assert (await client.send(GetServerStatus())).next_codon_id == "one"

    assert events_of(project.root, HankChanged) == []


async def test_a_branch_of_a_project_is_an_execution_that_needs_no_hank(project: Project) -> None:
    """A branch's files are in its own agentRoot, beside other executions.

    The branch serves without a plan, and the project is untouched.
    """
    project.begin()
    project.write("rigArchive/x", "mine")
    executions = project.root.parent / "executions"
    place = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": str(executions)}
    async with served(None, project.root, place="--workspace", env=place) as (_, client):
        made = await client.send(CheckpointCreate())
        executions.mkdir()
        branch = Path((await client.send(ExecutionBranch(checkpoint_sha=made.sha))).execution_path)
        assert branch.parent == executions
        wanted = {name: c for name, c in project.files().items() if name != "rigArchive/x"}
        found = tree(branch / "agentRoot")
        assert {n: c for n, c in found.items() if n != "rigArchive/x"} == wanted
        assert found["rigArchive/x"] == b"mine"
        inside = str(project.root / "sub")
        error = await refused(client, ExecutionBranch(checkpoint_sha=made.sha, path=inside))
        assert error.code == ErrorCode.INVALID_PATH

    async with served(None, branch, since_seq=0) as (_, client):
        await idle(client, "startup")
        (branch / "agentRoot" / "new").write_text("new")
        await client.send(CheckpointCreate())
        await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha))
        assert not (branch / "agentRoot" / "new").exists()


async def test_commands_find_the_project_they_are_called_in(project: Project) -> None:
    """status, checkpoints and log work with --workspace, or without it from a folder below.

    status works without a server as well.
    """
    project.write("deep/down/a", "1")
    async with serving(project) as (_, client):
        await client.send(CheckpointCreate(label="here"))
        for words in (("--workspace", str(project.root)), ("--execution", str(project.root)), ()):
            for verb in ("status", "checkpoints", "log"):
                done = await aside(verb, *words, cwd=project.root / "deep" / "down", code=0)
                if verb == "status":
                    assert f"  in {project.root}\n" in done.stdout

    alone = hankweave("status", cwd=project.root, code=0)
    assert f"  in {project.root}\n" in alone.stdout


def test_what_cannot_be_a_workspace_is_refused(tmp_path: Path, execution: Path) -> None:
    """Each such path gives a message and an exit code, and leaves no trace.

    The paths are a missing folder, a file, a home, the root and an execution.
    """
    hank = write_hank(tmp_path / "hank", codon("one", writes("a", "1")))
    hankweave("run", str(hank), "-e", str(execution), "--headless", code=0)
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "file").write_text("")
    before = {str(path) for path in tmp_path.rglob("*")}
    for place, code in (
        (tmp_path / "missing", 66),
        (tmp_path / "file", 66),
        (Path("/"), 2),
        (home, 2),
        (tmp_path, 2),
        (execution, 2),
        (execution / "agentRoot", 2),
    ):
        done = hankweave("run", "--workspace", str(place), HOME=str(home))
        assert done.returncode == code, (place, done.stderr)
        assert done.stderr.startswith("hankweave: ")

    for words in (
        ("--workspace", str(home), "--execution", str(execution)),
        ("--workspace", str(home), "--new"),
    ):
        hankweave("run", *words, code=2)

    done = hankweave("run", "--workspace", str(tmp_path / "hank"), "--headless")
    assert (done.returncode, "--headless" in done.stderr) == (2, True)
    assert {str(path) for path in tmp_path.rglob("*")} == before


async def test_an_execution_in_a_project_is_never_taken_for_another_kind(project: Project) -> None:
    """`--execution` on a project serves it in place: there is no agentRoot."""
    project.write("a", "1")
    async with serving(project) as (server, _):
        await server.stop()

    async with served(None, project.root, since_seq=0) as (server, client):
        ready = json.loads(next(line for line in server.output if '"server.ready"' in line))
        assert ready["data"]["executionPath"] == ready["data"]["agentRootPath"]
        assert ready["data"]["agentRootPath"] == str(project.root)
        await client.send(CheckpointCreate())
        await server.stop()

    assert not (project.root / "agentRoot").exists()
    assert len(events_of(project.root, ServerIdle)) == 2
    assert [event.seq for event in journal(project.root)][:1] == [1]


# --- helpers --------------------------------------------------------------------------------------


def _shadow(project: Project, *words: str) -> str:
    """Run the git program on the shadow repository, as seed 000 shows it."""
    done = subprocess.run(
        ["git", *words],
        cwd=project.root,
        env={
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(project.root.parent),
            "GIT_DIR": f"{OURS}/checkpoints/.hankweavecheckpoints",
            "GIT_WORK_TREE": ".",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


async def _go_back(client: Client, sha: str) -> None:
    try:
        await client.send(RollbackToCheckpoint(checkpoint_sha=sha))
    except ConnectionError:
        return


# --- state outside of the project -----------------------------------------------------------------


@pytest.fixture
def apart(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the project's state, on another disk if there is one.

    Its existence decides, so a project that is served here needs no container to have it.
    """
    place = next((path for path in ("/dev/shm", "/var/tmp") if os.access(path, os.W_OK)), None)
    with tempfile.TemporaryDirectory(prefix="hankweave-", dir=place) as name:
        monkeypatch.setenv("XDG_STATE_HOME", name)
        folder = private_folder_of(project.root)
        folder.mkdir(parents=True, mode=0o700)
        yield folder


async def test_state_outside_of_the_project_does_all_that_state_inside_does(
    project: Project, apart: Path
) -> None:
    """Rollback and undo restore files exactly, across disks; a kill loses nothing.

    Of the server's, only the marker is in the project, hidden from its git, and commands find the
    state by its path.
    """
    project.begin()
    project.write("src/a.py", "1")
    names = sorted(os.listdir(project.root))
    async with serving(project) as (server, client):
        await idle(client, "startup")
        before = project.files()
        first = await client.send(CheckpointCreate(label="before"))
        project.write("src/a.py", "2")
        project.write("src/new.py", "new")
        (project.root / "changed.txt").unlink()
        changed = project.files()
        await client.send(RollbackToCheckpoint(checkpoint_sha=first.sha))
        assert project.files() == before
        await client.send(RollbackUndo())
        assert project.files() == changed
        assert sorted(os.listdir(project.root)) == sorted({*names, "src", MARKER} - {"changed.txt"})
        assert MARKER not in project.git("status", "--porcelain", "--untracked-files=all")
        server.kill()
        await server.ended()

    fsck = await aside("fsck", cwd=project.root, code=0)
    assert "are intact" in fsck.stdout
    async with serving(project) as (_, client):
        shas = {each.sha for each in await listed(client)}
        assert first.sha in shas
        await client.send(RollbackToCheckpoint(checkpoint_sha=first.sha))
        assert project.files() == before

    await aside("cleanup", "-e", str(project.root), "--yes", code=0)
    assert not apart.exists()
    assert not (project.root / MARKER).exists()
    assert project.files() == before


async def test_a_state_in_the_project_is_no_pointer(project: Project, apart: Path) -> None:
    """A `.hankweave` that an agent leaves in the project is neither used nor captured."""
    project.write("a", "1")
    async with serving(project) as (_, client):
        await idle(client, "startup")
        first = await client.send(CheckpointCreate(label="mine"))

    elsewhere = project.root.with_name("elsewhere")
    elsewhere.mkdir()
    (project.root / OURS).symlink_to(elsewhere)
    async with serving(project) as (_, client):
        assert first.sha in {each.sha for each in await listed(client)}
        project.write("a", "2")
        await client.send(RollbackToCheckpoint(checkpoint_sha=first.sha))
        assert project.read("a") == "1"

    assert list(elsewhere.iterdir()) == []
    assert (project.root / OURS).is_symlink()
