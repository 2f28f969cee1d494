"""The N-th system call of each kind fails, once or from then on, or completes only half."""

from __future__ import annotations

import errno
from itertools import product
from typing import NamedTuple

import pytest

from intruders.tier import IS_LONG
from support.scenarios import SCENARIOS, SPREAD
from support.struck import Scenario
from support.tiers import Lay, Tier

GROUPS = ("write", "fsync", "rename", "mkdir", "link", "unlink")
SEED = 20250104
FEW = 3
"""Points of each scenario in the fast tier."""


class Fault(NamedTuple):
    error: int
    for_ever: bool


FAULTS = tuple(
    Fault(error, for_ever) for error in (errno.ENOSPC, errno.EIO) for for_ever in (False, True)
)
KILLED_ONLY = ("an exploration",)
"""An attempt whose result cannot be stored has failed, and is not tried again."""

EVERY_DAY = tuple(
    scenario
    for scenario in SPREAD
    if scenario.name not in ("the recovery of a codon", *KILLED_ONLY)
)
STRUCK = tuple(
    scenario
    for scenario in (SCENARIOS if IS_LONG else EVERY_DAY)
    if scenario.name not in KILLED_ONLY
)
CUT = STRUCK if IS_LONG else tuple(each for each in SPREAD if each.name in ("a codon", "a gc"))
"""The scenarios that write the most kinds of files: objects and journal, and a pack."""


@pytest.mark.parametrize("scenario", STRUCK, ids=lambda scenario: scenario.name)
@pytest.mark.story(
    "A system call that fails during a rollback loses nothing.", cases=("a rollback",)
)
async def test_a_call_that_fails_loses_nothing(
    scenario: Scenario, grounds: Lay, tier: Tier
) -> None:
    """The server continues, or ends with a message; the next start has everything acknowledged."""
    place = grounds(scenario)
    counted = await place.build()
    before = len(place.tally.violations)
    points = (product([group], range(1, counted[group] + 1), FAULTS) for group in GROUPS)
    for group, at, fault in tier.some(points, FEW, SEED):
        await place.survive(
            place.strike(group, at, action="fail", error=fault.error, for_ever=fault.for_ever)
        )

    assert place.tally.violations[before:] == [], f"seed {SEED}"


@pytest.mark.parametrize("scenario", CUT, ids=lambda scenario: scenario.name)
async def test_writes_that_take_half_are_written_on(scenario: Scenario, grounds: Lay) -> None:
    """If every write(2) takes only half of its data, the result is that of complete writes."""
    place = grounds(scenario)
    await place.build()
    before = len(place.tally.violations)
    await place.survive(place.strike("write", 1, action="cut", for_ever=True), arrives=True)
    assert place.tally.violations[before:] == []
