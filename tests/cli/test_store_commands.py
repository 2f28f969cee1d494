"""Claims about `hankweave gc`, `fsck` and `pin`: with a server, without one, and used wrongly."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from hankweave_protocol.commands import GetServerStatus, ListCheckpoints
from hankweave_protocol.events import CheckpointPinned, CheckpointPruned
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import FsckReport, GcReport
from hankweave_server.clock import SystemClock
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.held import acquire
from support.abandoned import DeadEnd, dead_end
from support.command_line import aside
from support.git_facts import GitWitness
from support.running_server import served
from support.watching import events_of


async def left(tmp_path: Path) -> DeadEnd:
    """Return an execution with an abandoned branch whose server has ended."""
    async with dead_end(tmp_path) as past:
        await past.server.stop()
        return past


def files_of(execution: Path) -> dict[Path, tuple[int, int]]:
    """Return every file with its inode and modification time."""
    files = (path for path in execution.rglob("*") if path.is_file())
    stats = {path: path.stat() for path in files}
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in stats.items()}


# --- with a server --------------------------------------------------------------------------------


async def test_a_dry_run_prints_what_would_go_and_why_the_rest_stays(tmp_path: Path) -> None:
    """The dry run prints one line for each checkpoint; then the gc prunes exactly those."""
    async with dead_end(tmp_path) as past:
        here = ("-e", str(past.server.execution))
        dry = await aside("gc", *here, "--dry-run", "--max-count", "0", code=0)
        lines = dry.stdout.splitlines()
        assert lines[0] == "3 checkpoints would be pruned"
        assert {line.split()[0] for line in lines[1:4]} == {sha[:12] for sha in past.may_go}
        assert lines[4] == f"{len(past.standing)} checkpoints would be kept"
        shown = lines[5 : 5 + len(past.standing)]
        kept = {line.split()[0]: line.split(maxsplit=2)[2] for line in shown}
        assert kept.keys() == {sha[:12] for sha in past.standing}
        assert kept[past.new_safety[:12]] == "needed by the next undo or redo"
        assert await past.known() == past.standing | past.may_go

        done = await aside("gc", "--yes", *here, "--max-age", "0s", code=0)
        assert done.stdout.startswith("3 checkpoints were pruned\n")
        assert await past.known() == past.standing


async def test_a_pin_is_set_shown_and_removed(tmp_path: Path) -> None:
    """`checkpoints` marks it with its name, `gc` keeps it, `--remove` removes the pin."""
    async with dead_end(tmp_path) as past:
        here, sha = ("-e", str(past.server.execution)), past.manual[0]
        done = await aside("pin", sha[:8], *here, "--name", "the good one")
        assert done.stdout == f"{sha[:12]} is pinned as 'the good one'\n"
        listed = (await aside("checkpoints", *here)).stdout
        (line,) = [line for line in listed.splitlines() if line.startswith(sha[:12])]
        assert line.endswith("  the good one  [pinned]")
        await aside("gc", "--yes", *here, "--max-count", "0")
        assert sha in await past.known()
        assert (await aside("pin", sha, *here, "--remove")).stdout == f"{sha[:12]} is not pinned\n"
        await aside("gc", "--yes", *here, "--max-count", "0")
        assert sha not in await past.known()


async def test_with_json_the_replies_are_printed(tmp_path: Path) -> None:
    """The reports and the record have their wire form."""
    async with dead_end(tmp_path) as past:
        here = ("-e", str(past.server.execution), "--json")
        record = msgspec.json.decode(
            (await aside("pin", past.manual[0], *here)).stdout, type=CheckpointRecord
        )
        assert (record.sha, record.pinned) == (past.manual[0], True)
        report = msgspec.json.decode(
            (await aside("gc", "--yes", *here, "--max-bytes", "0")).stdout, type=GcReport
        )
        assert {each.sha for each in report.pruned} == past.may_go - {past.manual[0]}
        checked = msgspec.json.decode((await aside("fsck", *here)).stdout, type=FsckReport)
        assert (checked.damages, checked.missing) == ((), ())
        assert checked.checked == len(past.standing) + 1


@pytest.mark.executed
async def test_status_shows_the_store(tmp_path: Path) -> None:
    """The output has checkpoints, size, packs and loose objects."""
    async with dead_end(tmp_path) as past:
        words = (await aside("status", "-v", "-e", str(past.server.execution))).stdout
        status = await past.client.send(GetServerStatus())
        assert f"checkpoints {status.checkpoints}\n" in words
        count = f"{status.store_packs} packs, {status.store_loose_objects} loose objects"
        assert "KiB on disk" in words
        assert count in words


async def test_a_refusal_of_the_server_is_shown_with_its_code(tmp_path: Path) -> None:
    """The exit code is 1; stderr has the sentence, the code and the hint."""
    async with dead_end(tmp_path) as past:
        here = ("-e", str(past.server.execution))
        for words, code in (
            (("pin", "ffffffff"), "CHECKPOINT_NOT_FOUND"),
            (("gc", "--kinds", "safety"), "INVALID_COMMAND"),
            (("gc", "--yes", "--kinds", "completed", "--max-count", "1"), "INVALID_COMMAND"),
        ):
            refused = await aside(*words, *here)
            assert (refused.returncode, refused.stdout) == (1, "")
            assert f"({code})" in refused.stderr
            assert "hint: " in refused.stderr


# --- without one ----------------------------------------------------------------------------------


async def test_without_a_server_fsck_reads_and_changes_nothing(tmp_path: Path) -> None:
    """The exit code is 0; no file of the execution is created, removed or written."""
    past = await left(tmp_path)
    execution = past.server.execution
    (execution / ".hankweave/checkpoints/.hankweavecheckpoints/HEAD.lock").touch()
    before = files_of(execution)
    done = await aside("fsck", "-e", str(execution))
    count = len(past.standing | past.may_go)
    assert (done.returncode, done.stdout) == (
        0,
        f"{count} checkpoints are intact, including every file.\n",
    )
    assert files_of(execution) == before


@pytest.mark.story("`fsck` exits with 1 if something is damaged.")
async def test_fsck_exits_1_where_something_is_missing(tmp_path: Path) -> None:
    """The checkpoint is named; with --json it is in the report."""
    past = await left(tmp_path)
    git, here = GitWitness(past.server.execution), ("-e", str(past.server.execution))
    holding = ("for-each-ref", "--format=%(refname)", "--contains", past.manual[0])
    for ref in git.run(*holding).split():
        git.run("update-ref", "-d", ref)

    git.run("repack", "-a", "-d")
    git.run("prune", "--expire=now")
    done = await aside("fsck", *here, code=1)
    assert f"checkpoint {past.manual[0]} is missing" in done.stdout
    as_json = await aside("fsck", *here, "--json", code=1)
    assert past.manual[0] in json.loads(as_json.stdout)["missing"]


async def test_without_a_server_gc_and_pin_own_the_directory_and_are_on_record(
    tmp_path: Path,
) -> None:
    """gc and pin prune and pin as a server does, write the journal, and leave no lock."""
    past = await left(tmp_path)
    execution, here = past.server.execution, ("-e", str(past.server.execution))
    dry = await aside("gc", *here, "--dry-run", "--max-count", "0")
    assert dry.stdout.startswith("3 checkpoints would be pruned\n")
    await aside("pin", past.manual[0], *here, "--name", "kept", code=0)
    done = await aside("gc", "--yes", *here, "--max-count", "0")
    assert done.stdout.startswith("2 checkpoints were pruned\n")
    assert [event.checkpoint_sha for event in events_of(execution, CheckpointPinned)] == [
        past.manual[0]
    ]
    (pruned,) = events_of(execution, CheckpointPruned)
    assert set(pruned.checkpoints) == past.may_go - {past.manual[0]}
    assert not (execution / ".hankweave" / "runtime.lock").exists()
    assert not (execution / ".hankweave" / "prune.intent").exists()
    await aside("fsck", *here, code=0)
    refused = await aside("pin", "ffffffff", *here)
    assert (refused.returncode, "(CHECKPOINT_NOT_FOUND)" in refused.stderr) == (1, True)
    hank = tmp_path / "hank" / "hank.json"
    async with served(hank, execution, "--no-autostart") as (_, client):
        listed = (await client.send(ListCheckpoints())).checkpoints
        assert {each.sha for each in listed} == past.standing | {past.manual[0]}


async def test_after_a_kill_gc_says_who_died_and_does_its_work(tmp_path: Path) -> None:
    """A dead server's lock does not prevent freeing space on the disk it filled."""
    async with dead_end(tmp_path) as past:
        past.server.kill()
        await past.server.ended()

    done = await aside("gc", "--yes", "-e", str(past.server.execution), "--max-count", "0", code=0)
    assert f"found a dead server: pid {past.server.pid}" in done.stderr
    assert done.stdout.startswith("3 checkpoints were pruned\n")


async def test_who_owns_the_directory_is_not_disturbed(tmp_path: Path) -> None:
    """While another process holds the guard and does not listen, gc exits with 75."""
    past = await left(tmp_path)
    held = acquire(Layout.of_execution(past.server.execution), SystemClock())
    try:
        before = files_of(past.server.execution)
        here = ("-e", str(past.server.execution))
        done = await aside("gc", "--yes", *here, "--max-count", "0", code=75)
        assert str(os.getpid()) in done.stderr
        assert files_of(past.server.execution) == before
    finally:
        held.release()


async def test_a_wrong_lock_does_not_prevent_reading(tmp_path: Path) -> None:
    """If its pid belongs to another program that does not listen, fsck reads the files."""
    past = await left(tmp_path)
    stamp = "2025-01-04T12:00:00.000Z"
    lock = {
        "pid": os.getpid(),
        "runId": None,
        "startTime": stamp,
        "lastHeartbeat": stamp,
        "port": 1,
    }
    (past.server.execution / ".hankweave" / "runtime.lock").write_text(json.dumps(lock))
    await aside("fsck", "-e", str(past.server.execution), code=0)
