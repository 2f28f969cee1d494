"""Rollbacks that meet paths that they cannot change: those are named, and all others are done.

Components and disk are real. A system call is refused for one path, at the lowest level.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hankweave_protocol.commands import RollbackRedo, RollbackUndo
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import (
    CheckpointRollback,
    Info,
    RollbackCompleted,
    RollbackFailed,
    ServerIdle,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import CheckpointRecord, RollbackReport
from hankweave_protocol.transitions import EditsNoticed
from hankweave_server.api.rollback import Rollbacks
from hankweave_server.cli.output.event_lines import event_line
from hankweave_server.cli.output.rollback_report import draw_report, end_with_exceptions
from hankweave_server.domain import targets
from hankweave_server.execution.event_log import log_line
from hankweave_server.execution.rollback.restoration import NotAsBefore, Restoration
from hankweave_server.paths import Layout
from hankweave_server.worktree import scan
from hankweave_server.worktree.obstacles import Obstacle, Obstacles
from support.callers import A_REQUEST
from support.components import by_hand
from support.events import a_file_change, an_event
from support.refused_calls import (
    STEPS,
    change,
    lay_out_target,
    left_by,
    refused,
    snapshot,
)
from support.rollback_room import Room, a_room, served
from support.scripted_hank import codon, write_hank


@asynccontextmanager
async def a_changed_tree(tmp_path: Path) -> AsyncIterator[Room]:
    write_hank(tmp_path / "hank", codon("one"))
    layout = Layout.of_execution(tmp_path / "execution")
    layout.work_tree.mkdir(parents=True)
    lay_out_target(layout.work_tree)
    async with served(tmp_path) as room:
        change(room.ctx.layout.work_tree)
        await by_hand(room.ctx.checkpointer, room.ctx.state.runs[0].run_id)
        yield room


def check(report: RollbackReport, path: str, *, only_permissions: bool) -> None:
    (found,) = report.cannot_restore
    assert (found.path, found.errno) == (path, "EPERM")
    assert path in found.sentence
    assert "Operation not permitted" in found.sentence
    assert found.content_differs == (not only_permissions)


@pytest.mark.parametrize("is_undo", [False, True], ids=["rollback", "undo"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_refused_path_is_named_and_undo_takes_back_what_was_done(
    tmp_path: Path, step: str, is_undo: bool
) -> None:
    """All others are restored, and the rollback is complete: nothing is left for the next start."""
    call, *victims = STEPS[step]
    victim = victims[is_undo]
    named = f"{victim}/inner" if call == "mkdir" else victim
    async with a_changed_tree(tmp_path) as room:
        top = room.ctx.layout.work_tree
        api = Rollbacks(room.ctx, room.rollback)
        now = snapshot(top)
        await room.rollback.perform(room.rollback_request)
        there = snapshot(top)
        if not is_undo:
            await api.undo_or_redo(RollbackUndo(), A_REQUEST)

        before, wanted = (there, now) if is_undo else (now, there)
        with refused(call, os.fsencode(victim), errno.EPERM):
            if is_undo:
                report = await api.undo_or_redo(RollbackUndo(), A_REQUEST)
            else:
                report = await room.rollback.perform(room.rollback_request)

        assert snapshot(top) == left_by(victim, call, before, wanted)
        check(report, named, only_permissions=call == "chmod")
        assert not room.is_intended
        assert not room.ctx.guard.is_half_restored
        await api.undo_or_redo(RollbackRedo() if is_undo else RollbackUndo(), A_REQUEST)
        assert snapshot(top) == before
        assert await room.failures() == []


@pytest.mark.parametrize("call", ["open", "symlink", "rename"])
async def test_any_number_of_paths_may_be_refused(tmp_path: Path, call: str) -> None:
    """More of them than there are temporary names are all reported, and the rest is done."""
    async with a_changed_tree(tmp_path) as room:
        with refused(call, None, errno.EACCES):
            report = await room.rollback.perform(room.rollback_request)

        assert report.counts.cannot_restore == {"open": 23, "symlink": 1, "rename": 26}[call]
        assert {each.errno for each in report.cannot_restore} == {"EACCES"}
        assert (room.ctx.layout.work_tree / "folder").stat().st_mode & 0o777 == 0o755


async def test_the_exceptions_are_in_the_event_and_in_the_reply(tmp_path: Path) -> None:
    """A client learns of them without asking, and the count tells it that there are some."""
    async with a_changed_tree(tmp_path) as room:
        with refused("rename", b"file", errno.EPERM):
            report = await room.rollback.perform(room.rollback_request)

        (event,) = await room.events_of(RollbackCompleted)
        assert (event.exceptions, event.report) == (1, report)
        assert "file" not in [each.path for each in report.updated]
        (files,) = await room.events_of(CheckpointRollback)
        assert files.exceptions == 1


@pytest.mark.parametrize("window_ns", [scan.RACY_WINDOW_NS, 1 << 62], ids=["settled", "racy"])
async def test_a_file_that_could_not_be_restored_is_no_edit_of_a_person(
    tmp_path: Path, window_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the cause is gone, another rollback restores it, also with `keepEdits`.

    Nor is it one right after it was written, when no stat data can be trusted.
    """
    monkeypatch.setattr(scan, "RACY_WINDOW_NS", window_ns)
    async with a_changed_tree(tmp_path) as room:
        with refused("rename", b"file", errno.EPERM):
            await room.rollback.perform(room.rollback_request)

        report = await room.rollback.perform(replace(room.rollback_request, keep_edits=True))
        assert [file.path for file in report.updated] == ["file"]
        assert report.conflicts == ()
        await room.undo()
        await room.undo()
        assert (room.ctx.layout.work_tree / "only-here").exists()


