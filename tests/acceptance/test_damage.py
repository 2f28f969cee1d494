"""Claims about damage of the store, over a real socket and at real starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_protocol.commands import CheckpointCreate, RollbackToCheckpoint, StoreFsck
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    CheckpointPruned,
    ErrorEvent,
    Event,
    RollbackFailed,
    StateRecovered,
    StoreRepaired,
)
from hankweave_server.paths import Layout
from support.command_line import hankweave
from support.damage import damage, unpack
from support.git_facts import GitWitness
from support.running_server import RunningServer, journal, served, state, tree
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.waiting import LIMIT
from support.watching import after_plan, events_of, listed, refused, started

TWO = (codon("one", writes("a.txt", "one")), codon("two", writes("a.txt", "two")))


async def ran(tmp_path: Path) -> tuple[Path, Path, dict[str, str]]:
    """Run two codons; return hank, execution and the completed checkpoints by codon."""
    hank, execution = write_hank(tmp_path / "hank", *TWO), tmp_path / "execution"
    async with after_plan(hank, execution) as (server, client):
        completed = {
            str(record.coordinate.codon_id): record.sha
            for record in await listed(client)
            if record.kind == "completed"
        }
        await server.stop()

    unpack(Layout.of_execution(execution).shadow_repository)
    return hank, execution, completed


async def test_a_start_warns_of_each_lost_checkpoint_and_goes_on(tmp_path: Path) -> None:
    """`missing_checkpoint` names each lost checkpoint, even if only the journal does.

    Rollbacks to it say how to repair, and the next checkpoint, on a branch whose tip is lost, is
    whole.
    """
    hank, execution, completed = await ran(tmp_path)
    damage(execution, completed["two"], "removed")
    async with served(hank, execution, "--no-autostart") as (_, client):
        warnings = [
            each for found in events_of(execution, StateRecovered) for each in found.warnings
        ]
        assert {each.type for each in warnings} == {"missing_checkpoint"}
        assert any(completed["two"] in each.message for each in warnings)
        assert completed["one"] in {record.sha for record in await listed(client)}
        error = await refused(client, RollbackToCheckpoint(checkpoint_sha=completed["two"]))
        assert error.code == ErrorCode.CHECKPOINT_DAMAGED
        assert "fsck --repair" in (error.hint or "")
        made = await client.send(CheckpointCreate())
        await client.send(RollbackToCheckpoint(checkpoint_sha=completed["one"]))
        assert tree(execution / "agentRoot") == {"a.txt": b"one"}
        await client.send(RollbackToCheckpoint(checkpoint_sha=made.sha))
        assert tree(execution / "agentRoot") == {"a.txt": b"two"}

    (moved,) = [each.repair.moved_refs for each in events_of(execution, StoreRepaired)]
    assert [each.was for each in moved] == [completed["two"]]


async def test_a_repair_is_journaled_and_nothing_is_named_twice(tmp_path: Path) -> None:
    """`store.repaired` lists what was rewritten, lost and moved.

    Lost objects no longer count as damage, and the next repair, the next fsck and git find nothing.
    """
    hank, execution, completed = await ran(tmp_path)
    git = GitWitness(execution)
    blob = git.run("rev-parse", f"{completed['two']}:a.txt").strip()
    damage(execution, blob, "flipped")
    damage(execution, completed["one"], "truncated")
    async with served(hank, execution, "--no-autostart") as (_, client):
        before = await client.send(StoreFsck())
        assert {each.checkpoint for each in before.damages} >= set(completed.values())
        report = await client.send(StoreFsck(repair=True))
        assert (report.damages, report.missing) == ((), ())
        assert blob in report.repair.rewritten
        assert report.repair.lost == (completed["one"],)
        again = await client.send(StoreFsck(repair=True))
        assert (again.repair.rewritten, again.repair.lost) == ((), ())
        shas = {record.sha for record in await listed(client)}
        assert completed["two"] in shas
        assert completed["one"] not in shas
        for command in (StoreFsck(mirror="/"), StoreFsck(repair=True, mirror=str(tmp_path))):
            error = await refused(client, command)
            assert error.path == "$.data.mirror"

    (event,) = events_of(execution, StoreRepaired)
    assert event.repair == report.repair
    (given_up,) = events_of(execution, CheckpointPruned)
    assert (given_up.checkpoints, given_up.lost) == ((completed["one"],), True)
    git.assert_sound()
    hankweave("fsck", "-e", str(execution), code=0)


async def test_damage_that_a_rollback_does_not_touch_is_reported_and_mended_later(
    tmp_path: Path,
) -> None:
    """The rollback is done; a warning names the damage, and the next checkpoint mends it.

    The damaged blob belongs to a file that the rollback does not write.
    """
    hank, execution = write_hank(tmp_path / "hank", *TWO), tmp_path / "execution"
    async with after_plan(hank, execution) as (_, client):
        (execution / "agentRoot/by-hand.txt").write_text("a person's work")
        both = await client.send(CheckpointCreate())
        (execution / "agentRoot/a.txt").write_text("changed")
        await client.send(CheckpointCreate())
        blob = GitWitness(execution).run("rev-parse", f"{both.sha}:by-hand.txt").strip()
        unpack(Layout.of_execution(execution).shadow_repository)
        damage(execution, blob, "flipped")
        await client.send(RollbackToCheckpoint(checkpoint_sha=both.sha, auto_restart=False))
        assert tree(execution / "agentRoot") == {
            "a.txt": b"two",
            "by-hand.txt": b"a person's work",
        }
        warned = await client.until(ErrorEvent, _is_about_the_store, timeout=LIMIT)
        assert blob in warned.data.message
        assert "fsck --repair" in warned.data.message
        assert both.sha in {each.checkpoint for each in (await client.send(StoreFsck())).damages}
        await client.send(CheckpointCreate())
        assert (await client.send(StoreFsck())).damages == ()


def _is_about_the_store(event: Event) -> bool:
    return isinstance(event.data, ErrorEvent) and event.data.context == "store"


@pytest.mark.story(
    "After a crash, a start restores an older success if the last one is damaged.",
    of="docs/explanation/architecture.md",
)
async def test_a_start_after_a_crash_takes_an_older_success_if_the_last_is_damaged(
    tmp_path: Path,
) -> None:
    """The files are those of codon one, a warning says so, and the plan continues.

    The server died in codon three, and codon two's checkpoint is damaged.
    """
    go = tmp_path / "go"
    three = codon("three", writes("a.txt", "torn"), waits_for(go))
    hank, execution = write_hank(tmp_path / "hank", *TWO, three), tmp_path / "execution"
    async with served(hank, execution) as (server, client):
        await started(client, "three")
        await _kill(server)

    layout = Layout.of_execution(execution)
    layout.wal.unlink(missing_ok=True)  # It would repair the damage.
    unpack(layout.shadow_repository)
    two = next(
        codon.completion_checkpoint
        for run in state(execution).runs
        for codon in run.codons
        if codon.codon_id == "two"
    )
    blob = GitWitness(execution).run("rev-parse", f"{two}:a.txt").strip()
    damage(execution, blob, "removed")
    async with served(hank, execution, "--no-autostart") as (_, client):
        assert tree(execution / "agentRoot") == {"a.txt": b"one"}
        await client.send(CheckpointCreate())

    warned = [
        each for each in events_of(execution, ErrorEvent) if "Recovery degraded" in each.message
    ]
    assert len(warned) == 1
    assert not events_of(execution, RollbackFailed)
    assert journal(execution)[-1].type


async def _kill(server: RunningServer) -> None:
    server.kill()
    await server.ended()
