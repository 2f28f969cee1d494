"""Claims about `hankweave pipeline`: Architect's YAML by the real command, in real projects."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from hankweave_protocol.events import RollbackCompleted
from hankweave_protocol.state import CompletedCodon, SkippedCodon
from hankweave_server.architect import CHECKPOINT_PREFIX as PREFIX
from hankweave_server.architect import CheckpointManager
from support.command_line import Done, hankweave
from support.running_server import appears, command, environment, served, state
from support.scripted_hank import Step, writes
from support.seed_003 import PIPELINE
from support.waiting import LIMIT, limited
from support.watching import to_end_of

pytestmark = pytest.mark.feature("architect")


def git(folder: Path, *words: str) -> str:
    names = {
        f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environment(**names), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def scripted(*steps: Step) -> dict[str, Any]:
    return {"type": "scripted", "script": {"steps": list(steps)}}


def project(folder: Path, pipeline: dict[str, Any] | str) -> Path:
    """Return a project with a pipeline in it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = pipeline if isinstance(pipeline, str) else yaml.safe_dump(pipeline, sort_keys=False)
    (folder / "pipeline.yaml").write_text(text)
    return folder


def two_steps(**fields: Any) -> dict[str, Any]:
    """Return the steps `implement` and `optimize`, which add a line each to a file."""
    return {
        "name": "two steps",
        "agents": {
            "first": scripted({"say": "it works"}, {"run": "echo implemented >> code.txt"}),
            "second": scripted({"run": "echo optimized >> code.txt"}),
        },
        "steps": [
            {"name": "implement", "agent": "first", "prompt": "Implement it.", "checkpoint": True},
            {"name": "optimize", "agent": "second", "prompt": "Make it fast.", "checkpoint": True},
        ],
        **fields,
    }


def one_step(name: str, *steps: Step, **fields: Any) -> dict[str, Any]:
    """Return a pipeline of one step, whose agent does these."""
    step = {"name": name, "agent": "only", "prompt": "Do it."}
    return two_steps(agents={"only": scripted(*steps)}, steps=[step], **fields)


def code(folder: Path) -> list[str]:
    return (folder / "code.txt").read_text().splitlines()


# --- the seed's pipeline --------------------------------------------------------------------------


@pytest.mark.story(
    "Architect's own pipeline runs and goes back by step.", of="docs/migration/architect.md"
)
def test_the_seeds_pipeline_runs_and_goes_back_by_step(tmp_path: Path) -> None:
    """The snippet runs verbatim and offline, and rollback --to-step rolls it back by step."""
    place = project(tmp_path / "project", PIPELINE)
    done = hankweave("pipeline", "pipeline.yaml", "--agent", "scripted", cwd=place, code=0)
    assert [line.split()[:2] for line in done.stdout.splitlines()[:2]] == [
        ["[PASS]", "implement"],
        ["[PASS]", "optimize"],
    ]
    assert (place / "notes" / "optimize.md").exists()
    history = hankweave("history", cwd=place).stdout
    assert history.index("optimize") < history.index("implement")
    hankweave("rollback", "--to-step", "implement", "--yes", cwd=place, code=0)
    assert (place / "notes" / "implement.md").exists()
    assert not (place / "notes" / "optimize.md").exists()
    shadow = place / ".hankweave" / "checkpoints" / ".hankweavecheckpoints"
    listed = git(
        place, f"--git-dir={shadow}", "log", "--all", "--grep=architect:checkpoint", "--oneline"
    )
    assert len(listed.splitlines()) == 2


async def test_a_pipeline_goes_back_from_the_socket_that_the_page_uses(tmp_path: Path) -> None:
    """A client rolls a finished pipeline back to a step, and the plan continues from there."""
    place = project(tmp_path / "project", two_steps())
    hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    async with served(None, place, "--no-autostart", place="--workspace", since_seq=0) as (
        _,
        client,
    ):
        target = to_end_of("implement")
        await client.send(target)
        await client.until(RollbackCompleted, timeout=LIMIT)
        assert code(place) == ["implemented"]

    again = hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    assert "Resuming at optimize" in again.stderr
    assert code(place) == ["implemented", "optimized"]