async def test_an_edit_that_could_not_be_taken_back_is_still_one(tmp_path: Path) -> None:
    """A person's content stays, so it remains theirs for whatever comes next."""
    async with a_changed_tree(tmp_path) as room:
        edited = room.ctx.layout.work_tree / "file"
        edited.write_text("a person's")
        with refused("rename", b"file", errno.EPERM):
            report = await room.rollback.perform(room.rollback_request)

        assert report.in_words is None
        report = await room.rollback.perform(replace(room.rollback_request, keep_edits=True))
        assert [kept.path for kept in report.kept] == ["file"]
        assert edited.read_text() == "a person's"


async def test_an_edit_that_an_undo_could_not_bring_back_is_none(tmp_path: Path) -> None:
    """The content is that of the checkpoint, which no person wrote."""
    async with a_changed_tree(tmp_path) as room:
        (room.ctx.layout.work_tree / "file").write_text("a person's")
        report = await room.rollback.perform(room.rollback_request)
        assert "Took back 1 edit by people: file" in str(report.in_words)
        assert "file" not in room.ctx.state.edits
        with refused("rename", b"file", errno.EPERM):
            await room.undo()

        assert "file" not in room.ctx.state.edits


async def test_the_terminal_names_them_and_ends_with_its_own_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A preview has what can be foreseen, and leaves it out of what would change."""
    async with a_changed_tree(tmp_path) as room:
        with monkeypatch.context() as patch:
            seen = Obstacle("immutable", errno.EPERM)
            patch.setattr(Obstacles, "at", lambda _, path: seen if path == b"file" else None)
            preview = await room.rollback.preview(room.rollback_request)

        assert "file" not in [each.path for each in preview.updated]
        draw_report(preview, is_preview=True)
        shown = capsys.readouterr().out
        assert "1 path cannot be restored; all others can" in shown
        assert "'file' is immutable; `chattr -i` lifts that, then roll back again" in shown
        with refused("rename", b"file", errno.EPERM):
            report = await room.rollback.perform(room.rollback_request)

        draw_report(report, is_preview=False)
        assert "1 path could not be restored; all others were" in capsys.readouterr().out
        with pytest.raises(SystemExit) as end:
            end_with_exceptions(report)

        assert end.value.code == 3
        end_with_exceptions(msgspec.structs.replace(report, cannot_restore=()))
        (completed,) = await room.events_of(RollbackCompleted)
        for line in (log_line(an_event(completed), ""), event_line(completed)):
            assert "'file'" in str(line)
            assert "EPERM" in str(line)

        worded = msgspec.structs.replace(report, in_words="Kept 1 edit by people: a.")
        logged = log_line(an_event(msgspec.structs.replace(completed, report=worded)), "")
        assert "people: a. 1 path could not be restored: 'file'" in str(logged)


# --- files that change meanwhile ------------------------------------------------------------------


def written_after(room: Room, monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    """Append to the file after each of the first safety checkpoints."""
    take, left = room.ctx.checkpointer.take, [times]

    async def then_written(*words: Any, **more: Any) -> CheckpointRecord:
        made = await take(*words, **more)
        if left[0]:
            left[0] -= 1
            with room.file.open("a") as log:
                log.write(" and more")

        return made

    monkeypatch.setattr(room.ctx.checkpointer, "take", then_written)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_log_that_grows_is_saved_again_and_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Its newest content is in the safety checkpoint, so that an undo returns to it."""
    async with a_room(tmp_path) as room:
        written_after(room, monkeypatch, times=times)
        report = await room.rollback.perform(room.rollback_request)
        assert report.cannot_restore == ()
        assert [file.path for file in report.updated] == ["a.txt"]
        assert room.file.read_text() == "first"
        assert not room.is_intended
        await room.undo()
        assert room.file.read_text() == "second" + " and more" * times


