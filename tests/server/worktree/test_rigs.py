"""Claims about rigs: copies stay inside the work tree, and commands end in time."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import anyio
import pytest

from hankweave_protocol.ids import CodonId, RunId
from hankweave_server.agents.process import leftovers
from hankweave_server.agents.process.subprocess_task import SubprocessTasks
from hankweave_server.execution.codon.setup import below_a_keeper
from hankweave_server.worktree.rigs import (
    CommandTimedOut,
    RigCommandFailed,
    RigError,
    Start,
    copy_rig,
    run_rig_command,
)
from support.waiting import limited


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    path = tmp_path / "agentRoot"
    path.mkdir()
    return path


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "template"
    (path / "deep" / "empty").mkdir(parents=True)
    (path / "run.sh").write_text("#!/bin/sh\n")
    (path / "run.sh").chmod(0o755)
    (path / "deep" / "text").write_bytes(b"\xff\0")
    (path / os.fsdecode(b"na\xffme")).write_text("odd")
    return path


def content(path: Path) -> dict[bytes, tuple[str, bytes]]:
    return {
        os.fsencode(item.relative_to(path)): (
            stat.filemode(item.lstat().st_mode),
            item.read_bytes() if item.is_file() else b"",
        )
        for item in path.rglob("*")
    }


# --- copying ------------------------------------------------------------------------------------


def test_a_tree_is_copied_with_bytes_and_modes(work_tree: Path, template: Path) -> None:
    """Every file, empty folder, odd name and executable bit is copied."""
    target = copy_rig(template, work_tree, "./src/")
    assert target == work_tree / "src"
    assert content(target) == content(template)


def test_a_file_is_copied_and_missing_folders_are_made(work_tree: Path, template: Path) -> None:
    """A rig may be a single file; the missing parent folders of its target are created."""
    copy_rig(template / "run.sh", work_tree, "a/b/run")
    assert (work_tree / "a/b/run").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("kind", ["folder", "file", "link", "pipe"])
def test_an_existing_target_is_replaced(work_tree: Path, template: Path, kind: str) -> None:
    """The old target is gone; the target of a link in its place is unchanged."""
    target = work_tree / "src"
    outside = work_tree.parent / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    match kind:
        case "folder":
            target.mkdir()
            (target / "old").write_text("old")
            (target / "link").symlink_to(outside)
        case "file":
            target.write_text("old")
        case "link":
            target.symlink_to(outside)
        case "pipe":
            os.mkfifo(target)

    copy_rig(template, work_tree, "src")
    assert content(target) == content(template)
    assert (outside / "precious").read_text() == "mine"
    assert sorted(work_tree.iterdir()) == [target]


def test_a_link_on_the_way_to_the_target_is_not_followed(work_tree: Path, template: Path) -> None:
    """If an agent turned a folder into a link, nothing is written behind it."""
    outside = work_tree.parent / "outside"
    outside.mkdir()
    (work_tree / "lib").symlink_to(outside)
    with pytest.raises(RigError):
        copy_rig(template, work_tree, "lib/src")

    assert not list(outside.iterdir())


@pytest.mark.parametrize(
    "to",
    [
        "",
        ".",
        "..",
        "a/../..",
        "a/../b",
        "/abs",
        ".git",
        "a/.git/hooks",
        ".hankweave",
        "rigArchive/x",
    ],
)
def test_a_target_out_of_bounds_is_refused(work_tree: Path, template: Path, to: str) -> None:
    """No rig replaces the work tree itself, leaves it, or writes protected names."""
    with pytest.raises(RigError):
        copy_rig(template, work_tree, to)

    assert not list(work_tree.iterdir())


@pytest.mark.parametrize("kind", ["link", "pipe", ".git", ".hankweave"])
def test_a_source_that_is_not_plain_is_refused_and_the_target_stays(
    work_tree: Path, template: Path, kind: str
) -> None:
    """A failed copy leaves the old target whole and no partial copy beside it."""
    (work_tree / "src").write_text("old")
    bad = template / "deep" / kind
    match kind:
        case "link":
            bad.symlink_to("/etc")
        case "pipe":
            os.mkfifo(bad)
        case _:
            bad.mkdir()

    with pytest.raises(RigError, match=re.escape(kind)):
        copy_rig(template, work_tree, "src")

    assert (work_tree / "src").read_text() == "old"
    assert [path.name for path in work_tree.iterdir()] == ["src"]


def test_a_source_that_is_missing_is_a_rig_error(work_tree: Path, template: Path) -> None:
    """An error of the file system becomes a rig error with its reason."""
    with pytest.raises(RigError, match="No such file"):
        copy_rig(template / "none", work_tree, "src")


def test_a_copy_that_is_given_up_leaves_nothing(work_tree: Path, template: Path) -> None:
    """After a cancelled copy the old target is unchanged, as if the copy had never begun."""
    copy_rig(template / "run.sh", work_tree, "src")
    steps = iter(range(3))

    def proceed() -> None:
        if next(steps, None) is None:
            raise InterruptedError("The server stops.")

    with pytest.raises(RigError, match="The server stops"):
        copy_rig(template, work_tree, "src", proceed)

    assert [path.name for path in work_tree.iterdir()] == ["src"]
    assert (work_tree / "src").is_file()


# --- commands -----------------------------------------------------------------------------------


def start_in(work_tree: Path) -> Start:
    """Start commands as the server does; their records lie beside the work tree."""
    processes = work_tree.parent / "processes"
    return below_a_keeper(SubprocessTasks(RunId("run"), CodonId("one"), processes))


class Output:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.spoke = anyio.Event()

    async def take(self, stream: str, line: str) -> None:
        self.lines.append((stream, line))
        self.spoke.set()


async def ran(command: str, cwd: Path, timeout_seconds: float | None = None, **env: str) -> Output:
    output = Output()
    with limited():
        await run_rig_command(
            command,
            start=start_in(cwd),
            cwd=cwd,
            env=env,
            timeout_seconds=timeout_seconds,
            on_line=output.take,
        )

    return output


async def test_a_command_runs_in_its_folder_and_its_lines_are_reported(work_tree: Path) -> None:
    """Lines are reported whole, by stream and in order, the last one even without its newline."""
    output = await ran("pwd; printf 'a\\r\\nb\\377'; echo bad >&2", work_tree)
    out = [line for stream, line in output.lines if stream == "stdout"]
    assert out == [str(work_tree), "a", "b\ufffd"]
    assert ("stderr", "bad") in output.lines


async def test_the_codons_environment_is_added_and_gits_places_are_not(
    work_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rig that calls git never works in the shadow repository by accident."""
    monkeypatch.setenv("GIT_DIR", "/shadow")
    monkeypatch.setenv("KEPT", "k")
    output = await ran('echo "$KEPT-$ADDED-$GIT_DIR"', work_tree, ADDED="a")
    assert output.lines == [("stdout", "k-a-")]


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -9 $$", -1)])
async def test_a_failed_command_reports_its_code(work_tree: Path, command: str, code: int) -> None:
    """A signal counts as -1, as in Hankweave."""
    with pytest.raises(RigCommandFailed) as failure:
        await ran(command, work_tree)

    assert (failure.value.exit_code, failure.value.failure_type) == (code, "command_failed")


