"""Rollbacks that cannot start, or stop midway, in one process: faults occur at exact moments.

Components and disk are real. The plan or the restore fails, and only as often as a test says.
"""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import (
    FileUpdated,
    Info,
    RollbackCompleted,
)
from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.transitions import TravelsForgotten
from hankweave_server import fsutil
from hankweave_server.checkpoints.errors import CheckpointDamaged
from hankweave_server.checkpoints.model import Damage
from hankweave_server.domain import targets
from hankweave_server.execution.rollback.planner import RollbackRequest
from hankweave_server.execution.rollback.restoration import CutShort, Restoration
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.ledger import writer
from support.copies import copy_execution
from support.rollback_room import Room, a_room, served
from support.running_server import journal
from support.waiting import LIMIT, eventually


def full(room: Room, monkeypatch: pytest.MonkeyPatch, *, until: Callable[[], bool]) -> None:
    """Refuse restored files with a full disk until `until` is true."""
    restore = room.engine.restore

    def maybe(*words: Any, **more: Any) -> Any:
        if until():
            return restore(*words, **more)

        raise InsufficientSpace(100, 10)

    monkeypatch.setattr(room.engine, "restore", maybe)


async def cut_short(room: Room, monkeypatch: pytest.MonkeyPatch) -> RollbackRequest:
    """Leave a rollback as a full disk does, with its intent; return the request."""
    rollback_request = room.rollback_request
    with monkeypatch.context() as patch:
        full(room, patch, until=lambda: False)
        with pytest.raises(CutShort):
            await room.rollback.perform(rollback_request)

    assert room.is_intended
    assert room.ctx.guard.is_half_restored
    return rollback_request


async def test_a_rollback_whose_target_is_gone_cannot_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rollback is given up and reported, its intent is kept under another name, no file is
    changed, and no codon runs until a rollback to another target succeeds."""
    async with a_room(tmp_path) as room:
        rollback_request = await cut_short(room, monkeypatch)
        del room.ctx.checkpointer.known[rollback_request.sha]
        assert await room.rollback.finish_interrupted() is None
        assert not room.is_intended
        assert len(list(room.ctx.layout.state_directory.glob("rollback.intent.given-up-*"))) == 1
        assert "safety checkpoint" in (await room.failures())[-1]
        assert room.ctx.guard.is_half_restored
        assert room.file.read_text() == "second"


async def test_an_edit_made_since_a_rollback_was_cut_short_is_a_persons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content that its checkpoints have at a path is no edit, whether or not it was restored."""
    async with a_room(tmp_path, "edited.txt") as room:
        await cut_short(room, monkeypatch)
        edited = room.ctx.layout.work_tree / "edited.txt"
        edited.write_text("since")
        await room.rollback.finish_interrupted()
        assert room.file.read_text() == "first"
        assert edited.read_text() == "since"
        assert set(room.ctx.state.edits) == {"edited.txt"}