async def test_a_log_that_never_stops_growing_is_named_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that no checkpoint holds is overwritten, and the rollback comes to its end."""
    async with a_room(tmp_path) as room:
        written_after(room, monkeypatch, times=100)
        report = await room.rollback.perform(room.rollback_request)
        (left,) = report.cannot_restore
        assert (left.path, left.errno) == ("a.txt", "")
        assert "changed while" in left.sentence
        assert room.file.read_text().startswith("second and more and more")
        assert not room.is_intended
        assert not room.ctx.guard.is_half_restored
        assert await room.failures() == []


@pytest.mark.parametrize("times", [1, 100])
async def test_an_automatic_restore_keeps_what_changes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A log that grows belongs to another program: it is named, and does not make a retry fail.

    An undo does not take it back, either.
    """
    async with a_retry(tmp_path, monkeypatch) as room:
        written_after(room, monkeypatch, times=times)
        await Restoration(room.ctx).before_retry(CodonId("one"))
        await check_kept(room)
        monkeypatch.undo()
        now = room.file.read_text()
        assert now.startswith("second and more")
        if times == 1:
            await room.undo()
            assert room.file.read_text() == now


@pytest.mark.parametrize("by_both", [False, True], ids=["of the agent", "of both"])
async def test_an_automatic_restore_keeps_what_another_program_has_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_both: bool
) -> None:
    """A write of that program to a replaced file would be lost."""
    async with a_retry(tmp_path, monkeypatch) as room:
        if by_both:
            await room.ctx.ledger.record(a_file_change("a.txt"), EditsNoticed(edits={"a.txt": ""}))

        with room.file.open("a") as log:
            await Restoration(room.ctx).before_retry(CodonId("one"))
            print(" and more", end="", file=log)

        await check_kept(room)
        assert room.file.read_text() == "second and more"


@asynccontextmanager
async def a_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    """Open an execution whose file a failed attempt has changed."""
    async with a_room(tmp_path) as room:
        start = targets.AttemptStart(room.rollback_request.target.checkpoint, rig=None)
        monkeypatch.setattr(targets, "attempt_start", lambda *_: start)
        await by_hand(room.ctx.checkpointer, room.ctx.state.runs[0].run_id)
        yield room


async def check_kept(room: Room) -> None:
    (event,) = await room.events_of(CheckpointRollback)
    assert event.report.in_words == "Kept 1 edit by people: a.txt."
    assert [each.path for each in event.report.kept] == ["a.txt"]
    assert event.report.cannot_restore == ()


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EMFILE, ErrorCode.ROLLBACK_IN_PROGRESS),
        (errno.ENOSPC, ErrorCode.INSUFFICIENT_SPACE),
    ],
    ids=["descriptors", "full disk"],
)
async def test_a_fault_of_every_path_interrupts_a_rollback(
    tmp_path: Path, number: int, code: ErrorCode
) -> None:
    """The reply has a code and a next step; the rollback is finished once the cause is gone."""
    async with a_changed_tree(tmp_path) as room:
        api = Rollbacks(room.ctx, room.rollback)
        now = snapshot(room.ctx.layout.work_tree)
        with refused("write", b"file", number), pytest.raises(Refused) as refusal:
            await api.move_files(room.rollback_request, ())

        assert refusal.value.code is code
        assert refusal.value.hint
        assert ("file below /" in refusal.value.message) == (number != errno.ENOSPC)
        assert room.is_intended
        report = await room.rollback.finish_interrupted()
        assert report is not None
        assert report.cannot_restore == ()
        await room.undo()
        assert snapshot(room.ctx.layout.work_tree) == now


# --- what follows ---------------------------------------------------------------------------------


async def test_no_codon_starts_by_itself_on_files_that_differ(tmp_path: Path) -> None:
    """A rollback that was to continue the plan says why it does not."""
    async with a_changed_tree(tmp_path) as room:
        with refused("rename", b"file", errno.EBUSY):
            await room.rollback.perform(replace(room.rollback_request, auto_restart=True))

        assert not room.runner.is_busy
        idle = (await room.events_of(ServerIdle))[-1]
        assert "'file'" in idle.message
        assert "EBUSY" in idle.message
        (event,) = await room.events_of(RollbackCompleted)
        assert not event.auto_restart


async def test_no_plan_goes_on_by_itself_after_a_rollback_of_paths_with_exceptions(
    tmp_path: Path,
) -> None:
    """Without exceptions such a rollback does not change what the start of the server does."""
    async with a_changed_tree(tmp_path) as room:
        rollback_request = replace(room.rollback_request, paths=frozenset({b"file"}))
        with refused("rename", b"file", errno.EPERM):
            assert (await room.rollback.perform(rollback_request)).cannot_restore

        assert not room.runner.begins_by_itself


