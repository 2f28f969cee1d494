"""Claims about the example's files: the data is what it says, the hank names existing files."""

from __future__ import annotations

import ast
import hashlib
import runpy
import sys
from pathlib import Path

import pytest

from support.example_run import DATA_FILE, EXAMPLE, hank, plan, programs

PREPARATION = runpy.run_path(str(EXAMPLE / "prepare_data.py"))


def test_the_data_matches_its_recorded_checksum() -> None:
    """The committed data file has the SHA-256 that SHA256SUMS records for it."""
    recorded, name = (EXAMPLE / "data" / "SHA256SUMS").read_text(encoding="utf-8").split()

    assert name == DATA_FILE.name
    assert hashlib.sha256(DATA_FILE.read_bytes()).hexdigest() == recorded


def test_the_data_states_its_licence_and_origin() -> None:
    """The licence file says public domain, credits the source, names the published file's hash."""
    text = (EXAMPLE / "data" / "LICENSE-DATA.md").read_text(encoding="utf-8")

    assert "public domain" in text.lower()
    assert "courtesy of the U.S. Geological Survey" in text
    assert PREPARATION["PUBLISHED_SHA256"] in text


def test_preparing_the_prepared_data_changes_nothing() -> None:
    """The committed file is byte for byte what the preparation writes."""
    text = DATA_FILE.read_text(encoding="utf-8")

    assert PREPARATION["trimmed"](text) == text


def test_the_hank_has_four_codons_a_loop_of_two_and_a_continuation() -> None:
    """Codon ids are unique, the loop ends after two rounds, one codon continues the previous."""
    ids = [entry["id"] for entry in hank()["hank"]]
    loop = next(entry for entry in hank()["hank"] if entry.get("type") == "loop")

    assert len(ids) == len(set(ids)) >= 4
    assert loop["terminateOn"] == {"type": "iterationLimit", "limit": 2}
    assert [codon["continuationMode"] for codon in plan()].count("continue-previous") == 1
    assert programs() == ["observe", "infer", "generate", "review", "review", "report"]


def test_everything_the_hank_names_exists() -> None:
    """Every prompt, every copied directory and every program that the hank names is there."""
    assert (EXAMPLE / hank()["globalSystemPromptFile"]).is_file()
    for codon in plan():
        assert (EXAMPLE / codon["promptFile"]).is_file()
        assert (EXAMPLE / codon["agent"]["command"][-1]).is_file()
        for operation in codon.get("rigSetup", []):
            if operation["type"] == "copy":
                assert (EXAMPLE / operation["copy"]["from"]).is_dir()


@pytest.mark.parametrize("program", sorted((EXAMPLE / "tools").glob("*.py")), ids=lambda p: p.stem)
def test_the_tools_need_only_the_standard_library(program: Path) -> None:
    """Each tool imports the standard library and its neighbours, nothing that must be installed."""
    neighbours = {path.stem for path in program.parent.glob("*.py")}
    imported = set()
    for node in ast.walk(ast.parse(program.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.partition(".")[0])

    assert imported <= sys.stdlib_module_names | neighbours
