"""Claims about the page on architecture: its tables, names and orders are those of the source."""

from __future__ import annotations

import ast
import json
import re
import signal
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from hankweave_protocol.commands import COMMANDS, RollbackToCheckpoint
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import EVENTS
from hankweave_protocol.state import CompletedCodon
from support.running_server import appears, running_server, state
from support.scripted_hank import codon, write_hank, writes
from support.watching import idle
from test_architecture import ROWS

TOP = Path(__file__).resolve().parents[1]
SERVER = TOP / "server" / "hankweave_server"
PAGE = (TOP / "docs" / "explanation" / "architecture.md").read_text()

MODULE = re.compile(r"(?<![\w/.])(?:[a-z_]+/)*[a-z_]+\.py\b")
FENCED = re.DOTALL | re.MULTILINE
PLACE = re.compile(r"`((?:[a-z_]+/|scripts/)[\w/.-]*)`")
PACKAGE_ROW = re.compile(r"^\| `([a-z_]+)(?:/|\.py)` \| \S", re.MULTILINE)
ROW = re.compile(r"^\| (\d+) \| (.*) \|$", re.MULTILINE)
STOP = re.compile(r"^(\d+)\. `([a-z_/]+\.py)` `(\w+(?:\.\w+)?)`: (\S.*)$", re.MULTILINE)
FRAME = re.compile(r"^  ([a-z_/]+\.py) +(\w+\.\w+)$", re.MULTILINE)
CALL = re.compile(r"\b((?:[A-Z]\w+\.)?[a-z_]\w*)\(\)")

IN_PACKAGE = re.compile(r"^- `([a-z_]+/?)`: \S", re.MULTILINE)

MOST_STOPS = 20
MOST_MOVES = 9
THE_DISK = ("wal.py WriteAheadLog.publish", "worktree/tree_writer.py TemporaryFiles.put")
"""Where the intent and the safety checkpoint are written, and then a restored file."""


class Stop(NamedTuple):
    """A stop of the rollback that the page describes."""

    number: int
    module: str
    function: str

    def __str__(self) -> str:
        return f"{self.module} {self.function}"


def section(title: str) -> str:
    """Return the text below a heading, up to the next one."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, f"there is no section {title!r}"
    return found[1]


def packages() -> set[str]:
    """Return every package and module directly below hankweave_server."""
    found = {path.parent.name for path in SERVER.glob("*/__init__.py")}
    return found | {path.stem for path in SERVER.glob("*.py")} - {"__init__"}


def relative(path: Path) -> str:
    return str(path.parent.relative_to(SERVER))


def modules_named() -> set[str]:
    return set(MODULE.findall(PAGE))


def stops() -> list[Stop]:
    """Return the numbered list of the walk through a rollback."""
    found = STOP.findall(section("A rollback, step by step"))
    return [Stop(int(number), module, function) for number, module, function, _ in found]


def stacks() -> list[list[str]]:
    """Return the two stacks of calls from the frame to the disk; they begin in the same way."""
    above, *below = re.findall(r"^```text\n(.*?)^```", section("The calls to the disk"), FENCED)
    first = FRAME.findall(above)
    return [[" ".join(call) for call in (*first, *FRAME.findall(rest))] for rest in below]


def moves(calls: Iterable[str]) -> int:
    """Return how often a call is in another package than the one before it."""
    packages = [re.split(r"[/ ]", call)[0] for call in calls]
    return sum(here != there for here, there in pairwise(packages))


def functions_of(module: Path) -> set[str]:
    """Return the functions of a module, and the methods of its classes, by qualified name."""

    def found(body: Iterable[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + node.name
            elif isinstance(node, ast.ClassDef):
                yield from found(node.body, f"{node.name}.")

    return set(found(ast.parse(module.read_text()).body, ""))


def missed(wanted: Iterable[Stop], calls: Iterable[str]) -> Stop | None:
    """Return the first stop that is not called after the one before it; None if all are."""
    trace = iter(calls)
    return next((stop for stop in wanted if str(stop) not in trace), None)


# --- tables and names -----------------------------------------------------------------------------


def test_every_package_has_its_line() -> None:
    """The table of packages has every package and module on the disk."""
    assert set(PACKAGE_ROW.findall(section("Rows and packages"))) == packages()


def test_the_rows_are_those_that_are_enforced() -> None:
    """The table of rows is the one with which tests/test_architecture.py checks imports."""
    shown = {
        int(number): frozenset(re.findall(r"`([a-z_]+)(?:/|\.py)`", names))
        for number, names in ROW.findall(section("Rows and packages"))
    }
    assert shown == dict(enumerate(ROWS))


@pytest.mark.parametrize("package", sorted(SERVER.rglob("*/__init__.py")), ids=relative)
def test_every_package_lists_its_modules(package: Path) -> None:
    """Each package's docstring lists its modules and packages, one per line."""
    there = {path.stem for path in package.parent.glob("*.py")} - {"__init__"}
    there |= {f"{path.parent.name}/" for path in package.parent.glob("*/__init__.py")}
    listed = IN_PACKAGE.findall(ast.get_docstring(ast.parse(package.read_text())) or "")
    assert sorted(listed) == sorted(there)