@pytest.mark.story(
    "With `--repository shadow`, a pipeline does not touch your git repository.",
    of="docs/migration/architect.md",
)
def test_a_persons_git_repository_is_not_touched(tmp_path: Path) -> None:
    """With `--repository shadow` no branch, index, stash, config or hook changes, and work is kept.

    Architect commits on the user's branch, with everything in the work tree (A8, 1, 2 and 14).
    """
    place = project(tmp_path / "project", two_steps())
    git(place, "init", "-q", "-b", "main")
    hook = place / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    (place / "mine.txt").write_text("staged\n")
    git(place, "add", "mine.txt")
    (place / "mine.txt").write_text("and changed since\n")
    files = [path for path in sorted((place / ".git").rglob("*")) if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    hankweave("pipeline", "pipeline.yaml", "--repository", "shadow", cwd=place, code=0)
    after = [path for path in sorted((place / ".git").rglob("*")) if path.is_file()]
    assert {path: path.read_bytes() for path in after} == before
    assert (place / "mine.txt").read_text() == "and changed since\n"
    assert git(place, "status", "--porcelain").splitlines() == [
        "AM mine.txt",
        "?? code.txt",
        "?? pipeline.yaml",
    ]


@pytest.mark.story(
    "In a git repository, the labelled checkpoints of a pipeline are commits of its branch.",
    of="docs/migration/architect.md",
)
def test_labelled_checkpoints_are_commits_of_the_projects_branch_too(tmp_path: Path) -> None:
    """With repository workspace the seed's `git log` prints the output in the seed."""
    place = project(tmp_path / "project", two_steps(checkpoints={"repository": "workspace"}))
    git(place, "init", "-q", "-b", "main")
    git(place, "commit", "-q", "--allow-empty", "-m", "A person's own.")
    hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    listed = git(place, "log", "--oneline", "--grep=architect:checkpoint").splitlines()
    assert [line.split(" ", 1)[1] for line in listed] == [
        "architect:checkpoint:optimize",
        "architect:checkpoint:implement",
    ]
    assert git(place, "show", "HEAD~1:code.txt") == "implemented\n"
    assert git(place, "status", "--porcelain") == ""


def test_in_a_git_repository_the_steps_are_commits_without_being_asked(tmp_path: Path) -> None:
    """Pipeline, CheckpointManager, `history` and `git log` agree, and a line of output says so."""
    place = project(tmp_path / "project", two_steps())
    git(place, "init", "-q", "-b", "main")
    done = hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    (line,) = [line for line in done.stderr.splitlines() if "--repository shadow" in line]
    assert line.startswith("Checkpoints of steps become commits on your branch")

    listed = git(place, "log", "--format=%H %s", "--grep=architect:checkpoint").splitlines()
    with CheckpointManager(str(place)) as manager:
        made = manager.list_checkpoints()

    printed = json.loads(hankweave("history", "--json", cwd=place).stdout)
    assert [each.message for each in made] == ["optimize", "implement"]
    assert [f"{each.commit_hash} {PREFIX}:{each.message}" for each in made] == listed
    assert [each["commitHash"] for each in printed] == [each.commit_hash for each in made]


@pytest.mark.parametrize("option", ["--to-commit", "--to"])
def test_a_hash_of_either_repository_goes_back(tmp_path: Path, option: str) -> None:
    """`history` and its `--repository shadow` print hashes that `rollback` and `undo` accept."""
    place = project(tmp_path / "project", two_steps())
    git(place, "init", "-q", "-b", "main")
    hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    tip = git(place, "rev-parse", "HEAD")
    for words in (("history",), ("history", "--repository", "shadow")):
        entries = json.loads(hankweave(*words, "--json", cwd=place, code=0).stdout)
        (sha,) = [each["commitHash"] for each in entries if each["name"] == "implement"]
        done = hankweave("rollback", option, sha[:9], "--yes", cwd=place, code=0)
        assert code(place) == ["implemented"]
        assert ("your branch does not move" in done.stdout) is (words == ("history",))
        hankweave("undo", "--yes", cwd=place, code=0)
        assert code(place) == ["implemented", "optimized"]

    assert git(place, "rev-parse", "HEAD") == tip


def test_a_checkpoint_that_git_alone_has_is_gone_to_in_git(tmp_path: Path) -> None:
    """CheckpointManager made it beside a pipeline; its undo is named, and works."""
    place = project(tmp_path / "project", two_steps())
    git(place, "init", "-q", "-b", "main")
    hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    with CheckpointManager(str(place)) as manager:
        (place / "code.txt").write_text("by hand\n")
        made = manager.create(7, "by hand")

    for words in (("--to-step", "7"), ("--to-commit", made.short_hash())):
        (place / "code.txt").write_text("later\n")
        done = hankweave("rollback", *words, "--yes", cwd=place, code=0)
        assert code(place) == ["by hand"]
        assert "`hankweave undo --repository workspace` undoes this" in done.stdout
        hankweave("undo", "--repository", "workspace", "--yes", cwd=place, code=0)
        assert code(place) == ["later"]

    hankweave("undo", "--repository", "workspace", "--yes", cwd=place, code=1)
    hankweave("rollback", "--to-step", "8", "--yes", cwd=place, code=1)


def test_outside_of_git_the_shadow_repository_has_the_steps(tmp_path: Path) -> None:
    """No output mentions branches, and the manager lists the same as `history`."""
    place = project(tmp_path / "project", two_steps())
    done = hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    assert "--repository shadow" not in done.stderr
    printed = json.loads(hankweave("history", "--json", cwd=place).stdout)
    with CheckpointManager(str(place)) as manager:
        made = manager.list_checkpoints()

    assert [each["commitHash"] for each in printed] == [each.commit_hash for each in made]
    assert [each.message for each in made] == ["optimize", "implement"]


# --- continuing a pipeline ------------------------------------------------------------------------


@pytest.mark.story(
    "A pipeline that was killed continues with the step where it stopped.",
    of="docs/migration/architect.md",
)
async def test_a_killed_pipeline_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """After kill -9 in the second step, the next call runs that step again, and only that."""
    pipeline = two_steps()
    gate = tmp_path / "gate"
    script = [{"run": "echo half >> code.txt; touch half"}, {"waitForFile": str(gate)}]
    pipeline["agents"]["second"]["script"]["steps"] = [*script, {"run": "echo done >> code.txt"}]
    place = project(tmp_path / "project", pipeline)
    words = command("pipeline", "pipeline.yaml", "--quiet")
    async with await anyio.open_process(words, cwd=place, env=environment()) as process:
        await appears(place / "half")
        process.kill()

    gate.touch()
    again = hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    assert code(place) == ["implemented", "half", "done"]
    assert "step 1/2" not in again.stderr


def test_a_pipeline_that_has_ended_begins_again(tmp_path: Path) -> None:
    """A finished pipeline starts again, as in Architect; earlier work stays in the history.

    The earlier steps are still rollback targets.
    """
    place = project(tmp_path / "project", two_steps())
    hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    assert code(place) == ["implemented", "optimized"] * 2
    assert len(state(place).runs) == 2
    assert len(hankweave("sessions", cwd=place).stdout.splitlines()) == 3


def test_a_failed_step_is_done_again_or_everything(tmp_path: Path) -> None:
    """After a failure the same call runs the failed step; --restart begins at the first."""
    pipeline = two_steps()
    pipeline["steps"][1]["checks"] = f"test -e {tmp_path}/allowed"
    place = project(tmp_path / "project", pipeline)
    hankweave("pipeline", "pipeline.yaml", cwd=place, code=1)
    (tmp_path / "allowed").touch()
    again = hankweave("pipeline", "pipeline.yaml", "--quiet", cwd=place, code=0)
    assert again.stderr == ""
    assert code(place).count("implemented") == 1
    hankweave("pipeline", "pipeline.yaml", "--restart", cwd=place, code=0)
    assert code(place).count("implemented") == 2


def test_from_step_knows_the_answers_of_the_steps_before(tmp_path: Path) -> None:
    """--from-step runs that step and the rest, with the captured variables of the earlier run.

    Architect loses them (A8, 19).
    """
    pipeline = two_steps()
    pipeline["steps"][0]["output_var"] = "answer"
    step = {"steps": [{"run": "echo {{answer}} >> code.txt"}]}
    pipeline["steps"][1] |= {"agent": "scripted", "prompt": json.dumps(step)}
    place = project(tmp_path / "project", pipeline)
    hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    hankweave("pipeline", "pipeline.yaml", "--from-step", "optimize", cwd=place, code=0)
    assert code(place) == ["implemented", "it works", "it works"]
    plan = hankweave("pipeline", "pipeline.yaml", "--from-step", "optimize", "--dry-run", cwd=place)
    assert "echo it works" in plan.stdout
    assert "implement" not in plan.stdout


# --- ends of a run --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "script", "code_of_end"),
    [
        ({"checks": "exit 7"}, [], 1),
        ({"checks": "exit 7", "on_failure": "continue"}, [], 1),
        ({"timeout": 0.5}, [{"wait": 600}], 5),
        ({}, [{"fail": {"message": "Invalid API key · Please run /login"}}], 4),
        ({}, [{"crash": 9}], 1),
    ],
    ids=["check", "check passed over", "timeout", "authentication", "crash"],
)
@pytest.mark.story(
    "The exit code of a pipeline names what became of it.",
    of="docs/migration/architect.md",
    cases=("check", "authentication"),
)
def test_the_exit_code_matches_the_outcome(
    tmp_path: Path, fields: dict[str, Any], script: list[dict[str, Any]], code_of_end: int
) -> None:
    """The exit code is 1 for failed, 4 for authentication, 5 for a timeout.

    A step after a failure runs only if the pipeline allows it.

    In Architect a failing check changes nothing, and a failed step does not stop the run (A8, 18).
    """
    pipeline = two_steps()
    pipeline["steps"][0] |= fields
    if script:
        pipeline["agents"]["first"] = scripted(*script)

    place = project(tmp_path / "project", pipeline)
    done = hankweave("pipeline", "pipeline.yaml", cwd=place)
    assert done.returncode == code_of_end, done.stderr
    assert done.stdout.startswith("[FAIL] implement")
    may_go_on = fields.get("on_failure") == "continue"
    assert ("[PASS] optimize" in done.stdout) == may_go_on
    assert ("[----] optimize" in done.stdout) == (not may_go_on)
    assert ("two steps: partial" in done.stdout) == may_go_on


