"""Tests of the list of faults that `scripts/mutants` plants: each must fit the present source."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import mutants
from mutants import Copy, Fault, Outcome, Unusable, described, read_list, selected

TESTS, FAULTS = read_list()
LOGGERS = {"log", "_log", "logger"}

each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.number))


class WithoutTexts(ast.NodeTransformer):
    """A filter of docstrings and of calls that only log."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        match node.value:
            case ast.Constant(value=str()):
                return ast.Pass()
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in LOGGERS:
                return ast.Pass()

        return node


def code(source: str) -> str:
    """Return what of a source has an effect: no comments, no layout, no texts for people."""
    return ast.dump(WithoutTexts().visit(ast.parse(source)))


def source_of(fault: Fault) -> str:
    return (mutants.TOP / fault.file).read_text()


def test_the_list_has_sixty_faults_a_fair_share_for_each_area() -> None:
    assert [fault.number for fault in FAULTS] == list(range(1, 61))
    shares = Counter(fault.area for fault in FAULTS)
    assert shares.keys() == TESTS.keys()
    assert set(shares.values()) <= {6, 7}


def test_the_tests_of_each_area_exist() -> None:
    named = {path for paths in TESTS.values() for path in paths}
    assert [path for path in sorted(named) if not (mutants.TOP / path).exists()] == []


@each_fault
def test_a_fault_fits_exactly_once_and_changes_what_the_code_does(fault: Fault) -> None:
    source = source_of(fault)
    faulty = fault.planted(source)
    compile(faulty, fault.file, "exec")
    assert code(faulty) != code(source)
    assert fault.effect.endswith(".")


@each_fault
def test_a_fault_is_in_one_line_or_in_the_order_of_two(fault: Fault) -> None:
    before, after = Counter(fault.before.splitlines()), Counter(fault.after.splitlines())
    assert (before - after).total() <= 1
    assert (after - before).total() <= 1


def test_a_fault_that_fits_no_more_is_named() -> None:
    fault = Fault(7, "wal", "wal.py", "flush()\n", "", "Nothing is flushed.")
    assert fault.planted("def f():\n    flush()\nflush()\n") == "def f():\n    flush()\n"
    for source in ("    flush()\n", "flush()\nflush()\n"):
        with pytest.raises(Unusable, match=r"Fault 7 \(wal\) fits . times in wal\.py"):
            fault.planted(source)


def test_a_copy_is_itself_again_after_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "wal.py"
    path.write_text("flush()\n")
    before = path.stat()
    with Copy(tmp_path).planted(Fault(7, "wal", "wal.py", "flush()\n", "pass##\n", "")):
        assert path.read_text() == "pass##\n"
        assert path.stat().st_mtime_ns != before.st_mtime_ns

    assert path.read_text() == "flush()\n"
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_faults_are_selected_by_number_and_area() -> None:
    assert selected(FAULTS, []) == FAULTS
    assert [fault.number for fault in selected(FAULTS, ["lock", "3"])] == [3, *range(15, 21)]
    with pytest.raises(Unusable, match="no fault or area 61"):
        selected(FAULTS, ["61"])


def test_a_fault_that_no_test_notices_is_reported_as_escaped() -> None:
    assert described(FAULTS[0], Outcome(None, 1.25, "")) == "  1 journal   ESCAPED  1.2 s"
    assert "noticed by tests/a.py::b" in described(FAULTS[0], Outcome("tests/a.py::b", 1.0, ""))
