"""Garbage collections of a server: long ones visit only what is new."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from hankweave_server.daemon.startup import COLLECTED_WITHIN, LONG_COLLECTION, collect_rarely
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
    collect_rarely(clock)
    yield clock
    gc.callbacks[:] = before
    gc.unfreeze()


def collection(clock: HandClock, seconds: float, info: dict[str, int] = FULL) -> int:
    """Pretend that one took so long; return how many objects the next one leaves out."""
    note = gc.callbacks[-1]
    note("start", info)
    clock.seconds += seconds
    note("stop", info)
    return gc.get_freeze_count()


def test_what_survived_a_long_collection_is_left_out_of_the_next(clock: HandClock) -> None:
    """A short one, and one of young objects alone, leave nothing more out."""
    before = gc.get_freeze_count()
    kept = [[number] for number in range(1000)]
    assert collection(clock, LONG_COLLECTION / 2) <= before
    assert collection(clock, LONG_COLLECTION * 2, {"generation": 1}) <= before
    assert collection(clock, LONG_COLLECTION * 2) >= before + len(kept)


def test_all_objects_are_visited_again_after_some_minutes(clock: HandClock) -> None:
    """So that cycles among old objects are found, too."""
    assert gc.get_freeze_count() > 0
    clock.seconds += COLLECTED_WITHIN + 1
    gc.callbacks[-1]("start", FULL)
    assert gc.get_freeze_count() == 0
