"""Tests of the gate's tests: no clock decides a result, and nothing sleeps to wait.

A test that measures time, or waits for a fixed time, fails on a busy machine although nothing is
wrong. The check reads the source of the gate's tests, of their helpers and of tests/support, and
refuses clocks, sleeps and limits. `support.waiting` is the one place that waits.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

TESTS = Path(__file__).resolve().parent
UNCHECKED = ("tests/bench/", "tests/browser/", "tests/golden/")
"""Programs of their own and data."""

GATE_MARKER = "story"
"""The marker of the gate's tests in the folders `WHOLE_SYSTEM` of tests/conftest.py."""

FULL_MARKER = "full"
"""The marker of tests elsewhere that are not in the gate."""

SHORTEST_LIMIT = 60
"""Seconds. A busy machine can reach a shorter limit."""

ALLOWED = {
    ("tests/server/worktree/test_watch.py", "test_a_clock_that_was_set_leads_to_one_full_scan"): (
        "sets the product's clock forward from the real one"
    ),
    ("tests/support/attacks.py", "signal_by_ownership_of_a_socket"): (
        "a program without packages; in a fence it waits for a signal that does not come"
    ),
    ("tests/support/enclosure.py", "_remaining_processes"): (
        "waits as `support.waiting` does, in a program without the tests' packages"
    ),
    ("tests/support/late_crowd.py", "settled"): "measures memory, outside of the gate",
    ("tests/support/lock_witness.py", "MovedClock.wait"): "a real wait on a clock that is moved",
    ("tests/support/mirrors.py", "killed_push"): "kills a push at any moment",
    ("tests/support/models/script.py", "Script.next"): (
        "an account's limit ends at a moment that the agent is told"
    ),
    ("tests/support/power.py", "kernel_that_commits"): "a kernel may commit at any moment",
    ("tests/support/reference_client.py", "ReferenceClients._follow_all"): (
        "looks for servers of other tests; nothing waits for it"
    ),
    ("tests/support/slowed.py", "slowed"): "stops a server as a busy machine does, at any moment",
    ("tests/support/waiting.py", "*"): "the helper",
    ("tests/support/walk/world.py", "Log._run"): "writes at any moment; nothing waits for it",
}
"""Why a clock is allowed, by path and by function, class or method ("*" is all of them)."""

