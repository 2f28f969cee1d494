"""Dispatch: every command has a handler, and refused commands do not reach it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from hankweave_protocol.commands import (
    COMMANDS,
    BisectStart,
    CheckpointCreate,
    CheckpointDiff,
    CheckpointPin,
    CheckpointReadFile,
    CodonReadPrompt,
    CodonReadResult,
    CodonStart,
    Command,
    CommandData,
    ExecutionBranch,
    ExplorationAdopt,
    ExplorationCompare,
    ExplorationDiscard,
    FileBlame,
    FilePickaxe,
    FileWhy,
    GetExecutionAddress,
    HistorySync,
    ListCheckpoints,
    PermissionAnswer,
    Ping,
    PingBroadcast,
    RollbackToCheckpoint,
    RollbackToCodon,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import EventData, Pong
from hankweave_protocol.ids import ClientId, CodonId, CommandId, RunId, Sha
from hankweave_protocol.replies import CheckpointPage
from hankweave_protocol.state import State
from hankweave_server.api.caller import Caller, CommandAnswer
from hankweave_server.api.dispatch import Dispatch
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.checkpoints.model import Damage
from hankweave_server.checkpoints.repo_init import StoreMoved
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.execution.rollback.guard import TreeGuard
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.ledger.disk_space import Space
from hankweave_server.paths import Layout
from support.histories import MOMENT, a_run
from support.refusing_system import ERRNOS
from support.timelines import a_state

FULL = OSError(errno.ENOSPC, "No space left on device")
NEED_ROOM = frozenset(
    {
        "bisect.start",
        "checkpoint.create",
        "checkpoint.pin",
        "codon.next",
        "codon.redo",
        "codon.start",
        "execution.branch",
        "exploration.adopt",
        "exploration.start",
        "rollback.redo",
        "rollback.toCheckpoint",
        "rollback.toCodon",
        "rollback.toLastSuccess",
        "rollback.undo",
    }
)
CURRENT = RunId("1736000000000-abc123-def456")
CALLER = Caller(client_id=ClientId("client-1"), mode="readandwrite", wants_replies=True)


class Surroundings:
    """The parts of an execution that dispatch reads: its state, the time and its guard."""

    state: State = msgspec.structs.replace(a_state(a_run(CURRENT)), current_run_id=CURRENT)

    def __init__(self) -> None:
        self.guard = TreeGuard()
        self.layout = Layout.of_execution(Path("/an/execution"))

    def now_text(self) -> str:
        return MOMENT


class Rooms:
    """Stand-in for the control, rollback, inspect and store handlers that records the calls."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fault: Exception | None = None
        self.page: object = "a page"

    def start(self, command: CommandData) -> None:
        self.asked.append("start")

    def next(self) -> CodonId:
        self.asked.append("next")
        return CodonId("two")

    def redo(self) -> CodonId:
        self.asked.append("redo")
        return CodonId("one")

    async def skip(self) -> None:
        self.asked.append("skip")

    async def force_stop(self, command: CommandData) -> None:
        self.asked.append("force_stop")

    async def checkpoint(self, command: CommandData, causes: tuple[Any, ...]) -> str:
        self.asked.append(f"checkpoint for {causes}")
        if self.fault is not None:
            raise self.fault

        return "a record"

    async def perform(self, command: CommandData, causes: tuple[Any, ...]) -> str:
        self.asked.append(f"perform for {causes}")
        return "a report"

    async def undo_or_redo(self, command: CommandData, causes: tuple[Any, ...]) -> str:
        self.asked.append(f"undo_or_redo for {causes}")
        return "a report"

    async def preview(self, command: CommandData, causes: tuple[Any, ...]) -> str:
        self.asked.append("preview")
        return "a report"

    async def pin(self, command: CommandData, causes: tuple[Any, ...]) -> str:
        self.asked.append(f"pin for {causes}")
        return "a record"

    async def gc(self, command: CommandData, causes: tuple[Any, ...]) -> str:
        self.asked.append(f"gc for {causes}")
        return "a report"

    async def fsck(self, command: CommandData, causes: tuple[Any, ...]) -> str:
        self.asked.append("fsck")
        return "a report"

    async def checkpoints(self, command: CommandData, *, tell_all: bool) -> object:
        self.asked.append(f"checkpoints, to all: {tell_all}")
        return self.page

    async def diff(self, command: CommandData) -> str:
        self.asked.append("diff")
        return "differences"

    async def read_file(self, command: CommandData) -> str:
        self.asked.append("read_file")
        return "a file"

    async def blame(self, command: CommandData) -> str:
        return await self.diff(command)

    async def why(self, command: CommandData) -> str:
        return await self.diff(command)

    async def pickaxe(self, command: CommandData) -> str:
        return await self.diff(command)

    async def result(self, command: CommandData) -> str:
        self.asked.append("result")
        return "a result"

    def prompt(self, command: CommandData) -> str:
        self.asked.append("prompt")
        return "a prompt"

    async def replay(self, command: CommandData) -> str:
        self.asked.append("replay")
        return "a view"

    async def make(self, command: CommandData, causes: tuple[Any, ...]) -> str:
        self.asked.append(f"make for {causes}")
        return "a branch"

    async def answer_permission(
        self, command: CommandData, client_id: ClientId, causes: tuple[Any, ...]
    ) -> None:
        self.asked.append(f"answer_permission by {client_id} for {causes}")

    async def answer(self, command: CommandData) -> str:
        self.asked.append("answer")
        return "a page"

    def state(self) -> str:
        self.asked.append("state")
        return "a state"

    async def status(self) -> str:
        self.asked.append("status")
        return "a status"

    def shut_down(self, reason: str) -> None:
        self.asked.append(f"shut_down: {reason}")

    def force_shut_down(self, reason: str) -> None:
        self.asked.append(f"force_shut_down: {reason}")


