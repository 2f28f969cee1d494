"""The mirror in a server: it handles `mirror.*`, reports problems, and stops the agent in time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol.commands import GetMirrorStatus, MirrorNow, MirrorOff
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import ErrorEvent
from hankweave_protocol.replies import MirrorEnded, MirrorStatus, ServerStatus
from hankweave_server.api.dispatch import handles
from hankweave_server.app import App, OpenedExecution, ServerPart
from hankweave_server.execution.codon.run import CodonRun
from hankweave_server.execution.maintenance.health_monitor import HealthMonitor
from hankweave_server.features.mirror.pushing import Mirroring, Position
from hankweave_server.features.mirror.record import RESTORED, folder_of, forget
from hankweave_server.fsutil import remove_durably
from hankweave_server.plain_text import counted

EXPIRED = (
    "The lease of the mirror has run out: the agent is stopped, and the journal waits, until a "
    "push succeeds."
)

SHORT_SECONDS = 3.0
"""Seconds after which a server that waits for its mirror says so."""

RELEASE_SECONDS = 10.0
"""How long `mirror.off` tries to release the lease, when everything else is in the mirror."""


def part(opened: OpenedExecution, app: App) -> ServerPart:
    async def begin() -> None:
        """Put the conversations of a restored execution in their places."""
        marker = folder_of(opened.layout) / RESTORED
        if not marker.exists():
            return

        head = await app.checkpointer.call(lambda engine: engine.head())
        newest = None if head is None else app.checkpointer.known.get(head)
        if newest is not None and newest.coordinate.memory_epoch:
            await app.checkpointer.copy_sessions(newest.coordinate.memory_epoch)

        await anyio.to_thread.run_sync(remove_durably, marker)

    handler = Mirrors(opened, app.bulletin)
    mirror = opened.ledger.replica
    if isinstance(mirror, Mirroring):
        agent, reactions = AgentStop(app), mirror.reactions
        reactions.lease_expired = agent.stop
        reactions.lease_renewed = agent.resume
        reactions.push_failed = partial(handler.push_failed, mirror)
        reactions.push_succeeded = handler.push_succeeded

        return ServerPart(
            (handler,), begin=begin, settle=handler.settle, add_status=handler.add_status
        )

    return ServerPart((handler,), begin=begin, add_status=handler.add_status)


class AgentStop:
    """Stops the agent that is at work, so that it has no effect on anything."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._stopped: CodonRun | None = None

    async def stop(self) -> None:
        """Stop it; one that is just starting cannot do anything before the journal says so."""
        self._app.bulletin.report("MIRROR_LEASE_EXPIRED", EXPIRED)
        run = self._app.runner.active
        if run is not None and await run.stop_agent():
            self._stopped = run

    async def resume(self) -> None:
        """Let it continue."""
        self._app.bulletin.withdraw("MIRROR_LEASE_EXPIRED")
        run, self._stopped = self._stopped, None
        if run is not None:
            await run.continue_agent()


