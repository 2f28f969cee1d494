"""Claims about notifications: what people are called about, and how often."""

from __future__ import annotations

import pytest

from hankweave_protocol.events import (
    CodonCompletedEvent,
    CodonResumed,
    CodonWaiting,
    EventData,
    ExitStatus,
    Info,
    PermissionRequested,
    ServerDegraded,
    ServerIdle,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import FailureReason
from hankweave_server.features.notifications.notifications import (
    Digest,
    Notification,
    budget_notices,
    of_event,
)

ONE = CodonId("one")
UNTIL = "2026-11-22T03:00:00.000Z"
SECRET = "the agent's own words"


def ended(**fields: object) -> CodonCompletedEvent:
    given = {
        "success": False,
        "failure_reason": FailureReason(type="unknown", retriable=False, message=SECRET),
        **fields,
    }
    status = ExitStatus(type="error", code=1)
    return CodonCompletedEvent(codon_id=ONE, cost=0.0, duration=1, exit_status=status, **given)  # type: ignore[arg-type]


WAITS = CodonWaiting(
    codon_id=ONE, until=UNTIL, reason="usage", source="event", number=1, message=SECRET
)
EVENTS: list[tuple[EventData, str, str]] = [
    (WAITS, "codon.waiting", f"Codon one waits for the end of a usage limit, until {UNTIL}."),
    (
        CodonResumed(codon_id=ONE, by="time", waited_ms=5),
        "codon.resumed",
        "Codon one continues after its wait.",
    ),
    (
        PermissionRequested(
            codon_id=ONE,
            request_id="r1",
            tool_name="Bash",
            tool_input={"command": SECRET},
            expires_at=UNTIL,
            reason=SECRET,
        ),
        "permission.requested",
        f"Codon one waits for permission to call Bash until {UNTIL}.",
    ),
    (ended(), "codon.failed", "Codon one failed (unknown)."),
    (
        ServerIdle(reason="all-codons-completed", message="All codons completed."),
        "plan.finished",
        "The plan is finished.",
    ),
    (
        ServerDegraded(code="INSUFFICIENT_SPACE", message=SECRET, since=UNTIL),
        "server.degraded",
        "The server is degraded: INSUFFICIENT_SPACE.",
    ),
]


@pytest.mark.parametrize(("event", "kind", "text"), EVENTS, ids=[kind for _, kind, _ in EVENTS])
def test_notifications_hold_no_text_of_agents(event: EventData, kind: str, text: str) -> None:
    """Names, numbers and times alone; texts of agents and people are kept apart."""
    notification = of_event(event)
    assert (notification.kind, notification.text) == (kind, text)
    assert SECRET not in repr((notification.title, notification.text, notification.data))


@pytest.mark.parametrize(
    "event",
    [
        ended(success=True),
        ended(skipped=True),
        ended(failure_ignored=True),
        ServerIdle(reason="codon-completed", message="x"),
        Info(message="x"),
    ],
)
def test_events_that_need_no_person_send_no_notification(event: EventData) -> None:
    """Success, a skip, an ignored failure and other events are for those who look."""
    assert of_event(event) is None


@pytest.mark.parametrize(
    ("before", "after", "limit", "kinds"),
    [
        (0, 7.9, 10, []),
        (7.9, 8.0, 10, ["budget.80"]),
        (8.0, 9.9, 10, []),
        (9.9, 10.0, 10, ["budget.100"]),
        (1, 12, 10, ["budget.100"]),
        (10, 12, 10, []),
        (5, 50, None, []),
        (0, 5, 0, []),
    ],
)
def test_a_budget_calls_at_80_and_100_percent(
    before: float, after: float, limit: float | None, kinds: list[str]
) -> None:
    """Each once, when the costs rise past it."""
    assert [each.kind for each in budget_notices(before, after, limit)] == kinds


def note(number: int, kind: str = "codon.failed") -> Notification:
    return Notification(kind, "failed", f"Codon {number} failed.")  # type: ignore[arg-type]


def test_there_is_at_most_one_a_minute_of_each_kind() -> None:
    """The first is sent at once; the last of those that follow stands for all of them."""
    digest = Digest()
    assert digest.offer(note(1), 0.0) == note(1)
    assert digest.offer(note(7, "codon.waiting"), 1.0) == note(7, "codon.waiting")
    assert [digest.offer(note(n), n) for n in (2, 3, 4)] == [None, None, None]
    assert digest.due_in(4.0) == 56.0
    assert digest.due(59.9) == ()
    (held,) = digest.due(60.0)
    assert (held.text, held.count) == ("Codon 4 failed.", 3)
    assert digest.offer(note(5), 119.0) is None
    assert digest.due(120.0) == (note(5),)
    assert digest.due_in(121.0) is None
    assert digest.offer(note(6), 180.0) == note(6)


def test_a_recent_notification_is_not_repeated() -> None:
    """The same notification within the minute is dropped, also while another one is held."""
    digest = Digest()
    digest.offer(note(1), 0.0)
    assert digest.offer(note(1), 1.0) is None
    assert digest.due(60.0) == ()
    digest.offer(note(2), 2.0)
    digest.offer(note(2), 3.0)
    (held,) = digest.take_held()
    assert held.count == 1
    assert digest.take_held() == ()
