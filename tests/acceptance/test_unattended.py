"""The commands of docs/how-to/unattended.md, run as they are printed there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import anyio
import pytest

from hankweave_protocol.events import CodonWaiting
from hankweave_protocol.hank import Codon
from support.running_server import command, environment, running_server
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "unattended.md"
BLOCK = re.compile(r"```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)


def blocks(language: str) -> list[str]:
    found = BLOCK.finditer(PAGE.read_text())
    return [each["text"] for each in found if each["language"] == language]


def lines() -> list[list[str]]:
    """Return every `hankweave` command of the page, as words."""
    printed = (line for block in blocks("bash") for line in block.splitlines())
    return [shlex.split(line)[1:] for line in printed if line.startswith("hankweave ")]


def test_the_page_has_the_commands_that_this_test_runs() -> None:
    """A command that is added to the page is added here, too."""
    assert [words[0] for words in lines()] == [
        *("run", "status", "notify", "run", "report", "log", "runs")
    ]


def test_the_example_of_fallbacks_is_valid() -> None:
    """Its fields are those of a codon."""
    example = json.loads(blocks("json")[0])
    assert set(example) - {"..."} <= set(Codon.__struct_encode_fields__)


@pytest.mark.executed
@pytest.mark.story(
    "A plan that waits for a usage limit is found done in the morning.",
    of="docs/how-to/unattended.md",
)
async def test_a_plan_is_left_running_and_found_done(tmp_path: Path) -> None:
    """It is started as on the page, waits, is looked at, continued, and read about afterwards."""
    place, page = str(tmp_path / "tonight"), str(tmp_path / "tonight.html")
    hank = write_hank(
        tmp_path / "hank",
        codon("review", writes("a.txt", "a"), {"limit": {"resetsIn": 7800}}, writes("b.txt", "b")),
        codon("publish", writes("c.txt", "c")),
    )
    (tmp_path / "data").mkdir()
    (run, status, _, _, report, log, runs) = lines()
    options = run[run.index("--execution") + 2 :]

    async def hankweave(words: list[str]) -> str:
        filled = [
            word.replace("~/runs/tonight", place).replace("tonight.html", page) for word in words
        ]
        done = await anyio.run_process(
            command(*filled), env=environment(), stderr=subprocess.STDOUT, check=False
        )
        assert done.returncode == 0, done.stdout
        return done.stdout.decode()

    async with running_server(hank, tmp_path / "data", Path(place), *options) as server:
        async with server.client(since_seq=0) as client:
            await client.until(CodonWaiting, timeout=LIMIT)

        shown = await hankweave(status)
        assert "now         review; next: publish" in shown
        assert re.search(
            r"waits       for the end of a usage limit, until .* \(in 2 h ([89]|10) min\)", shown
        )
        assert "`hankweave next` continues now" in shown
        # Nothing is known about the codons: this is their first execution.
        assert "\n  left        at least 2 h" in shown
        await hankweave(["next", "-e", place])
        assert await server.ended() == 0

    await hankweave(report)
    assert "You&#x27;ve hit your usage limit." in Path(page).read_text()
    assert "waits for the end of a usage limit" in await hankweave(log)
    assert "completed" in await hankweave(runs)
