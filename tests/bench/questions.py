"""Query latency: a long journal, a past moment, and a checkpoint of a user's repository.

The checkpoint has one change in a large git repository of the user's own.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter

import msgspec

from bench.figures import AtMost, Figure
from bench.rounds import medians
from bench.scale import Scale
from bench.trees import make_tree
from hankweave_client.client import Client
from hankweave_protocol.commands import CheckpointCreate, CodonNext, EventsQuery, ReplayView
from hankweave_server.architect import CheckpointManager
from hankweave_server.domain.event_filter import events_page
from hankweave_server.ledger.journal import Journal
from hankweave_server.paths import Layout
from support.running_server import running_server
from support.scripted_hank import codon, write_hank
from support.watching import idle

BENCH = "questions"
QUERY_TARGET = AtMost(1_000)  # Milliseconds.
CREATE_TARGET = AtMost(1_000)

QUERIES: Mapping[str, EventsQuery] = {
    "by type": EventsQuery(types=("tool.result",), count=True),
    "by text": EventsQuery(text="no such text"),
    "what came of one": EventsQuery(descendants_of=1, count=True),
}


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    return [
        *await _of_a_journal(folder / "journal", scale),
        await _of_a_moment(folder / "moment", scale),
        await _of_a_repository(folder / "repository", scale),
    ]


async def _of_a_journal(folder: Path, scale: Scale) -> list[Figure]:
    layout = Layout.of_execution(folder)
    layout.journal.parent.mkdir(parents=True)
    with layout.journal.open("wb") as lines:
        lines.writelines(_line(seq) for seq in range(1, scale.questioned + 1))

    async def read() -> float:
        return _milliseconds(lambda: _decoded(layout.journal))

    journal = Journal.for_reading(layout.journal)

    async def ask(query: EventsQuery) -> float:
        return _milliseconds(lambda: events_page(query, journal.read, journal.last_seq))

    variants = {name: partial(ask, query) for name, query in QUERIES.items()}
    found = await medians({"read": read, **variants}, scale.rounds)
    journal.close()
    asked = f"{scale.questioned:,} events asked"
    read_all = ("all lines decoded", found["read"], QUERY_TARGET)
    return [Figure(BENCH, f"{asked}, {name}", found[name], "ms", *read_all) for name in QUERIES]


def _line(seq: int) -> bytes:
    """Return an event of about four hundred bytes."""
    event = {
        "id": f"6c9b2a54-8f0e-4d7b-9a43-{seq:012x}",
        "seq": seq,
        "timestamp": "2025-01-04T12:01:30.000Z",
        "type": "token.usage" if seq % 3 else "tool.result",
        "data": {
            "codonId": f"review#{seq % 5}" if seq % 2 else "observe",
            "cost": (seq * 7919 % 1000) / 1000,
            "usage": {"input": seq % 1000, "output": seq % 97},
            "text": "x" * 150,
        },
        "runId": "1736000000000-abc123-def456",
        "causes": [seq - 1] if seq % 4 else ["c-1"],
    }
    return msgspec.json.encode(event) + b"\n"


def _decoded(journal: Path) -> None:
    with journal.open("rb") as lines:
        for line in lines:
            msgspec.json.decode(line)


async def _of_a_moment(folder: Path, scale: Scale) -> Figure:
    """Measure repeated requests of one client for the files of a checkpoint."""
    hank = write_hank(folder / "hank", codon("track"))
    execution = folder / "execution"
    async with (
        running_server(hank, None, execution, "--no-autostart") as server,
        server.client() as client,
    ):
        await client.send(CodonNext())
        await idle(client)
        tree = make_tree(folder / "tree", scale.many_files)
        (tree / "agentRoot").rename(execution / "agentRoot" / "files")
        made = await client.send(CheckpointCreate())
        command = ReplayView(checkpoint_sha=made.sha)
        first = await _elapsed(client, command)
        again = await medians({"again": lambda: _elapsed(client, command)}, 4 * scale.rounds)
        await server.stop()

    name = f"a moment of {scale.many_files:,} files, again"
    return Figure(BENCH, name, again["again"], "ms", "the first time", first)


async def _elapsed(client: Client, command: ReplayView) -> float:
    began = perf_counter()
    await client.send(command)
    return (perf_counter() - began) * 1000


async def _of_a_repository(folder: Path, scale: Scale) -> Figure:
    """Measure one new file in a user's git repository, against the git program's own commit."""
    tree = make_tree(folder, scale.many_files) / "agentRoot"
    settings = {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}

    def git(*arguments: str) -> None:
        person = ["-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "gc.auto=0"]
        subprocess.run(["git", *person, *arguments], cwd=tree, env=settings, check=True)

    def commit() -> None:
        git("add", "-A")
        git("commit", "-qm", "by hand")

    git("init", "-q", "-b", "main")
    commit()
    manager = CheckpointManager(str(tree))
    changes = itertools.count(1)

    async def changed(act: Callable[[], object]) -> float:
        (tree / f"new-{next(changes)}").write_text("new")
        return _milliseconds(act)

    found = await medians(
        {"ours": lambda: changed(lambda: manager.create(1)), "git": lambda: changed(commit)},
        scale.rounds,
    )
    manager.close()
    name = f"one change in a repository of {scale.many_files:,} files"
    return Figure(BENCH, name, found["ours"], "ms", "git add, commit", found["git"], CREATE_TARGET)


def _milliseconds(act: Callable[[], object]) -> float:
    began = perf_counter()
    act()
    return (perf_counter() - began) * 1000
