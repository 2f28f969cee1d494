"""The composition root: the one module that imports every package and wires them together."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from hankweave_protocol import instants
from hankweave_protocol.events import (
    EventData,
    ServerIdle,
    ServerReady,
    StateTransition,
)
from hankweave_protocol.ids import Sha
from hankweave_protocol.replies import ServerStatus, WatchStatus
from hankweave_protocol.state import NO_TOKENS
from hankweave_server import __version__
from hankweave_server.agents.preflight import AgentIdentities
from hankweave_server.agents.process import peers
from hankweave_server.agents.process.process_table import containment
from hankweave_server.agents.registry import AgentSelector
from hankweave_server.api.caller import Caller
from hankweave_server.api.control import Branches, Control
from hankweave_server.api.dispatch import Dispatch
from hankweave_server.api.executions import Executions
from hankweave_server.api.inspect import Inspect, Pings, Queries
from hankweave_server.api.lookup import Sources
from hankweave_server.api.maintenance import StoreMaintenance
from hankweave_server.api.past import PastReader
from hankweave_server.api.rollback import Rollbacks
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.clock import Clock
from hankweave_server.confinement.policy import Level, Probe
from hankweave_server.confinement.probe import prepare_ports, probe
from hankweave_server.domain.budget.allowance import Ceilings, capped
from hankweave_server.domain.budget.report import in_force
from hankweave_server.domain.budget.spending import costs
from hankweave_server.domain.costs import Prices
from hankweave_server.domain.execution_thread import active_codon, next_codon
from hankweave_server.domain.lifecycle import tokens_of, wait_of
from hankweave_server.domain.reuse.decision import ReuseSettings
from hankweave_server.execution.account_limits import AccountLimits, usual_place
from hankweave_server.execution.branch.branch import Branching
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.codon import confinement
from hankweave_server.execution.codon.environment import granted
from hankweave_server.execution.context import (
    ConfinementSettings,
    ExecutionContext,
    FindsTraceparent,
    HankRecord,
    untraced,
)
from hankweave_server.execution.maintenance.fsck import StoreVerifier
from hankweave_server.execution.maintenance.garbage_collection import GarbageCollector
from hankweave_server.execution.maintenance.git_index import GitIndex
from hankweave_server.execution.maintenance.health_monitor import HealthMonitor, TimeWatch
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.execution.maintenance.repack import Repacker
from hankweave_server.execution.maintenance.secret_scan import SecretScan
from hankweave_server.execution.recovery import Recovery
from hankweave_server.execution.rollback.guard import TreeGuard
from hankweave_server.execution.rollback.rollback import Rollback
from hankweave_server.execution.runner import Outcome, Runner
from hankweave_server.execution.session_files import SessionFiles
from hankweave_server.hank.load import LoadedHank
from hankweave_server.installed import parts
from hankweave_server.ledger.writer import Ledger, Published
from hankweave_server.local.catalog import Catalog
from hankweave_server.local.page_address import address_of
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.held import HeldLock
from hankweave_server.sentinels.providers.registry import Models
from hankweave_server.settings import RunSettings
from hankweave_server.transport.auth import is_loopback
from hankweave_server.transport.http import metrics_text
from hankweave_server.transport.listener import Listener
from hankweave_server.transport.server_api import HealthAnswer, ServerApi
from hankweave_server.worktree import data_source
from hankweave_server.worktree.data_listing import DataListing

LINGER = 2.0
"""Seconds between the plan's end and the server's, as in Hankweave.

