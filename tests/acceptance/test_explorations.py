"""Claims about explorations over a real socket: attempts, their results, adoption and undo."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hankweave_client.client import Client
from hankweave_protocol.attempts import Exploration, Variant
from hankweave_protocol.commands import (
    ExplorationAdopt,
    ExplorationShow,
    ExplorationStart,
    RollbackUndo,
)
from hankweave_protocol.events import ExplorationEnded
from hankweave_protocol.ids import CodonId
from hankweave_server.domain.history import next_codon, thread
from hankweave_server.domain.reducer import fold
from support.git_facts import GitWitness
from support.running_server import RunningServer, journal, running_server, state, tree
from support.scripted_hank import codon, write_hank, writes
from support.watching import idle

LENGTH = "wc -c < answer.txt"
"""A score: the longer the answer, the better."""


def answers(text: str) -> str:
    """Return the prompt of a variant: a script for the scripted agent."""
    return json.dumps([writes("answer.txt", text)])


SHORT, LONG = Variant(prompt_text=answers("no")), Variant(prompt_text=answers("a long answer"))

CODONS = (
    codon("draft", writes("draft.txt", "draft")),
    codon("answer", writes("answer.txt", "the first")),
    codon("publish", {"run": "cp answer.txt published.txt"}),
)


@asynccontextmanager
async def a_finished_plan(
    tmp_path: Path, *codons: Any
) -> AsyncIterator[tuple[RunningServer, Client]]:
    hank = write_hank(tmp_path / "hank", *(codons or CODONS))
    async with (
        running_server(hank, None, tmp_path / "executions" / "parent") as server,
        server.client(since_seq=0) as client,
    ):
        await idle(client)
        yield server, client


async def explored(client: Client, **fields: Any) -> Exploration:
    """Start an exploration of the codon `answer`, and return it when it has ended."""
    command = ExplorationStart(codon_id=CodonId("answer"), **fields)
    begun = await client.ask(command)
    await client.until(ExplorationEnded, timeout=60)
    return await client.ask(ExplorationShow(exploration_id=begun.exploration_id))


def files(server: RunningServer) -> dict[str, bytes]:
    return tree(server.execution / "agentRoot")


async def test_the_best_of_two_variants_is_adopted_and_undone(tmp_path: Path) -> None:
    """Each attempt runs in an execution of its own; the parent's files stay until it is adopted.

    Adoption takes files and plan to the end of the attempt; undo takes them back.
    """
    async with a_finished_plan(tmp_path) as (server, client):
        before = files(server)
        found = await explored(client, variants=(SHORT, LONG), score=LENGTH)
        assert [each.status for each in found.attempts] == ["completed", "completed"]
        assert [each.score for each in found.attempts] == [2.0, 13.0]
        assert files(server) == before
        best = found.best
        assert best is found.attempts[1]
        assert (best.files, best.added) == (1, 1)
        attempt = Path(best.execution_path or "")
        assert tree(attempt / "agentRoot")["answer.txt"] == b"a long answer"

        foreseen = await client.ask(ExplorationAdopt(attempt_id=best.attempt_id, preview=True))
        assert files(server) == before
        report = await client.ask(ExplorationAdopt(attempt_id=best.attempt_id))
        assert report.counts == foreseen.counts
        await idle(client, "rollback-completed")
        assert files(server) == {"draft.txt": b"draft", "answer.txt": b"a long answer"}
        now = state(server.execution)
        assert next_codon(now) == "publish"
        assert best.run_id in {entry.run_id for entry in thread(now)}

        await client.ask(RollbackUndo())
        await idle(client, "rollback-completed")
        assert files(server) == before
        assert next_codon(state(server.execution)) is None

    folded = fold(journal(server.execution))
    assert folded.explorations == state(server.execution).explorations
    GitWitness(server.execution).assert_sound()


async def test_the_plan_goes_on_after_an_adopted_attempt(tmp_path: Path) -> None:
    """The next codon works with the files of the attempt."""
    async with a_finished_plan(tmp_path) as (server, client):
        found = await explored(client, variants=(LONG,), score=LENGTH)
        await client.ask(ExplorationAdopt(attempt_id=found.attempts[0].attempt_id))
        await idle(client, "rollback-completed")
        await client.next_codon()
        await idle(client)
        assert files(server)["published.txt"] == b"a long answer"
