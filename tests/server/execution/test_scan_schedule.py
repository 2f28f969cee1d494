"""The interval between scans of the files of an agent that does not wait."""

from __future__ import annotations

import pytest

from hankweave_server.execution.codon.file_changes import LONGEST, SHORTEST, ScanSchedule

HOURS = 3600.0


def pauses(until: float, cost: float) -> list[float]:
    """Return the pauses between scans of this duration, from the start until this moment."""
    pace, now, found = ScanSchedule(0.0), 0.0, []
    while now < until:
        due_in = pace.due_in(now, SHORTEST)
        found.append(due_in)
        now += due_in
        now += cost
        pace.note_scan(now, cost)

    return found


def test_a_scan_is_due_after_the_shortest_pause_at_first() -> None:
    """The first scan is due a quarter of a second after the start, the next likewise."""
    assert pauses(1.0, 0.0) == pytest.approx([SHORTEST] * 4)


def test_scans_never_take_more_than_a_twentieth_of_the_time() -> None:
    """Scans use at most a twentieth of the time, however large the work tree is."""
    for cost in (0.001, 0.1, 3.0):
        found = pauses(600.0, cost)
        assert cost * len(found) <= 0.05 * 600.0 + cost


def test_eight_hours_make_a_few_thousand_scans_and_no_pause_is_longer_than_the_limit() -> None:
    """A program that writes constantly cannot fill the disk with checkpoints."""
    found = pauses(8 * HOURS, 0.01)
    assert 2_000 < len(found) < 5_000
    assert max(found) == pytest.approx(LONGEST)
    assert 150 < len(pauses(60.0, 0.005)) < 250


def test_a_line_can_make_a_scan_due_earlier() -> None:
    """The caller's shorter pause applies unless scans would take too much of the time."""
    pace = ScanSchedule(0.0)
    pace.note_scan(1.0, 0.1)
    assert pace.due_in(1.0, 0.05) == pytest.approx(2.0)
    pace.note_scan(1.0, 0.001)
    assert pace.due_in(1.0, 0.05) == pytest.approx(0.05)