@pytest.mark.parametrize("module", sorted(modules_named()))
def test_every_module_that_is_named_exists(module: str) -> None:
    """No line of the page names a missing module."""
    assert (SERVER / module).is_file() or (TOP / module).is_file()


def test_every_folder_and_script_that_is_named_exists() -> None:
    """Folders, scripts and other names on the page exist as well."""
    named = {place.split()[0] for place in PLACE.findall(PAGE)}
    assert {each for each in named if not any((at / each).exists() for at in (SERVER, TOP))} == {
        "quarantine/"  # A folder of the store, not of the source.
    }


def test_every_function_that_is_named_exists() -> None:
    """Each call on the page is a function or method of the server."""
    qualified = {name for path in SERVER.rglob("*.py") for name in functions_of(path)}
    named = set(CALL.findall(PAGE))
    assert named
    assert named <= qualified


def test_events_and_codes_on_the_page_exist() -> None:
    """Every event, command and refusal on the page is in the protocol."""
    subjects = "rollback|workspace|checkpoint|journal|hank|server|state"
    names = set(re.findall(rf"\b(?:{subjects})\.(?!py\b)[a-zA-Z]+\b", PAGE))
    files = {"rollback.intent", "state.json", "server.log", "hank.json"}
    assert names - files <= {*EVENTS.names, *COMMANDS.names}
    codes = set(re.findall(r"\b[A-Z]{4,}_[A-Z_]+\b", PAGE))
    assert codes
    assert codes <= {code.value for code in ErrorCode}


# --- the walk through a rollback ------------------------------------------------------------------


def test_the_walk_is_a_list_of_functions_that_exist() -> None:
    """There are at most twenty stops, numbered, each a function of the module beside it."""
    walk = section("A rollback, step by step")
    numbered = re.findall(r"^\d+\. ", walk, re.MULTILINE)
    assert len(stops()) == len(numbered) <= MOST_STOPS
    assert [stop.number for stop in stops()] == list(range(1, len(numbered) + 1))
    for stop in stops():
        assert stop.function in functions_of(SERVER / stop.module), str(stop)


def test_the_disk_is_reached_in_few_stops_and_moves() -> None:
    """The stops down to the restored file, and each stack, change the package at most nine times.

    A stack has at most twenty calls, each of a function of the module beside it.
    """
    walk = [str(stop) for stop in stops()]
    down = walk[: walk.index(THE_DISK[1]) + 1]
    assert [call for call in down if call in THE_DISK] == [*THE_DISK]
    assert moves(down) <= MOST_MOVES
    assert [stack[-1] for stack in stacks()] == [*THE_DISK]
    for stack in stacks():
        assert stack[0] == walk[0]
        assert len(stack) <= MOST_STOPS
        assert moves(stack) <= MOST_MOVES
        for call in stack:
            module, function = call.split()
            assert function in functions_of(SERVER / module), call


