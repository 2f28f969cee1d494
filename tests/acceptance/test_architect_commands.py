"""Claims about Architect's commands, and about commands on an execution that no server serves."""

from __future__ import annotations

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from hankweave_protocol.commands import CheckpointCreate
from hankweave_server.architect import CheckpointManager
from support import command_line
from support.command_line import aside
from support.running_server import environment, journal, running_server, served, state, tree
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.watching import started

pytestmark = pytest.mark.feature("architect")

hankweave = partial(command_line.hankweave, code=0)

STEP = "architect:checkpoint:"
HANK = (
    codon("one", writes("a.txt", "one"), checkpointLabel=f"{STEP}implement"),
    codon("two", writes("a.txt", "two!"), writes("b.txt", "two"), checkpointLabel=f"{STEP}test"),
    codon("three", writes("c.txt", "three")),
)
META = {"name": "My pipeline", "version": "1.0.0"}
BACK = {"a.txt": b"one"}
AFTER_TWO = {"a.txt": b"two!", "b.txt": b"two"}
WHOLE = {**AFTER_TWO, "c.txt": b"three"}


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made-once")
    hank = write_hank(folder / "hank", *HANK, meta=META)
    hankweave("run", str(hank), "-e", str(folder / "execution"), "--headless")
    return folder


@pytest.fixture
def left(made_once: Path, tmp_path: Path) -> Path:
    """Return an execution whose plan has ended, and whose server has exited."""
    shutil.copytree(made_once, tmp_path, symlinks=True, dirs_exist_ok=True)
    path = tmp_path / "execution" / ".hankweave" / "execution-meta.json"
    meta = json.loads(path.read_bytes()) | {"hankPath": str(tmp_path / "hank" / "hank.json")}
    path.write_text(json.dumps(meta))
    return tmp_path / "execution"


def root_of(execution: Path) -> dict[str, bytes]:
    return tree(execution / "agentRoot")


# --- the ephemeral server -------------------------------------------------------------------------


def test_without_a_server_it_is_rolled_back_undone_and_redone(left: Path) -> None:
    """Each command has a server while it runs; the hank may be gone by then."""
    shutil.rmtree(left.parent / "hank")
    at = ("-e", str(left))
    previewed = hankweave("preview", "--codon", "one", *at)
    assert "2 files go away" in previewed.stdout
    assert root_of(left) == WHOLE

    hankweave("rollback", "--yes", "--codon", "one", *at)
    assert root_of(left) == BACK
    hankweave("undo", "--yes", *at)
    assert root_of(left) == WHOLE
    assert json.loads(hankweave("redo", "--yes", "--json", *at).stdout)["recovered"] is False
    assert root_of(left) == BACK
    assert "found a dead server" not in hankweave("undo", "--yes", *at).stderr
    assert not (left / ".hankweave" / "runtime.lock").exists()
    assert "hank.changed" not in {event.type for event in journal(left)}
    made = hankweave("branch", state(left).initial_checkpoint or "", *at)
    assert Path(made.stdout.splitlines()[0]).is_dir()


def test_a_rollback_without_the_hank_leaves_the_plan_to_go_on_with(tmp_path: Path) -> None:
    """Codons after the target leave the plan, loops included, and return with the hank."""
    body = codon("step", writes("x.txt", "x"))
    loop = {
        **{"type": "loop", "id": "again", "name": "Again", "codons": [body]},
        "terminateOn": {"type": "iterationLimit", "limit": 3},
    }
    hank, execution = write_hank(tmp_path / "hank", loop, codon("end")), tmp_path / "execution"
    hankweave("run", str(hank), "-e", str(execution), "--headless")
    whole = [entry.codon_id for entry in state(execution).execution_plan]
    assert len(whole) == 4

    broken = hank.read_text()
    hank.write_text("{")
    hankweave("rollback", "--yes", "--codon", whole[0], "-e", str(execution))
    assert [entry.codon_id for entry in state(execution).execution_plan] == [*whole[:2], "end"]
    hank.write_text(broken)
    hankweave("run", "-e", str(execution), "--headless")
    assert [entry.codon_id for entry in state(execution).execution_plan] == whole
    assert state(execution).runs[0].status == "completed"


