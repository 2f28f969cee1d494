"""Tiers of tests, and the table of results of the fault campaigns.

With `--gate` only the tests of the gate run: tests of single packages, and the stories, one for
each promise of the documents, on a real server. A story has the marker
`story("The promise.", of="docs/how-to/attempts.md", cases=("one",))`: `of` is the document that
makes the promise, README.md unless it is named, and `cases` are the cases of a parametrized test
that prove it, all unless they are named. Other tests are in the gate unless they start programs
(`WHOLE_SYSTEM`) or have the marker `full`. `tests/test_stories.py` checks the promises. Without
`--gate` every test runs.

The campaigns of tests/faults and tests/intruders have a long tier besides: `scripts/test --faults`
runs every point and every round. A test reports what it did with `tally.add(...)`; one that reports
nothing counts as one case of its module.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from hankweave_server.installed import FEATURES
from support import enclosure
from support.fork_server import ForkServer
from support.golden_files import GoldenFiles
from support.reference_client import Received
from support.results import ResultFile, longest_first, recorded_durations
from support.running_server import SCRIPT, environment
from support.tally import Tally

TALLY = pytest.StashKey[Tally]()
RESULTS = pytest.StashKey[ResultFile]()
MOUNTS = pytest.StashKey[set[str]]()
FORKS = pytest.StashKey[ForkServer]()
REFERENCE = pytest.StashKey[Received]()
"""The frames that clients of Hankweave received in the acceptance tests."""

VIOLATIONS = "violations"
WHOLE_NIGHT = 12 * 3600
CAMPAIGNS = ("tests/faults/", "tests/intruders/")
EXECUTED = ("tests/bench/", "tests/fleet/", "tests/intruders/")
"""Folders whose tests execute every `hankweave`: they look into its process, or at its cost, or
load libraries that do not survive a fork."""
WHOLE_SYSTEM = (
    *CAMPAIGNS,
    "tests/acceptance/",
    "tests/agents/",
    "tests/cli/",
    "tests/compat/",
    "tests/conformance/",
    "tests/examples/",
    "tests/fleet/",
)
"""Folders whose tests start programs: they prove what no test of one package can prove."""

IN_PROCESS = (
    "tests/cli/test_amounts.py",
    "tests/cli/test_attach_keystrokes.py",
    "tests/cli/test_attach_screen.py",
    "tests/cli/test_commands_on_demand.py",
    "tests/cli/test_cut_connections.py",
    "tests/cli/test_help_groups.py",
    "tests/cli/test_hints.py",
    "tests/cli/test_live_model.py",
    "tests/cli/test_local_time.py",
    "tests/cli/test_log.py",
    "tests/cli/test_manual.py",
    "tests/cli/test_mcp_arguments.py",
    "tests/cli/test_mcp_command.py",
    "tests/cli/test_output_server_lines.py",
    "tests/cli/test_rollback_report.py",
    "tests/conformance/test_engine_cases.py",
    "tests/examples/test_docker_files.py",
    "tests/examples/test_earthquakes_files.py",
    "tests/faults/test_campaign_table.py",
    "tests/faults/test_the_walk.py",
    "tests/intruders/test_the_list.py",
)
"""Files in these folders whose tests start no program, but an interpreter for its imports."""

_OF_FEATURES = re.compile(r"^pytestmark = .*pytest\.mark\.feature\(([^)]*)\)", re.MULTILINE)

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


@pytest.fixture
def execution(tmp_path: Path) -> Path:
    """Return the place of an execution that no server has made yet."""
    return tmp_path / "execution"


@pytest.fixture(autouse=True)
def _programs_end_with_their_test() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subprocess, "Popen", Program)
        yield


@pytest.fixture(scope="session", autouse=True)
def _fork_server(pytestconfig: pytest.Config) -> Iterator[None]:
    with pytestconfig.stash[FORKS].serving():
        yield


@pytest.fixture(autouse=True)
def _no_test_changes_the_environment_of_others() -> Iterator[None]:
    """A variable that a test sets without `monkeypatch` reaches the programs of later tests."""
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    for each in (before, after):
        each.pop("PYTEST_CURRENT_TEST", None)

    if after != before:
        os.environ.clear()
        os.environ.update(before)
        left = sorted({name for name, _ in after.items() ^ before.items()})
        pytest.fail(f"left in the environment: {left}")


@pytest.fixture(autouse=True)
def _no_test_sees_the_executions_of_others(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """A command that names no execution takes the only one with a server, wherever that is."""
    state = tmp_path_factory.getbasetemp() / "state" / secrets.token_hex(8)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(state))
        yield


@pytest.fixture(autouse=True)
def _no_test_configures_logging_for_others() -> Iterator[None]:
    """A server's log configures it for the whole process, which here is that of many tests."""
    yield
    structlog.reset_defaults()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--all-faults", action="store_true", help="the long tier: every point")
    group.addoption(
        "--rounds",
        type=int,
        default=300,
        help="random kills, and rounds of walks, in the long tier",
    )
    group.addoption(
        "--sampled", type=int, metavar="N", help="a sample of N points of each scenario"
    )
    group.addoption("--agents", action="store_true", help="real agents, where it is safe")
    group.addoption("--summary", type=Path, help="write the table of the campaigns as JSON")
    group = parser.getgroup("tiers")
    group.addoption("--gate", action="store_true", help="the tests of the gate alone")
    group = parser.getgroup("golden")
    group.addoption("--update-golden", action="store_true", help="rewrite the golden files")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of features that are not there (tools/removal.py)."""
    if collection_path.suffix != ".py":
        return None

    marked = _OF_FEATURES.search(collection_path.read_text(encoding="utf-8"))
    names = [] if marked is None else re.findall(r"\w+", marked[1])
    return True if set(names) - set(FEATURES) else None


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = tally = Tally()
    config.stash[REFERENCE] = Received()
    config.stash[FORKS] = ForkServer(SCRIPT, environment())
    config.addinivalue_line("markers", "alone: no client of Hankweave listens at its servers")
    config.addinivalue_line("markers", f"enclosed: {enclosure.REASON}")
    config.pluginmanager.register(Recorder(tally))
    if path := os.environ.pop("HANKWEAVE_TEST_RECORD", None):
        # Removed from the environment, so that neither workers nor tests write to it.
        config.stash[RESULTS] = ResultFile(Path(path))
        config.pluginmanager.register(config.stash[RESULTS])

    if hasattr(config, "workerinput"):
        enclosure.take_own_mounts()

    config.stash[MOUNTS] = enclosure.mounts()
    if config.getoption("--all-faults"):
        # Settings of Hypothesis are made when a module is imported, before any fixture.
        os.environ["HANKWEAVE_LONG_TIER"] = "1"
        settings.load_profile("long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all-faults"):
        for item in items:
            item.add_marker(pytest.mark.timeout(WHOLE_NIGHT))

    missing = [item for item in items if _is_of_missing_feature(item)]
    config.hook.pytest_deselected(items=missing)
    items[:] = [item for item in items if item not in missing]
    if config.getoption("--gate"):
        _check_cases(items)
        config.hook.pytest_deselected(items=[item for item in items if not _is_in_gate(item)])
        items[:] = filter(_is_in_gate, items)

    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    order = longest_first([item.nodeid for item in items], recorded_durations(), workers)
    items[:] = [items[index] for index in order]


def _is_of_missing_feature(item: pytest.Item) -> bool:
    names = {name for mark in item.iter_markers("feature") for name in mark.args}
    return not names <= set(FEATURES)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose how the test's programs start; this is before any of its fixtures.

    The long tier of the campaigns executes everything.
    """
    if item.get_closest_marker("enclosed") and (reason := enclosure.why_not()):
        pytest.skip(reason)

    item.config.stash[FORKS].is_used = not (
        item.config.getoption("--all-faults")
        or item.nodeid.startswith(EXECUTED)
        or item.get_closest_marker("executed")
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not terminalreporter.config.getoption("--all-faults"):
        for violation in terminalreporter.config.stash[TALLY].violations:
            terminalreporter.write_line(f"violation: {violation}")

    skipped = [str(report.longrepr) for report in terminalreporter.getreports("skipped")]
    if number := sum(enclosure.REASON in reason for reason in skipped):
        terminalreporter.write_line(f"{number} tests are skipped: each says {enclosure.REASON!r}")


def _is_in_gate(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("story")
    if marker is not None:
        return "cases" not in marker.kwargs or _case(item) in marker.kwargs["cases"]

    if item.nodeid.startswith(WHOLE_SYSTEM) and not item.nodeid.startswith(IN_PROCESS):
        return False

    return item.get_closest_marker("full") is None


def _check_cases(items: list[pytest.Item]) -> None:
    """Refuse a story that names a case which its test does not have.

    Otherwise the story would leave the gate, and no test would fail.
    """
    cases: dict[str, set[str]] = {}
    named: dict[str, set[str]] = {}
    for item in items:
        marker = item.get_closest_marker("story")
        if marker is not None and "cases" in marker.kwargs:
            test = item.nodeid.partition("[")[0]
            cases.setdefault(test, set()).add(_case(item))
            named[test] = set(marker.kwargs["cases"])

    for test, wanted in named.items():
        for case in sorted(wanted - cases[test]):
            raise pytest.UsageError(f"{test} has no case {case!r}, which its story names.")


def _case(item: pytest.Item) -> str:
    """Return the id of a case of a parametrized test."""
    return item.name.partition("[")[2].removesuffix("]")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if left := enclosure.mounts() - session.config.stash[MOUNTS]:
        session.config.stash[TALLY].add("mounts", rounds=0, violations=sorted(left))

    violations = session.config.stash[TALLY].violations
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[VIOLATIONS] = violations
        session.config.workeroutput["reference"] = asdict(session.config.stash[REFERENCE])
    elif violations and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if results := session.config.stash.get(RESULTS, None):
            results.fault_of_the_run("\n".join(violations))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Add a worker's results, where tests run in several processes."""
    received = getattr(node, "workeroutput", {}).get("reference")
    if received:
        node.config.stash[REFERENCE].add(Received(**received))

    found = getattr(node, "workeroutput", {}).get(VIOLATIONS, [])
    if found:
        node.config.stash[TALLY].add("workers", rounds=0, violations=found)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the table below all other output."""
    tally = config.stash.get(TALLY, Tally())
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    received = config.stash.get(REFERENCE, Received())
    if terminal is not None and received.servers:
        terminal.write_line(str(received))

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
def reference_client_tally(pytestconfig: pytest.Config) -> Received:
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
            has_violations = len(self._tally.violations) > self._violations
            failed = [] if has_violations else [f"{test} failed."]
            self._tally.add(campaign, rounds=0, of="cases", violations=failed)
        elif report.skipped:
            self._tally.skip(campaign, report.longrepr[2].removeprefix("Skipped: "))  # type: ignore[index]
        elif report.when == "call":
            self._has_passed = True
        elif report.when == "teardown" and self._has_passed and self._all_done() == self._done:
            self._tally.add(campaign, of="cases")

    def _all_done(self) -> int:
        return sum(row.done for row in self._tally.rows.values())