class Mirrors:
    """The handler of `mirror.*`, for an execution that may have a mirror."""

    def __init__(self, opened: OpenedExecution, health: HealthMonitor) -> None:
        self._opened = opened
        self._health = health
        self._turn = anyio.Lock()

    @handles(GetMirrorStatus)
    async def status(self, command: GetMirrorStatus) -> MirrorStatus:
        return self._status(self._mirror())

    @handles(MirrorNow)
    async def push(self, command: MirrorNow) -> MirrorStatus:
        await self._push(self._mirror(), command.within_seconds, "The server goes on trying.")
        return self._status(self._mirror())

    @handles(MirrorOff)
    async def off(self, command: MirrorOff) -> MirrorEnded:
        """End the mirror; the record is removed durably before the reply."""
        async with self._turn:
            mirror = self._mirror()
            hint = (
                "The mirror goes on. Without a server, it ends although events are missing in it: "
                "`hankweave stop --server`, then `hankweave mirror off`."
            )
            await self._push(mirror, command.within_seconds, hint)
            released = await mirror.end(RELEASE_SECONDS)
            await anyio.to_thread.run_sync(forget, self._opened.layout)

        self.push_succeeded()
        self._health.withdraw("MIRROR_LEASE_EXPIRED")
        return MirrorEnded(address=self._clean(mirror.record.address), released=released)

    def add_status(self, status: ServerStatus) -> ServerStatus:
        """Add the mirror to the reply to `server.status`."""
        mirror = self._known()
        if mirror is None:
            return status

        return msgspec.structs.replace(status, mirror=self._status(mirror))

    async def settle(self) -> None:
        """Wait until everything is in the mirror, and say so if that takes long.

        It does not wait for a mirror that cannot be reached any longer than the lease lasts.
        """
        mirror = self._known()
        if mirror is None:
            return

        with anyio.move_on_after(SHORT_SECONDS):
            await mirror.push_while_held()
            return

        missing = counted(mirror.events_behind, "event")
        message = f"The server ends when everything is in the mirror, which lacks {missing}."
        late = ErrorEvent(message=message, fatal=False, severity="warning", context="mirror")
        await self._opened.ledger.post(late)
        await mirror.push_while_held()

    def push_failed(self, mirror: Mirroring, problem: str) -> None:
        """Report that a push did not succeed."""
        waits = (
            "The agent works on until the lease runs out."
            if mirror.record.mode == "async"
            else "No event is published meanwhile."
        )
        words = f"The mirror cannot be reached: {self._clean(problem)}. {waits}"
        self._health.report("MIRROR_UNREACHABLE", words)

    def push_succeeded(self) -> None:
        """Report that a push has succeeded."""
        self._health.withdraw("MIRROR_UNREACHABLE")

    def _known(self) -> Mirroring | None:
        mirror = self._opened.ledger.replica
        if not isinstance(mirror, Mirroring) or mirror.has_ended:
            return None

        return mirror

    def _mirror(self) -> Mirroring:
        mirror = self._known()
        if mirror is not None:
            return mirror

        raise Refused(
            ErrorCode.INVALID_COMMAND,
            "This execution has no mirror.",
            hint="A start with `hankweave run --mirror URL` begins one.",
        )

    def _status(self, mirror: Mirroring) -> MirrorStatus:
        newest = Position(*self._opened.ledger.durable)
        now = self._opened.clock.boottime()
        return status_of(mirror, newest, now, self._clean)

    async def _push(self, mirror: Mirroring, within: float, otherwise: str) -> None:
        """Wait until everything that is durable now is in the mirror; raise Refused."""
        with anyio.move_on_after(within):
            await mirror.push_now()
            return

        problem = mirror.tally.problem
        why = "" if problem is None else f": {self._clean(problem)}"
        raise Refused(
            ErrorCode.MIRROR_UNREACHABLE,
            f"Not everything is in the mirror after {within:g} s{why}.",
            path="$.data.withinSeconds",
            hint=otherwise,
        )

    def _clean(self, text: str) -> str:
        return self._opened.ledger.redactor.text(text)


def status_of(
    mirroring: Mirroring,
    newest: Position,
    now: float,
    clean: Callable[[str], str],
) -> MirrorStatus:
    """Return how a mirror stands at a moment of CLOCK_BOOTTIME, in seconds.

    `newest` is what the journal has durably; `clean` removes secrets, such as a token in an
    address.
    """
    lease, mirrored, tally = mirroring.lease, mirroring.mirrored, mirroring.tally
    behind = max(0, newest.journal_bytes - mirrored.journal_bytes)
    since = 0.0 if tally.pushed_at is None else max(0.0, now - tally.pushed_at)
    return MirrorStatus(
        address=clean(mirroring.record.address),
        mode=mirroring.record.mode,
        ttl_seconds=lease.ttl,
        owner=lease.owner,
        epoch=lease.epoch,
        lease_held=mirroring.is_held,
        lease_seconds_left=round(mirroring.seconds_left, 1),
        mirrored_seq=mirrored.last_event_seq,
        mirrored_bytes=mirrored.journal_bytes,
        events_behind=max(0, newest.last_event_seq - mirrored.last_event_seq),
        bytes_behind=behind,
        seconds_behind=round(since, 1) if behind else 0.0,
        seconds_since_push=round(since, 1),
        pushes=tally.pushes,
        sent_bytes=tally.sent_bytes,
        problem=None if tally.problem is None else clean(tally.problem),
    )
