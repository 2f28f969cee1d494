"""The server is killed at the N-th system call of each kind that it makes, then started again.

A kill is the worst that a process can do to its own files. Calls are counted over all threads of
the process. A power cut loses more; another campaign covers it.
"""

from __future__ import annotations

import itertools

import pytest

from intruders.tier import IS_LONG
from support.scenarios import SCENARIOS, SPREAD
from support.struck import Grounds, Scenario
from support.tiers import Lay, Tier

GROUPS = ("rename", "fsync", "unlink", "write", "link", "mkdir")
SEED = 20250104
FEW = 3
"""Points of each scenario in the fast tier."""


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
        points = ([(group, at) for at in range(1, counted[group] + 1)] for group in GROUPS)
        for group, at in tier.some(points, FEW, SEED):
            await place.survive(place.strike(group, at))

    assert place.tally.violations[before:] == [], f"seed {SEED}"


async def _until_untouched(place: Grounds, group: str) -> None:
    for at in itertools.count(1):
        if not await place.survive(place.strike(group, at)):
            return
