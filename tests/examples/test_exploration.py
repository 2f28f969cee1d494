"""The exploration of the example, as its page shows it: scored by the example's own validator."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from hankweave_server.domain.execution_thread import next_codon
from support.command_line import hankweave
from support.example_run import EXAMPLE, SCHEMA
from support.running_server import state, tree

PAGE = EXAMPLE.parent / "README.md"


def words_of_the_page() -> list[str]:
    """Return the `hankweave explore` of the page, with paths that can be used from anywhere."""
    section = PAGE.read_text().partition("## Other ways to the schema")[2]
    found = re.search(r"```sh\n(hankweave explore .*?)\nhankweave adopt", section, re.DOTALL)
    assert found is not None
    _, *words = shlex.split(found[1].replace("\\\n", " "))
    top = EXAMPLE.parents[1]
    return [str(top / word) if word.startswith("examples/") else word for word in words]


def test_two_ways_to_the_schema_are_scored_adopted_and_undone(tmp_path: Path) -> None:
    """The schema drawn from more rows fits more of them; the plan continues after it."""
    execution = tmp_path / "execution"
    here = ("-e", str(execution))
    hank, data = str(EXAMPLE / "hank.json"), str(EXAMPLE / "data")
    done = hankweave("run", hank, data, "--headless", *here)
    assert done.returncode == 0, done.stderr
    before = tree(execution / "agentRoot")

    done = hankweave(*words_of_the_page(), "--json", *here)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    narrow, wide = (each["score"] for each in found["attempts"])
    assert 0 < narrow < wide <= 1707
    assert found["best"] == found["attempts"][1]["id"]

    assert hankweave("adopt", found["best"], "--yes", *here).returncode == 0
    adopted = tree(execution / "agentRoot")
    assert "1000 rows" in adopted[SCHEMA].decode()
    assert "reports/summary.md" not in adopted
    assert next_codon(state(execution)) == "generate"

    assert hankweave("undo", "--yes", *here).returncode == 0
    assert tree(execution / "agentRoot") == before
    assert next_codon(state(execution)) is None
