"""A very long history: a start, the first pages of lists and a rollback must not depend on it.

The history is written directly: `git fast-import` makes the commits, and the journal repeats what
a real agent left in it. A server that runs an agent would need hours for as much.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from bench.executions import Prepared, with_a_past, without_a_past
from bench.figures import AtMost, Figure
from bench.plans import opened
from bench.rounds import medians
from bench.scale import Scale
from hankweave_client.client import Client
from hankweave_protocol.commands import (
    EventsQuery,
    GetServerStatus,
    ListCheckpoints,
    RollbackToCheckpoint,
)
from hankweave_protocol.ids import Sha
from hankweave_server.paths import Layout

BENCH = "past"
PAGE = 100
FACTOR = 2
GRACE = 500.0
"""Milliseconds: a command may take twice as long as without a past, plus this."""

NOTES = 50
"""Files that the checkpoints change in turn."""

Ask = Callable[[Client, Sha], Awaitable[object]]

QUESTIONS: Mapping[str, Ask] = {
    "server.status": lambda client, _: client.send(GetServerStatus()),
    "checkpoint.list, first page": lambda client, _: client.send(ListCheckpoints(limit=PAGE)),
    "events.query, newest page": lambda client, _: client.send(EventsQuery(limit=PAGE)),
    "rollback.toCheckpoint": lambda client, sha: client.send(
        RollbackToCheckpoint(checkpoint_sha=sha, auto_restart=False)
    ),
}


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    empty = await without_a_past(folder / "empty")
    long = await with_long_past(folder / "long", scale.long_events, scale.long_checkpoints)
    past = f"{scale.long_checkpoints:,} checkpoints, {scale.long_events:,} events"
    found = await medians(
        {"empty": lambda: _start(empty), "long": lambda: _start(long)}, scale.rounds
    )
    rows = [_figure(f"start; {past}", found)]
    async with _asked(empty) as short, _asked(long) as full:
        for name in QUESTIONS:
            found = await medians({"empty": short[name], "long": full[name]}, max(3, scale.rounds))
            rows.append(_figure(f"{name}; {past}", found))

    return rows


def _figure(name: str, found: Mapping[str, float]) -> Figure:
    target = AtMost(FACTOR * found["empty"] + GRACE)
    return Figure(BENCH, name, found["long"], "ms", "empty execution", found["empty"], target)


async def _start(prepared: Prepared) -> float:
    began = perf_counter()
    async with prepared.serve() as server:
        milliseconds = (perf_counter() - began) * 1000
        await server.stop()

    return milliseconds


@asynccontextmanager
async def _asked(prepared: Prepared) -> AsyncIterator[dict[str, Callable[[], Awaitable[float]]]]:
    """Serve an execution, and return a timed call for each question."""
    async with prepared.serve() as server, server.client() as client:
        targets = _in_turn(_some_checkpoints(prepared))

        def timed(ask: Ask) -> Callable[[], Awaitable[float]]:
            async def call() -> float:
                target, began = next(targets), perf_counter()
                await ask(client, target)
                return (perf_counter() - began) * 1000

            return call

        yield {name: timed(ask) for name, ask in QUESTIONS.items()}
        await server.stop()


def _in_turn(shas: list[Sha]) -> Iterator[Sha]:
    while True:
        yield from shas


def _some_checkpoints(prepared: Prepared) -> list[Sha]:
    """Return old and new ones in turn: each differs from the one before."""
    shas = _git(prepared, "rev-list", "--branches").split()
    some = shas[:: max(1, len(shas) // 10)]
    return [Sha(sha) for pair in zip(some, reversed(some), strict=True) for sha in pair]


async def with_long_past(folder: Path, events: int, checkpoints: int) -> Prepared:
    """Prepare an execution with that history, whose last server was stopped in good order."""
    prepared = await with_a_past(folder, messages=1)
    lengthened(prepared, events, _make_commits(prepared, checkpoints))
    layout = Layout.of_execution(prepared.root)
    for path in (layout.state, layout.state_backup):
        path.unlink(missing_ok=True)

    async with opened(prepared.root):
        pass  # It folds the journal, and saves the state.

    return prepared


def lengthened(prepared: Prepared, events: int, made: Sequence[str] = ()) -> None:
    """Give an execution a journal of so many events, and of these checkpoints; keep its state."""
    journal = Layout.of_execution(prepared.root).journal
    lines = journal.read_bytes().splitlines()
    with journal.open("wb") as written:
        for seq, tail in enumerate(_tails(lines, events, made), start=1):
            written.write(b'{"id":"%08x-0000-4000-8000-000000000000","seq":%d' % (seq, seq) + tail)


def _tails(lines: list[bytes], events: int, made: Sequence[str]) -> Iterator[bytes]:
    """Yield what follows each event's number: a message and its costs, again and again."""
    tails = [line[line.index(b',"timestamp"') :] + b"\n" for line in lines]
    first = next(at for at, line in enumerate(lines) if b'"type":"assistant.action"' in line)
    checkpoint = next(line for line in tails if b'"kind":"completed"' in line)
    original = checkpoint.split(b'"sha":"', 1)[1][:40]
    texts = tails[first : first + 3]
    repeated = max(0, events - len(made) - len(tails)) // len(texts)
    each = max(1, repeated // max(1, len(made)))
    left = iter(made)
    yield from tails[: first + 3]
    for number in range(repeated):
        yield from texts
        if number % each == 0 and (sha := next(left, None)) is not None:
            yield checkpoint.replace(original, sha.encode()).replace(b'"completed"', b'"tool"')

    for sha in left:
        yield checkpoint.replace(original, sha.encode()).replace(b'"completed"', b'"tool"')

    yield from tails[first + 3 :]


def _make_commits(prepared: Prepared, count: int) -> list[str]:
    """Commit one changed file after another on the branch of the run; return the shas."""
    branch = _git(prepared, "for-each-ref", "--format=%(refname)", "refs/heads").split()[0]
    before = _git(prepared, "rev-parse", branch).strip()
    message = _git(prepared, "log", "-1", "--format=%B", branch).replace("completed", "tool")
    stream = b"".join(_commit(branch, before, number, message.encode()) for number in range(count))
    _git(prepared, "fast-import", "--quiet", stream=stream)
    return _git(prepared, "rev-list", "--reverse", f"{before}..{branch}").split()


def _commit(branch: str, before: str, number: int, message: bytes) -> bytes:
    content = b"note %d\n" % number
    return b"".join(
        (
            b"commit %s\n" % branch.encode(),
            b"committer Hankweave Runtime <froggie@southbridge.ai> %d +0000\n"
            % (1_800_000_000 + number),
            b"data %d\n%s\n" % (len(message), message),
            b"from %s\n" % before.encode() if number == 0 else b"",
            b"M 100644 inline notes/%d.md\n" % (number % NOTES),
            b"data %d\n%s\n" % (len(content), content),
        )
    )


def _git(prepared: Prepared, *words: str, stream: bytes = b"") -> str:
    repository = Layout.of_execution(prepared.root).shadow_repository
    environment = {"PATH": os.environ["PATH"], "GIT_DIR": str(repository)}
    done = subprocess.run(
        ["git", *words], env=environment, input=stream, capture_output=True, check=True
    )
    return done.stdout.decode()
