"""The commands of docs/how-to/unattended.md, run as they are printed there."""

from __future__ import annotations

import html
import re
import subprocess
from pathlib import Path

import anyio
import pytest

from documents import TOP, blocks
from hankweave_protocol.events import CodonWaiting
from support.documented_commands import commands
from support.running_server import command, environment, running_server
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT

PAGE = TOP / "docs" / "how-to" / "unattended.md"


def lines() -> list[list[str]]:
    """Return the arguments of each `hankweave` command of the page."""
    return [words for block in blocks(PAGE) for _, words in commands(block)]


def test_the_page_has_the_commands_that_this_test_runs() -> None:
    """A command that is added to the page is added here, too."""
    assert [words[0] for words in lines()] == [
        *("run", "status", "notify", "run", "report", "log", "runs")
    ]


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
        assert re.search(r"1 of 2 · waits 2 h ([89]|10) min for the end of a usage limit", shown)
        assert re.search("hankweave next .*continue now", shown)
        await hankweave(["next", "-e", place])
        assert await server.ended() == 0

    await hankweave(report)
    assert "You've hit your usage limit." in html.unescape(Path(page).read_text())
    assert "waits for the end of a usage limit" in await hankweave(log)
    assert "completed" in await hankweave(runs)
