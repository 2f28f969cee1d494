"""Tests that a page names: each is looked up in the text of its file, and none is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]

_TEST = re.compile(r"`(?P<path>tests/[\w/]+\.py)::(?P<name>test_\w+)`( \([^|`]+\))?")


def faults_of(cell: str) -> Iterator[str]:
    """Return the faults of a cell that names a test, with an optional remark in brackets."""
    test = _TEST.fullmatch(cell)
    if test is None:
        yield f"{cell} names no test"
    elif test["name"] not in _names_in(test["path"]):
        yield f"there is no {test['path']}::{test['name']}"


@cache
def _names_in(path: str) -> frozenset[str]:
    file = TOP / path
    if not file.is_file():
        return frozenset()

    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    body = ast.parse(file.read_text()).body
    return frozenset(node.name for node in body if isinstance(node, functions))


def marks_of_tests(marker: str) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of each decorator `marker` of all tests."""
    for file in sorted((TOP / "tests").rglob("test_*.py")):
        text = file.read_text()
        if marker in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == marker:
                    yield tuple(ast.literal_eval(argument) for argument in node.args)
