"""Dispatch: every command has a handler, and refused commands do not reach it."""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import Any, cast, get_args, get_type_hints

import msgspec
import pytest

from hankweave_protocol.commands import (
    COMMANDS,
    CheckpointCreate,
    Command,
    CommandData,
    HistorySync,
    ListCheckpoints,
    Ping,
    PingBroadcast,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import EventData, Pong
from hankweave_protocol.ids import CommandId, RunId, Sha
from hankweave_protocol.replies import CheckpointPage
from hankweave_protocol.state import State
from hankweave_server import api
from hankweave_server.api.caller import Caller, CommandAnswer, Request
from hankweave_server.api.dispatch import Dispatch, Handlers, handled_by, handles
from hankweave_server.api.inspect import Inspect, Pings
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.checkpoints.model import Damage
from hankweave_server.checkpoints.repo_init import StoreMoved
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.execution.rollback.guard import TreeGuard
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.installed import parts
from hankweave_server.ledger.disk_space import Space
from hankweave_server.paths import Layout
from support.callers import A_REQUEST, CONTROLLER, VIEWER
from support.features import whole_wire
from support.histories import MOMENT, a_run
from support.refusing_system import ERRNOS
from support.timelines import a_state

FULL = OSError(errno.ENOSPC, "No space left on device")
CURRENT = RunId("1736000000000-abc123-def456")


class Surroundings:
    """The parts of an execution that dispatch reads: its state, its guard and its place."""

    state: State = msgspec.structs.replace(a_state(a_run(CURRENT)), current_run_id=CURRENT)

    def __init__(self) -> None:
        self.guard = TreeGuard()
        self.layout = Layout.of_execution(Path("/an/execution"))


class Recorder:
    """A stand-in that handles every command, and records what has come to it."""

    def __init__(self) -> None:
        self.asked: list[CommandData] = []
        self.requests: list[Request] = []
        self.fault: Exception | None = None

    @handles(*COMMANDS.members.values())
    async def take(self, command: CommandData, request: Request) -> str:
        self.asked.append(command)
        self.requests.append(request)
        if self.fault is not None:
            raise self.fault

        return "an answer"


class Harness:
    """A dispatcher with a stand-in for all handlers."""

    def __init__(
        self, *, rolling_back: bool = False, full: bool = False, has_ended: bool = False
    ) -> None:
        self._stack = contextlib.ExitStack()
        self.recorder = Recorder()
        space = Space(cast("Any", None))  # No reserve: nothing here waits for disk space.
        if full:
            space.note(FULL)

        ctx = Surroundings()
        if rolling_back:
            self._stack.enter_context(ctx.guard.rolling_back())

        if has_ended:
            ctx.state = msgspec.structs.replace(ctx.state, current_run_id=None)

        self._dispatch = Dispatch(cast("Any", ctx), [self.recorder], space=space, quiet=Quiet())

    async def take(self, command: CommandData, caller: Caller = CONTROLLER) -> CommandAnswer:
        return await self._dispatch.handle(
            Command(id=CommandId("command-1"), type=command.TYPE, data=command), caller
        )


def an_example(kind: type[CommandData]) -> CommandData:
    """Return the first example of a command, for any run."""
    data = {name: value for name, value in kind.EXAMPLES[0].items() if name != "expectedRunId"}
    return msgspec.convert(data, kind)


KINDS = tuple(COMMANDS.members.values())
EXAMPLES = [an_example(kind) for kind in KINDS]


def declared_handlers() -> Iterator[tuple[type[CommandData], Callable[..., Any]]]:
    """Yield each command and its handler, of the core and of all features."""
    names = [each.name for each in pkgutil.iter_modules(api.__path__, f"{api.__name__}.")]
    for part in parts("server_part"):
        package = import_module(part.__package__)
        names += [
            each.name for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        ]

    for name in names:
        for _, kind in inspect.getmembers(import_module(name), inspect.isclass):
            if kind.__module__ == name and not name.endswith(".file_answers"):
                yield from handled_by(kind)


@whole_wire
def test_every_command_of_the_protocol_has_one_handler() -> None:
    """No command is without a handler, and none has two."""
    assert sorted(command.TYPE for command, _ in declared_handlers()) == sorted(COMMANDS.names)


@pytest.mark.parametrize(
    ("command", "handler"), list(declared_handlers()), ids=lambda value: getattr(value, "TYPE", "")
)
def test_a_handler_takes_its_command_and_returns_what_that_declares(
    command: type[CommandData], handler: Callable[..., Any]
) -> None:
    """Its annotations name the command, and as the result the type of the reply."""
    hints = get_type_hints(handler)
    assert issubclass(command, get_args(hints["command"]) or hints["command"])
    returned = set(get_args(hints["return"])) or {hints["return"]}
    reply = NoneType if command.REPLY is None else command.REPLY
    assert returned <= {reply, CommandAnswer}, returned
    assert reply in returned or returned == {CommandAnswer}


async def test_a_command_whose_part_is_not_there_is_refused() -> None:
    """The client is told that this server does not have it."""
    with pytest.raises(Refused, match=r"does not have the command ping\.") as refused:
        await Handlers([]).answer(Ping(), A_REQUEST)

    assert refused.value.code is ErrorCode.UNKNOWN_COMMAND


def test_two_handlers_of_one_command_are_an_error_of_the_program() -> None:
    """The server does not start with them."""
    with pytest.raises(ValueError, match="two handlers"):
        Handlers([Recorder(), Recorder()])


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: command.TYPE)
async def test_during_a_rollback_only_what_cannot_disturb_it_is_done(command: CommandData) -> None:
    """Reads, pings and shutdowns are done; all others are refused with ROLLBACK_IN_PROGRESS."""
    harness = Harness(rolling_back=True)
    if command.DURING_ROLLBACK:
        await harness.take(command)
        return

    with pytest.raises(Refused) as refused:
        await harness.take(command)

    assert refused.value.code is ErrorCode.ROLLBACK_IN_PROGRESS
    assert not harness.recorder.asked


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: command.TYPE)
async def test_on_a_full_disk_what_begins_something_is_refused(command: CommandData) -> None:
    """Starting commands get INSUFFICIENT_SPACE and change nothing; reads and shutdowns are done."""
    harness = Harness(full=True)
    if not command.NEEDS_ROOM:
        await harness.take(command)
        assert harness.recorder.asked
        return

    with pytest.raises(Refused) as refused:
        await harness.take(command)

    assert refused.value.code is ErrorCode.INSUFFICIENT_SPACE
    assert refused.value.hint
    assert not harness.recorder.asked