@pytest.mark.parametrize(("number", "code_of_end"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.story(
    "A pipeline that is interrupted exits with 130 or 143 and keeps its work in a checkpoint.",
    of="docs/migration/architect.md",
    cases=("2-130",),
)
async def test_a_pipeline_that_is_interrupted_says_so(
    tmp_path: Path, number: signal.Signals, code_of_end: int
) -> None:
    """The agent is ended, the work is in a checkpoint, and the exit code names the signal."""
    pipeline = two_steps()
    pipeline["agents"]["first"] = scripted(writes("half.txt", "half"), {"wait": 600})
    place = project(tmp_path / "project", pipeline)
    words = command("pipeline", "pipeline.yaml", "--quiet")
    async with await anyio.open_process(words, cwd=place, env=environment()) as process:
        await appears(place / "half.txt")
        process.send_signal(number)
        with limited():
            assert process.stdout is not None
            out = b"".join([chunk async for chunk in process.stdout])
            assert await process.wait() == code_of_end

    assert out.startswith(b"[FAIL] implement")


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        ({"steps": []}, (), "steps"),
        ({"step": []}, (), "Did you mean 'steps'?"),
        ({"variables": {"n": 3}, "steps": "x"}, (), "steps"),
        ({}, ("--from-step", "optimise"), "Did you mean 'optimize'?"),
    ],
    ids=["no steps", "unknown key", "no list", "unknown step"],
)
def test_a_wrong_pipeline_or_step_touches_nothing(
    tmp_path: Path, change: dict[str, Any], options: tuple[str, ...], expected: str
) -> None:
    """It exits with 3 and names the fault and the nearest name; no `.hankweave` is made.

    With a misspelled step, Architect runs nothing and exits with 0 (A8, 19).
    """
    place = project(tmp_path / "project", two_steps() | change)
    done = hankweave("pipeline", "pipeline.yaml", *options, cwd=place, code=3)
    assert expected in done.stderr
    assert not (place / ".hankweave").exists()


