"""Tiers of tests, and the table of results of the fault campaigns.

`scripts/test` runs the quick tier: tests of single packages, and a representative of each hazard on
a whole system. Tests in the folders `WHOLE_SYSTEM` are in it only with the marker `quick`, whose
arguments name single cases of a parametrized test; all others unless they have the marker `full`.
`scripts/test --all` runs everything.

The campaigns of tests/faults and tests/intruders have a long tier besides: `scripts/test --faults`
runs every point and every round. A test reports what it did with `tally.add(...)`; one that reports
nothing counts as one case of its module.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support.fork_server import ForkServer
from support.golden_files import GoldenFiles
from support.reference_client import Heard
from support.running_server import SCRIPT, environment
from support.tally import Tally

TALLY = pytest.StashKey[Tally]()
FORKS = pytest.StashKey[ForkServer]()
REFERENCE = pytest.StashKey[Heard]()
"""The frames that clients of Hankweave received in the acceptance tests."""

VIOLATIONS = "violations"
WHOLE_NIGHT = 12 * 3600
CAMPAIGNS = ("tests/faults/", "tests/intruders/")
EXECUTED = ("tests/bench/", "tests/intruders/")
"""Folders whose tests execute every `hankweave`: they look into its process, or at its cost."""
WHOLE_SYSTEM = (
    *CAMPAIGNS,
    "tests/acceptance/",
    "tests/agents/",
    "tests/cli/",
    "tests/compat/",
    "tests/conformance/",
    "tests/examples/",
)
"""Folders whose tests start programs: they prove what no test of one package can prove."""

# An example's duration depends on the machine. The fast tier uses the same examples each time, so
# that a failure is caused by a change; the long tier uses new ones.
settings.register_profile(
    "fast", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "long", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("long" if "HANKWEAVE_LONG_TIER" in os.environ else "fast")


class Program(subprocess.Popen[Any]):
    """A program that a test starts; after a failure it is killed.

    The `with` statement of a plain Popen waits for its program to end by itself: after a failure
    that can last forever, and no timeout of a test applies any more.
    """

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is not None:
            self.kill()

        super().__exit__(kind, value, traceback)


@pytest.fixture(autouse=True)
def _programs_end_with_their_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", Program)
        yield


@pytest.fixture(scope="session", autouse=True)
def _fork_server(pytestconfig: pytest.Config) -> Iterator[None]:
    with pytestconfig.stash[FORKS].serving():
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--all-faults", action="store_true", help="the long tier: every point")
    group.addoption("--rounds", type=int, default=300, help="random kills in the long tier")
    group.addoption(
        "--sampled", type=float, metavar="SECONDS", help="a sample of each scenario, so long each"
    )
    group.addoption("--agents", action="store_true", help="real agents, where it is safe")
    group.addoption("--summary", type=Path, help="write the table of the campaigns as JSON")
    group = parser.getgroup("tiers")
    group.addoption("--quick", action="store_true", help="the quick tier")
    group = parser.getgroup("golden")
    group.addoption("--update-golden", action="store_true", help="rewrite the golden files")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = tally = Tally()
    config.stash[REFERENCE] = Heard()
    config.stash[FORKS] = ForkServer(SCRIPT, environment())
    config.addinivalue_line("markers", "alone: no client of Hankweave listens at its servers")
    config.pluginmanager.register(Recorder(tally))
    if config.getoption("--all-faults"):
        # Settings of Hypothesis are made when a module is imported, before any fixture.
        os.environ["HANKWEAVE_LONG_TIER"] = "1"
        settings.load_profile("long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all-faults"):
        for item in items:
            item.add_marker(pytest.mark.timeout(WHOLE_NIGHT))

    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=[item for item in items if not _is_quick(item)])
        items[:] = filter(_is_quick, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose how the test's programs start; this is before any of its fixtures.

    The long tier of the campaigns executes everything.
    """
    item.config.stash[FORKS].is_used = not (
        item.config.getoption("--all-faults")
        or item.nodeid.startswith(EXECUTED)
        or item.get_closest_marker("executed")
    )


def _is_quick(item: pytest.Item) -> bool:
    if not item.nodeid.startswith(WHOLE_SYSTEM):
        return item.get_closest_marker("full") is None

    marker = item.get_closest_marker("quick")
    if marker is None or not marker.args:
        return marker is not None

    return any(item.name.endswith(f"[{case}]") for case in marker.args)


def pytest_sessionfinish(session: pytest.Session) -> None:
    violations = session.config.stash[TALLY].violations
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[VIOLATIONS] = violations
        session.config.workeroutput["reference"] = asdict(session.config.stash[REFERENCE])
    elif violations and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Add a worker's results, where tests run in several processes."""
    heard = getattr(node, "workeroutput", {}).get("reference")
    if heard:
        node.config.stash[REFERENCE].add(Heard(**heard))

    found = getattr(node, "workeroutput", {}).get(VIOLATIONS, [])
    if found:
        node.config.stash[TALLY].add("workers", rounds=0, violations=found)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the table below all other output."""
    tally = config.stash.get(TALLY, Tally())
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    heard = config.stash.get(REFERENCE, Heard())
    if terminal is not None and heard.servers:
        terminal.write_line(str(heard))

    if not tally.rows or terminal is None:
        return

    if config.getoption("--all-faults"):
        for line in tally.table():
            terminal.write_line(line)

    if path := config.getoption("--summary"):
        path.write_text(tally.as_json() + "\n")


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    return pytestconfig.stash[TALLY]


@pytest.fixture(scope="session")
def golden(pytestconfig: pytest.Config) -> GoldenFiles:
    return GoldenFiles(update=bool(pytestconfig.getoption("--update-golden")))


@pytest.fixture(scope="session")
def reference_client_tally(pytestconfig: pytest.Config) -> Heard:
    return pytestconfig.stash[REFERENCE]


class Recorder:
    """A counter of the campaigns' tests that do not report themselves, and of failed ones."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._done = 0
        self._violations = 0
        self._has_passed = False

    def pytest_runtest_logstart(self) -> None:
        self._done = self._all_done()
        self._violations = len(self._tally.violations)
        self._has_passed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.nodeid.startswith(CAMPAIGNS):
            return

        file, _, test = report.nodeid.partition("::")
        campaign = Path(file).stem.removeprefix("test_").replace("_", " ")
        if report.failed:
            # A campaign that has reported its violations fails because of them.
            told = len(self._tally.violations) > self._violations
            failed = [] if told else [f"{test} failed."]
            self._tally.add(campaign, rounds=0, of="cases", violations=failed)
        elif report.skipped:
            self._tally.skip(campaign, report.longrepr[2].removeprefix("Skipped: "))  # type: ignore[index]
        elif report.when == "call":
            self._has_passed = True
        elif report.when == "teardown" and self._has_passed and self._all_done() == self._done:
            self._tally.add(campaign, of="cases")

    def _all_done(self) -> int:
        return sum(row.done for row in self._tally.rows.values())