async def test_a_command_that_meets_a_full_disk_is_refused_and_the_next_ones_with_it() -> None:
    """The client gets INSUFFICIENT_SPACE and no internal error, whichever write failed."""
    harness = Harness()
    harness.recorder.fault = FULL
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            await harness.take(CheckpointCreate())

        assert refused.value.code is ErrorCode.INSUFFICIENT_SPACE

    assert len(harness.recorder.asked) == 1


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
    harness = Harness()
    harness.recorder.fault = form(OSError(number, os.strerror(number), path))
    with pytest.raises(Refused) as refused:
        await harness.take(CheckpointCreate())

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
    harness = Harness()
    harness.recorder.fault = fault
    with pytest.raises(Refused) as refused:
        await harness.take(CheckpointCreate())

    assert refused.value.code == code
    assert place in refused.value.message
    assert ".." not in refused.value.message
    assert refused.value.hint


async def test_a_defect_that_an_error_of_the_system_led_to_stays_one() -> None:
    """It is not blamed on the disk."""
    harness = Harness()
    try:
        try:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        except OSError:
            _ = {}["no such key"]
    except KeyError as error:
        harness.recorder.fault = error

    with pytest.raises(KeyError):
        await harness.take(CheckpointCreate())


GUARDED = [each for each in EXAMPLES if hasattr(each, "expected_run_id")]


@pytest.mark.parametrize("command", GUARDED, ids=lambda command: command.TYPE)
async def test_a_command_for_another_run_is_refused(command: CommandData) -> None:
    """With `expectedRunId` a stale client changes nothing; for the current run it works."""
    harness = Harness()
    stale: Any = msgspec.structs.replace(command, expected_run_id=RunId("another"))
    with pytest.raises(Refused) as refused:
        await harness.take(stale)

    assert (refused.value.code, refused.value.path) == (
        ErrorCode.STALE_RUN,
        "$.data.expectedRunId",
    )
    assert CURRENT in refused.value.message
    assert not harness.recorder.asked
    await harness.take(msgspec.structs.replace(command, expected_run_id=CURRENT))
    assert harness.recorder.asked