async def test_the_undo_of_a_rollback_that_a_start_finished_leaves_what_the_start_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes back what was restored, also if a first start was cut short as well."""
    async with a_room(tmp_path, "edited.txt", "later.txt") as room:
        await cut_short(room, monkeypatch)
        edited, later = (room.ctx.layout.work_tree / f"{name}.txt" for name in ("edited", "later"))
        edited.write_text("since")
        with monkeypatch.context() as patch:
            full(room, patch, until=lambda: False)
            with pytest.raises(CutShort):
                await room.rollback.finish_interrupted()

        later.write_text("since the first start")
        report = await room.rollback.finish_interrupted()
        assert report is not None
        assert {each.path for each in report.kept} == {"edited.txt", "later.txt"}
        await room.undo()
        assert room.file.read_text() == "second"
        assert edited.read_text() == "since"
        assert later.read_text() == "since the first start"


async def test_a_disk_that_breaks_under_a_rollback_leaves_its_intent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised and ends the server, no codon may start, and the next start finishes the
    rollback."""
    async with a_room(tmp_path) as room:

        def broken(*_: Any, **__: Any) -> Any:
            raise ShadowRepositoryError("Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(room.engine, "restore", broken)
            with pytest.raises(ShadowRepositoryError):
                await room.rollback.perform(room.rollback_request)

        assert room.is_intended
        assert room.ctx.guard.is_half_restored
        assert await room.failures() == []
        await room.rollback.finish_interrupted()
        assert room.file.read_text() == "first"
        assert not room.ctx.guard.is_half_restored


@pytest.mark.parametrize("early", [False, True], ids=["late", "early"])
async def test_what_a_crash_leaves_at_each_step_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    """The safety checkpoint and the intent may be on the disk without a line of the journal; the
    person's edit that was found before them is in the write-ahead log then. When the state is due
    to be saved meanwhile, the journal has it early. What follows is written in one piece or more.
    """
    for due in ("SAVE_SECONDS", "SETTLE_SECONDS"):
        monkeypatch.setattr(writer, due, 10_000.0)

    moments = list[Path]()
    # A save of state.json that is due takes along what waits for the end of the rollback.
    monkeypatch.setattr(writer, "SAVE_SECONDS", 3600.0)
    monkeypatch.setattr(writer, "SETTLE_SECONDS", 3600.0)

    def is_complete(moment: Path) -> bool:
        return RollbackCompleted in [type(event.data) for event in journal(moment / "execution")]

    def copy_before(place: object, name: str) -> None:
        real = getattr(place, name)

        def copied(*words: Any, **more: Any) -> Any:
            if early and name == "restore":
                anyio.from_thread.run(room.ctx.ledger.flush)

            moments.append(tmp_path / f"{len(moments)} {name}")
            copy_execution(tmp_path / "execution", moments[-1] / "execution")
            return real(*words, **more)

        patch.setattr(place, name, copied)

    async with a_room(tmp_path) as room:
        before = len(journal(room.ctx.layout.root))
        with monkeypatch.context() as patch:
            copy_before(room.engine, "restore")
            copy_before(fsutil, "sync_filesystem")  # The files are restored; HEAD has not moved.
            copy_before(room.ctx.ledger._journal, "append")
            copy_before(room.engine.intent, "forget")
            await room.rollback.perform(room.rollback_request)
            assert not room.is_intended

    names = [moment.name.split()[1] for moment in moments]
    restore = names.index("restore")
    assert names[:restore] == ["append"] * early
    assert [name for name in names if name != "append"] == [
        "restore",
        "sync_filesystem",
        "forget",
    ]
    assert names[-2:] == ["append", "forget"]
    assert (len(journal(moments[restore] / "execution")) == before) == (not early)
    assert is_complete(moments[-1])
    for moment in moments:
        shutil.copytree(tmp_path / "hank", moment / "hank")
        was_complete = is_complete(moment)
        async with served(moment) as room:
            assert room.is_intended
            recovered = await room.recovery.recover()
            assert recovered.finished_rollback == (not was_complete)
            assert room.file.read_text() == "first"
            assert not room.is_intended
            assert len(room.ctx.state.undo) == 1
            assert len(await room.events_of(RollbackCompleted)) == 1
            assert len(await room.events_of(FileUpdated)) == 1


@pytest.mark.parametrize("paths", [None, frozenset({b"a.txt"})], ids=["all", "paths"])
async def test_an_intent_that_comes_back_much_later_is_never_carried_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: frozenset[bytes] | None
) -> None:
    """Its removal is not flushed. The state may have forgotten the rollback by then."""
    async with a_room(tmp_path) as room:
        rollback_request = dataclasses.replace(room.rollback_request, paths=paths)
        with monkeypatch.context() as patch:
            patch.setattr(room.engine.intent, "forget", lambda content: None)
            await room.rollback.perform(rollback_request)

        (travel,) = room.ctx.state.undo
        ledger = room.ctx.ledger
        await ledger.record(TravelsForgotten(operation_ids=(travel.operation_id,)))
        await ledger.record(*(Info(message="work") for _ in range(1500)))
        room.file.write_text("what followed")
        after = ledger.last_seq
        assert room.is_intended
        assert await room.rollback.finish_interrupted() is None
        assert not room.is_intended
        assert room.file.read_text() == "what followed"
        assert ledger.last_seq == after


async def test_a_retry_whose_intent_comes_back_much_later_is_not_carried_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry is nowhere but in the journal, however long ago."""
    async with a_room(tmp_path) as room:
        rollback_request = dataclasses.replace(room.rollback_request, direction="retry")
        with monkeypatch.context() as patch:
            patch.setattr(room.engine.intent, "forget", lambda content: None)
            await room.rollback.perform(rollback_request)

        await room.ctx.ledger.record(*(Info(message="work") for _ in range(1500)))
        room.file.write_text("what followed")
        assert await room.rollback.finish_interrupted() is None
        assert not room.is_intended
        assert room.file.read_text() == "what followed"


async def test_a_preview_names_an_edit_that_no_checkpoint_holds(tmp_path: Path) -> None:
    """A person's edit since the last checkpoint is in danger before the journal knows of it."""
    async with a_room(tmp_path) as room:
        assert not room.ctx.state.edits
        asked = dataclasses.replace(room.rollback_request, keep_edits=True)
        preview = await room.rollback.preview(asked)
        assert [file.path for file in preview.conflicts] == ["a.txt"]
        assert [file.path for file in preview.kept] == ["a.txt"]
        assert preview.updated == ()


