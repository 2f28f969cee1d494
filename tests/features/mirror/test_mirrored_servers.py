"""The mirror of a real server in a bare repository, as clients and the terminal see it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hankweave_client.client import Client
from hankweave_protocol.commands import (
    CheckpointCreate,
    GetMirrorStatus,
    GetServerStatus,
    MirrorNow,
    MirrorOff,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import ErrorEvent, ServerDegraded, ServerRecovered
from hankweave_protocol.ids import Sha
from hankweave_server.features.mirror.contents import MirrorRepository
from hankweave_server.features.mirror.lease import Lease, taken
from hankweave_server.features.mirror.remote import Remote
from support.command_line import hankweave
from support.mirrors import in_remote, slow_connection
from support.running_server import RunningServer, journal, run_headless, tree
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT, eventually
from support.watching import after_plan, events_of, refused

AT_ONCE = 0.001
"""Seconds in which no push can be made."""


@asynccontextmanager
async def mirrored(bare: Path, lease: str) -> AsyncIterator[tuple[RunningServer, Client]]:
    """Provide a server whose codon has ended, and whose lease has so many seconds."""
    folder = bare.parent
    options = ("--mirror", str(bare), "--mirror-lease", lease)
    hank = write_hank(folder / "hank", codon("one", writes("a.txt", "1")))
    async with after_plan(hank, folder / "execution", *options) as (server, client):
        yield server, client
        await server.stop()


def lease_in(bare: Path) -> Lease:
    return MirrorRepository(bare, None).lease(Sha(in_remote(bare)))


@pytest.mark.command("mirror.status", "mirror.now", "mirror.off")
async def test_a_client_sees_how_far_the_mirror_is_pushes_and_ends_it(bare: Path) -> None:
    """A cut connection is told and so is its end; the server goes on without its mirror."""
    away = bare.with_name("away.git")
    async with mirrored(bare, "3600") as (server, client):
        bare.rename(away)
        await client.send(CheckpointCreate(label="while it is away"))
        degraded = (await client.until(ServerDegraded, timeout=LIMIT)).data
        assert isinstance(degraded, ServerDegraded)
        assert degraded.code == "MIRROR_UNREACHABLE"
        assert str(bare) in degraded.message
        behind = await client.send(GetMirrorStatus())
        assert behind.events_behind > 0
        assert behind.problem is not None
        assert behind.lease_held
        status = await client.send(GetServerStatus())
        assert status.mirror.address == str(bare)
        assert (
            await refused(client, MirrorNow(within_seconds=AT_ONCE))
        ).code == ErrorCode.MIRROR_UNREACHABLE

        assert (
            await refused(client, MirrorOff(within_seconds=AT_ONCE))
        ).code == ErrorCode.MIRROR_UNREACHABLE

        away.rename(bare)
        await client.until(ServerRecovered, timeout=LIMIT)
        now = await client.send(MirrorNow())
        assert now.mirrored_seq > behind.mirrored_seq
        assert now.problem is None

        ended = await client.send(MirrorOff())
        assert (ended.address, ended.released) == (str(bare), True)
        lease = lease_in(bare)
        assert lease.released
        assert lease.last_event_seq >= now.mirrored_seq
        tip = in_remote(bare)
        await client.send(CheckpointCreate(label="without it"))
        assert (await client.send(GetServerStatus())).mirror is None
        assert (await refused(client, GetMirrorStatus())).code == ErrorCode.INVALID_COMMAND

        assert not (server.execution / ".hankweave" / "mirror").exists()

    assert in_remote(bare) == tip
    (journaled,) = events_of(server.execution, ServerDegraded)
    assert journaled == degraded
    assert [each.code for each in events_of(server.execution, ServerRecovered)] == [degraded.code]


async def test_an_expired_lease_is_published_although_the_journal_waits(bare: Path) -> None:
    """Clients hear of it at once; the journal has it when the lease is held again."""
    away = bare.with_name("away.git")
    async with mirrored(bare, "6") as (server, client):
        bare.rename(away)

        async def codes() -> set[str]:
            return {each.code for each in (await client.send(GetServerStatus())).problems}

        async def has_expired() -> bool:
            return await codes() == {"MIRROR_UNREACHABLE", "MIRROR_LEASE_EXPIRED"}

        async def is_well() -> bool:
            return not await codes()

        await eventually(has_expired)
        assert not (await client.send(GetMirrorStatus())).lease_held
        away.rename(bare)
        await eventually(is_well)
        await client.send(CheckpointCreate(label="again"))

    for kind in (ServerDegraded, ServerRecovered):
        codes_told = {each.code for each in events_of(server.execution, kind)}
        assert codes_told == {"MIRROR_UNREACHABLE", "MIRROR_LEASE_EXPIRED"}


def test_only_a_controller_pushes_or_ends_the_mirror() -> None:
    """A viewer may see how it stands."""
    rights = [command.MUTATES for command in (GetMirrorStatus, MirrorNow, MirrorOff)]
    assert rights == [False, True, True]


async def test_the_terminal_shows_and_ends_the_mirror_of_a_server(bare: Path) -> None:
    """`status` has a line about it, too."""
    async with mirrored(bare, "60") as (server, _):
        here = ("-e", str(server.execution))
        now = json.loads(hankweave("mirror", "now", *here, "--json", code=0).stdout)
        assert now["address"] == str(bare)
        shown = hankweave("mirror", *here, code=0).stdout
        assert f"mirror   {bare} (async)" in shown
        assert "behind   " in shown
        assert f":{server.execution}, for " in shown
        assert f"mirror {bare}, " in hankweave("status", *here, code=0).stdout
        ended = hankweave("mirror", "off", *here, code=0)
        assert f"The mirror {bare} has ended" in ended.stdout
        assert "has no mirror" in hankweave("mirror", *here, code=1).stderr


async def test_the_terminal_needs_no_server(bare: Path) -> None:
    """`status` asks the repository and writes nothing; `now` starts a server for that time."""
    execution, here = await ended(bare)
    before = tree(execution)
    status = json.loads(hankweave("mirror", *here, "--json", code=0).stdout)
    assert tree(execution) == before
    lease, newest = lease_in(bare), journal(execution)[-1].seq
    assert (status["mirroredSeq"], status["released"]) == (lease.last_event_seq, lease.released)
    assert (status["ownedHere"], status["eventsBehind"]) == (True, newest - lease.last_event_seq)
    now = json.loads(hankweave("mirror", "now", *here, "--json", code=0).stdout)
    assert now["mirroredSeq"] >= newest


async def test_the_terminal_says_that_an_execution_goes_on_elsewhere(bare: Path) -> None:
    """It names the owner; `off` ends the mirror for this directory, and for no other."""
    execution, here = await ended(bare)
    take_elsewhere(bare)
    shown = hankweave("mirror", *here, code=0).stdout
    assert "it goes on elsewhere" in shown
    assert "lease    elsewhere, not released (epoch 2)" in shown
    tip = in_remote(bare)
    hankweave("mirror", "off", *here, code=0)
    assert in_remote(bare) == tip
    assert not (execution / ".hankweave" / "mirror").exists()
    assert "has no mirror" in hankweave("mirror", "off", *here, code=1).stderr


async def test_the_terminal_says_that_the_mirror_cannot_be_reached(bare: Path) -> None:
    """`status` shows the record all the same, and `off` does not need the repository."""
    _, here = await ended(bare)
    bare.rename(bare.with_name("away.git"))
    shown = hankweave("mirror", *here, code=0).stdout
    assert f"mirror   {bare} (async)" in shown
    assert "problem  fatal: " in shown
    hankweave("mirror", "off", *here, code=0)


@pytest.mark.full
async def test_a_server_that_ends_with_its_plan_has_everything_in_the_mirror(bare: Path) -> None:
    """It waits for what is too much for one push, says so, and releases the lease."""
    large = {"run": "head -c 3000000 /dev/urandom > large.bin"}
    hank = write_hank(bare.parent / "hank", codon("one", large))
    execution = bare.parent / "execution"
    options = ("--mirror", f"ssh://nas{bare}")
    assert await run_headless(hank, execution, *options, env=slow_connection(bare.parent)) == 0
    lease = lease_in(bare)
    assert (lease.released, lease.last_event_seq) == (True, journal(execution)[-1].seq)
    (late,) = events_of(execution, ErrorEvent)
    assert late.message.startswith("The server ends when everything is in the mirror")


async def ended(bare: Path) -> tuple[Path, tuple[str, str]]:
    """Run a mirrored execution to its end; return it, and the option that names it."""
    hank = write_hank(bare.parent / "hank", codon("one", writes("a.txt", "1")))
    execution = bare.parent / "execution"
    assert await run_headless(hank, execution, "--mirror", str(bare)) == 0
    return execution, ("-e", str(execution))


def take_elsewhere(bare: Path) -> None:
    """Take the lease as another machine does."""
    repository = MirrorRepository(bare.with_name("elsewhere"), None)
    remote = Remote(str(bare), repository.path, os.environ)
    tip = remote.fetch(LIMIT)
    former = repository.lease(tip)
    lease = taken(
        former, execution_id=former.execution_id, owner="elsewhere", nonce="n", ttl=former.ttl
    )
    assert remote.push(repository.retaken(tip, lease), tip, LIMIT).outcome == "done"
