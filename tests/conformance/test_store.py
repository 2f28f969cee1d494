"""Hazards of the store, through the engine and the server: damage, leftovers, traps, full disks."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pytest

from conformance.case import assert_same, values
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.git.errors import ShadowRepositoryError
from support.checkpointing import EngineAccess, Refusal, ServerAccess, StoreAccess, witness
from support.damage import unpack
from support.small_disk import small_disk
from support.work_tree import chmod, delete, folder, link, write

MEBIBYTE = 1 << 20

through_both = pytest.mark.parametrize("kind", ["engine", "server"])


@asynccontextmanager
async def opened(kind: str, place: Path, **variables: str) -> AsyncIterator[StoreAccess]:
    """Open an execution whose only codon, which tracks everything, has run."""
    root = place / "place" / "execution"
    store = EngineAccess(root) if kind == "engine" else ServerAccess(root, variables=variables)
    await store.begin()
    try:
        if isinstance(store, ServerAccess):
            await store.track()

        yield store
    finally:
        await store.end()


# Damage


@dataclass(frozen=True)
class Place:
    """The position of one object's bytes in the repository."""

    file: Path
    begin: int
    end: int

    @classmethod
    def of(cls, store: StoreAccess, revision: str) -> Place:
        git = witness(store.layout)
        digest = git.run("rev-parse", revision).strip()
        objects = store.layout.shadow_repository / "objects"
        loose = objects / digest[:2] / digest[2:]
        if loose.exists():
            return cls(loose, 0, loose.stat().st_size)

        for index in (objects / "pack").glob("*.idx"):
            for line in git.run("verify-pack", "-v", str(index.absolute())).splitlines():
                if line.startswith(digest):
                    packed, offset = (int(word) for word in line.split()[3:5])
                    return cls(index.with_suffix(".pack"), offset, offset + packed)

        raise AssertionError(f"{revision} is nowhere")


def filled_with_zeros(place: Place) -> None:
    with _writing(place) as stream:
        stream.write(bytes(place.end - place.begin))


def one_bit_flipped(place: Place) -> None:
    with _writing(place) as stream:
        middle = (place.begin + place.end) // 2
        stream.seek(middle)
        byte = stream.read(1)[0]
        stream.seek(middle)
        stream.write(bytes([byte ^ 1]))


def cut_short(place: Place) -> None:
    with _writing(place) as stream:
        stream.truncate(place.end - 3)


def deleted_file(place: Place) -> None:
    place.file.unlink()


def _writing(place: Place) -> BinaryIO:
    place.file.chmod(0o600)
    stream = place.file.open("r+b")
    stream.seek(place.begin)
    return stream


@pytest.mark.parametrize("revision", ["d/b", "d"], ids=["blob", "folder"])
@pytest.mark.parametrize("damage", [filled_with_zeros, one_bit_flipped, cut_short, deleted_file])
@through_both
async def test_a_damaged_checkpoint_is_refused(kind, damage, revision, tmp_path):
    """A rollback to a checkpoint with one unreadable object moves nothing at all."""
    async with opened(kind, tmp_path) as store:
        store.tree.apply(write("a", b"1"), write("d/b", os.urandom(500)), write("d/c", b"3"))
        made = await store.checkpoint()
        store.tree.apply(write("a", b"2"), delete("d"), write("new"))
        await store.checkpoint()
        before = store.tree.picture()
        await store.end()
        unpack(store.layout.shadow_repository)
        damage(Place.of(store, f"{made.sha}:{revision}"))
        await store.begin()

        with pytest.raises(Refusal) as refused:
            await store.rollback(made.sha)

        assert refused.value.code == ErrorCode.CHECKPOINT_DAMAGED
        assert_same("the tree", store.tree.picture(), before)
        assert not store.layout.rollback_intent.exists()


