"""Options and fixtures that the fault campaigns share: their tier, and a scenario's folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.nth_call import why_not
from support.struck import Grounds, Scenario
from support.tally import Tally
from support.tiers import Lay, Tier


@pytest.fixture(scope="session")
def tier(pytestconfig: pytest.Config) -> Tier:
    if not pytestconfig.getoption("--all-faults"):
        return Tier(is_long=False, rounds=3)

    rounds, sampled = pytestconfig.getoption("--rounds"), pytestconfig.getoption("--sampled")
    return Tier(is_long=True, rounds=rounds, sampled=sampled)


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of scenarios by preparation; scenarios that share it share a folder."""
    return {}


@pytest.fixture
def grounds(places: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, tally: Tally) -> Lay:
    if missing := why_not():
        pytest.skip(missing)

    def lay(scenario: Scenario) -> Grounds:
        name = scenario.prepare.__name__
        if name not in places:
            places[name] = tmp_path_factory.mktemp(name)

        return Grounds(places[name], scenario, tally)

    return lay