async def test_a_command_without_its_folder_is_a_rig_error(work_tree: Path) -> None:
    """A command that cannot be started is reported as a failure of the rig."""
    with pytest.raises(RigError, match="could not be started"):
        await ran("true", work_tree / "none")


async def test_a_command_that_takes_too_long_is_ended_with_all_its_processes(
    work_tree: Path,
) -> None:
    """The whole process group is killed, even processes that ignore SIGTERM."""
    command = "trap '' TERM; (trap '' TERM; sleep 600) & echo $!; sleep 600"
    output = Output()
    with pytest.raises(CommandTimedOut) as failure, limited():
        await run_rig_command(
            command,
            start=start_in(work_tree),
            cwd=work_tree,
            env={},
            timeout_seconds=1,
            on_line=output.take,
        )

    assert failure.value.failure_type == "timeout"
    _assert_dead(int(output.lines[0][1]))


async def test_a_cancelled_command_is_ended(work_tree: Path) -> None:
    """A codon that is skipped while its rig runs leaves no process behind."""
    output = Output()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            lambda: run_rig_command(
                "echo $$; sleep 600",
                start=start_in(work_tree),
                cwd=work_tree,
                env={},
                timeout_seconds=None,
                on_line=output.take,
            )
        )
        with limited():
            await output.spoke.wait()

        tasks.cancel_scope.cancel()

    _assert_dead(int(output.lines[0][1]))


async def test_what_a_command_leaves_running_is_ended_with_it(work_tree: Path) -> None:
    """A process in the background neither delays the command nor outlives it."""
    output = await ran("sleep 600 & echo $!", work_tree)
    _assert_dead(int(output.lines[0][1]))


async def test_what_a_command_leaves_talking_is_silenced(work_tree: Path) -> None:
    """Endless output of a process in the background ends with the command, within moments."""
    with limited():
        await ran("yes & echo $! > pid; sleep 0.05", work_tree)

    _assert_dead(int((work_tree / "pid").read_text()))


async def test_a_process_that_fled_into_a_session_of_its_own_is_ended_too(
    work_tree: Path,
) -> None:
    """A process that left the command's group neither delays the command nor outlives it."""
    output = await ran("setsid sh -c 'echo $$; exec sleep 600' & sleep 0.2", work_tree)
    _assert_dead(int(output.lines[0][1]))


async def test_a_command_is_on_record_while_it_runs_and_no_longer(work_tree: Path) -> None:
    """After a crash, the server's next start finds the processes that a rig left running."""
    processes = work_tree.parent / "processes"
    record = f"{processes}/*.json"
    output = await ran(f"until cat {record} 2>/dev/null; do sleep 0.05; done", work_tree)
    assert '"codonId":"one"' in output.lines[0][1]
    assert list(processes.iterdir()) == []
    assert await leftovers.sweep(processes) == ()


async def test_much_output_and_long_lines_are_read_to_the_end(work_tree: Path) -> None:
    """No line is lost, however many there are; a line beyond 64 KiB loses only its end."""
    output = await ran(
        "seq 20000; head -c 300000 /dev/zero | tr '\\0' x; echo; echo end", work_tree
    )
    lines = [line for _, line in output.lines]
    assert lines[:20000] == [str(number) for number in range(1, 20001)]
    assert lines[20000:] == ["x" * 65536, "end"]


def _assert_dead(pid: int) -> None:
    """Assert that a pid is gone, or is a zombie that has not been reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return

    assert state in "ZX"