def test_several_at_once_are_all_answered(left: Path) -> None:
    """The commands wait for one another: none is refused because another one is running."""
    words = [("preview",), ("rollback", "-y", "--codon", "one", "--path", "a.txt"), ("preview",)]
    with ThreadPoolExecutor(3) as people:
        done = list(people.map(lambda w: hankweave(*w, "-e", str(left), code=None), words))

    assert [each.returncode for each in done] == [0, 0, 0], [each.stderr for each in done]
    assert (left / "agentRoot" / "a.txt").read_text() == "one"
    assert not (left / ".hankweave" / "runtime.lock").exists()


def test_the_reason_for_a_failed_start_is_reported(left: Path) -> None:
    """The message, the hint and the exit code are those of the server."""
    path = left / ".hankweave" / "events" / "events.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:5], b"\x00garbage", *lines[5:], b""]))
    done = hankweave("rollback", "--yes", "-e", str(left), code=65)
    assert "\nhankweave: " in done.stderr
    assert "hint: " in done.stderr
    assert root_of(left) == WHOLE


def test_the_plan_does_not_go_on_without_a_server(left: Path) -> None:
    """--restart is refused with a hint, and nothing is touched."""
    done = hankweave("rollback", "--codon", "one", "--restart", "-e", str(left), code=69)
    assert "hankweave run" in done.stderr
    assert root_of(left) == WHOLE


# --- history --------------------------------------------------------------------------------------


def test_history_shows_named_steps_by_their_names(left: Path) -> None:
    """Architect showed each as step 0 without a message, so they looked alike."""
    listed = hankweave("history", "-e", str(left)).stdout.splitlines()
    assert listed[0].split() == ["Step", "Hash", "Date", "Message"]
    assert [line.split()[0] for line in listed[1:]] == ["test", "implement"]
    entries = json.loads(hankweave("history", "-e", str(left), "--json").stdout)
    assert [(each["name"], each["step"]) for each in entries] == [("test", 0), ("implement", 0)]
    assert [each["filesChanged"] for each in entries] == [["a.txt", "b.txt"], ["a.txt"]]
    assert listed[1].split()[1] == entries[0]["commitHash"][:7]


def test_history_lists_the_project_of_the_current_directory(tmp_path: Path) -> None:
    """`history` works in an in-place workspace, in a folder below it, and without any history."""
    project = tmp_path / "project"
    (project / "deep").mkdir(parents=True)
    (project / "a.txt").write_text("a")
    with CheckpointManager(str(project), repository="shadow") as manager:
        manager.create(3, "by hand")

    listed = hankweave("history", cwd=project / "deep").stdout
    assert listed.splitlines()[1].split()[0] == "3"
    assert "by hand" in listed
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    assert hankweave("history", cwd=other).stdout == "No checkpoints recorded.\n"
    assert [path.name for path in other.iterdir()] == [".git"]


# --- rollback --to-step ---------------------------------------------------------------------------


def test_a_step_is_gone_to_by_its_name(left: Path) -> None:
    """A label or a codon is a target backwards and forwards; the output says what was done."""
    at = ("-e", str(left))
    done = hankweave("rollback", "--yes", "--to-step", "implement", *at)
    assert done.stdout.startswith("Step implement is checkpoint ")
    assert root_of(left) == BACK
    hankweave("rollback", "--yes", "--to-step", "test", *at)
    assert root_of(left) == AFTER_TWO
    done = hankweave("rollback", "--yes", "--to-step", "one", *at)
    assert "one is a codon" in done.stdout
    assert root_of(left) == BACK
    previewed = hankweave("rollback", "--to-step", "test", "--preview", *at)
    assert "1 file comes back" in previewed.stdout
    assert root_of(left) == BACK