class Bisections:
    """Stand-in for the searches for a failure."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def start(self, command: CommandData, causes: tuple[Any, ...]) -> str:
        return await self._rooms.make(command, causes)

    def stop(self) -> None:
        self._rooms.asked.append("stop")


class Explorations:
    """Stand-in for the handler of explorations."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def start(self, command: CommandData, causes: tuple[Any, ...]) -> str:
        return await self._rooms.make(command, causes)

    async def adopt(self, command: CommandData, causes: tuple[Any, ...]) -> str:
        return await self._rooms.make(command, causes)

    async def discard(self, command: CommandData, causes: tuple[Any, ...]) -> str:
        return await self._rooms.make(command, causes)

    async def compare(self, command: CommandData) -> str:
        return await self._rooms.diff(command)

    def list(self) -> object:
        return self._rooms.next()

    def show(self, command: CommandData) -> object:
        return self._rooms.next()


class Executions:
    """Stand-in for the handler of executions."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def list(self, command: CommandData) -> str:
        return await self._rooms.diff(command)

    async def address(self, command: CommandData) -> str:
        return await self._rooms.diff(command)


class Desk:
    """A dispatcher with stand-in handlers."""

    def __init__(
        self, *, rolling_back: bool = False, full: bool = False, has_ended: bool = False
    ) -> None:
        self._stack = contextlib.ExitStack()
        self.rooms = Rooms()
        self.broadcast: list[EventData] = []
        room = cast("Any", self.rooms)
        space = Space(cast("Any", None))  # No reserve: nothing here waits for disk space.
        if full:
            space.note(FULL)

        ctx = Surroundings()
        if rolling_back:
            self._stack.enter_context(ctx.guard.rolling_back())

        if has_ended:
            ctx.state = msgspec.structs.replace(ctx.state, current_run_id=None)

        self._dispatch = Dispatch(
            cast("Any", ctx),
            control=room,
            rollbacks=room,
            inspect=room,
            queries=room,
            looks=room,
            answers=room,
            store=room,
            branches=room,
            explorer=cast("Any", Explorations(self.rooms)),
            bisections=cast("Any", Bisections(self.rooms)),
            executions=cast("Any", Executions(self.rooms)),
            space=space,
            quiet=Quiet(),
            broadcast=self.broadcast.append,
        )

    async def take(self, command: CommandData, caller: Caller = CALLER) -> CommandAnswer:
        return await self._dispatch.handle(
            Command(id=CommandId("command-1"), type=command.TYPE, data=command), caller
        )


def an_example(kind: type[CommandData]) -> CommandData:
    """Return a minimal command of this class."""
    match kind.TYPE:
        case CodonStart.TYPE:
            return CodonStart(codon_id=CodonId("one"))
        case CheckpointPin.TYPE:
            return CheckpointPin(checkpoint_sha="abcdef", pinned=True)
        case PermissionAnswer.TYPE:
            return PermissionAnswer(request_id="1a2b3c4d", decision="allow")
        case RollbackToCheckpoint.TYPE:
            return RollbackToCheckpoint(checkpoint_sha="abcdef")
        case ExecutionBranch.TYPE:
            return ExecutionBranch(checkpoint_sha="abcdef")
        case BisectStart.TYPE:
            return BisectStart(command="make test")
        case ExplorationCompare.TYPE:
            return ExplorationCompare(attempt_id="e-1")
        case ExplorationAdopt.TYPE:
            return ExplorationAdopt(attempt_id="e-1")
        case ExplorationDiscard.TYPE:
            return ExplorationDiscard(exploration_id="e")
        case CheckpointDiff.TYPE:
            return CheckpointDiff(from_sha="abcdef")
        case CheckpointReadFile.TYPE:
            return CheckpointReadFile(checkpoint_sha="abcdef", path="a.txt")
        case FileBlame.TYPE:
            return FileBlame(path="a.txt")
        case FileWhy.TYPE:
            return FileWhy(path="a.txt", line=1)
        case FilePickaxe.TYPE:
            return FilePickaxe(text="a")
        case GetExecutionAddress.TYPE:
            return GetExecutionAddress(execution_path="/an/execution")
        case CodonReadResult.TYPE:
            return CodonReadResult(seq=1)
        case CodonReadPrompt.TYPE:
            return CodonReadPrompt(codon_id=CodonId("one"))
        case RollbackToCodon.TYPE:
            return RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end")
        case _:
            return kind()


KINDS = tuple(COMMANDS.members.values())
EXAMPLES = [an_example(kind) for kind in KINDS]


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: command.TYPE)
async def test_every_command_of_the_protocol_is_done(command: CommandData) -> None:
    """Every registered command has a handler."""
    desk = Desk()
    done = await desk.take(command)
    assert desk.rooms.asked or desk.broadcast or done.events or done.history_since is not None


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: command.TYPE)
async def test_during_a_rollback_only_what_cannot_disturb_it_is_done(command: CommandData) -> None:
    """Reads, pings and shutdowns are done; all others are refused with ROLLBACK_IN_PROGRESS."""
    desk = Desk(rolling_back=True)
    if command.DURING_ROLLBACK:
        await desk.take(command)
        return

    with pytest.raises(Refused) as refused:
        await desk.take(command)

    assert refused.value.code is ErrorCode.ROLLBACK_IN_PROGRESS
    assert not desk.rooms.asked
    assert not desk.broadcast


def test_what_is_done_during_a_rollback_is_hankweaves_list_and_our_own_looks() -> None:
    """The list is exact: a new command is refused during a rollback until it is added here."""
    assert {kind.TYPE for kind in KINDS if kind.DURING_ROLLBACK} == {
        "checkpoint.list",
        "checkpoint.diff",
        "checkpoint.readFile",
        "codon.readPrompt",
        "codon.readResult",
        "executions.address",
        "executions.list",
        "exploration.compare",
        "exploration.list",
        "exploration.show",
        "file.blame",
        "file.pickaxe",
        "file.why",
        "replay.view",
        "ping",
        "history.sync",
        "events.query",
        "server.shutdown",
        "server.force_shutdown",
        "state.get",
        "server.status",
    }


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: command.TYPE)
async def test_on_a_full_disk_what_begins_something_is_refused(command: CommandData) -> None:
    """Starting commands get INSUFFICIENT_SPACE and change nothing; reads and shutdowns are done."""
    desk = Desk(full=True)
    if command.TYPE not in NEED_ROOM:
        await desk.take(command)
        assert desk.rooms.asked or desk.broadcast or isinstance(command, (Ping, HistorySync))
        return

    with pytest.raises(Refused) as refused:
        await desk.take(command)

    assert refused.value.code is ErrorCode.INSUFFICIENT_SPACE
    assert refused.value.hint
    assert not desk.rooms.asked


async def test_a_list_that_a_full_disk_cannot_take_goes_to_its_sender_alone() -> None:
    """A Hankweave client gets its checkpoint list without an event in the journal."""
    desk = Desk(full=True)
    desk.rooms.page = CheckpointPage(checkpoints=(), current_branch=None)
    caller = replace(CALLER, wants_replies=False)
    done = await desk.take(ListCheckpoints(), caller)
    assert [event.TYPE for event in done.events] == ["checkpoint.list"]
    assert desk.rooms.asked == ["checkpoints, to all: False"]


async def test_a_command_that_meets_a_full_disk_is_refused_and_the_next_ones_with_it() -> None:
    """The client gets INSUFFICIENT_SPACE and no internal error, whichever write failed."""
    desk = Desk()
    desk.rooms.fault = FULL
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            await desk.take(CheckpointCreate())

        assert refused.value.code is ErrorCode.INSUFFICIENT_SPACE

    assert len(desk.rooms.asked) == 1


def _of_the_store(problem: OSError) -> Exception:
    error = ShadowRepositoryError(str(problem))
    error.__cause__ = problem
    return error


@pytest.mark.parametrize("form", [lambda error: error, _of_the_store])
@pytest.mark.parametrize("path", ["/an/execution/agentRoot/a.txt", None])
@pytest.mark.parametrize("number", ERRNOS, ids=lambda number: errno.errorcode[number])
async def test_what_the_system_refuses_is_no_internal_error(
    number: int, path: str | None, form: Callable[[OSError], Exception]
) -> None:
    """It has a code, the path and a next step, whichever command has met it."""
    desk = Desk()
    desk.rooms.fault = form(OSError(number, os.strerror(number), path))
    with pytest.raises(Refused) as refused:
        await desk.take(CheckpointCreate())

    assert refused.value.hint
    if number in (errno.ENOSPC, errno.EDQUOT):
        assert refused.value.code is ErrorCode.INSUFFICIENT_SPACE
    else:
        assert refused.value.code is ErrorCode.IO_ERROR
        assert os.strerror(number) in refused.value.message
        assert (path or "/an/execution") in refused.value.message


def _named_by_libgit2() -> Exception:
    error = ShadowRepositoryError("failed to read object: Input/output error")
    error.is_of_a_broken_disk = True
    return error


DAMAGED = CheckpointDamaged(Sha("1" * 40), (Damage(Sha("2" * 40), "tree", b"d", ()),))


@pytest.mark.parametrize(
    ("fault", "code", "place"),
    [
        (ShadowRepositoryError("A tree is damaged."), "STORE_UNUSABLE", "/an/execution"),
        (StoreMoved(Path("/a/store"), "was moved", "Bring it back."), "STORE_UNUSABLE", "/a/store"),
        (_named_by_libgit2(), "IO_ERROR", "/an/execution"),
        (DAMAGED, "CHECKPOINT_DAMAGED", "111111111111"),
        (CheckpointNotFound("1" * 40), "CHECKPOINT_NOT_FOUND", "111111111111"),
    ],
    ids=["damaged store", "moved store", "broken disk", "damaged checkpoint", "pruned"],
)
async def test_a_store_that_fails_is_no_internal_error(
    fault: Exception, code: str, place: str
) -> None:
    """It has a code, a place and a next step, whichever command has met it."""
    desk = Desk()
    desk.rooms.fault = fault
    with pytest.raises(Refused) as refused:
        await desk.take(CheckpointCreate())

    assert refused.value.code == code
    assert place in refused.value.message
    assert ".." not in refused.value.message
    assert refused.value.hint


async def test_a_defect_that_an_error_of_the_system_led_to_stays_one() -> None:
    """It is not blamed on the disk."""
    desk = Desk()
    try:
        try:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        except OSError:
            _ = {}["no such key"]
    except KeyError as error:
        desk.rooms.fault = error

    with pytest.raises(KeyError):
        await desk.take(CheckpointCreate())


GUARDED = [each for each in EXAMPLES if hasattr(each, "expected_run_id")]


@pytest.mark.parametrize("command", GUARDED, ids=lambda command: command.TYPE)
async def test_a_command_for_another_run_is_refused(command: CommandData) -> None:
    """With `expectedRunId` a stale client changes nothing; for the current run it works."""
    desk = Desk()
    stale: Any = msgspec.structs.replace(command, expected_run_id=RunId("another"))
    with pytest.raises(Refused) as refused:
        await desk.take(stale)

    assert (refused.value.code, refused.value.path) == (
        ErrorCode.STALE_RUN,
        "$.data.expectedRunId",
    )
    assert CURRENT in refused.value.message
    assert not desk.rooms.asked
    await desk.take(msgspec.structs.replace(command, expected_run_id=CURRENT))
    assert desk.rooms.asked


@pytest.mark.parametrize("command", GUARDED, ids=lambda command: command.TYPE)
async def test_the_newest_run_guards_where_none_is_current(command: CommandData) -> None:
    """A client that knows only an ended run is refused as soon as a newer run exists."""
    desk = Desk(has_ended=True)
    stale: Any = msgspec.structs.replace(command, expected_run_id=RunId("another"))
    with pytest.raises(Refused, match=CURRENT):
        await desk.take(stale)

    assert not desk.rooms.asked
    await desk.take(msgspec.structs.replace(command, expected_run_id=CURRENT))
    assert desk.rooms.asked


def test_all_that_moves_the_execution_can_be_guarded() -> None:
    """Every command that changes runs, codons or files accepts `expectedRunId` (DESIGN 9)."""
    mutating = {kind.TYPE for kind in KINDS if kind.MUTATES}
    unguarded = mutating - {command.TYPE for command in GUARDED}
    only_looks = "store.fsck"
    ends = {"server.shutdown", "server.force_shutdown"}
    assert unguarded == {"ping.broadcast", only_looks, *ends}


async def test_a_ping_answers_its_sender_and_a_broadcast_everybody() -> None:
    """A ping is answered to its sender; the pong of a broadcast names its sender to all."""
    desk = Desk()
    (pong,) = (await desk.take(Ping())).events
    assert isinstance(pong, Pong)
    assert pong.client_id is None
    await desk.take(PingBroadcast())
    (to_all,) = desk.broadcast
    assert isinstance(to_all, Pong)
    assert to_all.client_id == CALLER.client_id


async def test_what_writes_names_the_command_as_its_cause() -> None:
    """The command's id is journaled as the cause of checkpoints and rollbacks."""
    desk = Desk()
    for command in EXAMPLES:
        if command.TYPE in ("checkpoint.create", "rollback.toLastSuccess"):
            await desk.take(command)

    assert desk.rooms.asked == ["checkpoint for ('command-1',)", "perform for ('command-1',)"]


async def test_a_hankweave_client_gets_its_checkpoints_as_an_event_to_all() -> None:
    """For a client without replies the list is broadcast; otherwise it is the reply's data."""
    desk = Desk()
    for wants_replies in (False, True):
        caller = replace(CALLER, wants_replies=wants_replies)
        await desk.take(ListCheckpoints(), caller)

    assert desk.rooms.asked == ["checkpoints, to all: True", "checkpoints, to all: False"]
    assert (await desk.take(HistorySync())).data is None
