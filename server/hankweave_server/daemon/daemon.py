"""The life of the server, on one exit stack: lock, recover, listen, run, drain, release.

Every resource registers its own cleanup, so shutdown is startup in reverse: nothing writes after
the ledger is closed, and the lock is released last, after all writers have ended.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread

from hankweave_protocol.errors import Refused
from hankweave_protocol.events import (
    ErrorEvent,
    EventData,
    ExecutionBranched,
    Info,
    ServerIdle,
    ServerReady,
    ServerStopping,
    StateTransition,
)
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import State
from hankweave_protocol.transitions import RunStarted
from hankweave_server import __version__, fsutil
from hankweave_server.agents.process import peers
from hankweave_server.app import App, OpenedExecution
from hankweave_server.background_tasks import alongside, task_group
from hankweave_server.clock import Clock
from hankweave_server.daemon.observers import Observer, OpensObserver, traceparent_of
from hankweave_server.daemon.shutdown import (
    AsksAtInterrupt,
    Signals,
    StopSwitch,
    fence,
    kill,
    leave_terminal,
    require_lock,
)
from hankweave_server.daemon.startup import (
    StartFindings,
    collect_garbage_rarely,
    make_run_folder,
    recover,
)
from hankweave_server.domain.costs import Prices
from hankweave_server.domain.execution_thread import next_codon
from hankweave_server.domain.lifecycle import reason_of_stop
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.execution.codon.run import Halt
from hankweave_server.execution.context import redactor_of
from hankweave_server.execution.event_log import EventLog
from hankweave_server.execution.runner import Outcome
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.hank.advice import advice
from hankweave_server.hank.load import LoadedHank
from hankweave_server.installed import parts
from hankweave_server.ledger.disk_space import Space
from hankweave_server.ledger.writer import LedgerFailed, Published
from hankweave_server.local.executions import (
    ChosenExecution,
    hide,
    prepare,
)
from hankweave_server.local.register import register
from hankweave_server.local.takeover import (
    disk_stop,
    open_engine,
    open_ledger,
    refuse_moved_store,
    sweep_agents,
)
from hankweave_server.local.targeting import attach_line
from hankweave_server.logs import flush, logger, server_log
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.held import HeldLock, acquire
from hankweave_server.runtime_lock.lock_file import LockLost, require_own_processes
from hankweave_server.settings import RunSettings
from hankweave_server.transport.exposure import exposure_of
from hankweave_server.transport.listener import ListenerSettings, serve
from hankweave_server.transport.sockets import Port
from hankweave_server.worktree.data_listing import DataListing

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


SWITCH_SECONDS = 0.0005
"""Seconds after which a thread that computes gives the interpreter to one that waits for it."""

SCAN_SECONDS = 0.5
"""Seconds for which an orderly end waits for the search for secrets in the last checkpoints."""


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
        report_ready: Callable[[ServerReady, Callable[[], State]], None],
        report_event: Callable[[Published], None],
        port: Port | None = None,
        interrupts: AsksAtInterrupt | None = None,
        observers: Sequence[OpensObserver] = (),
    ) -> None:
        """`port` was reserved for this server before anything on the disk was changed.

        `interrupts` asks at the first Ctrl-C what to do with a running codon.
        """
        self._settings = settings
        self._port = port
        self._chosen = chosen
        self._hank = hank
        self._clock = clock
        self._prices = prices
        self._observers = observers
        self._report_ready = report_ready
        self._report_event = report_event
        self._switch = StopSwitch()
        self._signals = Signals(
            self._switch,
            interrupts,
            is_headless=settings.headless,
            detach=self._detach if settings.keep_running else None,
        )
        self._exits_at_once = False

    async def live(self) -> ExitCode:
        """Serve until a request to stop; raise Stop if it cannot serve at all."""
        async with task_group() as watch:
            # From here on no signal interrupts an operation halfway, recovery included.
            await watch.start(self._signals.watch)
            await self._live_in(self._chosen.layout)
            watch.cancel_scope.cancel()

        return self._switch.exit_code

    def _detach(self) -> None:
        """Go on without the terminal, and say in the log how to see the server again."""
        layout = self._chosen.layout
        leave_terminal(layout.server_log)
        log.info(
            "The terminal was closed; the server goes on. See it: %s", attach_line(layout.root)
        )

    async def _live_in(self, layout: Layout) -> None:
        async with AsyncExitStack() as stack:
            require_own_processes()
            refuse_moved_store(layout)
            fsutil.make_private_directory(layout.state_directory)
            hide(layout)
            # In a thread: it may have to watch another program's heartbeat for a minute.
            lock = await anyio.to_thread.run_sync(acquire, layout, self._clock)
            self._switch.set_lock(lock)
            stack.callback(lock.release)
            due = [part.finish(layout) for part in parts("unfinished")]
            for folder in layout.folders_of_small_files:
                fsutil.clear_temporaries(folder)

            fsutil.make_private_directory(layout.server_log.parent)
            settings = self._settings
            redactor = redactor_of(self._hank.hank, os.environ)
            stack.enter_context(
                server_log(
                    layout.server_log,
                    logging.getLevelName(settings.log_level.upper()),
                    as_json=settings.log_format == "json",
                    clean=redactor.text,
                )
            )
            log.info("Starting Hankweave %s as pid %d", __version__, os.getpid())
            for sentence in advice(self._hank):
                log.warning("hank.json: %s", sentence)

            for sentence in filter(None, due):
                log.warning("%s", sentence)

            stack.callback(self._log_the_end)
            differences = prepare(self._chosen, self._hank, self._settings, self._clock)
            unlisted = _registered(layout)
            agents = await sweep_agents(layout)
            engine = await open_engine(layout, watches=settings.watch == "auto")
            stack.callback(engine.close)
            ledger = await open_ledger(layout, self._clock, engine, redactor)
            stack.enter_context(ledger.subscribe(self._report_event))
            stack.enter_context(ledger.subscribe(EventLog(layout, self._clock).handle))
            notes = RunNotes(lock, layout)
            stack.enter_context(ledger.subscribe(notes.handle))
            data = DataListing(layout)
            stack.callback(data.close)
            past = StartFindings(differences, agents, engine.leftovers, unlisted)
            opened = OpenedExecution(
                layout,
                self._clock,
                lock,
                ledger,
                engine,
                self._hank,
                self._settings,
                self._prices,
                data,
            )
            await self._serve_execution(opened, past, notes)

    async def _serve_execution(
        self, opened: OpenedExecution, past: StartFindings, notes: RunNotes
    ) -> None:
        try:
            # Before anything is published: one may recall the run from the journal.
            observers = [await opens(opened) for opens in self._observers]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(opened.ledger.run)
                tasks.start_soon(partial(notes.run, on_lost=fence))
                tasks.start_soon(opened.ledger.space.watch)
                tasks.start_soon(partial(opened.lock.heartbeat, on_lost=fence))
                app = App(
                    opened,
                    stop=self._switch.request_stop,
                    kill=kill,
                    require_lock=partial(require_lock, opened.lock),
                    on_idle=self._on_idle,
                    on_problem=partial(_notice, observers),
                    traceparent=traceparent_of(observers),
                )
                with ExitStack() as heeding:
                    for each in observers:
                        heeding.enter_context(opened.ledger.subscribe(each.handle))
                        tasks.start_soon(each.run)

                    await recover(app, opened, past)
                    async with task_group() as services:
                        await self._serve(app, opened, services)
                        # Before the ledger closes, so that none of them records anything then.
                        services.cancel_scope.cancel()

                await self._send_the_rest(observers)
                await opened.ledger.aclose()
                tasks.cancel_scope.cancel()
        except* (LedgerFailed, InsufficientSpace, ShadowRepositoryError) as failures:
            raise disk_stop(failures, opened.layout.root) from None
        finally:
            await opened.ledger.space.release()

    async def _send_the_rest(self, observers: Sequence[Observer]) -> None:
        within = self._switch.left_of(CLOSING_SECONDS)
        async with anyio.create_task_group() as sending:
            for each in observers:
                sending.start_soon(each.finish, within)

    # --- service -------------------------------------------------------------------------------

    async def _serve(
        self, app: App, opened: OpenedExecution, services: anyio.abc.TaskGroup
    ) -> None:
        layout = opened.layout
        settings = ListenerSettings(
            controller_token=layout.controller_token,
            viewer_token=layout.viewer_token,
            traffic_log=layout.traffic_log,
            exposure=exposure_of(self._settings),
            port=self._settings.port,
            # A server for one command is at no address that anybody keeps.
            address=None if self._settings.plan_on_record else layout.server_address,
            new_tokens=self._settings.new_tokens,
            no_token=self._settings.no_token,
            is_refused=peers.is_confined,
            redactor=opened.ledger.redactor,
        )
        async with serve(app.server_api(), settings, self._clock, self._port) as listener:
            app.attach(listener)
            opened.lock.update(
                port=listener.port,
                host=listener.local_host,
                page_url=listener.page_url,
                run_id=opened.ledger.state.current_run_id,
            )
            publish = listener.hub.publish
            with opened.ledger.subscribe(lambda each: publish(each.frame, each.event.seq)):
                log.info("Starting HankweaveRuntime on port %d", listener.port)
                # Once the server is reported ready, its start is in the log, even if it is killed.
                await anyio.to_thread.run_sync(flush)
                collect_garbage_rarely(self._clock)
                # A command's next step gets the interpreter from background work that much sooner.
                sys.setswitchinterval(SWITCH_SECONDS)
                self._report_ready(app.ready(), lambda: opened.ledger.durable_state)
                self._exits_at_once = app.exit_policy.is_immediate and not app.settles
                self._signals.attach(app.runner)
                await app.prepare_confinement()
                services.start_soon(app.runner.run)
                services.start_soon(app.packing.run)
                services.start_soon(app.git_index.run)
                services.start_soon(app.secret_scan.run)
                services.start_soon(app.checkpointer.progress.run)
                services.start_soon(app.checkpointer.keep_watch)
                services.start_soon(app.store_verifier.run)
                services.start_soon(app.time_watch.run)
                for part in app.parts:
                    services.start_soon(part.run)

                services.start_soon(app.rollback.finish_when_space_is_free)
                services.start_soon(app.rollback.clean_up)
                opened.ledger.space.allow_waiting()
                # A request to stop does not wait for the disk space to record the beginning.
                begin, end = partial(self._begin, app, opened), partial(self._end_with_plan, app)
                async with alongside(begin, end):
                    reason = await self._switch.wait()

                await self._drain(app, opened, reason)
                with anyio.move_on_after(min(INDEX_SECONDS, self._switch.left_of(CLOSING_SECONDS))):
                    await app.git_index.write()

                listener.limit_grace(self._switch.left_of(CLOSING_SECONDS))

    async def _begin(self, app: App, opened: OpenedExecution) -> None:
        """Continue with the plan, or record why not.

        A client may be faster: what it starts, or the place it rolls back to, is left as it is.
        """
        await app.ctx.guard.settled()
        if not app.ctx.has_hank:
            await opened.ledger.record(
                ServerIdle(reason="startup", message="There is no plan; waiting for commands.")
            )
        elif app.runner.outcome is Outcome.FAILED:
            self._on_idle(Outcome.FAILED)
        elif not app.runner.begins_by_itself:
            pass
        elif self._settings.begin_at is not None:
            if await self._may_begin(app):
                await self._begin_at(self._settings.begin_at, app)
        elif app.runner.upcoming is None:
            await self._report_nothing_to_do(app, opened)
        elif self._settings.autostart:
            if await self._may_begin(app):
                await app.runner.start_next_if_any()
        else:
            await opened.ledger.record(
                ServerIdle(reason="startup", message="Waiting for a command.")
            )

    async def _may_begin(self, app: App) -> bool:
        """Give the client that started the server time to connect before events are published.

        Return False if a client has started a codon or rolled back meanwhile.
        """
        if not self._settings.headless:
            with anyio.move_on_after(FIRST_CLIENT_SECONDS):
                await app.first_client.wait()

        await app.ctx.guard.settled()
        return app.runner.begins_by_itself

    async def _report_nothing_to_do(self, app: App, opened: OpenedExecution) -> None:
        app.runner.note_end()
        if next_codon(app.ctx.state) is not None:
            until = self._settings.until
            message = f"Codon {until} has already run; --until ends the plan there."
            await opened.ledger.record(ServerIdle(reason="startup", message=message))
            self._on_idle(Outcome.COMPLETED)
            return

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
        self._on_idle(Outcome.COMPLETED)

    async def _begin_at(self, codon_id: CodonId, app: App) -> None:
        """Start the codon that the plan begins again with; end the server if it cannot."""
        try:
            app.runner.start(codon_id)
        except Refused as refused:
            message = " ".join(filter(None, (refused.message, refused.hint)))
            await app.ctx.ledger.record(ErrorEvent(message=message, fatal=True))
            self._switch.request_stop(refused.message, ExitCode.UNAVAILABLE)

    def _on_idle(self, outcome: Outcome) -> None:
        if self._signals.ends_after_codon and outcome is not Outcome.COMPLETED:
            self._signals.request_stop("SIGINT")
        elif self._signals.ends_after_codon:
            self._switch.request_stop("SIGINT")
        elif self._exits_at_once:
            self._end_after(outcome)

    async def _end_with_plan(self, app: App) -> None:
        self._end_after(await app.exit_policy.wait(app.ctx, app.runner, app.settle))

    def _end_after(self, outcome: Outcome) -> None:
        match outcome:
            case Outcome.COMPLETED:
                self._switch.request_stop("all codons completed")
            case Outcome.FAILED:
                self._switch.request_stop("a codon failed", ExitCode.FAILED)
            case Outcome.WAITING:
                pass

    # --- end -----------------------------------------------------------------------------------

    async def _drain(self, app: App, opened: OpenedExecution, reason: str) -> None:
        """End the agent, take the `exit` checkpoint, close the run; bounded in time."""
        log.info("Stopping: %s", reason)
        app.begin_shutdown()
        with anyio.move_on_after(self._switch.left_of(DRAIN_SECONDS)) as scope:
            async with alongside(
                partial(self._shorten_drain_on_full_disk, opened.ledger.space, scope)
            ):
                opened.ledger.leave(ServerStopping(reason=reason))
                halt = Halt(reason_of_stop(reason), checkpoint_kind="exit")
                await app.runner.close(halt)
                for part in app.parts:
                    await part.close()

                with anyio.move_on_after(SCAN_SECONDS):
                    await app.secret_scan.settle()

                await opened.ledger.flush()

        if not scope.cancelled_caught:
            return

        log.error("The shutdown took too long; the next start recovers")
        self._switch.end_with(ExitCode.SOFTWARE)
        if opened.ledger.space.is_short:
            # End the waiting for space: it raises the error that the user has to read.
            self._switch.end_with(ExitCode.IO_ERROR)
            opened.ledger.space.give_up()
            await opened.ledger.aclose()

    async def _shorten_drain_on_full_disk(self, space: Space, drain: anyio.CancelScope) -> None:
        """Shorten the drain as soon as the disk is full, to leave time to report why."""
        await space.shortage()
        left = self._switch.left_of(DRAIN_SECONDS_WITHOUT_ROOM)
        drain.deadline = min(drain.deadline, anyio.current_time() + left)

    def _log_the_end(self) -> None:
        log.info("Stopped: %s", self._switch.reason or "an error, shown on the terminal")


def _registered(layout: Layout) -> str | None:
    """Note the execution for `hankweave ls`; return why not, which is no reason not to serve it."""
    try:
        register(layout.root)
    except OSError as error:
        return f"`hankweave ls` may not list this execution: {fsutil.described(error, layout.root)}"

    return None


def _notice(observers: Sequence[Observer], event: EventData) -> None:
    for each in observers:
        each.notice(event)


class RunNotes:
    """Keeps the runId in runtime.lock up to date, creates run folders, and registers branches.

    The ledger reports a run in its publishing stretch, in which nothing may block or raise. A task
    writes it down, in a worker thread.
    """

    def __init__(self, lock: HeldLock, layout: Layout) -> None:
        self._lock = lock
        self._layout = layout
        self._new: list[RunId] = []
        self._branches: list[Path] = []
        self._wake = anyio.Event()

    def handle(self, published: Published) -> None:
        data = published.event.data
        if isinstance(data, StateTransition) and data.transition_type == RunStarted.TYPE:
            assert data.run_id is not None
            self._new.append(data.run_id)
            self._wake.set()
        elif isinstance(data, ExecutionBranched):
            self._branches.append(Path(data.execution_path))
            self._wake.set()

    async def run(self, *, on_lost: Callable[[LockLost], None]) -> None:
        """Write down each run until cancelled; report a lost directory to `on_lost`, and end.

        Raises Stop if the disk fails.
        """
        try:
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                new, self._new = self._new, []
                branches, self._branches = self._branches, []
                await anyio.to_thread.run_sync(self._write_down, new, branches)
        except LockLost as lost:
            on_lost(lost)
        except OSError as error:
            raise lock_stop(self._layout, error) from None

    def _write_down(self, new: list[RunId], branches: list[Path]) -> None:
        for branch in branches:
            with suppress(OSError):  # It is registered when it is served.
                register(branch)

        if new:
            self._lock.update(run_id=new[-1])

        for run_id in new:
            make_run_folder(self._layout, run_id)


def lock_stop(layout: Layout, error: OSError) -> Stop:
    return Stop(
        f"{layout.runtime_lock} cannot be written: {error}",
        ExitCode.IO_ERROR,
        hint="Check the disk, then start again; everything that was acknowledged is safe.",
    )