@pytest.mark.parametrize("damage", [filled_with_zeros, cut_short, deleted_file])
async def test_a_lost_pack_is_called_damage(damage, tmp_path):
    """A lost commit cannot be rolled back to, and the list of commits omits it."""
    store = EngineAccess(tmp_path / "place" / "execution")
    await store.begin()
    store.tree.apply(*(write(f"f{i}", b"%d" % i) for i in range(50)))
    made = await store.checkpoint()
    store.tree.apply(delete("f1"), write("f2", b"other"))
    before = store.tree.picture()
    await store.end()
    damage(Place.of(store, made.sha))
    await store.begin()

    with pytest.raises((CheckpointDamaged, CheckpointNotFound, ShadowRepositoryError)):
        store.engine.plan_restore(Sha(made.sha), ("**",))

    assert made.sha not in {commit.sha for commit in store.engine.commits()}

    assert_same("the tree", store.tree.picture(), before)
    await store.end()


async def test_a_server_that_lost_a_pack_answers_in_a_sentence(tmp_path):
    """The server starts and refuses unreadable checkpoints, or ends with a message.

    It prints no traceback.
    """
    async with opened("server", tmp_path) as store:
        store.tree.apply(*(write(f"f{i}", b"%d" % i) for i in range(50)))
        made = await store.checkpoint()
        await store.end()
        deleted_file(Place.of(store, made.sha))

        try:
            await store.begin()
        except AssertionError as did_not_start:
            assert "Traceback" not in str(did_not_start)  # noqa: PT017  # Either is an answer.
            return

        with pytest.raises(Refusal) as refused:
            await store.rollback(made.sha)

        assert refused.value.code in (
            ErrorCode.CHECKPOINT_DAMAGED,
            ErrorCode.CHECKPOINT_NOT_FOUND,
        )


@through_both
async def test_damage_under_a_living_server_is_refused(kind, tmp_path):
    """Bytes that are damaged while the repository is open are detected as well."""
    async with opened(kind, tmp_path) as store:
        store.tree.apply(write("a", os.urandom(500)), write("b"))
        made = await store.checkpoint()
        store.tree.apply(write("a", b"2"), delete("b"))
        before = store.tree.picture()
        one_bit_flipped(Place.of(store, f"{made.sha}:a"))

        with pytest.raises(Refusal) as refused:
            await store.rollback(made.sha)

        assert refused.value.code == ErrorCode.CHECKPOINT_DAMAGED
        assert_same("the tree", store.tree.picture(), before)


@through_both
async def test_damage_elsewhere_does_not_stop_a_rollback(kind, tmp_path):
    """A checkpoint whose own objects are readable is restored although another one is damaged."""
    async with opened(kind, tmp_path) as store:
        store.tree.apply(write("a", b"good"))
        good = await store.checkpoint()
        then = values(store.tree.picture())
        store.tree.apply(write("a", b"bad" * 100))
        bad = await store.checkpoint()
        store.tree.apply(write("a", b"now"))
        filled_with_zeros(Place.of(store, f"{bad.sha}:a"))

        await store.rollback(good.sha)

        assert_same("the tree", values(store.tree.picture()), then)


# The cache


def deleted(path: Path) -> None:
    path.unlink(missing_ok=True)


def random_bytes(path: Path) -> None:
    path.write_bytes(os.urandom(3000))


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("fate", [deleted, random_bytes, truncated, emptied, flipped])
@through_both
async def test_the_scan_cache_is_only_a_cache(kind, fate, tmp_path):
    """A scan cache that is deleted, cut or corrupted between two server runs changes no result."""
    async with opened(kind, tmp_path) as store:
        store.tree.apply(*(write(f"d{i % 5}/f{i}", b"%d" % i) for i in range(60)))
        first = await store.checkpoint()
        then = values(store.tree.picture())
        await store.end()
        fate(store.layout.scan_cache)
        store.tree.apply(write("d1/f1", b"x"), delete("d2/f2"), write("d3/new"))
        await store.begin()

        second = await store.checkpoint()
        changed = witness(store.layout).run("diff", "--name-only", first.sha, second.sha).split()
        await store.rollback(first.sha)

        assert changed == ["d1/f1", "d2/f2", "d3/new"]
        assert_same("the tree", values(store.tree.picture()), then)
        witness(store.layout).assert_sound()


# Leftovers


