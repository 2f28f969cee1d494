"""Garbage collections of a server: full ones rarely visit all objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from hankweave_server.daemon.startup import COLLECTED_WITHIN, collect_garbage_rarely
from support.attached import StillClock

FULL = {"generation": 2}


class HandClock(StillClock):
    """A clock that a test moves."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Iterator[HandClock]:
    """Provide the clock of a server's collections; undo what the server does to this process."""
    before, clock = list(gc.callbacks), HandClock()
    collect_garbage_rarely(clock)
    yield clock
    gc.callbacks[:] = before
    gc.unfreeze()


def test_a_full_collection_visits_nothing_before_ten_minutes(clock: HandClock) -> None:
    """A collection of young objects alone leaves none of them out."""
    note, before = gc.callbacks[-1], gc.get_freeze_count()
    kept = [[number] for number in range(1000)]
    note("start", {"generation": 1})
    assert gc.get_freeze_count() <= before
    clock.seconds += COLLECTED_WITHIN
    note("start", FULL)
    assert gc.get_freeze_count() >= before + len(kept)


def test_all_objects_are_visited_again_after_ten_minutes(clock: HandClock) -> None:
    """So that cycles among old objects are found, too; the next full one is ten minutes later."""
    assert gc.get_freeze_count() > 0
    clock.seconds += COLLECTED_WITHIN + 1
    gc.callbacks[-1]("start", FULL)
    assert gc.get_freeze_count() == 0
    gc.callbacks[-1]("start", FULL)
    assert gc.get_freeze_count() > 0
