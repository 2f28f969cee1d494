"""Tests of CONTRIBUTING.md: its names exist, and its recipes name every place of their example."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
PAGE = (TOP / "CONTRIBUTING.md").read_text()

PATH = r"(?:[\w.-]+/)*[\w-]*\.?[\w-]+\.(?:py|md|json|js|ts|txt|toml|d\.ts)"
NAMES_IN_FILE = re.compile(rf"`({PATH})`\s+\(((?:`\w+`(?:,\s+)?)+)\)")
RECIPES = {
    "Add a command": (
        r"CheckpointPin\b|checkpoint\.pin\b",
        r'hankweave pin\b|"pin"|aside\("pin"',
    ),
    "Add an event": (r"CheckpointPinned\b|checkpoint\.pinned\b", r""),
    "Add an agent": (r'CodexAgentSpec|CodexAgent\b|["`]codex["`]', r"@openai/codex|\"codex\""),
}
"""For each recipe: names that its example has in no other role, and further names."""


def section(title: str) -> str:
    """Return the numbered list below a heading."""
    text = PAGE[PAGE.index(f"### {title}\n") :]
    text = text[: re.search(r"\n###? ", text[4:] + "\n## ").start() + 4]  # type: ignore[union-attr]
    first = re.search(r"^1\. ", text, re.MULTILINE)
    assert first is not None
    return re.split(r"\n\n(?!\d+\. | {3})", text[first.start() :])[0]


def paths(text: str) -> set[str]:
    """Return the paths from the top of the repository; shorter ones are only for reading."""
    found = set(re.findall(rf"`({PATH})`", text))
    return {path for path in found if (TOP / path).exists() or path.count("/") > 1}


def mentions(path: str, pattern: str) -> bool:
    return re.search(pattern, (TOP / path).read_text()) is not None


@pytest.mark.parametrize("path", sorted(set(re.findall(rf"`({PATH})`", PAGE)) - {"state.json"}))
def test_every_file_exists(path: str) -> None:
    """A path starts at the top, in the server, or in a folder that the text names."""
    folders = ("", "server/hankweave_server", "tests/golden", "tests/golden/interfaces")
    assert any((TOP / folder / path).is_file() for folder in folders)


@pytest.mark.parametrize(("path", "names"), NAMES_IN_FILE.findall(PAGE))
def test_every_name_is_in_its_file(path: str, names: str) -> None:
    """Functions, classes and constants in parentheses are defined in the file before them."""
    text = (TOP / path).read_text()
    for name in re.findall(r"\w+", names):
        defined = rf"^\s*(?:class|(?:async )?def) {name}\b|^\s*{name}(?::.*)? = "
        assert re.search(defined, text, re.MULTILINE), name


@pytest.mark.parametrize("title", RECIPES)
def test_every_file_of_a_recipe_mentions_the_example(title: str) -> None:
    """A place that the example does not need is not part of the recipe."""
    names = "|".join(filter(None, RECIPES[title]))
    named = paths(section(title))
    assert len(named) > 8
    assert [path for path in sorted(named) if not mentions(path, names)] == []


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_names_every_file_that_mentions_the_example(title: str) -> None:
    """A recipe that forgets a place fails. `--update-golden` writes the reference."""
    own, _ = RECIPES[title]
    listed = subprocess.run(
        ["git", "ls-files", "protocol", "server", "docs", ":(glob)*.md", ":!docs/reference"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout, or no git program")

    texts = [path for path in listed.stdout.splitlines() if path.endswith((".py", ".js", ".md"))]
    found = {path for path in texts if mentions(path, own)} - {"CONTRIBUTING.md"}
    known = paths(section(title)) | ({"CHANGELOG.md"} if title == "Add an event" else set())
    assert sorted(found - known) == []


def test_every_script_and_option_exists() -> None:
    """The table of commands names only existing scripts and options."""
    commands = set(re.findall(r"`?(scripts/[a-z-]+)((?: --[a-z-]+)?)", PAGE))
    assert len(commands) > 8
    for script, option in commands:
        assert option.strip() in (TOP / script).read_text(), (script, option)


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\((?!https:)([^)#]+)", PAGE)
    assert links
    assert [link for link in links if not (TOP / link).exists()] == []
