"""The server is killed at the N-th system call of each kind that it makes, then started again.

A kill is the worst that a process can do to its own files. Calls are counted over all threads of
the process. A power cut loses more; another campaign covers it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import pytest

from intruders.tier import IS_LONG
from support.scenarios import SCENARIOS, SPREAD
from support.struck import Grounds, Scenario
from support.tiers import Lay, Tier

GROUPS = ("rename", "fsync", "unlink", "write", "link", "mkdir")
SEED = 20250104
FAST_SECONDS = 2.0


@pytest.mark.parametrize("scenario", SCENARIOS if IS_LONG else SPREAD, ids=lambda each: each.name)
@pytest.mark.story(
    "Killed at any system call, the server loses nothing that was acknowledged.",
    cases=("a rollback", "a checkpoint"),
)
async def test_a_kill_at_any_call_loses_nothing(
    scenario: Scenario, grounds: Lay, tier: Tier
) -> None:
    """Everything acknowledged exists, the files are as before or after, and no leftovers remain."""
    place = grounds(scenario)
    counted = await place.build()
    before = len(place.tally.violations)
    if tier.is_whole:
        for group in GROUPS:
            await _until_untouched(place, group)
    else:
        await _some(place, counted, tier.within(FAST_SECONDS))

    assert place.tally.violations[before:] == []


async def _until_untouched(place: Grounds, group: str) -> None:
    for at in itertools.count(1):
        if not await place.survive(place.strike(group, at)):
            return


async def _some(place: Grounds, counted: dict[str, int], is_time: Callable[[], bool]) -> None:
    for group, at in _points(counted):
        if not is_time():
            return

        await place.survive(place.strike(group, at))


def _points(counted: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Return all points in a reproducible order that begins with one point of each group."""
    chance = random.Random(SEED)
    orders = [
        [(group, at) for at in chance.sample(range(1, counted[group] + 1), counted[group])]
        for group in GROUPS
    ]
    for row in itertools.zip_longest(*orders):
        yield from (point for point in row if point is not None)