def test_a_dry_run_touches_nothing(tmp_path: Path) -> None:
    """A dry run prints the plan with checks and conditions, and creates no file."""
    pipeline = two_steps(variables={"mode": "fast"})
    pipeline["steps"][1] |= {"condition": "mode == 'slow'", "checks": "pytest -q"}
    place = project(tmp_path / "project", pipeline)
    done = hankweave("pipeline", "pipeline.yaml", "--dry-run", cwd=place, code=0)
    assert "would be skipped" in done.stdout
    assert "check: pytest -q" in done.stdout
    assert [path.name for path in place.iterdir()] == ["pipeline.yaml"]


# --- reports --------------------------------------------------------------------------------------


@pytest.mark.story(
    "The report of a pipeline contains its steps, costs, changes and errors.",
    of="docs/migration/architect.md",
)
def test_a_report_lists_what_was_done(tmp_path: Path) -> None:
    """JSON has status, cost, each step with its checks, the changed files, and the diff."""
    pipeline = two_steps()
    pipeline["steps"][1]["checks"] = ["true", {"run": "echo no; false", "allow_failure": True}]
    place = project(tmp_path / "project", pipeline)
    (place / "old.txt").write_text("old\n")
    done = hankweave("pipeline", "pipeline.yaml", "--json", cwd=place)
    report = json.loads(done.stdout)
    assert (report["task"], report["status"], report["errors"]) == ("two steps", "success", [])
    assert report["files_modified"] == [{"path": "code.txt", "action": "created"}]
    steps = [(step["step"], step["status"], step["attempts"]) for step in report["timeline"]]
    assert steps == [("implement", "success", 1), ("optimize", "success", 1)]
    assert report["timeline"][0]["checks_passed"] is None
    assert report["timeline"][1]["checks_passed"] is False
    assert [check["exit_code"] for check in report["timeline"][1]["checks"]] == [0, 1]
    assert "+implemented" in report["git_diff"]
    assert "old.txt" not in report["git_diff"]