async def test_the_intent_of_a_retry_stands_while_its_files_are_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash in between leaves it to the next start; afterwards it is gone."""
    async with a_room(tmp_path) as room:
        start = targets.AttemptStart(room.rollback_request.target.checkpoint, rig=None)
        monkeypatch.setattr(targets, "attempt_start", lambda *_: start)
        intended, restore = list[bool](), room.engine.restore

        def noted(*words: Any, **more: Any) -> Any:
            intended.append(room.is_intended)
            return restore(*words, **more)

        monkeypatch.setattr(room.engine, "restore", noted)
        await Restoration(room.ctx).before_retry(CodonId("one"))
        assert intended == [True]
        assert not room.is_intended


async def test_what_a_full_disk_cut_short_is_finished_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's request was refused, but the rollback completes without another request."""
    room_there = False
    async with a_room(tmp_path) as room, anyio.create_task_group() as tasks:
        tasks.start_soon(room.rollback.finish_when_space_is_free)
        await anyio.lowlevel.checkpoint()
        full(room, monkeypatch, until=lambda: room_there)
        with pytest.raises(CutShort):
            await room.rollback.perform(room.rollback_request)

        assert room.is_intended
        assert "when disk space is available" in (await room.failures())[0]
        room_there = True
        await eventually(lambda: not (room.ctx.guard.is_half_restored or room.is_intended))
        assert room.file.read_text() == "first"
        tasks.cancel_scope.cancel()


async def test_an_intent_that_is_given_up_later_keeps_codons_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the target is gone when the disk has space again, the rollback is given up, and no codon
    starts on the half-restored files."""
    room_there = False
    async with a_room(tmp_path) as room, anyio.create_task_group() as tasks:
        tasks.start_soon(room.rollback.finish_when_space_is_free)
        await anyio.lowlevel.checkpoint()
        full(room, monkeypatch, until=lambda: room_there)
        rollback_request = room.rollback_request
        with pytest.raises(CutShort):
            await room.rollback.perform(rollback_request)

        del room.ctx.checkpointer.known[rollback_request.sha]
        room_there = True
        await eventually(lambda: not room.is_intended)
        await anyio.wait_all_tasks_blocked()
        assert room.ctx.guard.is_half_restored
        with pytest.raises(Refused) as refused:
            room.runner.start(CodonId("one"))

        assert refused.value.code is ErrorCode.ROLLBACK_IN_PROGRESS
        tasks.cancel_scope.cancel()


NOWHERE = Sha("0" * 40)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (
            CheckpointDamaged(NOWHERE, (Damage(NOWHERE, "blob", b"a.txt", (NOWHERE,)),)),
            ErrorCode.CHECKPOINT_DAMAGED,
        ),
        (InsufficientSpace(100, 10), ErrorCode.INSUFFICIENT_SPACE),
    ],
)
async def test_what_the_plan_finds_is_refused_before_anything_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception, code: ErrorCode
) -> None:
    """No file changes, no intent or safety checkpoint remains, and the next codon may run."""
    async with a_room(tmp_path) as room:

        def plan_restore(*_: Any, **__: Any) -> Any:
            raise fault

        monkeypatch.setattr(room.engine, "plan_restore", plan_restore)
        known = dict(room.ctx.checkpointer.known)
        with pytest.raises(Refused) as refused:
            await room.rollback.perform(room.rollback_request)

        assert refused.value.code is code
        assert room.ctx.checkpointer.known == known
        assert room.file.read_text() == "second"
        assert not room.is_intended
        assert not room.ctx.guard.is_half_restored


async def test_a_target_that_a_gc_took_meanwhile_is_refused(tmp_path: Path) -> None:
    """The target was resolved, but is gone when the plan is made."""
    async with a_room(tmp_path) as room:
        rollback_request = room.rollback_request
        del room.ctx.checkpointer.known[rollback_request.sha]
        with pytest.raises(Refused) as refused:
            await room.rollback.preview(rollback_request)

    assert refused.value.code is ErrorCode.CHECKPOINT_NOT_FOUND


async def test_a_rollback_does_not_wait_for_the_removal_of_its_intent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is in the journal; the intent goes while the reply is on its way."""
    async with a_room(tmp_path) as room, anyio.create_task_group() as services:
        services.start_soon(room.rollback.clean_up)
        await anyio.wait_all_tasks_blocked()
        goes_on = threading.Event()
        forget = room.engine.intent.forget

        def slow(content: bytes) -> None:
            assert goes_on.wait(LIMIT)
            forget(content)

        monkeypatch.setattr(room.engine.intent, "forget", slow)
        await room.rollback.perform(room.rollback_request)
        assert room.is_intended
        assert len(await room.events_of(RollbackCompleted)) == 1
        goes_on.set()
        await eventually(lambda: not room.is_intended)
        services.cancel_scope.cancel()


async def test_the_end_of_the_server_removes_the_intent_of_a_finished_rollback(
    tmp_path: Path,
) -> None:
    """Even if it ends before the reply is sent."""
    async with a_room(tmp_path) as room:
        async with anyio.create_task_group() as services:
            services.start_soon(room.rollback.clean_up)
            await anyio.wait_all_tasks_blocked()
            await room.rollback.perform(room.rollback_request)
            services.cancel_scope.cancel()

        assert not room.is_intended
