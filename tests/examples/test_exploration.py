"""The exploration of the example, as its page shows it: scored by the example's own validator."""

from __future__ import annotations

import json
from pathlib import Path

from documents import TOP, blocks
from hankweave_server.domain.execution_thread import next_codon
from support.command_line import hankweave
from support.documented_commands import commands
from support.example_run import EXAMPLE, SCHEMA
from support.running_server import state, tree


def words_of_the_page() -> list[str]:
    """Return the `hankweave explore` of the page, with paths that can be used from anywhere."""
    printed = (each for block in blocks(EXAMPLE.parent / "README.md") for each in commands(block))
    words = next(words for _, words in printed if words[0] == "explore")
    return [str(TOP / word) if word.startswith("examples/") else word for word in words]


def test_two_ways_to_the_schema_are_scored_adopted_and_undone(execution: Path) -> None:
    """The schema drawn from more rows fits more of them; the plan continues after it."""
    here = ("-e", str(execution))
    hank, data = str(EXAMPLE / "hank.json"), str(EXAMPLE / "data")
    hankweave("run", hank, data, "--headless", *here, code=0)
    before = tree(execution / "agentRoot")

    done = hankweave(*words_of_the_page(), "--json", *here, code=0)
    found = json.loads(done.stdout.splitlines()[-1])
    narrow, wide = (each["score"] for each in found["attempts"])
    assert 0 < narrow < wide <= 1707
    assert found["best"] == found["attempts"][1]["id"]

    hankweave("adopt", found["best"], "--yes", *here, code=0)
    adopted = tree(execution / "agentRoot")
    assert "1000 rows" in adopted[SCHEMA].decode()
    assert "reports/summary.md" not in adopted
    assert next_codon(state(execution)) == "generate"

    hankweave("undo", "--yes", *here, code=0)
    assert tree(execution / "agentRoot") == before
    assert next_codon(state(execution)) is None
