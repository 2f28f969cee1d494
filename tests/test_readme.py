"""The shape of README.md, the proofs of its promises, and its moving picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from support.named_tests import faults_of

TOP = Path(__file__).resolve().parent.parent
README = (TOP / "README.md").read_text()
PICTURE = "docs/demo.svg"
PROOF = re.compile(r"^\| .* \| \[[a-z]+\]\[([a-z]+)\] \|$", re.MULTILINE)
DEFINITION = re.compile(r'^\[([a-z]+)\]: ([\w./-]+)(#[\w-]+)?(?: "(\w+)")?$', re.MULTILINE)


def test_it_has_at_most_150_lines_and_four_pictures() -> None:
    """A newcomer reads it in two minutes; no line has more than 120 characters."""
    lines = README.splitlines()
    assert 120 <= len(lines) <= 150
    assert [line for line in lines if len(line) > 120] == []
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)|<img", README)
    assert len(pictures) <= 4
    assert pictures[0] == PICTURE


def test_each_promise_has_a_proof() -> None:
    """Eleven promises, each linked to a test that exists, or to a figure."""
    table = README.partition("\n## What it promises\n")[2].partition("\n## ")[0]
    proofs = PROOF.findall(table)
    assert len(proofs) == 11
    found = {name: rest for name, *rest in DEFINITION.findall(README)}
    assert set(proofs) == set(found)
    for path, anchor, test in found.values():
        assert anchor or list(faults_of(f"`{path}::{test}`")) == []


def test_the_moving_picture_shows_the_command_of_the_readme() -> None:
    """`scripts/pictures` made it: of at most 300 kB, without a token, still if that is wanted."""
    text = (TOP / PICTURE).read_text()
    assert len(text) <= 300_000
    shown = "\n".join(each.text or "" for each in ET.fromstring(text).iter() if each.text)
    assert "$ hankweave demo" in shown
    assert "\nhankweave demo\n" in README
    assert re.search("token=[0-9a-f]", shown) is None
    assert "prefers-reduced-motion" in text