Clients get the last events in that time, and one that connects keeps the server running.
"""


@dataclass(frozen=True, slots=True)
class OpenedExecution:
    """The resources that must be open before the application is composed."""

    layout: Layout
    clock: Clock
    lock: HeldLock
    ledger: Ledger
    engine: CheckpointEngine
    hank: LoadedHank
    settings: RunSettings
    prices: Prices
    data: DataListing


async def _nothing() -> None: ...


def _unchanged(status: ServerStatus) -> ServerStatus:
    return status


@dataclass(frozen=True, slots=True)
class ServerPart:
    """The work of a feature in a server; the function `part` of its `server_part` returns it."""

    handlers: tuple[object, ...] = ()
    """Objects with methods that handle commands."""
    begin: Callable[[], Coroutine[Any, Any, None]] = _nothing
    """Called when the checkpoints are known, before the recovery."""
    run: Callable[[], Coroutine[Any, Any, None]] = _nothing
    """Works in the background until cancelled."""
    settle: Callable[[], Coroutine[Any, Any, None]] = _nothing
    """Returns when the server may end with its plan; cancelled if it ends anyway, or goes on."""
    close: Callable[[], Coroutine[Any, Any, None]] = _nothing
    """Ends what runs, when the server ends and no codon runs any more."""
    add_status: Callable[[ServerStatus], ServerStatus] = _unchanged
    """Returns the reply to `server.status` with what the feature adds; without disk access."""


class App:
    """The components of one execution, wired together."""

    def __init__(
        self,
        opened: OpenedExecution,
        *,
        stop: Callable[[str], None],
        kill: Callable[[str], None],
        require_lock: Callable[[], None],
        on_idle: Callable[[Outcome], None],
        on_problem: Callable[[EventData], None] = lambda event: None,
        traceparent: FindsTraceparent = untraced,
    ) -> None:
        """`on_problem` is called with problems that the journal may not take at the moment."""
        self._opened = opened
        self._on_problem = on_problem
        self._started = opened.clock.monotonic()
        self._containment = containment()
        self._started_at = instants.to_text(opened.clock.now())
        self._is_ready = False
        self._listener: Listener | None = None
        self.bulletin = HealthMonitor(opened.ledger, opened.clock)
        """The current problems of the server."""
        self.quiet = Quiet(opened.clock)
        self.git_index = GitIndex(opened.layout, require_lock, self.quiet)
        self.exit_policy = ExitPolicy(opened.settings, lambda: self._live_clients)
        selector = _agent_selector(opened)
        recorded = HankRecord(opened.hank.hank, opened.ledger.redactor)
        self.checkpointer = Checkpointer(
            opened.engine,
            opened.ledger,
            opened.clock,
            clean=opened.ledger.redactor.text,
            require_lock=require_lock,
            sessions=SessionFiles(
                opened.layout, opened.ledger, selector.agent_for, recorded.original
            ),
            on_head_moved=self.git_index.note,
            quiet=self.quiet,
        )
        settings = ConfinementSettings(
            probe=probe,
            chosen=opened.settings.confinement,
            default=opened.settings.default_confinement,
            server_ports=self._ports,
        )
        self.ctx = replace(
            _context(opened, self.checkpointer, selector, recorded, self._started),
            guard=TreeGuard(self.exit_policy.recheck),
            confinement=settings,
            open_agent_access=self._open_agent_access,
            traceparent=traceparent,
            broadcast=self._broadcast,
        )
        self.first_client = anyio.Event()
        """Set when a client has completed its handshake."""
        self.runner = Runner(
            self.ctx,
            autostart=opened.settings.autostart,
            until=opened.settings.until,
            ends_server=self.exit_policy.applies,
            on_idle=on_idle,
            on_change=self.exit_policy.recheck,
        )
        self.rollback = Rollback(self.ctx, self.runner)
        self.packing = Repacker(opened.ledger, self.checkpointer, self.quiet)
        self.store_verifier = StoreVerifier(
            opened.layout, opened.ledger, self.checkpointer, self.quiet
        )
        self.secret_scan = SecretScan(opened.ledger, self.checkpointer, self.quiet)
        self.housekeeper = GarbageCollector(
            opened.layout,
            opened.clock,
            opened.ledger,
            self.checkpointer,
            self.packing,
            guard=self.ctx.guard,
        )
        self.time_watch = TimeWatch(opened.ledger, opened.clock)
        self.branching = Branching(self.ctx, home=self.branch_home)
        self.sources = self._sources()
        self.rollbacks = Rollbacks(self.ctx, self.rollback)
        self.past = PastReader(self.sources)
        self.parts: tuple[ServerPart, ...] = tuple(
            module.part(opened, self) for module in parts("server_part")
        )
        self._dispatch = self._dispatcher(stop, kill)

    @property
    def settles(self) -> bool:
        """Return whether a feature may delay the end of the server."""
        return any(part.settle is not _nothing for part in self.parts)

    async def settle(self) -> None:
        """Wait until no feature needs the server any more."""
        for part in self.parts:
            await part.settle()

    def open_for_commands(self) -> None:
        """Note that the recovery is over."""
        self._is_ready = True

    def begin_shutdown(self) -> None:
        """Let what runs in the background end."""
        self._is_ready = False
        self.quiet.expedite()
        self.packing.stop()
        self.branching.stop()
        self.time_watch.stop()

    def attach(self, listener: Listener) -> None:
        """Set the open listener: addresses and client counts are correct from now on."""
        self._listener = listener
        self.bulletin.attach(partial(self._publish_problem, listener.hub.broadcast))
        self.checkpointer.progress.attach(listener.hub.send_progress)

    def _publish_problem(self, broadcast: Callable[[EventData], None], event: EventData) -> None:
        broadcast(event)
        self._on_problem(event)

    def recovery(self, recorded: frozenset[Sha]) -> Recovery:
        return Recovery(self.ctx, self.runner, self.rollback, recorded)

    def _dispatcher(self, stop: Callable[[str], None], kill: Callable[[str], None]) -> Dispatch:
        opened, ledger = self._opened, self._opened.ledger
        handlers = (
            Control(self.ctx, self.runner, stop=stop, kill=kill),
            self.rollbacks,
            Inspect(self.ctx, self.status),
            Queries(ledger, opened.clock),
            self.past,
            StoreMaintenance(
                opened.layout, ledger, self.checkpointer, self.housekeeper, self.packing
            ),
            Branches(self.ctx, self.branching),
            self._executions(),
            Pings(self.ctx.now_text, self._broadcast),
            *(handler for part in self.parts for handler in part.handlers),
        )
        return Dispatch(self.ctx, handlers, space=ledger.space, quiet=self.quiet)

    def _executions(self) -> Executions:
        settings = self._opened.settings
        is_local = is_loopback(settings.host) and settings.public_url is None
        catalog = Catalog(settings.executions_root)
        return Executions(
            catalog.rows,
            catalog.spent_since,
            address_of,
            self._opened.clock,
            exposes_rows=not settings.no_token,
            exposes_tokens=is_local,
        )

    def _sources(self) -> Sources:
        ledger, checkpointer = self._opened.ledger, self.checkpointer
        return Sources(
            store=checkpointer,
            known=lambda: checkpointer.known,
            missing=lambda: checkpointer.missing,
            state=lambda: ledger.durable_state,
            last_seq=lambda: ledger.last_seq,
            moment_at=ledger.moment_at,
            patterns=self.ctx.patterns,
        )

    def branch_home(self) -> Path:
        """Return a new directory beside this execution, or, in place, among the executions."""
        opened, layout = self._opened, self._opened.layout
        parent = opened.settings.executions_root if layout.is_in_place else layout.root.parent
        meta = data_source.read_meta(layout)
        name = data_source.managed_name(
            instants.epoch_ms(opened.clock.now()), None if meta is None else meta.data_hash
        )
        return parent / name

    def server_api(self) -> ServerApi:
        """Return the server's interface for the transport."""
        return ServerApi(
            handle=self._dispatch.handle,
            history_page=self._opened.ledger.page,
            last_seq=lambda: self._opened.ledger.last_seq,
            ready=self.ready,
            snapshot=self.runner.snapshot,
            initial_events=self._initial_events,
            health=self._health,
            metrics=self._metrics,
            report=self.bulletin.report,
            withdraw=self.bulletin.withdraw,
            clients_changed=self.exit_policy.recheck,
        )

    def _initial_events(self, caller: Caller) -> Iterable[EventData]:
        """Let the plan begin; notify clients of Hankweave if it will not begin by itself."""
        self.first_client.set()
        begins = self._opened.settings.autostart and self.ctx.has_hank
        if begins or caller.wants_replies or self.runner.is_busy:
            return ()

        message = "Server ready. Waiting for commands (autostart disabled)."
        return (ServerIdle(reason="startup", message=message),)

    @property
    def _live_clients(self) -> int:
        return 0 if self._listener is None else self._listener.hub.live_clients

    def _ports(self) -> tuple[int, ...]:
        return () if self._listener is None else (self._listener.port,)

    async def prepare_confinement(self) -> None:
        """Find out how agents can be confined, before the first one starts; report if not at all.

        Also removes the temporary files of earlier agents.
        """
        if self._opened.settings.plan_on_record:
            return  # No agent will run.

        found = await anyio.to_thread.run_sync(_prepare, self._opened.layout, self._ports())
        warning = confinement.warning(confinement.status(self.ctx, found), found)
        if warning is not None and self.ctx.has_hank:
            await self._opened.ledger.record(warning)

    def _open_agent_access(self, path: Path) -> AbstractAsyncContextManager[None]:
        assert self._listener is not None, "codons run only while the server listens"
        return self._listener.agent_access(path)

    def _health(self) -> HealthAnswer:
        health = self.bulletin.health
        standing = "" if self._is_ready else "The server is starting or stopping."
        return HealthAnswer(
            alive=True,
            ready=self._is_ready and health.status == "ok",
            detail=" ".join(filter(None, (standing, health.sentence))),
            problems=health.problems,
        )

    def ready(self) -> ServerReady:
        layout, state = self._opened.layout, self._opened.ledger.durable_state
        output = self.ctx.output_directory
        return ServerReady(
            server_version=__version__,
            execution_path=str(layout.root),
            agent_root_path=str(layout.work_tree),
            data_path=self._data_path(),
            port=0 if self._listener is None else self._listener.port,
            url="" if self._listener is None else self._listener.url,
            current_run_id=state.current_run_id,
            last_event_seq=state.last_event_seq,
            output_directory=None if output is None else str(output),
            page_url=None if self._listener is None else self._listener.page_url,
        )

    def status(self) -> ServerStatus:
        """Return the status without the size of the store, which needs disk access."""
        status = self._own_status()
        for part in self.parts:
            status = part.add_status(status)

        return status

    def _own_status(self) -> ServerStatus:
        state = self._opened.ledger.durable_state
        active, hank = active_codon(state), self.ctx.hank.hank
        paid = costs(state, capped(hank, self.ctx.ceilings).max_dollars)
        return ServerStatus(
            server_version=__version__,
            pid=os.getpid(),
            execution_path=str(self._opened.layout.root),
            started_at=self._started_at,
            uptime_ms=round((self._opened.clock.monotonic() - self._started) * 1000),
            current_run_id=state.current_run_id,
            active_codon_id=None if active is None else active.codon_id,
            next_codon_id=next_codon(state),
            is_rolling_back=self.ctx.guard.is_rolling_back,
            last_event_seq=state.last_event_seq,
            total_cost=paid.total,
            rolled_back_cost=paid.rolled_back,
            attempts_cost=paid.attempts,
            budget_usd=paid.budget,
            checkpoints=len(self.checkpointer.known),
            clients=self._live_clients,
            lock=self._opened.lock.record,
            store_bytes=0,
            store_packs=0,
            store_loose_objects=0,
            containment=self._containment,
            problems=self.bulletin.health.problems,
            pending_permissions=self.ctx.permission_requests.pending,
            agent_tools=granted(self.ctx),
            active_allowance=in_force(hank, state, self.ctx.ceilings),
            waiting=None if active is None else wait_of(active),
            data_path=self._data_path(),
            watch=self._watch_status(),
            background=self.quiet.behind,
            hank_name=self._opened.ledger.redactor.text(self._opened.hank.name),
        )

    def _watch_status(self) -> WatchStatus:
        state = self._opened.engine.watch_state
        return WatchStatus(
            active=state.reason is None,
            reason=state.reason,
            watched_scans=state.watched_scans,
            full_scans=state.full_scans,
        )

    def _data_path(self) -> str | None:
        layout = self._opened.layout
        return str(layout.data_path) if os.path.lexists(layout.data_source) else None

    def _metrics(self) -> bytes:
        active = active_codon(self._opened.ledger.durable_state)
        return metrics_text(self.status(), NO_TOKENS if active is None else tokens_of(active))

    def _broadcast(self, event: EventData) -> None:
        if self._listener is not None:
            self._listener.hub.broadcast(event)


