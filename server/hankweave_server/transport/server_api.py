"""What the transport is handed: the callables through which it reaches the rest of the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hankweave_protocol.commands import Command
from hankweave_protocol.events import EventData, ServerReady, StateSnapshot
from hankweave_protocol.ids import ClientId
from hankweave_protocol.records import Problem, ProblemCode
from hankweave_protocol.replies import Mode


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a command, as granted by the handshake."""

    client_id: ClientId
    mode: Mode
    peer: str
    """`address:port` of the other end."""
    wants_replies: bool
    """True where the client sent `protocolVersion`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command comes back with."""

    data: object | None
    """The reply's data, anything msgspec can encode; None: it was done, there is nothing to say."""
    targeted: Iterable[EventData] = ()
    """Events for this client alone (pong); made as they are sent, then the reply."""
    history_since: int | None = None
    """Send the journal's events after this seq, before anything else."""


@dataclass(frozen=True, slots=True)
class Health:
    """What `/healthz` and `/readyz` say."""

    alive: bool
    ready: bool
    """True where all commands are taken: recovered, not degraded, and not shutting down."""
    detail: str = ""
    """Why it is not ready, for people."""
    problems: tuple[Problem, ...] = ()
    """What makes it degraded."""


class LongLine(Protocol):
    """A line of the journal that is too long to be kept in memory."""

    @property
    def size(self) -> int: ...

    def read(self, at: int, most: int) -> bytes:
        """Return at most so many bytes of it, from a position on."""


@dataclass(frozen=True, slots=True)
class Doors:
    """The rest of the server, seen from a socket. Only `handle` may wait."""

    handle: Callable[[Command, Caller], Awaitable[Answer]]
    """Does one command; raises Refused where the caller asked for what cannot be done."""
    history_page: Callable[[int], Sequence[bytes | LongLine]]
    """Some journal lines after a seq, oldest first: at least one if there is one."""
    last_seq: Callable[[], int]
    ready: Callable[[], ServerReady]
    snapshot: Callable[[], StateSnapshot]
    greeted: Callable[[Caller], Iterable[EventData]]
    """Told after each handshake; returns what this client alone is told first."""
    health: Callable[[], Health]
    metrics: Callable[[], bytes]
    """Prometheus text format."""
    report: Callable[[ProblemCode, str], None] = lambda code, message: None
    """Takes down what is wrong with the port, and tells of it."""
    withdraw: Callable[[ProblemCode], None] = lambda code: None
    """Tells that it is over."""
