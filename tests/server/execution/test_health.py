"""The health of the server as a value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hankweave_protocol.events import EventData, ServerDegraded
from hankweave_protocol.records import ProblemCode
from hankweave_server.execution.maintenance.health_monitor import (
    HealthMonitor,
    Problem,
    ServerHealth,
)
from support.attached import StillClock

FULL = Problem(code="INSUFFICIENT_SPACE", message="Full.", since="2025-01-04T12:00:00.000Z")
LATER = Problem(code="INSUFFICIENT_SPACE", message="Still.", since="2025-01-04T13:00:00.000Z")
FEW = Problem(code="OUT_OF_DESCRIPTORS", message="Few.", since="2025-01-04T12:30:00.000Z")


def test_a_server_without_problems_is_ok() -> None:
    """A server without problems is ok and lists none."""
    assert (ServerHealth().status, ServerHealth().sentence, ServerHealth().problems) == (
        "ok",
        "",
        (),
    )


def test_a_problem_stays_as_first_reported() -> None:
    """A problem that is reported again keeps its first message and time."""
    health = ServerHealth().with_problem(FULL).with_problem(LATER)
    assert health.problems == (FULL,)
    assert health.problem("INSUFFICIENT_SPACE") is FULL
    assert health.problem("OUT_OF_DESCRIPTORS") is None


def test_a_server_is_degraded_until_its_last_problem_is_over() -> None:
    """Each problem is cleared by its code; the oldest one is listed first."""
    health = ServerHealth().with_problem(FULL).with_problem(FEW)
    assert (health.status, health.sentence) == ("degraded", "Full. Few.")
    health = health.without("INSUFFICIENT_SPACE").without("INSUFFICIENT_SPACE")
    assert (health.status, health.problems) == ("degraded", (FEW,))
    assert health.without("OUT_OF_DESCRIPTORS") == ServerHealth()


@pytest.mark.parametrize(
    ("code", "is_at_once"),
    [
        ("INSUFFICIENT_SPACE", True),
        ("OUT_OF_DESCRIPTORS", False),
        ("MIRROR_UNREACHABLE", True),
        ("MIRROR_LEASE_EXPIRED", True),
    ],
)
def test_a_problem_that_holds_up_the_journal_is_published_at_once(
    code: ProblemCode, is_at_once: bool
) -> None:
    """Clients hear of it without a seq, because the journaled event may come much later."""
    journaled: list[EventData] = []
    notices: list[EventData] = []
    ledger: Any = SimpleNamespace(
        leave=journaled.append, space=SimpleNamespace(subscribe=lambda **_: None)
    )
    monitor = HealthMonitor(ledger, StillClock())
    monitor.attach(notices.append)
    monitor.report(code, "It is so.")
    assert [type(each) for each in journaled] == [ServerDegraded]
    assert notices == (journaled if is_at_once else [])
