"""Texts for people: numbers agree with their nouns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import hankweave_server
from hankweave_server.plain_text import acted_on, counted

_NOUNS = (
    "attempt|checkpoint|codon|content|edit|event|execution|file|folder|frame|line|object|"
    "operation|path|program|request|rollback|run|secret|sentinel|step|trigger|undo|write"
)
_PLURAL = re.compile(rf" ((more|other|intact) )?({_NOUNS})(s|\(s\))\b")
_SOURCE = Path(hankweave_server.__file__).parent


def test_a_number_agrees_with_its_noun() -> None:
    """One file was, none and two files were; what has not happened yet would be."""
    assert [counted(n, "file") for n in (0, 1, 2, 1000)] == [
        "0 files",
        "1 file",
        "2 files",
        "1,000 files",
    ]
    assert [counted(n, "entry is", "entries are") for n in (1, 2)] == [
        "1 entry is",
        "2 entries are",
    ]
    assert [acted_on(n, "file") for n in (0, 1, 2)] == [
        "0 files were",
        "1 file was",
        "2 files were",
    ]
    assert acted_on(1, "file", is_preview=True) == "1 file would be"


def test_no_message_has_a_number_before_a_fixed_plural() -> None:
    """`1 files were removed` cannot be printed: `counted` makes each noun with a number."""
    found = [
        f"{path.relative_to(_SOURCE)}:{line}"
        for path in sorted(_SOURCE.rglob("*.py"))
        if path.name != "player.py"  # It plays an agent, whose words are data.
        for line in _fixed_plurals(ast.parse(path.read_text()))
    ]
    assert found == []


def _fixed_plurals(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                match value, text:
                    case ast.FormattedValue(value=number), ast.Constant(value=str() as words):
                        if _PLURAL.match(words) and not _is_constant(number):
                            yield node.lineno


def _is_constant(number: ast.expr) -> bool:
    return isinstance(number, ast.Name) and number.id.isupper()