async def test_a_real_rollback_makes_every_stop_in_its_order(tmp_path: Path) -> None:
    """The stops are called as listed, from a client's command to the restored file and back.

    The two stacks are those with which it comes to the disk, without a function left out.
    """
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "one")),
        codon("two", writes("a.txt", "two")),
    )
    execution, trace = tmp_path / "execution", tmp_path / "trace"
    async with (
        running_server(hank, None, execution, trace=trace) as server,
        server.client(since_seq=0) as client,
    ):
        await idle(client)
        (run,) = state(execution).runs
        (sha,) = (
            done.completion_checkpoint
            for done in run.codons
            if isinstance(done, CompletedCodon) and done.codon_id == "one"
        )
        server.process.send_signal(signal.SIGUSR2)
        await appears(Path(f"{trace}.begun"))
        await client.send(RollbackToCheckpoint(checkpoint_sha=sha))
        server.process.send_signal(signal.SIGUSR2)
        await appears(trace)
        assert (execution / "agentRoot" / "a.txt").read_text() == "one"
        assert await server.stop() == 0

    calls = trace.read_text().splitlines()
    late = missed(stops(), calls)
    assert late is None, f"stop {late} is not made, or before the one above it"

    made = json.loads(Path(f"{trace}.stacks").read_text())
    for shown in stacks():
        stack = next(each for each in made if each[-1] == shown[-1])
        assert stack[stack.index(shown[0]) :] == shown

    # The check can fail: two neighbours that are called once cannot be swapped.
    once = {stop for stop in stops() if calls.count(str(stop)) == 1}
    pairs = [pair for pair in pairwise(stops()) if once.issuperset(pair)]
    assert len(pairs) > MOST_STOPS // 2
    assert [(first, second) for first, second in pairs if not missed((second, first), calls)] == []
    assert missed([Stop(1, "fsutil.py", "no_function")], calls) is not None


# --- other orders ---------------------------------------------------------------------------------


def test_the_steps_of_recovery_are_those_of_its_module() -> None:
    """Adopt, mark, finish, roll back: in the order that the page gives."""
    body = _body_of((SERVER / "execution" / "recovery.py").read_text(), "recover")
    steps = ["adopt(", "_mark_crashed(", "finish_interrupted(", "_undo_broken_work("]
    assert _in_order(body, steps)


def test_a_start_does_what_the_page_says_in_its_order() -> None:
    """Lock, sweep, open, announce, validate, recover, begin, serve."""
    source = (SERVER / "daemon" / "daemon.py").read_text()
    startup = (SERVER / "daemon" / "startup.py").read_text()
    opening = [
        "run_sync(acquire",
        "sweep_agents(",
        "open_engine(",
        "open_ledger(",
        "_serve_execution(",
    ]
    assert _in_order(_body_of(source, "live"), ["_signals.watch", "_live_in("])
    assert _in_order(_body_of(source, "_live_in"), opening)
    assert _in_order(_body_of(source, "_serve_execution"), ["recover(", "_serve("])
    recovery = ["_announce(", "_validate(", "recovery.recover(", "begin_if_new("]
    assert _in_order(_body_of(startup, "recover"), recovery)


def test_the_check_of_order_can_fail() -> None:
    """A step that is missing or comes too early is found."""
    assert _in_order("a(); b(); c()", ["a(", "c("])
    assert not _in_order("b(); a()", ["a(", "b("])
    assert not _in_order("a()", ["a(", "b("])


def _body_of(source: str, function: str) -> str:
    found = re.search(
        rf"^(?:    )?(?:async )?def {function}\("
        r".*?(?=^    (?:async )?def |^    @|^    # ---|^\S|\Z)",
        source,
        re.DOTALL | re.MULTILINE,
    )
    assert found is not None, f"there is no function {function}"
    return found[0]


def _in_order(text: str, wanted: list[str]) -> bool:
    at = 0
    for each in wanted:
        at = text.find(each, at) + 1
        if at == 0:
            return False

    return True