@pytest.mark.parametrize(("name", "begins"), [("r.json", "{"), ("r.md", "# two steps")])
def test_a_report_goes_into_a_file_of_its_kind(tmp_path: Path, name: str, begins: str) -> None:
    """The file's extension selects the format; the summary stays on stdout."""
    place = project(tmp_path / "project", two_steps())
    done = hankweave("pipeline", "pipeline.yaml", "--report-file", f"../{name}", cwd=place, code=0)
    assert (tmp_path / name).read_text().startswith(begins)
    assert done.stdout.startswith("[PASS] implement")


def files_of(done: Done) -> list[tuple[str, str]]:
    printed = json.loads(done.stdout)["files_modified"]
    return [(each["path"], each["action"]) for each in printed]


def test_a_pending_permission_is_shown_and_can_be_granted(tmp_path: Path) -> None:
    """The pipeline's lists decide; else a person sees the request and how to answer it."""
    permissions = {"deny": ["Bash"], "timeout": 0.3, "on_timeout": "allow"}
    steps = (writes("code.txt", "a\n"), {"run": "touch b.txt"})
    place = project(tmp_path / "project", one_step("write", *steps, permissions=permissions))
    done = hankweave("pipeline", "pipeline.yaml", cwd=place)
    asked = next(line for line in done.stderr.splitlines() if "asks:" in line)
    assert asked.startswith(f"   write asks: Write({place}/code.txt)  (hankweave allow ")
    assert "   Write is allowed by timeout" in done.stderr
    assert "   Bash is denied by policy" in done.stderr
    assert code(place) == ["a"]
    assert not (place / "b.txt").exists()