CLOCKS = {
    *(
        f"time.{name}{unit}"
        for name in ("monotonic", "time", "perf_counter", "process_time", "thread_time")
        for unit in ("", "_ns")
    ),
    *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
    "datetime.date.today",
    "anyio.current_time",
}
LOOPS = {"asyncio.get_running_loop", "asyncio.get_event_loop"}
SLEEPS = {"time.sleep", "anyio.sleep", "asyncio.sleep"}
LIMITS = {
    "anyio.fail_after",
    "anyio.move_on_after",
    "asyncio.timeout",
    "asyncio.timeout_at",
    "asyncio.wait_for",
}
MARK = re.compile(r"^pytest\.mark\.(\w+)")
WAITS = ("wait", "join")
"""Methods of processes, threads and events whose argument is a limit; a clock's are virtual."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Finding(NamedTuple):
    path: str
    where: str
    """The function, class or method; empty at the top of a module."""
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what} in {self.where or 'the module'}"


class Clocks(ast.NodeVisitor):
    """The clocks, sleeps and limits of one module, without the tests that are not in the gate."""

    def __init__(self, path: str, *, whole_system: bool = False) -> None:
        self.findings: list[Finding] = []
        self._path = path
        self._whole_system = whole_system
        self._names: dict[str, str] = {}
        self._constants: dict[str, float] = {}
        self._within: list[str] = []

    def visit_Module(self, module: ast.Module) -> None:
        for node in ast.walk(module):
            if isinstance(node, ast.Import):
                for name in node.names:
                    top = name.name.partition(".")[0]
                    self._names[name.asname or top] = name.name if name.asname else top
            elif isinstance(node, ast.ImportFrom) and not node.level:
                self._names |= {
                    name.asname or name.name: f"{node.module}.{name.name}" for name in node.names
                }

        for statement in module.body:
            if (
                isinstance(statement, ast.Assign)
                and isinstance(statement.targets[0], ast.Name)
                and (value := self._number(statement.value)) is not None
            ):
                self._constants[statement.targets[0].id] = value

        for statement in in_gate(module, whole_system=self._whole_system):
            self.visit(statement)

    def _definition(self, node: Definition) -> None:
        self._within.append(node.name)
        self.generic_visit(node)
        self._within.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _definition

    def visit_Name(self, node: ast.Name) -> None:
        self._refuse(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._refuse(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        number = self._number(node.args[0]) if node.args else None
        name = self._name(node.func)
        if name in SLEEPS and number == 0:
            return

        is_mark = name == "pytest.mark.timeout"
        is_wait = (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in WAITS
            and not _last_name(node.func.value).endswith("clock")
        )
        if (is_mark or is_wait) and self._is_short(number):
            self._add(node, f"{ast.unparse(node.func)}({number:g})")

        for keyword in node.keywords:
            if keyword.arg == "timeout" and self._is_short(self._number(keyword.value)):
                self._add(node, f"timeout={ast.unparse(keyword.value)}")

        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "time"
            and self._is_loop(node.func.value)
        ):
            self._add(node, "loop.time")

        self.generic_visit(node)

    def _refuse(self, node: ast.Name | ast.Attribute) -> None:
        if self._name(node) in CLOCKS | SLEEPS | LIMITS:
            self._add(node, str(self._name(node)))

    def _add(self, node: ast.expr, what: str) -> None:
        self.findings.append(Finding(self._path, ".".join(self._within), node.lineno, what))

    def _name(self, node: ast.expr) -> str | None:
        """Return the dotted name of what a module has imported."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id)

        if isinstance(node, ast.Attribute) and (owner := self._name(node.value)) is not None:
            return f"{owner}.{node.attr}"

        return None

    def _is_loop(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            return self._name(node.func) in LOOPS

        return _last_name(node).endswith("loop")

    def _number(self, node: ast.expr) -> float | None:
        if isinstance(node, ast.Name):
            return self._constants.get(node.id)

        value = node.value if isinstance(node, ast.Constant) else None
        return value if type(value) in (int, float) else None

    @staticmethod
    def _is_short(seconds: float | None) -> bool:
        """Return True for a limit that a busy machine reaches; 0 does not wait at all."""
        return seconds is not None and 0 < seconds < SHORTEST_LIMIT


def _last_name(node: ast.expr) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


def in_gate(module: ast.Module, *, whole_system: bool) -> list[ast.stmt]:
    """Return the statements of a module without the tests that are not in the gate.

    Return nothing if no test remains in a module that had one.
    """
    tests = [node for node in module.body if is_test(node)]
    marked = set().union(*(marks_of(node) for node in module.body if isinstance(node, ast.Assign)))
    inside = [
        node for node in tests if is_of_gate(marked | marks_of(node), whole_system=whole_system)
    ]
    if tests and not inside:
        return []

    return reachable(module, inside) if tests else module.body


def reachable(module: ast.Module, tests: list[ast.stmt]) -> list[ast.stmt]:
    """Return these tests of a module, what they name in it, and what its import executes."""
    helpers = {
        node.name: node
        for node in module.body
        if isinstance(node, Definition) and not is_test(node)
    }
    found = [node for node in module.body if not isinstance(node, Definition)] + tests
    for node in found:  # It grows meanwhile.
        for each in ast.walk(node):
            name = getattr(each, "id", getattr(each, "arg", None))
            if helper := helpers.pop(name, None):
                found.append(helper)

    return found


def is_test(node: ast.stmt) -> bool:
    return isinstance(node, Definition) and node.name.startswith(("test", "Test"))


def is_of_gate(marks: set[str], *, whole_system: bool) -> bool:
    return GATE_MARKER in marks or not (whole_system or FULL_MARKER in marks)


def marks_of(node: ast.stmt) -> set[str]:
    """Return the markers of a definition, or those that `pytestmark` gives to its module."""
    if isinstance(node, Definition):
        places: list[ast.expr] = node.decorator_list
    elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
        places = node.value.elts if isinstance(node.value, ast.List) else [node.value]
    else:
        return set()

    return {name for place in places for name in MARK.findall(ast.unparse(place))}


def clocks(source: str, path: str = "tests/test_it.py", *, whole_system: bool = False) -> list[str]:
    return [
        f"{finding.line}: {finding.what}"
        for finding in findings_in(ast.parse(source), path, whole_system=whole_system)
    ]


def findings_in(module: ast.Module, path: str, *, whole_system: bool) -> list[Finding]:
    visitor = Clocks(path, whole_system=whole_system)
    visitor.visit(module)
    return visitor.findings


class Folders(NamedTuple):
    """Which tests are in the gate without a marker, as in tests/conftest.py."""

    whole_system: tuple[str, ...]
    in_process: tuple[str, ...]

    def is_whole_system(self, path: str) -> bool:
        return path.startswith(self.whole_system) and path not in self.in_process


@cache
def findings(folders_of: Folders) -> tuple[Finding, ...]:
    """Return what is found in the gate and in its helpers."""
    modules = {
        path: ast.parse(file.read_text())
        for file in sorted(TESTS.rglob("*.py"))
        if not (path := str(file.relative_to(TESTS.parent))).startswith(UNCHECKED)
    }
    folders = {
        Path(path).parent
        for path, module in modules.items()
        if any(
            is_test(node) for node in in_gate(module, whole_system=folders_of.is_whole_system(path))
        )
    }
    return tuple(
        finding
        for path, module in modules.items()
        if Path(path).parent in folders or not path.startswith(folders_of.whole_system)
        for finding in findings_in(module, path, whole_system=folders_of.is_whole_system(path))
    )


@pytest.fixture
def folders_of(pytestconfig: pytest.Config) -> Folders:
    conftest = pytestconfig.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    assert isinstance(conftest, ModuleType)
    return Folders(tuple(conftest.WHOLE_SYSTEM), tuple(conftest.IN_PROCESS))


def allows(entry: tuple[str, str], finding: Finding) -> bool:
    path, where = entry
    return finding.path == path and (where == "*" or f"{finding.where}.".startswith(f"{where}."))


def test_no_test_of_the_gate_has_a_clock_or_sleeps(folders_of: Folders) -> None:
    refused = [
        finding
        for finding in findings(folders_of)
        if not any(allows(entry, finding) for entry in ALLOWED)
    ]
    assert not refused, "\n".join(map(str, refused))


def test_every_allowed_place_has_a_clock(folders_of: Folders) -> None:
    found = findings(folders_of)
    assert [entry for entry in ALLOWED if not any(allows(entry, each) for each in found)] == []


def test_both_markers_are_in_use() -> None:
    """Renaming a marker must not take tests out of the check."""
    sources = "".join(file.read_text() for file in TESTS.rglob("test_*.py"))
    assert f"@pytest.mark.{GATE_MARKER}(" in sources
    assert f"@pytest.mark.{FULL_MARKER}\n" in sources


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time\ntime.monotonic()", "time.monotonic"),
        ("import time as clock\nclock.perf_counter_ns()", "time.perf_counter_ns"),
        ("from time import process_time\nprocess_time()", "time.process_time"),
        ("import time\nread(clock=time.time)", "time.time"),
        ("from datetime import UTC, datetime\ndatetime.now(UTC)", "datetime.datetime.now"),
        ("import datetime\ndatetime.date.today()", "datetime.date.today"),
        ("import asyncio\nasyncio.get_running_loop().time()", "loop.time"),
        ("import asyncio\nself.loop.time()", "loop.time"),
        ("import anyio\nanyio.current_time()", "anyio.current_time"),
        ("from time import sleep\nsleep(1)", "time.sleep"),
        ("import asyncio\nasyncio.sleep(0.01)", "asyncio.sleep"),
        ("import anyio\nanyio.sleep(PAUSE)", "anyio.sleep"),
        ("import time\nthread(time.sleep, 3)", "time.sleep"),
        ("import anyio\nwith anyio.fail_after(600): ...", "anyio.fail_after"),
        ("from anyio import move_on_after\nmove_on_after(1)", "anyio.move_on_after"),
        ("import asyncio\nasyncio.timeout(90)", "asyncio.timeout"),
        ("import asyncio\nasyncio.wait_for(it, 90)", "asyncio.wait_for"),
        ("\nrun(timeout=59.5)", "timeout=59.5"),
        ("DEADLINE = 10\nrun(timeout=DEADLINE)", "timeout=DEADLINE"),
        ("import pytest\n@pytest.mark.timeout(30)\ndef test(): ...", "pytest.mark.timeout(30)"),
        ("\nprocess.wait(5)", "process.wait(5)"),
        ("\nthread.join(0.5)", "thread.join(0.5)"),
    ],
)
def test_clocks_sleeps_and_limits_are_refused(source: str, found: str) -> None:
    assert clocks(source) == [f"2: {found}"]


