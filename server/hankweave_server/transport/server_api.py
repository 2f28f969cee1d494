"""The callables through which the transport reaches the rest of the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hankweave_protocol.commands import Command
from hankweave_protocol.events import EventData, ServerReady, StateSnapshot
from hankweave_protocol.records import Problem, ProblemCode
from hankweave_server.api.caller import Caller, CommandAnswer


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """The content of `/healthz` and `/readyz`."""

    alive: bool
    ready: bool
    """True if all commands are accepted: recovered, not degraded, and not shutting down."""
    detail: str = ""
    """Why it is not ready, for people."""
    problems: tuple[Problem, ...] = ()
    """The problems that make it degraded."""


class LongLine(Protocol):
    """A journal line that is too long to be kept in memory."""

    @property
    def size(self) -> int: ...

    def read(self, at: int, most: int) -> bytes:
        """Return at most `most` bytes of it, starting at `at`."""


@dataclass(frozen=True, slots=True)
class ServerApi:
    """The rest of the server as the transport sees it.

    Only `handle` and `history_page` may wait.
    """

    handle: Callable[[Command, Caller], Awaitable[CommandAnswer]]
    """Execute one command; raises Refused if it cannot be done."""
    history_page: Callable[[int], Sequence[bytes | LongLine]]
    """Some journal lines after a seq, oldest first: at least one if there is one.

    Blocks, and is called in a worker thread.
    """
    last_seq: Callable[[], int]
    ready: Callable[[], ServerReady]
    snapshot: Callable[[], StateSnapshot]
    initial_events: Callable[[Caller], Iterable[EventData]]
    """Called after each handshake; returns the events that this client alone is sent first."""
    health: Callable[[], HealthAnswer]
    metrics: Callable[[], bytes]
    """Prometheus text format."""
    report: Callable[[ProblemCode, str], None] = lambda code, message: None
    """Record a problem of the port and report it to clients."""
    withdraw: Callable[[ProblemCode], None] = lambda code: None
    """Report that the problem is over."""
    clients_changed: Callable[[], None] = lambda: None
    """Called when a client has become live, or has left."""