def test_a_report_leaves_out_what_another_attempt_took_back(tmp_path: Path) -> None:
    """Files of a failed attempt are rolled back before the next; the report has the last one's."""
    script = f"test -e {tmp_path}/on && touch good || {{ touch {tmp_path}/on; touch dropped; }}"
    pipeline = one_step("implement", {"run": script})
    pipeline["steps"][0] |= {"checks": "test -e good", "on_failure": "retry", "attempts": 2}
    place = project(tmp_path / "project", pipeline)
    done = hankweave("pipeline", "pipeline.yaml", "--json", cwd=place, code=0)
    assert files_of(done) == [("good", "created")]
    assert json.loads(done.stdout)["timeline"][0]["attempts"] == 2


def test_a_report_of_a_step_that_is_done_again_has_its_diff(tmp_path: Path) -> None:
    """The diff begins where the failed step left the files, without a person's changes since."""
    pipeline = two_steps()
    pipeline["steps"][1]["checks"] = "test -e mended"
    place = project(tmp_path / "project", pipeline)
    hankweave("pipeline", "pipeline.yaml", "--quiet", cwd=place, code=1)
    (place / "mended").touch()
    done = hankweave("pipeline", "pipeline.yaml", "--json", cwd=place, code=0)
    assert files_of(done) == [("code.txt", "modified")]
    assert json.loads(done.stdout)["git_diff"].count("\n+") == 2  # `+++ b/code.txt`, and a line.


def test_a_report_lists_all_files_of_a_burst(tmp_path: Path) -> None:
    """Files that no event names are in the report too; a person's file is not."""
    script = "mkdir many; for at in $(seq 300); do echo $at > many/$at.txt; done"
    place = project(tmp_path / "project", one_step("implement", {"run": script}))
    (place / "old.txt").write_text("old\n")
    done = hankweave("pipeline", "pipeline.yaml", "--json", cwd=place, code=0)
    assert sorted(files_of(done)) == sorted((f"many/{n}.txt", "created") for n in range(1, 301))


async def test_a_report_after_a_crash_begins_where_the_files_went_back_to(tmp_path: Path) -> None:
    """Files rolled back after the crash are not in the diff of the step that runs again."""
    pipeline = two_steps()
    wait = f"test -e {tmp_path}/on && touch whole || {{ touch half; sleep 600; }}"
    pipeline["agents"]["second"] = scripted({"run": wait})
    place = project(tmp_path / "project", pipeline)
    words = command("pipeline", "pipeline.yaml", "--quiet")
    async with await anyio.open_process(words, cwd=place, env=environment()) as process:
        await appears(place / "half")
        process.send_signal(signal.SIGKILL)

    (place / "persons.txt").touch()
    (tmp_path / "on").touch()
    done = hankweave("pipeline", "pipeline.yaml", "--json", cwd=place, code=0)
    assert files_of(done) == [("whole", "created")]
    assert "persons.txt" not in json.loads(done.stdout)["git_diff"]