@through_both
async def test_leftover_locks_and_temporaries_stop_nothing(kind, tmp_path):
    """Leftovers of a killed git or server in the repository are cleared at the start."""
    async with opened(kind, tmp_path) as store:
        store.tree.apply(write("a", b"1"))
        made = await store.checkpoint()
        then = values(store.tree.picture())
        await store.end()
        repository = store.layout.shadow_repository
        leftovers = [
            *(repository / name for name in ("index.lock", "HEAD.lock", "config.lock")),
            *(repository / name for name in ("packed-refs.lock", "refs/heads/run-x.lock")),
            repository / "objects" / "pack" / "tmp_pack_abc",
            repository / "objects" / "tmp_obj_abc",
        ]
        for leftover in leftovers:
            leftover.parent.mkdir(exist_ok=True)
            leftover.write_text("left")

        await store.begin()
        store.tree.apply(write("a", b"2"))
        await store.checkpoint()
        await store.rollback(made.sha)

        assert_same("the tree", values(store.tree.picture()), then)
        assert [path.name for path in leftovers if path.exists()] == []
        witness(store.layout).assert_sound()


# Traps


@through_both
async def test_no_hook_monitor_or_filter_ever_runs(kind, tmp_path, monkeypatch):
    """Programs planted in the repository, in the user's home and in attributes never run."""
    canary = tmp_path / "canary"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {canary}\ncat\n")
    program.chmod(0o755)
    home = tmp_path / "home"
    (home / "git").mkdir(parents=True)
    trap = (
        f"[core]\n\tfsmonitor = {program}\n\thooksPath = {tmp_path}/hooks\n\tautocrlf = true\n"
        f"\texcludesFile = {home}/ignored\n\tattributesFile = {home}/attributes\n"
        f'[filter "x"]\n\tclean = {program}\n\tsmudge = {program}\n\trequired = true\n'
        f"[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = {program}\n"
    )
    (home / ".gitconfig").write_text(trap)
    (home / "git" / "config").write_text(trap)
    (home / "ignored").write_text("*\n")
    (home / "attributes").write_text("* filter=x text eol=crlf\n")
    for name, value in (("HOME", home), ("XDG_CONFIG_HOME", home)):
        monkeypatch.setenv(name, str(value))

    async with opened(kind, tmp_path, HOME=str(home), XDG_CONFIG_HOME=str(home)) as store:
        await store.end()
        for hooks in (tmp_path / "hooks", store.layout.shadow_repository / "hooks"):
            hooks.mkdir(exist_ok=True)
            for name in ("pre-commit", "post-checkout", "reference-transaction", "post-commit"):
                (hooks / name).write_text(f"#!/bin/sh\ntouch {canary}\n")
                (hooks / name).chmod(0o755)

        with (store.layout.shadow_repository / "config").open("a") as config:
            config.write(trap)

        await store.begin()
        store.tree.apply(write(".gitattributes", b"* filter=x\n"), write("a", b"1\r\n2\n"))
        made = await store.checkpoint()
        then = values(store.tree.picture())
        store.tree.apply(write("a", b"other"), delete(".gitattributes"))

        await store.rollback(made.sha)

        assert_same("the tree", values(store.tree.picture()), then)
        assert witness(store.layout).blob(made.sha, "a") == b"1\r\n2\n"
        assert not canary.exists()


# Repetition


@through_both
async def test_a_second_rollback_to_the_same_checkpoint_does_nothing(kind, tmp_path):
    """A second rollback to the same checkpoint names no path and changes no inode or mtime."""
    async with opened(kind, tmp_path) as store:
        store.tree.apply(write("a", b"1", 0o600), link("l", "a"), folder("e"), write("d/b"))
        made = await store.checkpoint()
        store.tree.apply(write("a", b"2"), delete("l", "d", "e"))
        await store.rollback(made.sha)
        once = store.tree.picture()

        again = await store.rollback(made.sha)

        assert (again.touched, again.skipped) == (set(), {})
        assert_same("the tree", store.tree.picture(), once)


