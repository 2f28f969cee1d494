"""The life of the server, on one exit stack: lock, recover, listen, run, drain, release.

Every resource registers its own cleanup, so shutdown is startup in reverse: nothing writes after
the ledger is closed, and the lock is released last, after all writers have ended.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Literal, Protocol

import anyio
import anyio.abc
import anyio.to_thread
from anyio.abc import TaskStatus

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import (
    ErrorEvent,
    HankChanged,
    Info,
    ServerIdle,
    ServerReady,
    ServerStarted,
    ServerStopping,
    StateRecovered,
    StateTransition,
)
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import StateValidation
from hankweave_protocol.state import State
from hankweave_protocol.transitions import RunStarted
from hankweave_server import __version__, fsutil
from hankweave_server.agents.process.process_table import containment
from hankweave_server.app import App, OpenedExecution
from hankweave_server.background_tasks import alongside
from hankweave_server.checkpoints.errors import RestoreIncomplete
from hankweave_server.clock import Clock
from hankweave_server.domain.costs import Prices
from hankweave_server.domain.history import next_codon
from hankweave_server.domain.lifecycle import reason_of_stop
from hankweave_server.domain.liveness import PreviousOwner
from hankweave_server.domain.validation import corrected, validate
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.execution.branch.location import TEMPORARY
from hankweave_server.execution.codon.environment import whereabouts
from hankweave_server.execution.codon.run import Halt
from hankweave_server.execution.event_log import EventLog
from hankweave_server.execution.maintenance.fsck import recorded_checkpoints, reported_costs
from hankweave_server.execution.recovery import Recovered
from hankweave_server.execution.resume import PlanConflict
from hankweave_server.execution.runner import Outcome, Runner
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.hank.advice import advice
from hankweave_server.hank.load import LoadedHank
from hankweave_server.ledger.disk_space import Space
from hankweave_server.ledger.writer import Ledger, LedgerFailed, Published
from hankweave_server.local.executions import (
    ChosenExecution,
    ExecutionChanges,
    hide,
    prepare,
    take_hank,
)
from hankweave_server.local.takeover import (
    disk_stop,
    open_engine,
    open_ledger,
    refuse_moved_store,
    sweep_agents,
)
from hankweave_server.logs import logger, server_log
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock import HeldLock, LockLost, acquire
from hankweave_server.settings import RunSettings
from hankweave_server.transport.listener import ListenerSettings, serve
from hankweave_server.transport.sockets import Port

log = logger(__name__)

DRAIN_SECONDS = 6.0
"""How long the agent, the exit checkpoint and a running rollback may take to end."""

DRAIN_SECONDS_WITHOUT_ROOM = 4.0
"""The same on a full disk: enough for the agent, and the rest is unlikely to succeed."""

FIRST_CLIENT_SECONDS = 2.0
"""How long the plan waits for a client, so that it sees the first codon start."""

INDEX_SECONDS = 1.0
"""How long shutdown waits for the index that stock git reads; else the next start writes it."""

CLOSING_SECONDS = 7.2
"""Seconds after the request to stop by which clients must have disconnected."""

LAST_SECONDS = 7.8
"""Seconds until the process exits, whatever still runs: a shutdown may take eight in all."""


@dataclass
class StopSwitch:
    """The first request to stop, and the exit code of the process."""

    reason: str | None = None
    exit_code: ExitCode = ExitCode.DONE
    on_flipped: Callable[[], None] = lambda: None
    _since: float = 0.0
    _flipped: anyio.Event = field(default_factory=anyio.Event)

    def flip(self, reason: str, exit_code: ExitCode = ExitCode.DONE) -> None:
        if self.reason is None:
            self.reason, self.exit_code = reason, exit_code
            self._since = anyio.current_time()
            self._flipped.set()
            self.on_flipped()

    def left_of(self, seconds: float) -> float:
        """Return the seconds left of a time span that began with the request to stop."""
        return max(0.0, self._since + seconds - anyio.current_time())

    async def wait(self) -> str:
        await self._flipped.wait()
        assert self.reason is not None
        return self.reason


@dataclass(frozen=True, slots=True)
class StartFindings:
    """The traces of the previous server that this start found."""

    differences: ExecutionChanges
    agents: tuple[int, ...]
    files: tuple[str, ...]


Choice = Literal["finish", "stop", "go on"]
"""Choices at Ctrl-C: end after this codon, end at once, or continue."""


class AsksAtInterrupt(Protocol):
    """Asks the user what to do with the running codon."""

    async def ask(self) -> Choice: ...


class Daemon:
    """The life of one server in one execution directory."""

    def __init__(
        self,
        settings: RunSettings,
        chosen: ChosenExecution,
        hank: LoadedHank,
        clock: Clock,
        *,
        prices: Prices,
        tell_ready: Callable[[ServerReady, Callable[[], State]], None],
        tell_event: Callable[[Published], None],
        port: Port | None = None,
        interrupts: AsksAtInterrupt | None = None,
    ) -> None:
        """`port` was reserved for this server before anything on the disk was changed.

        `interrupts` asks at the first Ctrl-C what to do with a running codon.
        """
        self._interrupts = interrupts
        self._asking: anyio.CancelScope | None = None
        self._ends_after_codon = False
        self._runner: Runner | None = None
        self._settings = settings
        self._port = port
        self._chosen = chosen
        self._hank = hank
        self._clock = clock
        self._prices = prices
        self._tell_ready = tell_ready
        self._tell_event = tell_event
        self._switch = StopSwitch(on_flipped=self._bound_the_end)
        self._lock: HeldLock | None = None
        self._exits_at_once = False

    async def live(self) -> ExitCode:
        """Serve until a request to stop; raise Stop if it cannot serve at all."""
        failure: Exception | None = None
        async with anyio.create_task_group() as watch:
            # From here on no signal interrupts an operation halfway, recovery included.
            await watch.start(self._watch_signals)
            try:
                await self._live_in(self._chosen.layout)
            except Exception as error:
                failure = error  # Raised below: the group would wrap it.

            watch.cancel_scope.cancel()

        if failure is not None:
            raise failure

        return self._switch.exit_code

    async def _live_in(self, layout: Layout) -> None:
        async with AsyncExitStack() as stack:
            refuse_moved_store(layout)
            fsutil.make_private_directory(layout.state_directory)
            hide(layout)
            # In a thread: it may have to watch another program's heartbeat for a minute.
            lock = await anyio.to_thread.run_sync(acquire, layout, self._clock)
            self._lock = lock
            stack.callback(lock.release)
            for folder in layout.folders_of_small_files:
                fsutil.clear_temporaries(folder)

            fsutil.make_private_directory(layout.server_log.parent)
            settings = self._settings
            stack.enter_context(
                server_log(
                    layout.server_log,
                    logging.getLevelName(settings.log_level.upper()),
                    as_json=settings.log_format == "json",
                )
            )
            log.info("Starting Hankweave %s as pid %d", __version__, os.getpid())
            for sentence in advice(self._hank):
                log.warning("hank.json: %s", sentence)

            stack.callback(self._log_the_end)
            differences = prepare(self._chosen, self._hank, self._settings, self._clock)
            agents = await sweep_agents(layout)
            engine = await open_engine(layout)
            stack.callback(engine.close)
            ledger = await open_ledger(layout, self._clock, engine)
            stack.enter_context(ledger.subscribe(self._tell_event))
            stack.enter_context(ledger.subscribe(EventLog(layout, self._clock).heed))
            stack.enter_context(ledger.subscribe(partial(_note_run, lock, layout)))
            past = StartFindings(differences, agents, engine.leftovers)
            opened = OpenedExecution(
                layout,
                self._clock,
                lock,
                ledger,
                engine,
                self._hank,
                self._settings,
                self._prices,
            )
            await self._live_with(opened, past)

    async def _live_with(self, opened: OpenedExecution, past: StartFindings) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(opened.ledger.run)
                tasks.start_soon(opened.ledger.space.watch)
                tasks.start_soon(partial(opened.lock.heartbeat, on_lost=self._lock_lost))
                app = App(
                    opened,
                    stop=self._stop_for_client,
                    kill=self._kill_for_client,
                    require_lock=partial(self._require_lock, opened.lock),
                    on_rest=self._on_rest,
                )
                await self._recover(app, opened, past)
                await self._serve(app, opened, tasks)
                await opened.ledger.aclose()
                tasks.cancel_scope.cancel()
        except* (LedgerFailed, InsufficientSpace, ShadowRepositoryError) as failures:
            raise disk_stop(failures.exceptions[0]) from None
        finally:
            await opened.ledger.space.release()

    # --- start ---------------------------------------------------------------------------------

    async def _recover(self, app: App, opened: OpenedExecution, past: StartFindings) -> None:
        await self._say_hello(opened, past)
        recorded = recorded_checkpoints(opened.ledger)
        await app.checkpointer.load(recorded.standing)
        await app.branching.recall_inheritance()
        if pruned := await app.housekeeper.finish_interrupted(recorded):
            log.warning("Recorded %d checkpoints that the previous server had pruned", pruned)
            recorded = recorded_checkpoints(opened.ledger)
            app.checkpointer.note_recorded(recorded.standing)

        await app.housekeeper.forget_lost_journeys()
        await self._validate(app, opened, recorded.pruned)
        recovery = app.recovery(recorded.standing)
        try:
            recovered = await recovery.recover()
        except RestoreIncomplete as error:
            raise Stop(
                f"The files cannot be restored to the execution's current checkpoint: {error}.",
                ExitCode.BAD_DATA,
                hint="Nothing is lost: the safety checkpoint contains the previous files. "
                "See server.log, then start again.",
            ) from None
        except Refused as refused:
            raise Stop(
                f"The files cannot be restored to the execution's current checkpoint: {refused}",
                ExitCode.BAD_DATA,
                hint="This start has changed no files. `hankweave fsck` reports what is "
                "missing; `hankweave run --new --force` sets everything aside and "
                "starts a new execution.",
            ) from None

        await self._finish_branch(app)
        other_hank = past.differences.hank_hash is not None
        with _refusing_what_cannot_begin():
            await recovery.begin_if_new(
                other_hank=other_hank,
                keep_plan=self._settings.force,
                begin_at=self._settings.begin_at,
            )

        if (current := opened.ledger.state.current_run_id) is not None:
            _make_folder(opened.layout, current)

        # The hank counts as known only once the plan that follows it is recorded.
        await opened.ledger.flush()
        take_hank(opened.layout, self._hank, self._settings)
        _log_recovery(recovered)
        app.is_ready = True

    async def _finish_branch(self, app: App) -> None:
        try:
            if await app.branching.finish_interrupted():
                log.warning("Recorded the branch that the previous server had created")
        except (OSError, RecursionError) as error:
            log.warning("The remains of a branch cannot be removed yet: %s", error)
        except Refused as fault:
            path = self._chosen.layout.branch_intent
            raise Stop(
                f"{path} cannot be read: {fault.message}",
                ExitCode.BAD_DATA,
                hint=(
                    f"Remove it, and any {TEMPORARY}* left in the directory where a branch "
                    "was being created."
                ),
            ) from None

    async def _validate(self, app: App, opened: OpenedExecution, pruned: frozenset[Sha]) -> None:
        """Record where the state disagrees with folders, repository or journal.

        Pruned checkpoints do not count as missing.
        """
        recomputed = await anyio.to_thread.run_sync(reported_costs, opened.ledger)

        def judged() -> StateValidation:
            return validate(
                opened.ledger.state,
                run_folders=frozenset(path.name for path in opened.layout.runs.iterdir()),
                checkpoint_exists=(pruned | app.checkpointer.known.keys()).__contains__,
                recorded_missing=app.checkpointer.missing,
                recomputed_costs=recomputed,
            )

        found = judged()
        source: Literal["primary", "journal"] = "primary"
        warnings = found.warnings
        if any(warning.type == "cost_mismatch" for warning in warnings):
            # The journal is the truth; state.json only saves the time of folding it.
            await opened.ledger.refold()
            found, source = judged(), "journal"
            standing = found.warnings
            warnings = tuple(each if each in standing else corrected(each) for each in warnings)

        if found.errors or warnings:
            log.warning("state.json: %d errors, %d warnings", len(found.errors), len(warnings))
            await opened.ledger.record(
                StateRecovered(source=source, errors=found.errors, warnings=warnings)
            )

    async def _say_hello(self, opened: OpenedExecution, past: StartFindings) -> None:
        """Record what was found, before anything is done about it."""
        ledger, previous = opened.ledger, opened.lock.previous
        started = ServerStarted(
            server_version=__version__,
            pid=os.getpid(),
            previous_pid=None if previous is None else previous.pid,
            previous_heartbeat_age_ms=_milliseconds(previous),
            previous_pid_reused=False if previous is None else previous.pid_reused,
            leftover_agents_killed=past.agents,
            leftovers_removed=past.files,
            containment=containment(),
        )
        if previous is not None:
            log.warning("Found dead server: pid %d", previous.pid)

        found = [item for item in (ledger.repair, ledger.recovery) if item is not None]
        await ledger.record(started, *found)
        await self._tell_differences(ledger, past.differences)

    async def _tell_differences(self, ledger: Ledger, found: ExecutionChanges) -> None:
        if found.hank_hash is not None:
            log.warning("hank.json has changed since this execution began")
            await ledger.record(
                HankChanged(previous_hash=found.hank_hash, current_hash=self._hank.hank_hash)
            )

        if found.data is not None:
            await ledger.record(found.data)

        if found.displaced is not None:
            await ledger.record(Info(message=found.displaced.sentence))

        if (sentence := whereabouts(self._chosen.layout)) is not None:
            await ledger.record(Info(message=sentence))

        if found.set_aside:
            names = ", ".join(found.set_aside)
            await ledger.record(Info(message=f"The previous execution was set aside: {names}."))

    # --- service -------------------------------------------------------------------------------

    async def _serve(self, app: App, opened: OpenedExecution, tasks: anyio.abc.TaskGroup) -> None:
        layout = opened.layout
        settings = ListenerSettings(
            controller_token=layout.controller_token,
            viewer_token=layout.viewer_token,
            traffic_log=layout.traffic_log,
            port=self._settings.port,
            no_token=self._settings.no_token,
        )
        async with serve(app.doors(), settings, self._clock, self._port) as listener:
            app.attach(listener)
            opened.lock.update(port=listener.port, run_id=opened.ledger.state.current_run_id)
            publish = listener.hub.publish
            with opened.ledger.subscribe(lambda each: publish(each.frame, each.event.seq)):
                log.info("Starting HankweaveRuntime on port %d", listener.port)
                # Long-lived objects need no visit by each garbage collection, which would block the
                # event loop for that time.
                gc.freeze()
                self._tell_ready(app.ready(), lambda: opened.ledger.durable_state)
                self._exits_at_once = app.exit_policy.is_immediate
                self._runner = app.runner
                tasks.start_soon(app.runner.run)
                tasks.start_soon(app.packing.run)
                tasks.start_soon(app.git_index.run)
                tasks.start_soon(app.checkpointer.progress.run)
                tasks.start_soon(app.time_watch.run)
                tasks.start_soon(app.rollback.finish_when_there_is_room)
                opened.ledger.space.be_patient()
                # A request to stop does not wait for the disk space to record the beginning.
                begin, end = partial(self._begin, app, opened), partial(self._end_with_plan, app)
                async with alongside(begin, end):
                    reason = await self._switch.wait()

                await self._drain(app, opened, reason)
                with anyio.move_on_after(min(INDEX_SECONDS, self._switch.left_of(CLOSING_SECONDS))):
                    await app.git_index.write()

                listener.hurry(self._switch.left_of(CLOSING_SECONDS))

    async def _begin(self, app: App, opened: OpenedExecution) -> None:
        """Continue with the plan, or record why not."""
        if not app.ctx.has_hank:
            await opened.ledger.record(
                ServerIdle(reason="startup", message="There is no plan; waiting for commands.")
            )
        elif app.runner.outcome is Outcome.FAILED:
            self._on_rest(Outcome.FAILED)
        elif self._settings.begin_at is not None:
            await self._await_first_client(app)
            await self._begin_at(self._settings.begin_at, app)
        elif next_codon(app.ctx.state) is None:
            await self._tell_nothing_to_do(app, opened)
        elif self._settings.autostart:
            await self._await_first_client(app)
            if not app.runner.is_busy and not app.runner.is_rolling_back:
                await app.runner.start_next_if_any()
        else:
            await opened.ledger.record(
                ServerIdle(reason="startup", message="Waiting for a command.")
            )

    async def _await_first_client(self, app: App) -> None:
        """Give the client that started the server time to connect before events are published."""
        if not self._settings.headless:
            with anyio.move_on_after(FIRST_CLIENT_SECONDS):
                await app.first_client.wait()

    async def _tell_nothing_to_do(self, app: App, opened: OpenedExecution) -> None:
        app.runner.outcome = Outcome.COMPLETED
        name = opened.layout.root.name
        await opened.ledger.record(
            Info(
                message=f"Resumed completed execution {name} — nothing to do. "
                "All codons already completed. Use --new to run fresh."
            ),
            ServerIdle(
                reason="all-codons-completed",
                message="Resumed completed execution: nothing to do.",
            ),
        )
        self._on_rest(Outcome.COMPLETED)

    async def _begin_at(self, codon_id: CodonId, app: App) -> None:
        """Start the codon that the plan begins again with; end the server if it cannot."""
        try:
            app.runner.start(codon_id)
        except Refused as refused:
            message = " ".join(filter(None, (refused.message, refused.hint)))
            await app.ctx.ledger.record(ErrorEvent(message=message, fatal=True))
            self._switch.flip(refused.message, ExitCode.UNAVAILABLE)

    def _on_rest(self, outcome: Outcome) -> None:
        if self._ends_after_codon and outcome is not Outcome.COMPLETED:
            self._flip_by_signal("SIGINT")
        elif self._ends_after_codon:
            self._switch.flip("SIGINT")
        elif self._exits_at_once:
            self._end_after(outcome)

    async def _end_with_plan(self, app: App) -> None:
        self._end_after(await app.exit_policy.wait(app.ctx, app.runner))

    def _end_after(self, outcome: Outcome) -> None:
        match outcome:
            case Outcome.COMPLETED:
                self._switch.flip("all codons completed")
            case Outcome.FAILED:
                self._switch.flip("a codon failed", ExitCode.FAILED)
            case Outcome.WAITING:
                pass

    # --- end -----------------------------------------------------------------------------------

    async def _drain(self, app: App, opened: OpenedExecution, reason: str) -> None:
        """End the agent, take the `exit` checkpoint, close the run; bounded in time."""
        log.info("Stopping: %s", reason)
        app.is_ready = False
        app.packing.stop()
        app.branching.stop()
        app.time_watch.stop()
        with anyio.move_on_after(self._switch.left_of(DRAIN_SECONDS)) as scope:
            async with alongside(partial(self._hurry_without_room, opened.ledger.space, scope)):
                opened.ledger.leave(ServerStopping(reason=reason))
                halt = Halt(reason_of_stop(reason), checkpoint_kind="exit")
                await app.runner.close(halt)
                await opened.ledger.flush()

        if not scope.cancelled_caught:
            return

        log.error("The shutdown took too long; the next start recovers")
        self._switch.exit_code = ExitCode.SOFTWARE
        if opened.ledger.space.is_short:
            # End the waiting for space: it raises the error that the user has to read.
            self._switch.exit_code = ExitCode.IO_ERROR
            opened.ledger.space.give_up()
            await opened.ledger.aclose()

    async def _hurry_without_room(self, space: Space, drain: anyio.CancelScope) -> None:
        """Shorten the drain as soon as the disk is full, to leave time to report why."""
        await space.shortage()
        left = self._switch.left_of(DRAIN_SECONDS_WITHOUT_ROOM)
        drain.deadline = min(drain.deadline, anyio.current_time() + left)

    async def _watch_signals(self, *, task_status: TaskStatus[None]) -> None:
        async with anyio.create_task_group() as asking:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
                task_status.started()
                async for number in received:
                    if number == signal.SIGINT and self._may_ask():
                        self._asking = anyio.CancelScope()
                        asking.start_soon(self._ask_what_to_do, self._asking)
                    else:
                        if self._asking is not None:
                            self._asking.cancel()  # An answer would come too late.

                        self._flip_by_signal(signal.Signals(number).name)

    def _may_ask(self) -> bool:
        """Return whether a Ctrl-C asks: on a terminal, the first time, while a codon runs."""
        is_first = self._asking is None and not self._ends_after_codon
        is_working = self._runner is not None and self._runner.is_busy
        return self._interrupts is not None and is_first and is_working

    async def _ask_what_to_do(self, asking: anyio.CancelScope) -> None:
        assert self._interrupts is not None
        chosen: Choice = "stop"
        with asking:
            chosen = await self._interrupts.ask()

        self._asking = None
        match chosen:
            case "stop":
                self._flip_by_signal("SIGINT")
            case "finish" if self._runner is not None:
                self._ends_after_codon = True
                self._runner.hold()
                if not self._runner.is_busy:
                    self._flip_by_signal("SIGINT")
            case _:
                return

    def _flip_by_signal(self, name: str) -> None:
        unfinished = self._settings.headless
        self._switch.flip(name, ExitCode.FAILED if unfinished else ExitCode.DONE)

    def _bound_the_end(self) -> None:
        """Make sure that the process ends, whatever a thread is still busy with.

        It is a timer in its own thread, because the event loop may be blocked. It outlives the
        loop: the interpreter waits for all other threads before it exits.
        """
        timer = threading.Timer(LAST_SECONDS, self._end_at_once)
        timer.daemon = True
        timer.start()

    def _end_at_once(self) -> None:
        """End as in a crash, from which the next start recovers, but remove the lock file."""
        if self._lock is None or self._lock.is_released:
            os._exit(self._switch.exit_code)  # Everything is recorded; remaining threads only read.

        log.error("The shutdown took too long; the next start recovers")
        self._lock.abandon()
        os._exit(ExitCode.SOFTWARE)

    def _log_the_end(self) -> None:
        log.info("Stopped: %s", self._switch.reason or "an error, shown on the terminal")

    def _stop_for_client(self, reason: str) -> None:
        self._switch.flip(reason)

    def _kill_for_client(self, reason: str) -> None:
        """Exit at once; agents die with this process, and the next start recovers."""
        log.error("Forced to stop: %s", reason)
        os._exit(ExitCode.FAILED)

    def _require_lock(self, lock: HeldLock) -> None:
        try:
            lock.verify()
        except LockLost as lost:
            self._lock_lost(lost)

    def _lock_lost(self, lost: LockLost) -> None:
        """Fence this server: the new owner of the directory must find no second writer."""
        log.error("The runtime lock is lost: %s", lost)
        hint = "" if lost.hint is None else f"\n  hint: {lost.hint}"
        os.write(2, f"hankweave: {lost}{hint}\n".encode())
        os._exit(ExitCode.SOFTWARE)


@contextmanager
def _refusing_what_cannot_begin() -> Iterator[None]:
    """Turn refusals into Stop: the hank does not fit the past, or the codon is unknown."""
    try:
        yield
    except Refused as refused:
        is_unknown = refused.code is ErrorCode.UNKNOWN_CODON
        raise Stop(
            refused.message,
            ExitCode.USAGE if is_unknown else ExitCode.UNAVAILABLE,
            hint=refused.hint,
        ) from None
    except PlanConflict as conflict:
        raise Stop(
            f"The hank no longer matches what has already run: {conflict}.",
            ExitCode.USAGE,
            hint="--new creates a new execution; --force continues with the previous plan.",
        ) from None


def _note_run(lock: HeldLock, layout: Layout, published: Published) -> None:
    """Keep the runId in runtime.lock up to date, and create the folder of a new run."""
    data = published.event.data
    if isinstance(data, StateTransition) and data.transition_type == RunStarted.TYPE:
        assert data.run_id is not None
        lock.update(run_id=data.run_id)
        _make_folder(layout, data.run_id)


def _make_folder(layout: Layout, run_id: RunId) -> None:
    # If this fails, the first codon creates it, and reports an error if it cannot.
    with suppress(OSError):
        fsutil.make_private_directory(layout.run_folder(run_id))


def _milliseconds(previous: PreviousOwner | None) -> int | None:
    if previous is None or previous.heartbeat_age is None:
        return None

    return previous.heartbeat_age // timedelta(milliseconds=1)


def _log_recovery(recovered: Recovered) -> None:
    if recovered.crashed_run is not None:
        codon = recovered.crashed_codon
        log.warning(
            "Run %s crashed%s",
            recovered.crashed_run.run_id,
            "" if codon is None else f" in codon {codon.codon_id}",
        )

    if recovered.adopted:
        log.warning("Adopted %d unrecorded checkpoints", recovered.adopted)

    if recovered.finished_rollback:
        log.warning("Completed an interrupted rollback")