def test_an_unknown_step_fails_with_what_may_have_been_meant(left: Path) -> None:
    """An unknown step exits with 1 and a suggestion, and touches nothing."""
    for wanted, hint in (("implment", "Did you mean 'implement'?"), ("7", "Known steps: test, ")):
        done = hankweave("rollback", "--yes", "--to-step", wanted, "-e", str(left), code=1)
        assert hint in done.stderr

    assert root_of(left) == WHOLE


def test_the_commit_is_what_is_reported_where_it_takes_priority(left: Path) -> None:
    """Architect reported the step, although it had gone to the commit."""
    sha = json.loads(hankweave("history", "-e", str(left), "--json").stdout)[1]["commitHash"]
    words = ("rollback", "--to-step", "7", "--to-commit", sha[:7], "-y", "-e", str(left))
    done = hankweave(*words)
    assert f"Back at {sha[:12]} · " in done.stdout
    assert "tep 7" not in done.stdout
    assert root_of(left) == BACK
    hankweave("rollback", "--to-step", "x", "--codon", "one", "-e", str(left), code=2)


async def test_a_number_that_several_steps_have_is_not_guessed(left: Path) -> None:
    """Each step of the number is listed with codon and sha, for --to-commit.

    Architect took the newest.
    """
    async with served(None, left) as (_, client):
        made = []
        for text in ("first", "second"):
            (left / "agentRoot" / "d.txt").write_text(text)
            made.append((await client.send(CheckpointCreate(label=f"{STEP}step-2 -- {text}"))).sha)

        words = ("rollback", "--to-step", "2", "-e", str(left))
        done = await aside(*words, code=1)
        assert all(f"{sha[:12]} of three" in done.stderr for sha in made)
        assert "--to-commit" in done.stderr
        words = ("rollback", "--to-commit", made[0], "-y", "-e", str(left))
        await aside(*words, code=0)
        assert (left / "agentRoot" / "d.txt").read_text() == "first"


def git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.org", *words],
        cwd=root,
        env=environment(GIT_CONFIG_NOSYSTEM="1", HOME=str(root)),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_git_workspace_goes_back_in_its_own_git(tmp_path: Path) -> None:
    """In a folder without a server, --to-step and --to-commit are Architect's own."""
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "--quiet")
    (project / "a.txt").write_text("mine")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "mine")
    shas = []
    with CheckpointManager(str(project), repository="workspace") as manager:
        for step in (1, 2):
            (project / "a.txt").write_text(f"step {step}")
            made = manager.create(step, f"number {step}")
            shas.append(made.commit_hash)

    listed = hankweave("history", cwd=project).stdout.splitlines()[1:]
    assert [line.split()[0] for line in listed] == ["2", "1"]
    done = hankweave("rollback", "--yes", "--to-step", "1", cwd=project)
    assert done.stdout.startswith(f"Rolled back to step 1 ({shas[0][:7]}): number 1.\n")
    assert (project / "a.txt").read_text() == "step 1"
    done = hankweave("rollback", "--yes", "--to-step", "1", "--to-commit", shas[1], cwd=project)
    assert done.stdout.startswith(f"Rolled back to step 2 ({shas[1][:7]}): number 2.\n")
    assert (project / "a.txt").read_text() == "step 2"
    assert (
        "Known steps: 2, 1"
        in hankweave("rollback", "--yes", "--to-step", "9", cwd=project, code=1).stderr
    )
    hankweave("rollback", "--yes", "--to-commit", "f" * 40, cwd=project, code=1)
    hankweave("rollback", "--to-step", "1", "--keep-edits", cwd=project, code=2)
    assert (project / "a.txt").read_text() == "step 2"
    assert not (project / ".hankweave").exists()


def test_undo_takes_a_git_workspace_back(tmp_path: Path) -> None:
    """`undo` reverts `rollback --to-step`, uncommitted work and branch included, once."""
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "--quiet")
    with CheckpointManager(str(project), repository="workspace") as manager:
        for step in (1, 2):
            (project / "a.txt").write_text(f"step {step}")
            assert manager.create(step) is not None

    (project / "a.txt").write_text("not committed")
    tip = git(project, "rev-parse", "HEAD")
    assert "hankweave undo" in hankweave("rollback", "--yes", "--to-step", "1", cwd=project).stdout
    assert (project / "a.txt").read_text() == "step 1"
    hankweave("undo", "--yes", cwd=project)
    assert (project / "a.txt").read_text() == "not committed"
    assert git(project, "rev-parse", "HEAD") == tip
    home = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": str(tmp_path / "none")}
    hankweave("undo", "--yes", cwd=project, code=66, **home)