@through_both
async def test_there_and_back_again(kind, tmp_path):
    """Each of several checkpoints is restored exactly, in any order."""
    async with opened(kind, tmp_path) as store:
        moments = []
        for step in (
            (write("a", b"1"), write("d/b", b"1"), link("l", "a")),
            (delete("a"), folder("a"), write("l2", b""), chmod("d/b", 0o755)),
            (delete("d", "l"), write("l/in", b"1"), link("d", "nowhere")),
            (delete("d", "a"), write("a", b"file"), write("d", b"file", 0o400)),
        ):
            store.tree.apply(*step)
            made = await store.checkpoint()
            moments.append((made.sha, values(store.tree.picture())))

        for turn in (0, 2, 1, 3, 0, 1, 2, 3, 1):
            sha, then = moments[turn]
            await store.rollback(sha)
            assert_same("the tree", values(store.tree.picture()), then)


@through_both
async def test_a_checkpoint_of_nothing_new_is_one_too(kind, tmp_path):
    """A checkpoint without changes is a new commit of the same tree, and adds no file object."""
    async with opened(kind, tmp_path) as store:
        store.tree.apply(write("a", b"1"))
        one, other = await store.checkpoint(), await store.checkpoint()

        git = witness(store.layout)
        assert one.sha != other.sha
        assert git.run("rev-parse", f"{one.sha}^{{tree}}") == git.run(
            "rev-parse", f"{other.sha}^{{tree}}"
        )
        assert git.run("rev-parse", f"{other.sha}^").strip() == one.sha


@through_both
async def test_everything_survives_a_kill(kind, tmp_path):
    """An acknowledged checkpoint is restored exactly after `kill -9`."""
    async with opened(kind, tmp_path) as store:
        store.tree.apply(write("a", b"1", 0o600), folder("e", 0o700), write("x/y", b"2"))
        made = await store.checkpoint()
        then = values(store.tree.picture())
        store.tree.apply(write("a", b"2", 0o644), delete("e", "x"), write("b"))
        await store.checkpoint()
        await store.restart(kill=True)

        await store.rollback(made.sha)

        assert_same("the tree", values(store.tree.picture()), then)
        witness(store.layout).assert_sound()


# Space


@through_both
async def test_too_little_space_is_refused_before_anything_moves(kind, tmp_path):
    """With less space than the rollback writes, nothing moves; with enough space, it works."""
    with small_disk(tmp_path / "disk", f"size={64 * MEBIBYTE},mode=700") as disk:
        async with opened(kind, disk) as store:
            store.tree.apply(write("big", b"much " * (5 * MEBIBYTE)), write("a", b"1"))
            made = await store.checkpoint()
            then = values(store.tree.picture())
            store.tree.apply(delete("big"), write("a", b"2"))
            before = store.tree.picture()
            filler = disk / "filler"
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            filler.write_bytes(bytes(free - 20 * MEBIBYTE))

            with pytest.raises(Refusal) as refused:
                await store.rollback(made.sha)

            assert refused.value.code == ErrorCode.INSUFFICIENT_SPACE
            assert_same("the tree", store.tree.picture(), before)
            filler.unlink()
            await store.rollback(made.sha)
            assert_same("the tree", values(store.tree.picture()), then)


# Constant change


@through_both
async def test_a_file_that_grows_while_it_is_read(kind, tmp_path):
    """Each checkpoint of a growing log holds a prefix of it, and is restored as that prefix."""
    async with opened(kind, tmp_path) as store:
        store.tree.apply(write("log", b""), write("a", b"1"))
        stop = threading.Event()
        writer = threading.Thread(target=_keep_a_log, args=(store.tree.at("log"), stop))
        writer.start()
        try:
            made = [await store.checkpoint() for _ in range(8)]
        finally:
            stop.set()
            writer.join()

        whole = Path(os.fsdecode(store.tree.at("log"))).read_bytes()
        git = witness(store.layout)
        blobs = [git.blob(one.sha, "log") for one in made]
        assert all(whole.startswith(blob) for blob in blobs)
        assert blobs == sorted(blobs, key=len)
        assert {reason for one in made for reason in one.skipped.values()} <= {"unstable"}
        await store.rollback(made[3].sha)
        assert Path(os.fsdecode(store.tree.at("log"))).read_bytes() == blobs[3]
        git.assert_sound()


def _keep_a_log(path: bytes, stop: threading.Event) -> None:
    line = 0
    with open(path, "ab", buffering=0) as log:
        while not stop.wait(0.0002) and line < 20_000:
            line += 1
            log.write(b"line %d %s\n" % (line, b"x" * 400))
