"""Claims of the page for users of Architect: its tables are complete, and their tests exist."""

from __future__ import annotations

import re

import click
import pytest

from hankweave_server.features.architect.pipelines.command import PipelineExit, pipeline
from hankweave_server.features.architect.yaml.shapes import StepKeys
from support.named_tests import TOP, faults_of

PAGE = (TOP / "docs" / "migration" / "architect.md").read_text()
DEFECTS = 21
"""The number of known defects: each was seen in Architect, by running it or in its source."""

TITLES = (
    "Documented",
    "Defects of Architect that are not repeated",
    "Promised there, and kept here",
)
SEED = {
    "Concept",
    "Pipelines",
    "Listing",
    "CheckpointManager",
    "Checkpoint",
    "Constant",
    "Configuration",
    "Manual rollback",
}
"""The parts of seed 003."""


def faults(page: str) -> list[str]:
    """Return the faults of the tables of tests, one sentence each."""
    section = page.partition("\n## What is held by which test\n")[2]
    tables = {title: rows(section, f"### {title}") for title in TITLES}
    documented, defects, _ = tables.values()
    found = [f"{part} has no row" for part in sorted(SEED - {row[0] for row in documented})]
    numbers = [row[0] for row in defects]
    known = [str(number) for number in range(1, DEFECTS + 1)]
    found += [f"defect {n} has no row" for n in known if n not in numbers]
    found += [
        f"there is no defect {n}" for n in sorted({*numbers} - {*map(str, range(1, DEFECTS + 1))})
    ]
    for title, table in tables.items():
        found += [f"{title} is empty" for _ in range(not table)]
        named = [row[:-1] for row in table]
        found += [f"{row} is there twice" for row in {*named} if named.count(row) > 1]
        found += [f"{row[0]}: {fault}" for row in table for fault in faults_of(row[-1])]

    return found


def rows(text: str, heading: str) -> list[tuple[str, ...]]:
    """Return the cells of the first table below a heading, without its first two lines."""
    below = text.partition(f"{heading}\n")[2]
    lines = below[below.index("|") :].split("\n\n")[0].splitlines()[2:] if "|" in below else []
    return [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]) for line in lines]


def test_every_part_and_every_defect_has_a_test_that_exists() -> None:
    """Every part of seed 003 and every known defect has a row, and every row names a real test."""
    assert faults(PAGE) == []


def test_the_keys_of_a_step_are_those_of_the_source() -> None:
    """The table of a step has exactly the keys that are read."""
    _, _, below = PAGE.partition("| key of a step | default | means |\n|---|---|---|\n")
    first_cells = re.findall(r"^\| ([^|]+) \|", below.split("\n\n")[0], re.MULTILINE)
    shown = [key for cell in first_cells for key in re.findall(r"`(\w+)`", cell)]
    assert sorted(shown) == sorted(StepKeys.__struct_fields__)


def test_the_exit_codes_are_those_of_the_source() -> None:
    """Each exit code of `hankweave pipeline` is in the table once."""
    _, _, below = PAGE.partition("| code | means |\n|---|---|\n")
    shown = re.findall(r"^\| (\d+) \|", below.split("\n\n")[0], re.MULTILINE)
    assert [int(code) for code in shown] == sorted(PipelineExit)


def test_every_option_of_pipeline_is_named() -> None:
    """Every option of `hankweave pipeline` is on the page."""
    options = [each for each in pipeline.params if isinstance(each, click.Option)]
    (row,) = [line for line in PAGE.splitlines() if line.startswith("| `architect pipeline FILE`")]
    named = set(re.findall(r"`(--?[a-z-]+)", row))
    assert [each.name for each in options if not named & {*each.opts}] == []


def test_places_within_the_page_exist() -> None:
    """Each link to a section of the page has its heading."""
    headings = re.findall(r"^##+ (.+)$", PAGE, re.MULTILINE)
    places = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= places


@pytest.mark.parametrize(
    ("line", "instead", "fault"),
    [
        (r"\| 11 \| .*\n", "", "defect 11 has no row"),
        (r"\| 11 \| ", "| 22 | ", "there is no defect 22"),
        (r"\| Constant \| .*\n", "", "Constant has no row"),
        (r"(\| Constant \| .*\n)", r"\1\1", "is there twice"),
        (r"(\| Constant \| [^|]*\| ).*\n", r"\1by hand |\n", "by hand names no test"),
        (r"(\| Constant \| .*)test_seed_003", r"\1test_none", "there is no tests/"),
        (r"(\| Constant \| .*)::test_", r"\1::test_not_", "there is no tests/"),
    ],
)
def test_a_wrong_table_is_found(line: str, instead: str, fault: str) -> None:
    """These tests can fail: each wrong row is reported."""
    wrong, count = re.subn(line, instead, PAGE, count=1)
    assert count == 1
    assert any(fault in each for each in faults(wrong))
