"""The store over a real socket: what gc prunes and keeps, and recovery after a crash."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol import codec
from hankweave_protocol.commands import (
    CheckpointCreate,
    CheckpointPin,
    GetServerStatus,
    RollbackPreview,
    RollbackToCheckpoint,
    StoreFsck,
    StoreGc,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    CheckpointPinned,
    CheckpointPruned,
    StateRecovered,
    StoreConsolidated,
)
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import PruneIntent
from support.abandoned import HANK, DeadEnd, dead_end
from support.git_facts import GitWitness
from support.running_server import RunningServer, appears, journal, running_server, served
from support.scripted_hank import write_hank
from support.waiting import LIMIT
from support.watching import after_plan, events_of, listed, refused


async def all_can_be_restored(client: Client, shas: frozenset[Sha]) -> None:
    """Assert that each checkpoint is whole, and that a rollback to it would work."""
    report = await client.send(StoreFsck())
    assert (report.damages, report.missing) == ((), ())
    for sha in shas:
        assert (await client.send(RollbackPreview(checkpoint_sha=sha))).target.checkpoint_sha == sha


# --- gc -------------------------------------------------------------------------------------------


@pytest.mark.command("store.gc")
@pytest.mark.story("`gc` prunes only abandoned timelines.")
async def test_a_gc_lets_go_of_dead_ends_and_of_nothing_else(tmp_path: Path) -> None:
    """The thread, completed work and the newest safety checkpoint restore; the rest is reported."""
    async with dead_end(tmp_path) as past:
        before = await past.client.send(GetServerStatus())
        report = await past.client.send(StoreGc(max_count=0))
        assert {record.sha for record in report.pruned} == past.may_go
        assert await past.known() == past.standing
        reasons = {kept.sha: kept.reason for kept in report.kept_because}
        assert reasons.keys() == past.standing
        assert reasons[past.new_safety] == "undo"
        assert set(reasons.values()) <= {"completed", "thread", "undo", "ancestor"}
        assert report.bytes_after <= report.bytes_before == before.store_bytes
        (event,) = events_of(past.server.execution, CheckpointPruned)
        assert set(event.checkpoints) == past.may_go
        assert not event.recovered
        assert not (past.server.execution / ".hankweave" / "prune.intent").exists()
        await all_can_be_restored(past.client, past.standing)
        git = GitWitness(past.server.execution)
        git.assert_sound()
        assert not past.may_go & set(git.run("rev-list", "--all", "HEAD").split())


async def test_a_dry_run_says_the_same_and_touches_nothing(tmp_path: Path) -> None:
    """A dry run names the checkpoints that a gc then prunes; it changes no byte or event."""
    async with dead_end(tmp_path) as past:
        status = await past.client.send(GetServerStatus())
        files = _files_of(past.server.execution)
        dry = await past.client.send(StoreGc(dry_run=True, max_age_seconds=0))
        assert (dry.dry_run, dry.consolidated) == (True, None)
        assert (await past.client.send(GetServerStatus())).last_event_seq == status.last_event_seq
        assert _files_of(past.server.execution) == files
        assert await past.known() == past.standing | past.may_go
        done = await past.client.send(StoreGc(max_age_seconds=0))
        assert (done.pruned, done.kept_because) == (dry.pruned, dry.kept_because)


def _files_of(execution: Path) -> dict[Path, int]:
    """Return when each file but logs and the lock with its heartbeat was last written."""
    files = (path for path in execution.rglob("*") if path.is_file())
    moving = {"logs", ".hankweave"}
    return {path: path.stat().st_mtime_ns for path in files if path.parent.name not in moving}


async def test_a_second_gc_has_nothing_to_do(tmp_path: Path) -> None:
    """A second gc prunes nothing, packs nothing, and reports nothing."""
    async with dead_end(tmp_path) as past:
        await past.client.send(StoreGc(max_count=0))
        seq = (await past.client.send(GetServerStatus())).last_event_seq
        again = await past.client.send(StoreGc(max_count=0))
        assert again.pruned == ()
        assert again.consolidated.finished
        assert again.consolidated.packs_before == again.consolidated.packs_after
        assert again.bytes_before == again.bytes_after
        assert (await past.client.send(GetServerStatus())).last_event_seq == seq


async def test_only_the_kinds_that_are_named_may_go(tmp_path: Path) -> None:
    """Safety checkpoints are pruned, manual ones are kept because of their kind."""
    async with dead_end(tmp_path) as past:
        report = await past.client.send(StoreGc(max_count=0, kinds=("safety",)))
        assert {record.sha for record in report.pruned} == {past.old_safety}
        reasons = {kept.sha: kept.reason for kept in report.kept_because}
        assert {reasons[sha] for sha in past.manual} == {"kind"}


@pytest.mark.parametrize("gc_first", [True, False])
async def test_a_rollback_and_a_gc_at_once_never_meet_half_way(
    tmp_path: Path, gc_first: bool
) -> None:
    """Either the target exists and is restored, or it is pruned and the rollback is refused."""
    async with dead_end(tmp_path, manual=20) as past, past.server.client() as other:
        target, outcome = past.manual[10], []

        async def roll_back() -> None:
            try:
                await other.send(RollbackToCheckpoint(checkpoint_sha=target))
                outcome.append("restored")
            except CommandRefused as refused:
                outcome.append(refused.code)

        async def collect() -> None:
            with contextlib.suppress(CommandRefused):
                await past.client.send(StoreGc(max_count=0))

        async with anyio.create_task_group() as tasks:
            for work in (collect, roll_back) if gc_first else (roll_back, collect):
                tasks.start_soon(work)

        stands = target in await past.known()
        assert outcome == ["restored" if stands else ErrorCode.CHECKPOINT_NOT_FOUND]
        written = (past.server.execution / "agentRoot" / "by-hand-10.txt").exists()
        assert written == stands
        await all_can_be_restored(past.client, await past.known())


async def test_a_gc_whose_client_left_is_still_published(tmp_path: Path) -> None:
    """When the connection is cut, the journal has the pruned checkpoints, and no intent is left."""
    async with dead_end(tmp_path, manual=60) as past:
        intent = past.server.execution / ".hankweave" / "prune.intent"
        async with anyio.create_task_group() as tasks:
            async with past.server.client() as leaving:
                tasks.start_soon(_let_it_begin, leaving)
                await appears(intent)

            event = await past.client.until(CheckpointPruned, timeout=LIMIT)
            tasks.cancel_scope.cancel()

        assert isinstance(event.data, CheckpointPruned)
        gone = set(event.data.checkpoints)
        assert gone == (past.standing | past.may_go) - await past.known()
        await past.client.send(StoreGc(max_count=0))
        assert not intent.exists()
        assert await past.known() == past.standing


# --- pins -----------------------------------------------------------------------------------------


@pytest.mark.command("checkpoint.pin")
@pytest.mark.story("A pinned checkpoint survives every `gc`.")
async def test_what_is_pinned_survives_a_gc_and_a_restart(tmp_path: Path, execution: Path) -> None:
    """A pinned checkpoint and its ancestors survive; the next server lists the pin by name."""
    async with dead_end(tmp_path) as past:
        pinned = past.manual[1]
        record = await past.client.send(
            CheckpointPin(checkpoint_sha=pinned[:10], name="the good one", pinned=True)
        )
        assert (record.sha, record.pinned, record.name) == (pinned, True, "the good one")
        report = await past.client.send(StoreGc(max_count=0))
        assert {each.sha for each in report.pruned} == {past.old_safety}
        reasons = {kept.sha: kept.reason for kept in report.kept_because}
        assert (reasons[pinned], reasons[past.manual[0]]) == ("pinned", "ancestor")
        await past.server.stop()

    (event,) = events_of(execution, CheckpointPinned)
    assert (event.checkpoint_sha, event.pinned, event.name) == (pinned, True, "the good one")
    hank = tmp_path / "hank" / "hank.json"
    async with served(hank, execution, "--no-autostart") as (_, client):
        known = {each.sha: each for each in await listed(client)}
        assert (known[pinned].pinned, known[pinned].name) == (True, "the good one")
        assert (await client.send(CheckpointPin(checkpoint_sha=pinned, pinned=False))).name is None
        report = await client.send(StoreGc(max_count=0))
        assert {each.sha for each in report.pruned} == set(past.manual)


async def test_pinning_twice_publishes_one_event(tmp_path: Path) -> None:
    """The same pin again changes nothing; another name does."""
    async with dead_end(tmp_path) as past:
        for name in ("a", "a", "b"):
            await past.client.send(
                CheckpointPin(checkpoint_sha=past.manual[0], name=name, pinned=True)
            )

        await past.client.send(CheckpointPin(checkpoint_sha=past.manual[1], pinned=False))
        names = [event.name for event in events_of(past.server.execution, CheckpointPinned)]
        assert names == ["a", "b"]


# --- bad input ------------------------------------------------------------------------------------


def pin(sha: str, **fields: Any) -> CheckpointPin:
    return CheckpointPin(checkpoint_sha=sha, pinned=True, **fields)


REFUSALS: list[tuple[Callable[[DeadEnd], Any], ErrorCode, str]] = [
    (lambda p: pin("0123456789"), ErrorCode.CHECKPOINT_NOT_FOUND, "$.data.checkpointSha"),
    (lambda p: pin("../../refs"), ErrorCode.CHECKPOINT_NOT_FOUND, "$.data.checkpointSha"),
    (lambda p: pin(""), ErrorCode.CHECKPOINT_NOT_FOUND, "$.data.checkpointSha"),
    (
        lambda p: pin(GitWitness(p.server.execution).run("rev-parse", "HEAD^{tree}").strip()),
        ErrorCode.CHECKPOINT_NOT_FOUND,
        "$.data.checkpointSha",
    ),
    (lambda p: pin(p.manual[0], name=""), ErrorCode.INVALID_COMMAND, "$.data.name"),
    (lambda p: pin(p.manual[0], name="   "), ErrorCode.INVALID_COMMAND, "$.data.name"),
    (lambda p: pin(p.manual[0], name="x" * 201), ErrorCode.INVALID_COMMAND, "$.data.name"),
    (lambda p: pin(p.manual[0], name="a\nb"), ErrorCode.INVALID_COMMAND, "$.data.name"),
    (
        lambda p: pin(p.manual[0], expected_run_id="another"),
        ErrorCode.STALE_RUN,
        "$.data.expectedRunId",
    ),
    (lambda p: StoreGc(max_count=-1), ErrorCode.INVALID_COMMAND, "$.data.maxCount"),
    (lambda p: StoreGc(max_bytes=-1), ErrorCode.INVALID_COMMAND, "$.data.maxBytes"),
    (lambda p: StoreGc(max_age_seconds=-1), ErrorCode.INVALID_COMMAND, "$.data.maxAgeSeconds"),
    (lambda p: StoreGc(max_age_seconds=10**12), ErrorCode.INVALID_COMMAND, "$.data.maxAgeSeconds"),
    (
        lambda p: StoreGc(max_count=0, kinds=("safety", "blue")),  # type: ignore[arg-type]
        ErrorCode.INVALID_COMMAND,
        "$.data.kinds[1]",
    ),
    (
        lambda p: StoreGc(max_count=0, kinds=("completed",)),
        ErrorCode.INVALID_COMMAND,
        "$.data.kinds[0]",
    ),
    (lambda p: StoreGc(kinds=("safety",)), ErrorCode.INVALID_COMMAND, "$.data.kinds"),
    (
        lambda p: StoreGc(max_count=0, expected_run_id="another"),  # type: ignore[arg-type]
        ErrorCode.STALE_RUN,
        "$.data.expectedRunId",
    ),
]


async def test_bad_input_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    """Each bad input has its code and path; no event, ref or checkpoint has changed."""
    async with dead_end(tmp_path) as past:
        status, known = await past.client.send(GetServerStatus()), await past.known()
        refs = GitWitness(past.server.execution).run("show-ref")
        for make, code, path in REFUSALS:
            error = await refused(past.client, make(past))
            assert (error.code, error.path) == (code, path), make(past)

        assert await past.known() == known
        assert (await past.client.send(GetServerStatus())).last_event_seq == status.last_event_seq
        assert GitWitness(past.server.execution).run("show-ref") == refs


# --- fsck and size --------------------------------------------------------------------------------


@pytest.mark.command("store.fsck")
async def test_fsck_names_what_is_damaged_with_every_checkpoint_that_it_hits(
    tmp_path: Path,
) -> None:
    """A damaged blob is reported with its path, once for each checkpoint that has it.

    A rollback to those is refused; a gc that prunes them removes the damage with them.
    """
    async with dead_end(tmp_path) as past:
        report = await past.client.send(StoreFsck())
        assert report.checked == len(past.standing | past.may_go)
        assert (report.damages, report.missing) == ((), ())
        git = GitWitness(past.server.execution)
        blob = git.run("rev-parse", f"{past.manual[0]}:by-hand-0.txt").strip()
        _let_rot(past.server.execution, blob)
        report = await past.client.send(StoreFsck())
        hit = {each.checkpoint: each.damages for each in report.damages}
        assert hit.keys() == {*past.manual, past.old_safety}
        assert {(d.sha, d.kind, d.path) for each in hit.values() for d in each} == {
            (blob, "blob", "by-hand-0.txt")
        }
        error = await refused(past.client, RollbackToCheckpoint(checkpoint_sha=past.manual[0]))
        assert error.code == ErrorCode.CHECKPOINT_DAMAGED
        await past.client.send(StoreGc(max_count=0))
        await all_can_be_restored(past.client, past.standing)


def _let_rot(execution: Path, blob: str) -> None:
    """Unpack the store, and damage one object of it."""
    objects = execution / ".hankweave/checkpoints/.hankweavecheckpoints/objects"
    for pack in list((objects / "pack").glob("*.pack")):
        aside = pack.rename(execution / pack.name)
        pack.with_suffix(".idx").unlink()
        with aside.open("rb") as stream:
            GitWitness(execution).run("unpack-objects", "-q", stdin=stream)

        aside.unlink()

    loose = objects / blob[:2] / blob[2:]
    loose.chmod(0o600)
    loose.write_bytes(b"rotten")


async def test_fsck_names_what_is_missing(tmp_path: Path) -> None:
    """A checkpoint that git removed, and no gc pruned, is missing."""
    async with dead_end(tmp_path) as past:
        await past.server.stop()

    git = GitWitness(tmp_path / "execution")
    for sha in past.may_go:
        for ref in _refs_at(git, sha):
            git.run("update-ref", "-d", ref)

    git.run("repack", "-a", "-d")
    git.run("prune", "--expire=now")
    hank = tmp_path / "hank" / "hank.json"
    async with served(hank, tmp_path / "execution", "--no-autostart") as (_, client):
        report = await client.send(StoreFsck())
        assert set(report.missing) >= past.may_go
        assert report.damages == ()


def _refs_at(git: GitWitness, sha: Sha) -> list[str]:
    """Return the refs that name a commit: a run's branch, or a safety checkpoint's own."""
    return git.run("for-each-ref", "--points-at", sha, "--format=%(refname)").split()


@pytest.mark.command("server.status")
async def test_status_says_how_large_the_store_is(tmp_path: Path) -> None:
    """Bytes, packs and loose objects are those on the disk."""
    async with dead_end(tmp_path) as past:
        status = await past.client.send(GetServerStatus())
        objects = past.server.execution / ".hankweave/checkpoints/.hankweavecheckpoints/objects"
        assert status.store_packs == len(list(objects.glob("pack/*.pack")))
        assert status.store_loose_objects == len(list(objects.glob("??/*")))
        assert status.store_bytes > 0


async def test_what_piles_up_is_packed_in_the_background(tmp_path: Path) -> None:
    """After many checkpoints the server packs by itself and reports it; all still restore."""
    hank, execution = write_hank(tmp_path / "hank", *HANK), tmp_path / "execution"
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        shas = set()
        for number in range(40):
            (execution / "agentRoot" / "a.txt").write_text(f"{number}\n" * 50)
            shas.add((await client.send(CheckpointCreate())).sha)

        event = await client.until(StoreConsolidated, timeout=LIMIT)
        assert event.data.packs_after < event.data.packs_before
        assert event.data.bytes_after < event.data.bytes_before
        await all_can_be_restored(client, frozenset(shas))
        GitWitness(execution).assert_sound()


# --- crashes --------------------------------------------------------------------------------------


async def test_killed_in_the_middle_of_a_gc_all_that_is_kept_restores(tmp_path: Path) -> None:
    """kill -9 comes once the intent is durable: the next start reports what gc pruned.

    Every other checkpoint restores.
    """
    async with dead_end(tmp_path, manual=150) as past:
        intent = past.server.execution / ".hankweave" / "prune.intent"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_let_it_begin, past.client)
            await appears(intent)
            past.server.kill()
            await past.server.ended()
            tasks.cancel_scope.cancel()

    execution = tmp_path / "execution"
    async with served(tmp_path / "hank" / "hank.json", execution, "--no-autostart") as (_, client):
        assert not intent.exists()
        known = await _known(client)
        gone = {
            sha for event in events_of(execution, CheckpointPruned) for sha in event.checkpoints
        }
        assert past.standing <= known
        assert known | gone == past.standing | past.may_go
        assert not known & gone
        await all_can_be_restored(client, past.standing)
        await client.send(StoreGc(max_count=0))
        assert await _known(client) == past.standing
        await all_can_be_restored(client, past.standing)
        GitWitness(execution).assert_sound()


async def _let_it_begin(client: Client) -> None:
    with contextlib.suppress(ConnectionError, CommandRefused):
        await client.send(StoreGc(max_count=0))


async def _known(client: Client) -> frozenset[Sha]:
    return frozenset(each.sha for each in await listed(client))


async def _started_again(tmp_path: Path, server: RunningServer, past: DeadEnd) -> None:
    execution = server.execution
    async with server.client() as client:
        assert await _known(client) == past.standing
        report = await client.send(StoreFsck())
        assert (report.damages, report.missing) == ((), ())

    assert not (execution / ".hankweave" / "prune.intent").exists()


@pytest.mark.parametrize("is_reported", [False, True])
async def test_a_pruning_without_an_event_is_journaled_at_the_next_start(
    tmp_path: Path, execution: Path, is_reported: bool
) -> None:
    """A crash after the branches moved: the next start reports it once as `recovered`.

    The state is complete.
    """
    async with dead_end(tmp_path) as past:
        if is_reported:
            await past.client.send(StoreGc(max_count=0))

        await past.server.stop()

    if not is_reported:
        git = GitWitness(execution)
        for ref in (ref for sha in past.may_go for ref in _refs_at(git, sha)):
            if ref.startswith("refs/heads/"):
                git.run("update-ref", ref, f"{past.manual[0]}^")
            else:
                git.run("update-ref", "-d", ref)

    intent = PruneIntent(checkpoints=tuple(past.may_go), started_at="2025-01-04T12:00:00.000Z")
    (execution / ".hankweave" / "prune.intent").write_bytes(codec.encode(intent))
    since = journal(execution)[-1].seq
    for _ in range(2):
        hank = tmp_path / "hank" / "hank.json"
        async with running_server(hank, None, execution, "--no-autostart") as server:
            await _started_again(tmp_path, server, past)
            await server.stop()

    events = events_of(execution, CheckpointPruned, since)
    assert [set(event.checkpoints) for event in events] == ([] if is_reported else [past.may_go])
    assert all(event.recovered for event in events)
    assert events_of(execution, StateRecovered, since) == []
