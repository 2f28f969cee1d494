"""The stories of the gate: each proves a promise of a document on a real server.

The marker `story` is described in `tests/conftest.py`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent
TOP = TESTS.parent
MARKER = "pytest.mark.story"
PROMISING = {
    "README.md",
    "SECURITY.md",
    "docs/figures.md",
    *(
        f"docs/how-to/{name}.md"
        for name in ("attempts", "mirror", "secrets", "tracing", "unattended")
    ),
    "docs/explanation/architecture.md",
    *(f"docs/migration/{name}.md" for name in ("architect", "hankweave")),
}
"""Documents that promise what a whole system does.

The others explain them or refer to them; tests/test_documents.py checks their links and commands.
"""


@dataclass(frozen=True)
class Story:
    test: str
    promise: str
    document: str


@cache
def stories() -> list[Story]:
    """Return the stories of all tests; none is imported."""
    return [story for path in sorted(TESTS.rglob("test_*.py")) for story in _stories_of(path)]


def test_each_promise_is_one_sentence() -> None:
    """It begins with a capital letter or with code, and its only full stop is at its end."""
    wrong = [story for story in stories() if not _is_one_sentence(story.promise)]
    assert wrong == []


def test_each_promise_has_one_story() -> None:
    """A test for a promise that another one proves already does not belong in the gate."""
    promises = Counter(story.promise for story in stories())
    assert [promise for promise, times in promises.items() if times > 1] == []


def test_the_number_of_stories_is_bounded() -> None:
    """Fewer stories would leave promises out, and more would take the gate over its time."""
    assert 110 <= len(stories()) <= 140


def test_each_document_that_promises_has_a_story() -> None:
    """No story names a missing document."""
    documents = {story.document for story in stories()}
    assert PROMISING - documents == set()
    assert [document for document in documents if not (TOP / document).is_file()] == []


def _stories_of(path: Path) -> Iterator[Story]:
    text = path.read_text()
    if f"@{MARKER}(" not in text:
        return

    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue

        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARKER:
                test = f"{path.relative_to(TOP)}::{node.name}"
                document = {keyword.arg: keyword.value for keyword in mark.keywords}.get("of")
                yield Story(
                    test,
                    promise=ast.literal_eval(mark.args[0]),
                    document="README.md" if document is None else ast.literal_eval(document),
                )


def _is_one_sentence(text: str) -> bool:
    return (text[0].isupper() or text[0] == "`") and text.endswith(".") and ". " not in text
