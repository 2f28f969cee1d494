"""Commands to a codon at every moment of its life and the server's.

The moments are exact, so the components run in this process, with an agent and a model that block
where the test wants.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from hankweave_protocol.commands import (
    CodonForceStop,
    CodonNext,
    CodonRedo,
    CodonSkip,
    CodonStart,
    Command,
    CommandData,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import CodonRetrying
from hankweave_protocol.ids import CodonId, CommandId
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    CompletingSentinelsCodon,
    FailedCodon,
    InitializingCodon,
    PreparingCodon,
    RunningCodon,
    SkippedCodon,
    StartingCodon,
)
from hankweave_server.agents.base import (
    AgentAccount,
    AgentKilled,
    AgentNeeds,
    AgentOutcome,
    AgentSaid,
    AgentSession,
    AgentSignal,
    AgentTask,
    Exited,
    PermissionAsked,
    ResultReported,
    SessionStarted,
)
from hankweave_server.api.control import Control
from hankweave_server.api.dispatch import Dispatch
from hankweave_server.domain.execution_thread import newest_run
from hankweave_server.domain.reducer import fold
from hankweave_server.execution.codon.run import Halt
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.execution.recovery import Recovery
from hankweave_server.execution.rollback.rollback import Rollback
from hankweave_server.execution.runner import Runner
from hankweave_server.paths import Layout
from support.callers import CONTROLLER
from support.components import components
from support.running_server import journal
from support.scripted_hank import codon, rig_command, write_hank
from support.sentinels import Actor, Cast, a_sentinel
from support.waiting import eventually, limited
from support.watching import events_of

ORDERS: dict[str, CommandData] = {
    "start": CodonStart(codon_id=CodonId("one")),
    "start unknown": CodonStart(codon_id=CodonId("nine")),
    "next": CodonNext(),
    "redo": CodonRedo(),
    "skip": CodonSkip(),
    "forceStop": CodonForceStop(),
}

FULL = OSError(errno.ENOSPC, "No space left on device")
QUIET = 0.05
"""Seconds without a new event after which the execution counts as idle."""


@dataclass
class HeldAgent:
    """An agent that blocks at a given point until it is released or stopped."""

    holds: str = ""
    exit_code: int = 0
    may_go: anyio.Event = field(default_factory=anyio.Event)
    may_die: anyio.Event = field(default_factory=anyio.Event)
    stopped: anyio.Event = field(default_factory=anyio.Event)
    name: str = "held"

    @property
    def pid(self) -> int:
        return 1

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        return self._at_work(task)

    @asynccontextmanager
    async def _at_work(self, task: AgentTask) -> AsyncIterator[AgentSession]:
        self.log_path = task.log_path
        await self._stay_at("starting")
        yield cast("AgentSession", self)

    async def signals(self) -> AsyncIterator[AgentSignal]:
        await self._stay_at("initializing")
        yield SessionStarted("session", "model")
        yield AgentSaid("at work")
        await self._stay_at("running")
        if self.stopped.is_set():
            await self.may_die.wait()
        else:
            yield ResultReported(self.exit_code == 0, "overloaded", None, None, "session", {})

    async def _stay_at(self, where: str) -> None:
        if self.holds == where:
            async with anyio.create_task_group() as waiting:
                for event in (self.may_go, self.stopped):
                    waiting.start_soon(_then, event, waiting.cancel_scope)

    async def stop(self) -> None:
        self.stopped.set()
        await self.may_die.wait()

    @property
    def waits_before_tools(self) -> bool:
        return True

    def processes(self) -> frozenset[int]:
        return frozenset()

    async def unread_signals(self) -> tuple[AgentSignal, ...]:
        return ()

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def leave_message(self, operation_id: str, text: str) -> None: ...

    async def answer(self, asked: PermissionAsked) -> None: ...

    async def wait(self) -> AgentOutcome:
        return AgentKilled(9) if self.stopped.is_set() else Exited(self.exit_code)

    def needs(self, environment: Mapping[str, str]) -> AgentNeeds:
        return AgentNeeds()

    def memory_of(self, *of: object) -> tuple[Path, ...]:
        return ()

    def account(self, *of: object) -> AgentAccount:
        return AgentAccount(self.name)


async def _then(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


@dataclass
class Scene:
    """The components of an execution of two codons, and its agent and model, which can block."""

    folder: Path
    ctx: ExecutionContext
    runner: Runner
    dispatch: Dispatch
    agent: HeldAgent
    model: Actor
    tasks: anyio.abc.TaskGroup
    stack: AsyncExitStack

    @property
    def newest(self) -> CodonExecution | None:
        run = newest_run(self.ctx.state)
        return run.codons[-1] if run is not None and run.codons else None

    async def order(self, command: CommandData) -> str:
        try:
            await self.dispatch.handle(
                Command(id=CommandId("order"), type=command.TYPE, data=command), CONTROLLER
            )
        except Refused as refused:
            return refused.code.value

        return OK

    async def until(self, holds: Callable[[], bool]) -> None:
        await eventually(holds)

    async def reach(self, kind: type[CodonExecution], hold: str = "") -> None:
        """Start codon one, and wait until it is in this state."""
        self.agent.holds = hold
        self.runner.start(CodonId("one"))
        await self.until(lambda: isinstance(self.newest, kind))

    async def finish(self, *names: str, exit_code: int = 0) -> None:
        """Run codons to their end, successful or not."""
        self.agent.exit_code = exit_code
        for name in names:
            self.runner.start(CodonId(name))
            await self.until(lambda: not self.runner.is_busy)

    async def fill_the_disk(self) -> None:
        self.ctx.ledger.space.note(FULL)

    async def end(self) -> None:
        """Release all that is blocked and close the server, as at a normal end."""
        self.agent.may_go.set()
        self.agent.may_die.set()
        self.model.may_answer.set()
        (self.folder / "go").touch()
        await self.stack.aclose()
        with limited():
            await self.runner.close(Halt("the end", checkpoint_kind="exit"))


# --- Moments of a codon or the server --------------------------------------------------------


async def nothing_has_run(scene: Scene) -> None:
    pass


async def in_its_rig(scene: Scene) -> None:
    await scene.reach(PreparingCodon)
    await scene.until((scene.folder / "rig-runs").exists)


async def being_started(scene: Scene) -> None:
    await scene.reach(StartingCodon, "starting")


async def awaiting_its_session(scene: Scene) -> None:
    await scene.reach(InitializingCodon, "initializing")


async def at_work(scene: Scene) -> None:
    await scene.reach(RunningCodon, "running")


async def frozen(scene: Scene) -> None:
    await at_work(scene)
    assert scene.runner.active is not None
    scene.stack.enter_context(scene.ctx.guard.rolling_back())
    await scene.stack.enter_async_context(scene.runner.active.frozen())


async def completing_its_sentinels(scene: Scene) -> None:
    scene.model.may_answer = anyio.Event()
    await scene.reach(CompletingSentinelsCodon)


async def being_stopped(scene: Scene) -> None:
    await at_work(scene)
    scene.agent.may_die = anyio.Event()
    scene.tasks.start_soon(scene.runner.skip)
    await scene.agent.stopped.wait()


async def waiting_for_its_retry(scene: Scene) -> None:
    await scene.finish("two", exit_code=1)
    await scene.until(lambda: bool(events_of(scene.folder / "execution", CodonRetrying)))


async def failed(scene: Scene) -> None:
    await scene.finish("one", exit_code=1)


async def between_codons(scene: Scene) -> None:
    await scene.finish("one")


async def completed(scene: Scene) -> None:
    await scene.finish("one", "two")


async def in_a_rollback(scene: Scene) -> None:
    await scene.finish("one")
    scene.stack.enter_context(scene.ctx.guard.rolling_back())


async def after_half_a_rollback(scene: Scene) -> None:
    await scene.finish("one")
    scene.ctx.guard.leave(half_restored=True)


async def shutting_down_idle(scene: Scene) -> None:
    await scene.finish("one")
    await scene.runner.close(Halt("the end"))


async def shutting_down_at_work(scene: Scene) -> None:
    await at_work(scene)
    scene.agent.may_die = anyio.Event()
    scene.tasks.start_soon(scene.runner.close, Halt("the end", checkpoint_kind="exit"))
    await scene.agent.stopped.wait()


async def without_room_idle(scene: Scene) -> None:
    await scene.finish("one")
    await scene.fill_the_disk()


async def without_room_at_work(scene: Scene) -> None:
    await at_work(scene)
    await scene.fill_the_disk()


Place = Callable[[Scene], Awaitable[None]]
OK = "accepted"
RUNNING = ErrorCode.CODON_RUNNING.value
NONE_RUNS = ErrorCode.NO_CODON_RUNNING.value
UNKNOWN = ErrorCode.UNKNOWN_CODON.value
NOTHING = ErrorCode.NOTHING_TO_RUN.value
ROLLBACK = ErrorCode.ROLLBACK_IN_PROGRESS.value
CLOSING = ErrorCode.SHUTTING_DOWN.value
NO_ROOM = ErrorCode.INSUFFICIENT_SPACE.value

TABLE: Mapping[Place, tuple[str, str, str, str, str, str]] = {
    # Columns: start, start unknown, next, redo, skip, forceStop.
    nothing_has_run: (OK, UNKNOWN, OK, NOTHING, NONE_RUNS, NONE_RUNS),
    in_its_rig: (RUNNING, RUNNING, RUNNING, RUNNING, OK, OK),
    being_started: (RUNNING, RUNNING, RUNNING, RUNNING, OK, OK),
    awaiting_its_session: (RUNNING, RUNNING, RUNNING, RUNNING, OK, OK),
    at_work: (RUNNING, RUNNING, RUNNING, RUNNING, OK, OK),
    frozen: (ROLLBACK, ROLLBACK, ROLLBACK, ROLLBACK, ROLLBACK, ROLLBACK),
    completing_its_sentinels: (RUNNING, RUNNING, RUNNING, RUNNING, OK, OK),
    being_stopped: (RUNNING, RUNNING, RUNNING, RUNNING, OK, OK),
    waiting_for_its_retry: (OK, UNKNOWN, OK, OK, NONE_RUNS, OK),
    failed: (OK, UNKNOWN, OK, OK, NONE_RUNS, NONE_RUNS),
    between_codons: (OK, UNKNOWN, OK, OK, NONE_RUNS, NONE_RUNS),
    completed: (OK, UNKNOWN, NOTHING, OK, NONE_RUNS, NONE_RUNS),
    in_a_rollback: (ROLLBACK, ROLLBACK, ROLLBACK, ROLLBACK, ROLLBACK, ROLLBACK),
    after_half_a_rollback: (ROLLBACK, ROLLBACK, ROLLBACK, ROLLBACK, NONE_RUNS, NONE_RUNS),
    shutting_down_idle: (CLOSING, CLOSING, CLOSING, CLOSING, NONE_RUNS, NONE_RUNS),
    shutting_down_at_work: (RUNNING, RUNNING, RUNNING, RUNNING, OK, OK),
    without_room_idle: (NO_ROOM, NO_ROOM, NO_ROOM, NO_ROOM, NONE_RUNS, NONE_RUNS),
    without_room_at_work: (NO_ROOM, NO_ROOM, NO_ROOM, NO_ROOM, OK, OK),
}

PAIRS = [
    pytest.param(place, name, expected, id=f"{name}, {place.__name__.replace('_', ' ')}")
    for place, row in TABLE.items()
    for name, expected in zip(ORDERS, row, strict=True)
]

ENDS: Mapping[tuple[Place, str], type[CodonExecution]] = {
    (place, name): kind
    for place in (in_its_rig, being_started, awaiting_its_session, at_work, without_room_at_work)
    for name, kind in (("skip", SkippedCodon), ("forceStop", FailedCodon))
} | {
    # The agent's work is done: only the wait for sentinels is cut short.
    (completing_its_sentinels, "skip"): CompletedCodon,
    (completing_its_sentinels, "forceStop"): CompletedCodon,
    # The first command counts.
    (being_stopped, "forceStop"): SkippedCodon,
    (shutting_down_at_work, "skip"): FailedCodon,
    (waiting_for_its_retry, "forceStop"): FailedCodon,
}


@pytest.mark.parametrize(("place", "name", "expected"), PAIRS)
@pytest.mark.full
async def test_an_order_is_done_or_refused_as_the_table_says(
    place: Place, name: str, expected: str, tmp_path: Path
) -> None:
    """At every moment each command is accepted, or refused with its code and without an event; the
    codon ends as requested, and the journal always folds to the state."""
    async with a_scene(tmp_path, has_rig=place is in_its_rig) as scene:
        await place(scene)
        before = await journaled(scene)
        if expected == OK:
            answers: list[str] = []

            async def send() -> None:
                answers.append(await scene.order(ORDERS[name]))

            scene.tasks.start_soon(send)
            await took_hold(scene, name, before)
            await scene.end()
            await scene.until(lambda: bool(answers))
            assert answers == [OK]
        else:
            assert await scene.order(ORDERS[name]) == expected
            await anyio.lowlevel.checkpoint()
            assert await journaled(scene) == before
            await scene.end()

        await journaled(scene)
        if (kind := ENDS.get((place, name))) is not None:
            assert isinstance(scene.newest, kind)


async def took_hold(scene: Scene, name: str, before: int) -> None:
    """Wait until a command visibly takes effect: a codon starts, or is asked to end."""
    if name in ("skip", "forceStop"):
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
    else:
        await scene.until(lambda: scene.ctx.ledger.last_seq > before)


async def journaled(scene: Scene) -> int:
    """Return the number of events, after checking that they fold to the state."""
    ledger, seen = scene.ctx.ledger, -1
    while seen != ledger.last_seq:
        seen = ledger.last_seq
        await anyio.sleep(QUIET)
        await ledger.flush()

    events = journal(scene.folder / "execution")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    folded, state = fold(events), scene.ctx.ledger.state
    assert replace(folded, last_event_seq=0) == replace(state, last_event_seq=0)
    return len(events)


@asynccontextmanager
async def a_scene(folder: Path, *, has_rig: bool) -> AsyncIterator[Scene]:
    """Create an execution with all components except sockets."""
    agent, model = HeldAgent(), Actor()
    agent.may_die.set()
    async with components(Layout.of_execution(folder / "execution")) as found:
        ctx = found.context(
            _hank(folder, has_rig=has_rig),
            agent_for=lambda codon: agent,
            models=Cast({"play/actor": model}),
        )
        runner = Runner(ctx, autostart=False)
        recovery = Recovery(ctx, runner, Rollback(ctx, runner), frozenset())
        found.tasks.start_soon(runner.run)
        await recovery.begin_if_new()
        dispatch = _dispatch(ctx, runner)
        async with AsyncExitStack() as stack:
            yield Scene(folder, ctx, runner, dispatch, agent, model, found.tasks, stack)


def _hank(folder: Path, *, has_rig: bool) -> Path:
    """Write a hank whose codon one has a sentinel and, on request, a rig that waits for a file."""
    waits = f"touch {folder}/rig-runs; until [ -e {folder}/go ]; do sleep 0.01; done"
    rig = [rig_command(waits)] if has_rig else []
    sentinel = a_sentinel(
        trigger={"type": "event", "on": ["assistant.action"]}, userPromptText="Look."
    )
    return write_hank(
        folder / "hank",
        codon("one", rigSetup=rig, sentinels=[{"sentinelConfig": sentinel}]),
        codon("two", onFailure="retry", retryConfig={"maxAttempts": 3, "delayMs": 60_000}),
    )


def _dispatch(ctx: ExecutionContext, runner: Runner) -> Dispatch:
    """Return a dispatcher with only the handler for codon commands."""

    def nobody(*_: Any) -> None:
        raise AssertionError("no order to a codon comes here")

    control = Control(ctx, runner, stop=nobody, kill=nobody)
    return Dispatch(ctx, [control], space=ctx.ledger.space, quiet=Quiet())