# --- sessions and resume --------------------------------------------------------------------------


def test_sessions_lists_the_runs_newest_first(left: Path) -> None:
    """Each run has its status, its part of the plan, its cost and its task."""
    hankweave("rollback", "--yes", "--to-step", "implement", "-e", str(left))
    runs = state(left).runs
    listed = hankweave("sessions", "-e", str(left)).stdout.splitlines()
    assert listed[0].split() == ["ID", "Status", "Steps", "Cost", "Task"]
    assert [line.split()[:3] for line in listed[1:]] == [
        [runs[0].run_id, "completed", "1/3"],
        [runs[1].run_id, "completed", "3/3"],
    ]
    assert listed[1].endswith("My pipeline")
    entries = json.loads(hankweave("sessions", "-e", str(left), "--json").stdout)
    assert [(each["id"], each["stepsDone"]) for each in entries] == [
        (runs[0].run_id, 1),
        (runs[1].run_id, 3),
    ]


@pytest.mark.story(
    "`resume` continues the newest run where it stopped.", of="docs/migration/architect.md"
)
async def test_resume_goes_on_where_the_run_stopped(tmp_path: Path, execution: Path) -> None:
    """`resume` runs to the end of the plan with the run's exit code; then nothing is left to do."""
    gate = tmp_path / "gate"
    hank = write_hank(tmp_path / "hank", HANK[0], codon("two", waits_for(gate)), meta=META)
    async with running_server(hank, None, execution) as server:
        async with server.client(since_seq=0) as client:
            await started(client, "two")

        await server.stop()

    run_id = state(execution).runs[0].run_id
    gate.write_text("")
    at = ("-e", str(execution))
    done = await aside("resume", run_id[:22], *at, code=0)
    assert "All codons completed" in done.stdout
    newest = state(execution).runs[0].run_id
    again = await aside("resume", newest, *at, code=0)
    assert "there is nothing left to do" in again.stdout


def test_resume_takes_no_run_that_another_one_came_after(left: Path) -> None:
    """A superseded run exits with 1 and names the rollback to use; an unknown one, with 3.

    The code 3 is Architect's.
    """
    hankweave("rollback", "--yes", "--to-step", "implement", "-e", str(left))
    runs = state(left).runs
    done = hankweave("resume", runs[1].run_id, "-e", str(left), code=1)
    assert "hankweave rollback --to " in done.stderr
    done = hankweave("resume", "nobody", "-e", str(left), code=3)
    assert "hankweave runs" in done.stderr
    done = hankweave("resume", runs[0].run_id[:1], "-e", str(left), code=1)
    assert "2 runs begin with" in done.stderr


# --- cleanup --------------------------------------------------------------------------------------


def test_cleanup_takes_days_and_leaves_what_was_used_since(left: Path, tmp_path: Path) -> None:
    """A bare number means days, as in Architect; a dry run says what would go, and why not."""
    root = tmp_path / "executions"
    root.mkdir()
    left.rename(root / "1736000000000-x7a2-abc123")
    base = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": str(root)}
    kept = json.loads(hankweave("cleanup", "--older-than", "7", "-y", "--json", **base).stdout)
    assert (kept["removed"], [each["reason"] for each in kept["kept"]]) == (
        [],
        ["used more recently"],
    )
    words = ("cleanup", "--older-than", "0", "--dry-run", "--json")
    assert len(json.loads(hankweave(*words, **base).stdout)["removed"]) == 1
    assert len(list(root.iterdir())) == 1
    hankweave("cleanup", "--older-than", "0", "-y", **base)
    assert list(root.iterdir()) == []
