"""Observers: they hear of every event of a server, as its clients do, such as a notifier.

Features have observers. Before anything on the disk is changed, the function `prepared` of their
`observer` checks what the settings and the environment ask for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from hankweave_protocol.events import EventData
from hankweave_server.app import OpenedExecution
from hankweave_server.clock import Clock
from hankweave_server.execution.context import FindsTraceparent, untraced
from hankweave_server.installed import parts
from hankweave_server.ledger.writer import Published
from hankweave_server.paths import Layout
from hankweave_server.settings import RunSettings


async def _nothing() -> None: ...


def _ignored(_event: EventData) -> None: ...


@dataclass(frozen=True, slots=True)
class Observer:
    """An observer of one execution."""

    handle: Callable[[Published], None]
    """Hears of an event; it runs in the ledger's writer, and neither waits nor raises."""
    finish: Callable[[float], Coroutine[Any, Any, None]]
    """Sends what is left when the server ends, within some seconds."""
    notice: Callable[[EventData], None] = _ignored
    """Hears of a problem that the journal may not take at the moment."""
    run: Callable[[], Coroutine[Any, Any, None]] = _nothing
    """Works in the background until cancelled."""
    traceparent: FindsTraceparent | None = None
    """Returns the trace context for an agent."""


OpensObserver: TypeAlias = Callable[[OpenedExecution], Awaitable[Observer]]


def prepared(settings: RunSettings, layout: Layout, clock: Clock) -> Iterator[OpensObserver]:
    """Yield what opens the observers that are asked for; raise Stop for one that cannot be."""
    for part in parts("observer"):
        opens: OpensObserver | None = part.prepared(settings, layout, clock)
        if opens is not None:
            yield opens


def traceparent_of(observers: Iterable[Observer]) -> FindsTraceparent:
    """Return what finds the trace context for an agent; there may be none."""
    return next(filter(None, (each.traceparent for each in observers)), untraced)
