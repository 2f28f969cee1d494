"""A client asks which call broke something; the answer comes from copies, in the background."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import BisectStart, BisectStop
from hankweave_protocol.events import BisectEnded, BisectProgress, BisectStarted
from hankweave_protocol.hints import Hint
from support.git_facts import GitWitness
from support.running_server import RunningServer, tree
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT
from support.watching import after_plan, events_of, refused

CHECK = "! grep -qs three a.txt"


@asynccontextmanager
async def worked(
    folder: Path, env: dict[str, str] | None = None
) -> AsyncIterator[tuple[RunningServer, Client]]:
    """Provide a server whose codons have written `one`, `two`, `three` and `four`."""
    words = ("one", "two", "three", "four")
    hank = write_hank(folder / "hank", *(codon(word, writes("a.txt", word)) for word in words))
    async with after_plan(hank, folder / "execution", env=env) as (server, client):
        yield server, client
        await server.stop()


@pytest.mark.command("bisect.start")
async def test_the_call_that_broke_it_is_found_in_the_background(tmp_path: Path) -> None:
    """Each run is told as it ends; the end names checkpoint, codon and what it holds."""
    (tmp_path / "temporary").mkdir()
    check = 'test "$(cat a.txt 2>/dev/null)" != three && ! grep -qs four a.txt'
    async with worked(tmp_path, {"TMPDIR": str(tmp_path / "temporary")}) as (server, client):
        before = tree(server.execution / "agentRoot")
        begun = await client.send(BisectStart(command=f"echo trying; {check}", parallel=2))
        ended = await client.until(BisectEnded, timeout=LIMIT)
        assert tree(server.execution / "agentRoot") == before

    end: Any = ended.data
    assert (end.bisect_id, end.codon_id, end.message) == (begun.bisect_id, "three", None)
    assert end.suspects == (end.checkpoint_sha,)
    witness = GitWitness(server.execution)
    assert witness.files(end.checkpoint_sha)["a.txt"] == b"three"
    assert witness.run("rev-parse", f"{end.checkpoint_sha}^").strip() == end.parent_sha
    (start,) = events_of(server.execution, BisectStarted)
    assert start.checkpoints == begun.checkpoints
    assert [each.checkpoint_sha for each in events_of(server.execution, BisectEnded)] == [
        end.checkpoint_sha
    ]
    assert events_of(server.execution, BisectProgress) == []
    assert not list((tmp_path / "temporary").glob("hankweave-bisect-*"))


async def test_each_run_is_published_to_all_clients(tmp_path: Path) -> None:
    """With the verdict and the last line of the output, in which no secret is left."""
    secret = "sk-ant-api03-" + "x1Y2" * 12
    async with worked(tmp_path) as (_, client):
        await client.send(BisectStart(command=f"echo trying {secret}; {CHECK}", bad="three"))
        progress: Any = (await client.until(BisectProgress, timeout=LIMIT)).data
        assert (progress.verdict, progress.runs) == ("passes", 1)
        assert progress.last_line.startswith("trying ")
        assert secret not in progress.last_line
        await client.until(BisectEnded, timeout=LIMIT)


@pytest.mark.command("bisect.stop")
async def test_one_search_runs_at_a_time_and_can_be_stopped(tmp_path: Path) -> None:
    """A second one is refused; after the stop, the next one may begin."""
    assert BisectStart.MUTATES, "it runs a command, so a viewer must not"
    async with worked(tmp_path) as (_, client):
        with pytest.raises(CommandRefused, match="No bisection is running"):
            await client.send(BisectStop())

        await client.send(BisectStart(command="sleep 1000"))
        with pytest.raises(CommandRefused, match="is running"):
            await client.send(BisectStart(command=CHECK))

        await client.send(BisectStop())
        stopped: Any = (await client.until(BisectEnded, timeout=LIMIT)).data
        assert (stopped.message, stopped.checkpoint_sha) == ("It was stopped.", None)
        await client.send(BisectStart(command="true"))
        unbroken: Any = (await client.until(BisectEnded, timeout=LIMIT)).data
        assert "does not fail" in unbroken.message
        # Only the terminal has options.
        assert unbroken.message.endswith(Hint.BISECT_BAD)
        for wrong, code in (
            ({"good": "three", "bad": "one"}, "INVALID_COMMAND"),
            ({"bad": "ffffffff"}, "CHECKPOINT_NOT_FOUND"),
        ):
            error = await refused(client, BisectStart(command=CHECK, **wrong))
            assert error.code == code