@pytest.mark.parametrize("file", ["missing/r.json", "file/r.json"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, file: str
) -> None:
    """Without the report's folder it exits with 74, and the project is unchanged."""
    place = project(tmp_path / "project", two_steps())
    (tmp_path / "file").touch()
    done = hankweave("pipeline", "pipeline.yaml", "--report-file", f"../{file}", cwd=place, code=74)
    assert "the directory does not exist" in done.stderr
    assert not (place / "code.txt").exists()


def test_a_commit_that_a_repository_refuses_is_reported_at_the_end(tmp_path: Path) -> None:
    """The step succeeds; summary and report say why its commit is missing, quiet or not."""
    place = project(tmp_path / "project", two_steps())
    git(place, "init", "-q", "-b", "main")
    git(place, "commit", "-q", "--allow-empty", "-m", "root")
    (place / ".git" / "MERGE_HEAD").write_text(git(place, "rev-parse", "HEAD"))
    words = ("pipeline", "pipeline.yaml", "--repository", "workspace", "--quiet")
    done = hankweave(*words, cwd=place, code=0)
    assert "warning: architect:checkpoint:implement is not a commit" in done.stdout
    report = json.loads(hankweave(*words, "--json", cwd=place).stdout)
    assert [warning.split()[0] for warning in report["warnings"]] == [
        "architect:checkpoint:implement",
        "architect:checkpoint:optimize",
    ]


def test_no_name_of_a_step_commands_the_terminal(tmp_path: Path) -> None:
    """Control characters beyond ASCII and bidirectional marks are shown escaped."""
    pipeline = two_steps()
    pipeline["steps"][0]["name"] = "a\u202eb\x9bc"
    place = project(tmp_path / "project", pipeline)
    done = hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    assert r"[PASS] a\u202eb\x9bc" in done.stdout
    assert r"step 1/2: a\u202eb\x9bc" in done.stderr
    assert not {"\u202e", "\x9b"} & set(done.stdout + done.stderr)


def test_nothing_that_an_agent_wrote_can_break_a_comment(tmp_path: Path) -> None:
    """Names and contents stay text in a report for a pull request."""
    pipeline = two_steps()
    evil = "</details><img src=x> `` ``` | a"
    pipeline["agents"]["second"] = scripted(
        writes("a|b<i>.txt", "```\n</details>\n````\n"), {"fail": {"message": evil}}
    )
    place = project(tmp_path / "project", pipeline)
    done = hankweave("pipeline", "pipeline.yaml", "--report", "github", cwd=place, code=1)
    outside = "\n".join(
        part for number, part in enumerate(done.stdout.split("`````")) if number % 2 == 0
    )
    assert "<img" not in outside.replace(r"\<img", "")
    assert outside.count("</details>") == outside.count("<details>")


# --- environments ---------------------------------------------------------------------------------


def test_it_works_without_a_git_program(tmp_path: Path) -> None:
    """The run, the history and a rollback need no git program."""
    place = project(tmp_path / "project", two_steps())
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "touch"):
        found = next(
            Path(folder, name) for folder in ("/bin", "/usr/bin") if Path(folder, name).exists()
        )
        (bare / name).symlink_to(found)

    only = {"PATH": str(bare)}
    hankweave("pipeline", "pipeline.yaml", cwd=place, code=0, **only)
    hankweave("rollback", "--to-step", "implement", "--yes", cwd=place, code=0, **only)
    assert code(place) == ["implemented"]


def test_it_works_in_a_subdirectory_of_a_repository(tmp_path: Path) -> None:
    """The project is the current folder only: nothing around it is captured or changed.

    Architect sweeps and resets the whole repository (A8, 3).
    """
    outer = tmp_path / "outer"
    place = project(outer / "inner", two_steps())
    git(outer, "init", "-q")
    (outer / "code.txt").write_text("not mine\n")
    hankweave("pipeline", "pipeline.yaml", cwd=place, code=0)
    hankweave("rollback", "--to-step", "implement", "--yes", cwd=place, code=0)
    assert (outer / "code.txt").read_text() == "not mine\n"
    assert code(place) == ["implemented"]


def test_a_skipped_step_is_on_record_with_its_condition(tmp_path: Path) -> None:
    """A condition written as in the documentation is compared, not taken for true."""
    pipeline = two_steps(variables={"run_review": "false"})
    pipeline["steps"][0]["condition"] = "run_review == 'true'"
    place = project(tmp_path / "project", pipeline)
    done = hankweave("pipeline", "pipeline.yaml", "--var", "run_review=no", cwd=place)
    assert done.stdout.startswith("[SKIP] implement")
    first, second = state(place).runs[0].codons
    assert isinstance(first, SkippedCodon)
    assert isinstance(second, CompletedCodon)
    assert os.listdir(place / ".hankweave" / "pipelines")
