"""Claims of server/README.md: the map shows the source as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import EVENTS
from test_architecture import ROWS

TOP = Path(__file__).resolve().parents[2]
SERVER = TOP / "server" / "hankweave_server"
PAGE = (TOP / "server" / "README.md").read_text()

MODULE = re.compile(r"(?<![\w/.])(?:[a-z_]+/)*[a-z_]+\.py\b")
ROOM_ROW = re.compile(r"^\| `([a-z_]+)(?:/|\.py)` \| \S", re.MULTILINE)
LAYER = re.compile(r"^\| (\d+) \| (.*) \|$", re.MULTILINE)


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, f"there is no section {title!r}"
    return found[1]


def rooms() -> set[str]:
    """Every package and module directly below hankweave_server."""
    packages = {path.parent.name for path in SERVER.glob("*/__init__.py")}
    return packages | {path.stem for path in SERVER.glob("*.py")} - {"__init__"}


def modules_named() -> set[str]:
    return set(MODULE.findall(PAGE))


def test_every_room_has_its_line() -> None:
    """Nobody finds a package or module on the disk that the map does not explain."""
    assert set(ROOM_ROW.findall(section("Rows and rooms"))) == rooms()


def test_the_rows_are_those_that_are_enforced() -> None:
    """The table of rows is the one that tests/test_architecture.py checks imports against."""
    shown = {
        int(number): frozenset(re.findall(r"`([a-z_]+)(?:/|\.py)`", names))
        for number, names in LAYER.findall(section("Rows and rooms"))
    }
    assert shown == dict(enumerate(ROWS))


@pytest.mark.parametrize("module", sorted(modules_named()))
def test_every_module_that_is_named_exists(module: str) -> None:
    """No line of the map leads nowhere."""
    assert (SERVER / module).is_file() or (TOP / module).is_file()


def test_the_steps_of_a_rollback_are_those_of_its_module() -> None:
    """Each call in the diagram is made in rollback.py, in the order of the diagram."""
    source = (SERVER / "execution" / "rollback" / "rollback.py").read_text()
    diagram = section("How a rollback works").split("```")[1]
    steps = set(re.findall(r"(\w+)\(\)", diagram))
    assert {"plan", "quiesce", "frozen", "_prepare", "replace_durably", "_continue"} <= steps
    for step in steps:
        assert re.search(rf"\b{step}\b", source), f"rollback.py does not know {step}"

    perform = _body_of(source, "perform")
    first = [".refuse_if_running(", ".plan(", "_stillness(", ".plan(", "_prepare(", "_announce("]
    assert _in_order(perform, [*first, "_restore_and_tell(", "_continue("])
    assert _in_order(_body_of(source, "_stillness"), ["quiesce(", "frozen(", "tell_of_rollback("])
    assert _in_order(_body_of(source, "_prepare"), ["_save(", "replace_durably"])
    told = ["_restore(", "detach(", "_story.whole(", "remove_durably"]
    assert _in_order(_body_of(source, "_restore_and_tell"), told)


def test_the_steps_of_recovery_are_those_of_its_module() -> None:
    """Adopt, mark, finish, undo: in the order that the map gives."""
    body = _body_of((SERVER / "execution" / "recovery.py").read_text(), "recover")
    steps = ["adopt(", "_mark_crashed(", "finish_interrupted(", "_undo_broken_work("]
    assert _in_order(body, steps)


def test_a_start_does_what_the_map_says_in_its_order() -> None:
    """Lock, sweep, open, say, validate, recover, begin, serve."""
    source = (SERVER / "daemon.py").read_text()
    opening = ["run_sync(acquire", "_sweep(", "_open_engine(", "_open_ledger(", "_live_with("]
    assert _in_order(_body_of(source, "live"), ["_watch_signals", "_live_in("])
    assert _in_order(_body_of(source, "_live_in"), opening)
    assert _in_order(_body_of(source, "_live_with"), ["_recover(", "_serve("])
    recovery = ["_say_hello(", "_validate(", "recovery.recover(", "begin_if_new("]
    assert _in_order(_body_of(source, "_recover"), recovery)


def test_events_and_codes_on_the_map_exist() -> None:
    """What the diagrams name as told or refused is in the protocol."""
    subjects = "rollback|workspace|journal|hank|server|state"
    told = set(re.findall(rf"\b(?:{subjects})\.(?!py\b)[a-zA-Z]+\b", PAGE))
    files = {"rollback.intent", "state.json", "server.log", "hank.json"}
    assert told - files <= set(EVENTS.names)
    codes = set(re.findall(r"\b[A-Z]{4,}_[A-Z_]+\b", PAGE))
    assert codes
    assert codes <= {code.value for code in ErrorCode}


def test_the_check_of_order_can_fail() -> None:
    """A step that is missing or comes too early is found."""
    assert _in_order("a(); b(); c()", ["a(", "c("])
    assert not _in_order("b(); a()", ["a(", "b("])
    assert not _in_order("a()", ["a(", "b("])


def _body_of(source: str, function: str) -> str:
    found = re.search(
        rf"^    (?:async )?def {function}\(.*?(?=^    (?:async )?def |^    @|^    # ---|^\S|\Z)",
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
