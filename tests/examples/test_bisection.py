"""The bisection of the example, as its page shows it: the careless call is named."""

from __future__ import annotations

import json
from pathlib import Path

from documents import TOP, blocks
from support.command_line import hankweave
from support.documented_commands import commands
from support.example_run import EXAMPLE, SCHEMA
from support.git_facts import GitWitness


def words_of_the_page() -> list[list[str]]:
    """Return the three lines of the page, with paths that can be used from anywhere."""
    for block in blocks(EXAMPLE.parent / "README.md"):
        lines = [words for _, words in commands(block)]
        if any(words[0] == "bisect" for words in lines):
            return [
                [str(TOP / word) if word.startswith("examples/") else word for word in words]
                for words in lines
            ]

    raise AssertionError("the page has no bisection")


def test_three_lines_name_the_call_that_broke_the_schema(execution: Path) -> None:
    """The careless one of three edits is found, with the bound that it set, in three lines."""
    here = ("-e", str(execution))
    explore, listing, bisect = words_of_the_page()
    hank, data = str(EXAMPLE / "hank.json"), str(EXAMPLE / "data")
    hankweave("run", hank, data, "--headless", *here, code=0)
    done = hankweave(*explore, "--json", *here, code=0)
    attempt = json.loads(done.stdout.splitlines()[-1])["attempts"][0]["executionPath"]
    assert listing == ["ls"]
    bisect = [attempt if word == "ID" else word for word in bisect]

    lines = hankweave(*bisect, code=0).stdout.splitlines()
    (sentence,) = (line for line in lines if line.startswith("The first failure is "))
    assert sentence.endswith(f": report · Write {SCHEMA}")
    assert any(line.startswith("+") and '"maximum": 3' in line for line in lines)
    found = json.loads(hankweave(*bisect, "--json", code=0).stdout)
    witness = GitWitness(Path(attempt))
    before = witness.run("rev-parse", f"{found['checkpointSha']}^").strip()
    bounds = [
        json.loads(witness.files(sha)[SCHEMA])["properties"]["properties"]["properties"]["mag"]
        for sha in (before, found["checkpointSha"])
    ]
    assert bounds[0]["maximum"] > bounds[1]["maximum"] == 3
    assert any(f"rollback --to {before[:12]}" in line for line in lines)