def _empty(folder: Path) -> None:
    """Remove what earlier agents left there, but not their caches."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_symlink() or not entry.is_dir():
            entry.unlink(missing_ok=True)
        elif entry.name != "cache":
            shutil.rmtree(entry, ignore_errors=True)


def _prepare(layout: Layout, ports: tuple[int, ...]) -> Probe:
    _empty(layout.agent_temporary)
    found = probe()
    if found.level is not Level.NONE and not peers.can_recognize():
        prepare_ports(ports)

    return found


def _seconds(number: int | None) -> timedelta | None:
    return None if number is None else timedelta(seconds=number)


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _context(
    opened: OpenedExecution,
    checkpointer: Checkpointer,
    selector: AgentSelector,
    recorded: HankRecord,
    started: float,
) -> ExecutionContext:
    return ExecutionContext(
        layout=opened.layout,
        clock=opened.clock,
        ledger=opened.ledger,
        checkpointer=checkpointer,
        hank=opened.hank,
        recorded=recorded,
        agent_for=selector.agent_for,
        model_for=selector.model_for,
        reuse=ReuseSettings(opened.settings.reuse, opened.settings.default_reuse),
        identity_of=AgentIdentities(
            selector, opened.layout.work_tree, may_run_programs=opened.settings.agent_check
        ).identity_of,
        data_digest=opened.data.digest,
        started_monotonic=started,
        idle_timeout=timedelta(seconds=opened.settings.default_idle_seconds),
        idle_override=_seconds(opened.settings.idle_seconds),
        ignore_rig_failures=opened.settings.ignore_rig_failures,
        sentinel_persistence=opened.settings.sentinel_persistence,
        tool_result_limit=opened.settings.tool_result_limit,
        safe_points=opened.settings.safe_points,
        price=opened.prices.price_of,
        models=Models(os.environ),
        ceilings=Ceilings(opened.settings.max_cost, opened.settings.max_time),
        accounts=AccountLimits(usual_place(os.environ.get("XDG_STATE_HOME"))),
        longest_wait=_duration(opened.settings.max_wait),
        output_directory=opened.settings.output,
        overwrite_output=opened.settings.overwrite_output,
    )


def _agent_selector(opened: OpenedExecution) -> AgentSelector:
    overrides = opened.hank.hank.overrides
    # An agent that does not wait has continued by the time its step is labelled.
    counts_steps = overrides is not None and overrides.checkpoint_every_steps is not None
    return AgentSelector(
        chosen=opened.settings.agent,
        hank_directory=opened.hank.directory,
        sessions=opened.layout.agent_sessions,
        homes=opened.layout.agent_homes,
        asks_first=counts_steps or "before-tool" in opened.settings.safe_points,
        model=opened.settings.model,
    )


class ExitPolicy:
    """The decision whether, and when, the server ends with its plan.

    Hankweave ends two seconds after its last codon. A person at a terminal, or one with the page
    open, wants to look at the results and perhaps go back; a script that waits for `hankweave run`
    to end would wait for ever if the server stayed. So the server ends if there is no user: stdout
    is not a terminal and no client is connected. `exitOnComplete` overrides this either way.
    """

    def __init__(self, settings: RunSettings, clients: Callable[[], int]) -> None:
        """`clients` counts the clients that are connected and have completed the handshake."""
        self._settings = settings
        self._clients = clients
        self._changed = anyio.Event()

    def recheck(self) -> None:
        """Note that clients, the runner or a rollback may have changed the decision."""
        self._changed.set()

    @property
    def is_immediate(self) -> bool:
        """Return whether the server ends the moment its plan does, unless a feature delays that."""
        return self._settings.headless and self._settings.exit_on_complete is not False

    def applies(self) -> bool:
        """Return whether the server would end with its plan, as things stand now."""
        settings = self._settings
        if settings.exit_on_complete is not None:
            return settings.exit_on_complete

        unattended = settings.unattended and settings.autostart and not self._clients()
        return settings.headless or unattended

    async def wait(
        self,
        ctx: ExecutionContext,
        runner: Runner,
        settle: Callable[[], Coroutine[Any, Any, None]] = _nothing,
    ) -> Outcome:
        """Wait until the plan has ended, and no client has needed the server for a while.

        `settle` has to return as well. It is cancelled if the server is needed again meanwhile.
        """

        def may_end() -> bool:
            return _has_ended(ctx, runner) and self.applies()

        end = math.inf
        with ctx.ledger.subscribe(self._handle):
            while True:
                if not may_end():
                    end = math.inf
                elif end == math.inf:
                    end = anyio.current_time() + LINGER
                elif anyio.current_time() >= end:
                    await self._settle(settle, may_end)
                    if may_end():
                        return runner.outcome

                    continue

                self._changed = anyio.Event()
                with anyio.move_on_after(end - anyio.current_time()):
                    await self._changed.wait()

    async def _settle(
        self, settle: Callable[[], Coroutine[Any, Any, None]], may_end: Callable[[], bool]
    ) -> None:
        """Wait until `settle` has returned, or the server may not end any more."""
        async with anyio.create_task_group() as tasks:

            async def settle_first() -> None:
                await settle()
                tasks.cancel_scope.cancel()

            tasks.start_soon(settle_first)
            while may_end():
                self._changed = anyio.Event()
                await self._changed.wait()

            tasks.cancel_scope.cancel()

    def _handle(self, published: Published) -> None:
        if isinstance(published.event.data, StateTransition):
            self.recheck()


def _has_ended(ctx: ExecutionContext, runner: Runner) -> bool:
    if runner.is_busy or ctx.guard.is_rolling_back:
        return False

    completed = runner.outcome is Outcome.COMPLETED and runner.upcoming is None
    return completed or runner.outcome is Outcome.FAILED