async def test_a_start_that_finishes_a_rollback_with_exceptions_waits_for_a_client(
    tmp_path: Path,
) -> None:
    """The plan does not go on by itself, and the idle event has path and error."""
    async with a_changed_tree(tmp_path) as room:
        await interrupted(room)
        with refused("rename", b"file", errno.EPERM):
            await room.recovery.recover()

        assert not room.is_intended
        assert not room.runner.begins_by_itself
        idle = (await room.events_of(ServerIdle))[-1]
        assert "'file'" in idle.message


async def test_a_retry_does_not_run_on_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails with path and error, with all other files restored; permissions alone do not
    matter."""
    async with a_changed_tree(tmp_path) as room:
        start = targets.AttemptStart(room.rollback_request.target.checkpoint, rig=None)
        monkeypatch.setattr(targets, "attempt_start", lambda *_: start)
        monkeypatch.setattr(
            "hankweave_server.execution.rollback.user_edits.conflicts", lambda *_, **__: {}
        )
        restoration = Restoration(room.ctx)
        with refused("rename", b"file", errno.EPERM), pytest.raises(NotAsBefore) as fault:
            await restoration.before_retry(CodonId("one"))

        assert "'file'" in str(fault.value)
        assert "EPERM" in str(fault.value)
        assert not room.is_intended
        assert (room.ctx.layout.work_tree / "only-there").exists()
        (room.ctx.layout.work_tree / "permissions").chmod(0o600)
        with refused("chmod", b"permissions", errno.EPERM):
            await restoration.before_retry(CodonId("one"))


# --- intents that must not be carried out any more ------------------------------------------------


async def interrupted(room: Room) -> None:
    """Leave an intent as a crash does, with no file restored."""
    with pytest.MonkeyPatch.context() as patch:

        def killed(*_: Any, **__: Any) -> Any:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        patch.setattr(room.engine, "restore", killed)
        with pytest.raises(OSError, match="Input/output"):
            await room.rollback.perform(room.rollback_request)

    assert room.is_intended


async def test_an_interrupted_rollback_is_not_finished_over_a_later_checkpoint(
    tmp_path: Path,
) -> None:
    """The acknowledged checkpoint stands, and so does what followed it; an event says where the
    previous files are."""
    async with a_room(tmp_path) as room:
        await interrupted(room)
        room.file.write_text("later work")
        await by_hand(room.ctx.checkpointer, room.ctx.state.runs[0].run_id)
        await room.ctx.ledger.record(*(Info(message="work") for _ in range(1500)))
        assert await room.rollback.finish_interrupted() is None
        assert room.file.read_text() == "later work"
        assert not room.is_intended
        assert len(list(room.ctx.layout.state_directory.glob("rollback.intent.given-up-*"))) == 1
        (message,) = await room.failures()
        assert "a checkpoint was taken after it" in message
        assert "hankweave rollback --to" in message
        with pytest.raises(Refused):
            room.runner.start(CodonId("one"))


async def test_a_stuck_intent_of_an_earlier_version_is_settled_without_touching_files(
    tmp_path: Path,
) -> None:
    """Such a server recorded that paths could not be restored, and tried at every start."""
    async with a_room(tmp_path) as room:
        rollback_request = room.rollback_request
        await interrupted(room)
        await room.ctx.ledger.record(
            RollbackFailed(
                target=rollback_request.target.checkpoint.coordinate,
                message="1 paths could not be restored, first 'a.txt' (os-error); the next start "
                "will retry.",
            )
        )
        room.file.write_text("the person went on")
        await room.recovery.recover()
        assert room.file.read_text() == "the person went on"
        assert not room.is_intended
        assert not room.runner.begins_by_itself
        assert "safety checkpoint" in (await room.failures())[-1]
        report = await room.rollback.perform(rollback_request)
        assert report.cannot_restore == ()
        assert room.file.read_text() == "first"
        room.ctx.guard.refuse_codon()


async def test_a_rollback_that_is_waiting_is_overtaken_by_another_one(tmp_path: Path) -> None:
    """The later one counts: the earlier intent is gone with it, and codons may run."""
    async with a_room(tmp_path) as room:
        await interrupted(room)
        await room.rollback.perform(room.rollback_request)
        assert not room.is_intended
        assert room.file.read_text() == "first"
        room.ctx.guard.refuse_codon()


async def test_no_checkpoint_of_half_restored_files_is_acknowledged(tmp_path: Path) -> None:
    """It would end the rollback that waits for disk space; the hint says what to do."""
    async with a_room(tmp_path) as room:
        await interrupted(room)
        with pytest.raises(Refused) as refusal:
            room.ctx.guard.refuse_checkpoint()

        assert refusal.value.code is ErrorCode.ROLLBACK_IN_PROGRESS
        assert "roll back again" in (refusal.value.hint or "")
