"""The commands of the how-to page about searching the journal do what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hankweave_server.paths import Layout
from support.running_server import environment

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "searching-the-journal.md"

PERSON, AGENT = ({"kind": kind} for kind in ("person", "agent"))
EVENTS: list[dict[str, Any]] = [
    {"type": "file.updated", "data": {"path": "b.txt", "source": PERSON}},
    {"type": "file.updated", "data": {"path": "a.txt", "source": AGENT}},
    *({"type": "info", "data": {"message": "No such FILE"}, "codonId": "observe"},) * 14,
    *(
        {"type": "codon.completed", "data": {"cost": cost}, "codonId": codon, "causes": causes}
        for codon, cost, causes in (("observe", 0.25, ["c-1"]), ("review", 0.5, [17]))
    ),
    {"type": "codon.completed", "data": {"cost": 0.03125}, "codonId": "review"},
]


def of_page(word: str) -> str:
    """Return the only command of the page with a word."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = [line for block in blocks for line in block.splitlines() if word in line]
    return str(found)


def costs(*rows: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"codonId": codon, "cost": cost} for codon, cost in rows]


@pytest.mark.story("The journal can be filtered, and summed up with jq and DuckDB.")
def test_the_commands_of_the_page_find_what_it_says(tmp_path: Path) -> None:
    """Each runs as it stands there, on a journal without a server."""
    journal = Layout.of_execution(tmp_path).journal
    journal.parent.mkdir(parents=True)
    with journal.open("wb") as lines:
        for seq, event in enumerate(EVENTS, start=1):
            head = {"id": f"id-{seq}", "seq": seq, "timestamp": f"2025-01-04T12:00:{seq:02}.000Z"}
            lines.write(msgspec.json.encode({**head, **event}) + b"\n")

    def printed(word: str) -> str:
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        served = f'hankweave() {{ command hankweave "$@" -e {tmp_path}; }}; set -o pipefail; '
        done = subprocess.run(
            ["bash", "-c", served + of_page(word)],
            env={**environment(), "PATH": programs},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shown(word: str) -> list[int]:
        return [int(line.split()[0]) for line in printed(word).splitlines()]

    def values(word: str) -> list[Any]:
        text, found = printed(word).strip(), []
        while text:
            value, end = json.JSONDecoder().raw_decode(text)
            found.append(value)
            text = text[end:].lstrip()

        return found

    assert shown("codon.waiting") == [17, 18, 19]
    assert shown("no such file") == list(range(3, 17))
    assert shown("--until") == list(range(1, 20))
    assert shown("--descendants-of 17") == [18]
    assert values("select(.data.cost > 0.05)") == costs(("review", 0.5), ("observe", 0.25))
    assert values("group_by(.codonId)") == costs(("observe", 0.25), ("review", 0.53125))
    counted = [line.split() for line in printed("uniq -c").splitlines()]
    assert counted == [["14", "info"], ["3", "codon.completed"], ["2", "file.updated"]]
    assert printed("sort -u") == "b.txt\n"
    table = printed("duckdb")
    assert re.findall(r"(observe|review) +│ +(\d) +│ +([\d.]+)", table) == [
        ("review", "2", "0.53125"),
        ("observe", "1", "0.25"),
    ]
