"""Claims about `hankweave checkpoints`: complete, filtered, and equal with and without a server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec

from hankweave_client.calls import Calls
from hankweave_protocol.commands import CheckpointPin, ListCheckpoints
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import CheckpointRecord, Coordinate
from hankweave_protocol.replies import CheckpointPage
from hankweave_protocol.state import EMPTY_STATE
from hankweave_server.api.checkpoint_list import PAGE, page_of_checkpoints
from hankweave_server.cli.checkpoints import pages_of_checkpoints
from support.command_line import Done, hankweave
from support.histories import sha
from support.scripted_hank import codon, write_hank, writes
from support.watching import after_plan

HANK = (codon("one", writes("a.txt", "one")), codon("two", writes("b.txt", "two")))


async def test_without_a_server_the_files_answer_the_same(tmp_path: Path) -> None:
    """Text and JSON, pins and names, all, one kind, one run, and a limit are the same."""
    hank, execution = write_hank(tmp_path / "hank", *HANK), tmp_path / "execution"
    questions = ((), ("--kind", "completed", "--kind", "tool"), ("-n", "2"), ("--kind", "error"))

    def asked(*options: str) -> tuple[Done, Done]:
        verb = partial(hankweave, "checkpoints", "-e", str(execution), *options)
        return verb(), verb("--json")

    async with after_plan(hank, execution, since_seq=0) as (_, client):
        (first, *_) = (await client.send(ListCheckpoints(kinds=("completed",)))).checkpoints
        await client.send(CheckpointPin(checkpoint_sha=first.sha, name="the good one", pinned=True))
        run = ("--run", first.coordinate.run_id)
        with_it = [await anyio.to_thread.run_sync(asked, *q) for q in (*questions, run)]

    without = [asked(*question) for question in (*questions, run)]
    for (text, data), (text_then, data_then) in zip(with_it, without, strict=True):
        assert text_then.returncode == data_then.returncode == 0
        assert text_then.stdout == text.stdout
        page, page_then = (
            msgspec.json.decode(each.stdout, type=CheckpointPage) for each in (data, data_then)
        )
        assert page_then.checkpoints == page.checkpoints

    counts = [len(text.stdout.splitlines()) for text, _ in without]
    assert counts == [5, 4, 2, 0, 5]
    assert "the good one  [pinned]" in without[0][0].stdout


def test_an_unknown_run_or_kind_is_reported(tmp_path: Path) -> None:
    """Without a server, too, the output has the refusal's code and the valid kinds."""
    hank, execution = write_hank(tmp_path / "hank", *HANK), tmp_path / "execution"
    hankweave("run", str(hank), "-e", str(execution), "--headless", code=0)
    unknown = hankweave("checkpoints", "-e", str(execution), "--run", "nobody")
    assert (unknown.returncode, "UNKNOWN_RUN" in unknown.stderr) == (1, True)
    wrong = hankweave("checkpoints", "-e", str(execution), "--kind", "good")
    assert (wrong.returncode, "'completed'" in wrong.stderr) == (2, True)


class _Many(Calls):
    """A stand-in that answers with a long history's list, as a server does."""

    def __init__(self, count: int) -> None:
        self.records = [_record(number) for number in range(1, count + 1)]
        self.asked = 0

    async def send(self, command: Any) -> Any:
        assert isinstance(command, ListCheckpoints)
        self.asked += 1
        return page_of_checkpoints(command, EMPTY_STATE, self.records, None)


def _record(number: int) -> CheckpointRecord:
    at = Coordinate(checkpoint_sha=sha(number), event_seq=number, run_id=RunId("run"))
    return CheckpointRecord(
        sha=sha(number),
        kind="completed" if number % 2 else "tool",
        coordinate=msgspec.structs.replace(at, codon_id=CodonId("one")),
        codon_name="One",
        timestamp="2025-01-04T12:00:00.000Z",
        operation_id=f"op-{number}",
    )


async def test_a_long_history_is_listed_whole() -> None:
    """A reply holds a thousand checkpoints; the command requests pages until it has them all."""
    many = _Many(2 * PAGE + 1)
    pages = [page async for page in pages_of_checkpoints(many)]
    assert [each for page in pages for each in page.checkpoints] == many.records
    assert many.asked == 3


async def test_no_more_is_asked_for_than_is_wanted() -> None:
    """A limit may be longer than a page, and end within one or with it."""
    for limit, asked in ((5, 1), (PAGE, 1), (PAGE + 5, 2), (9 * PAGE, 3)):
        many = _Many(2 * PAGE + 1)
        pages = [page async for page in pages_of_checkpoints(many, limit=limit)]
        found = [each for page in pages for each in page.checkpoints]
        assert (found, many.asked) == (many.records[:limit], asked)