@pytest.mark.parametrize("command", GUARDED, ids=lambda command: command.TYPE)
async def test_the_newest_run_guards_where_none_is_current(command: CommandData) -> None:
    """A client that knows only an ended run is refused as soon as a newer run exists."""
    harness = Harness(has_ended=True)
    stale: Any = msgspec.structs.replace(command, expected_run_id=RunId("another"))
    with pytest.raises(Refused, match=CURRENT):
        await harness.take(stale)

    assert not harness.recorder.asked
    await harness.take(msgspec.structs.replace(command, expected_run_id=CURRENT))
    assert harness.recorder.asked


def test_all_that_moves_the_execution_can_be_guarded() -> None:
    """Every command that changes runs, codons or files accepts `expectedRunId` (DESIGN 9)."""
    mutating = {kind.TYPE for kind in KINDS if kind.MUTATES}
    unguarded = mutating - {command.TYPE for command in GUARDED}
    only_looks = "store.fsck"
    ends = {"server.shutdown", "server.force_shutdown"}
    copies = {"mirror.now", "mirror.off"}
    assert unguarded == {"ping.broadcast", only_looks, *ends, *copies}


async def test_a_ping_answers_its_sender_and_a_broadcast_everybody() -> None:
    """A ping is answered to its sender; the pong of a broadcast names its sender to all."""
    broadcast: list[EventData] = []
    handlers = Handlers([Pings(lambda: MOMENT, broadcast.append)])
    (pong,) = (await handlers.answer(Ping(), A_REQUEST)).events
    assert isinstance(pong, Pong)
    assert pong.client_id is None
    await handlers.answer(PingBroadcast(), A_REQUEST)
    (to_all,) = broadcast
    assert isinstance(to_all, Pong)
    assert to_all.client_id == CONTROLLER.client_id


async def test_what_writes_names_the_command_as_its_cause() -> None:
    """The command's id is the cause that a handler gives to the events it records."""
    harness = Harness()
    await harness.take(CheckpointCreate())
    assert [request.causes for request in harness.recorder.requests] == [("command-1",)]


class Listed:
    """The parts of an execution that a list of checkpoints reads."""

    def __init__(self, *, is_full: bool) -> None:
        self.state = Surroundings.state
        self.checkpointer = SimpleNamespace(known={}, current_branch=None)
        self.ledger = SimpleNamespace(record=self._record, space=SimpleNamespace(is_short=is_full))
        self.recorded: list[EventData] = []

    async def _record(self, event: EventData) -> None:
        self.recorded.append(event)


@pytest.mark.parametrize(
    ("caller", "is_full", "events", "to_all"),
    [
        (CONTROLLER, False, [], []),
        (replace(CONTROLLER, wants_replies=False), False, [], ["checkpoint.list"]),
        (replace(CONTROLLER, wants_replies=False), True, ["checkpoint.list"], []),
        (replace(VIEWER, wants_replies=False), False, ["checkpoint.list"], []),
    ],
    ids=["reply", "hankweave's dialect", "full disk", "viewer"],
)
async def test_a_hankweave_client_gets_its_checkpoints_as_an_event(
    caller: Caller, is_full: bool, events: list[str], to_all: list[str]
) -> None:
    """The event goes to all; to its sender alone where the journal may not or cannot take it."""
    ctx = Listed(is_full=is_full)
    inspected = Handlers([Inspect(cast("Any", ctx), cast("Any", None))])
    request = Request(CommandId("command-1"), caller)
    answer = await inspected.answer(ListCheckpoints(), request)
    assert isinstance(answer.data, CheckpointPage)
    assert [event.TYPE for event in answer.events] == events
    assert [event.TYPE for event in ctx.recorded] == to_all


async def test_history_follows_the_command() -> None:
    """The transport sends the journal from there; the reply has no data."""
    answer = await Handlers([Pings(str, print)]).answer(HistorySync(since_seq=7), A_REQUEST)
    assert (answer.data, answer.history_since) == (None, 7)
