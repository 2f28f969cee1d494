"""The calls for people: what they are about, in which words, and how often.

A run that nobody watches calls people when it needs them, or when they can go on: it waits for the
end of a limit or has continued, an agent asks for permission, a codon failed, the plan is finished,
most of the budget or all of it is spent, the server is degraded.

A notification contains names, numbers and times, which are the same for everybody's hank. What
agents and people wrote (`content`) is sent only on request.

`Digest` bounds the number of notifications: at most one a minute of each kind. The first is sent at
once; those that follow within the minute become one, which says how many it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from hankweave_protocol.events import (
    CodonCompletedEvent,
    CodonResumed,
    CodonWaiting,
    EventData,
    PermissionRequested,
    ServerDegraded,
    ServerIdle,
)

Kind: TypeAlias = Literal[
    "codon.waiting",
    "codon.resumed",
    "permission.requested",
    "codon.failed",
    "plan.finished",
    "budget.80",
    "budget.100",
    "server.degraded",
    "test",
]

INTERVAL = 60.0
"""Seconds between two notifications of one kind."""

_ALMOST = 0.8


@dataclass(frozen=True, slots=True)
class Notification:
    """One call to people."""

    kind: Kind
    title: str
    text: str
    """A sentence."""
    data: Mapping[str, object] = field(default_factory=dict)
    """The same for programs."""
    content: str = ""
    """What agents or people wrote; only sent on request."""
    count: int = 1
    """The number of notifications that this one stands for."""


def of_event(data: EventData) -> Notification | None:
    """Return the notification about an event; None if nobody is called for it."""
    match data:
        case CodonWaiting(codon_id=codon, until=until, reason=reason):
            return Notification(
                "codon.waiting",
                f"{codon} waits",
                f"Codon {codon} waits for the end of a {reason} limit, until {until}.",
                {"codonId": codon, "until": until, "reason": reason},
                content=data.message,
            )
        case CodonResumed(codon_id=codon, by=by):
            return Notification(
                "codon.resumed",
                f"{codon} continues",
                f"Codon {codon} continues after its wait.",
                {"codonId": codon, "by": by},
            )
        case PermissionRequested(codon_id=codon, tool_name=tool, request_id=request):
            return Notification(
                "permission.requested",
                f"{codon} asks for permission",
                f"Codon {codon} waits for permission to call {tool} until {data.expires_at}.",
                {"codonId": codon, "requestId": request, "expiresAt": data.expires_at},
                content=str(data.tool_input),
            )
        case CodonCompletedEvent(success=False, skipped=None, failure_ignored=None):
            return _failure(data)
        case ServerIdle(reason="all-codons-completed"):
            return Notification("plan.finished", "Plan finished", "The plan is finished.")
        case ServerDegraded(code=code, message=message):
            text = f"The server is degraded: {code}."
            return Notification(
                "server.degraded", "Server degraded", text, {"code": code}, content=message
            )
        case _:
            return None


def _failure(data: CodonCompletedEvent) -> Notification:
    reason = data.failure_reason
    kind = "unknown" if reason is None else reason.type
    return Notification(
        "codon.failed",
        f"{data.codon_id} failed",
        f"Codon {data.codon_id} failed ({kind}).",
        {"codonId": data.codon_id, "reason": kind},
        content="" if reason is None else reason.message or "",
    )


def budget_notices(before: float, after: float, limit: float | None) -> Iterator[Notification]:
    """Yield the notifications for costs in USD that rose past 80 % or 100 % of a limit."""
    if limit is None or limit <= 0:
        return

    spent = {"spentDollars": round(after, 6), "maxDollars": limit}
    if before < limit <= after:
        text = f"The budget of ${limit:g} is spent."
        yield Notification("budget.100", "Budget spent", text, spent)
    elif before < limit * _ALMOST <= after:
        text = f"${after:.2f} of the budget of ${limit:g} are spent."
        yield Notification("budget.80", "80 % of the budget spent", text, spent)


class Digest:
    """The notifications that are due, at most one a minute of each kind. Pure."""

    def __init__(self) -> None:
        self._sent_at: dict[Kind, float] = {}
        self._sent: dict[Kind, Notification] = {}
        self._held: dict[Kind, Notification] = {}

    def offer(self, notification: Notification, now: float) -> Notification | None:
        """Return the notification if it is to be sent now; otherwise it is held.

        One that says the same as the one before is dropped. `now` is in seconds, by a monotonic
        clock.
        """
        kind = notification.kind
        if now >= self._sent_at.get(kind, -math.inf) + INTERVAL and kind not in self._held:
            self._sent_at[kind], self._sent[kind] = now, notification
            return notification

        held = self._held.get(kind)
        newest = held or self._sent[kind]
        if (newest.text, newest.data) != (notification.text, notification.data):
            count = 1 if held is None else held.count + 1
            self._held[kind] = replace(notification, count=count)

        return None

    def due(self, now: float) -> tuple[Notification, ...]:
        """Return the held notifications whose minute is over."""
        kinds = [kind for kind in self._held if now >= self._sent_at[kind] + INTERVAL]
        for kind in kinds:
            self._sent_at[kind], self._sent[kind] = now, self._held[kind]

        return tuple(self._held.pop(kind) for kind in kinds)

    def take_held(self) -> tuple[Notification, ...]:
        """Return everything that is held, because the server stops."""
        held, self._held = tuple(self._held.values()), {}
        return held

    def due_in(self, now: float) -> float | None:
        """Return the seconds until something is due; None if nothing is held."""
        ends = [self._sent_at[kind] + INTERVAL - now for kind in self._held]
        return max(0.0, min(ends)) if ends else None
