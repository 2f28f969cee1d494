"""The two tiers of the campaigns of faults, and what they came to.

The fast tier runs with everything else: a stride through the points, in a fixed order, as far as
its seconds go. `scripts/test --faults` runs them all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.nth_call import why_not
from support.struck import Grounds, Scenario, Tally
from support.tiers import Lay, Tier

TALLY = pytest.StashKey[Tally]()
WHOLE_NIGHT = 12 * 3600


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--all-faults", action="store_true", help="the long tier: every point")
    group.addoption("--rounds", type=int, default=300, help="random kills in the long tier")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = Tally()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all-faults", False):
        for item in items:
            item.add_marker(pytest.mark.timeout(WHOLE_NIGHT))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    tally = config.stash.get(TALLY, Tally())
    if not tally.rounds:
        return

    terminalreporter.section("faults")
    for name, rounds in sorted(tally.rounds.items()):
        terminalreporter.write_line(f"{rounds:6}  {name}")

    for violation in tally.violations:
        terminalreporter.write_line(violation)

    terminalreporter.write_line(
        f"rounds {tally.rounds.total()}, acknowledgements {tally.acknowledgements}, "
        f"violations: {len(tally.violations)}"
    )


@pytest.fixture
def tally(pytestconfig: pytest.Config) -> Tally:
    return pytestconfig.stash[TALLY]


@pytest.fixture(scope="session")
def tier(pytestconfig: pytest.Config) -> Tier:
    is_long = bool(pytestconfig.getoption("--all-faults", False))
    return Tier(is_long, int(pytestconfig.getoption("--rounds", 300)) if is_long else 3)


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of scenarios, by what is there before: those that begin alike share one."""
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