@pytest.mark.parametrize(
    "source",
    [
        "import anyio\nanyio.sleep(0)\nanyio.sleep_forever()",
        "clock.now()\nclock.monotonic()\nself.time()",
        "import time\ntime.strftime('%Y')",
        "def wait_for(): ...\nwait_for()\ntimeout()",
        "run(timeout=60)\nrun(timeout=0)\nrun(timeout=LIMIT)\nrun(timeout='number')",
        "program = 'import time; time.sleep(600)'",
        "', '.join(names)\nprocess.wait()\nprocess.wait(LIMIT)\nself.clock.wait(20)",
        "import pytest\n@pytest.mark.timeout(86_400)\ndef test(): ...",
    ],
)
def test_what_no_clock_decides_is_accepted(source: str) -> None:
    assert clocks(source) == []


MARKED = """
import time, pytest

@pytest.mark.{marker}
def test_marked():
    time.sleep(1)
    helper()

def test_unmarked():
    time.sleep(2)

def helper():
    other_helper()

def other_helper():
    time.sleep(3)

def unused():
    time.sleep(4)
"""


def test_only_the_tests_of_the_gate_are_checked() -> None:
    """Functions that a test of the gate calls in its module are checked with it."""
    full = MARKED.format(marker=FULL_MARKER)
    story = MARKED.format(marker=GATE_MARKER)
    assert clocks(full) == ["10: time.sleep"]
    assert clocks(story, whole_system=True) == ["6: time.sleep", "16: time.sleep"]
    assert clocks(full, whole_system=True) == []
    assert clocks(f"{full}\npytestmark = [pytest.mark.{FULL_MARKER}]") == []
    assert clocks("import time\ndef helper():\n    time.sleep(3)") == ["3: time.sleep"]


def test_an_allowed_place_is_a_function_or_all_of_a_file() -> None:
    finding = Finding("tests/test_it.py", "Watch.wait", 3, "time.sleep")
    allowed = ["*", "Watch", "Watch.wait"]
    refused = ["Wat", "wait", "Watch.wait.inner"]
    assert [allows((finding.path, where), finding) for where in allowed] == [True] * 3
    assert [allows((finding.path, where), finding) for where in refused] == [False] * 3
    assert not allows(("tests/test_other.py", "*"), finding)
