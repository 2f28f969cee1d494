"""The cost of a mirror: a checkpoint beside its pushes, what they send, and how large it gets.

Two servers of equal work trees take turns; one has a mirror in `async` mode in a bare repository on
the same disk. Between two checkpoints there is time for a push.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from time import perf_counter

import anyio

from bench.figures import AtMost, Figure
from bench.rounds import medians
from bench.scale import Scale
from bench.trees import make_tree
from hankweave_client.client import Client
from hankweave_protocol.commands import CheckpointCreate, MirrorNow
from hankweave_server.paths import Layout
from support.running_server import running_server
from support.scripted_hank import codon, write_hank
from support.waiting import eventually

BENCH = "mirror"
LATENCY = 1.1
"""Times a checkpoint without a mirror."""

SIZE = 2.0
"""Times the local store."""

CHECKPOINTS = 1_000
ROUNDS = 8
"""Rounds for each of the scale's; one takes a second."""

LONGEST = 60.0
"""Seconds that a push may take."""

BETWEEN = 0.4
"""Seconds between two checkpoints."""


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    return [*await _of_a_checkpoint(folder, scale), await _of_many(folder / "many", scale)]


async def _of_a_checkpoint(folder: Path, scale: Scale) -> list[Figure]:
    files = max(each for each in scale.trees if each <= 10_000)
    bare = _bare(folder / "mirror.git")
    async with AsyncExitStack() as stack:
        variants: dict[str, Callable[[], Awaitable[float]]] = {}
        for name, options in (("without", ()), ("with", ("--mirror", str(bare)))):
            root = folder / name
            client = await stack.enter_async_context(_serving(root, *options))
            make_tree(root, files)
            variants[name] = partial(_checkpoint, client, root, BETWEEN)
            await variants[name]()

        found = await medians(variants, scale.rounds * ROUNDS)
        before = await client.send(MirrorNow(within_seconds=LONGEST))
        await variants["with"]()
        after = await client.send(MirrorNow(within_seconds=LONGEST))

    limit = AtMost(LATENCY * found["without"])
    name = f"checkpoint of one file of {files:,}"
    return [
        Figure(BENCH, name, found["with"], "ms", "without a mirror", found["without"], limit),
        Figure(BENCH, "sent for it", (after.sent_bytes - before.sent_bytes) / 1024, "KiB"),
    ]


async def _of_many(folder: Path, scale: Scale) -> Figure:
    """Measure the mirror after many pushes: in `sync` mode, a checkpoint takes two or more."""
    bare, count = _bare(folder / "mirror.git"), CHECKPOINTS if scale.rounds > 1 else 10
    root = folder / "execution"
    options = ("--mirror", str(bare), "--mirror-mode", "sync")
    async with _serving(root, *options) as client:
        make_tree(root, min(scale.trees))
        for _ in range(count):
            await _checkpoint(client, root, 0)

        await eventually(lambda: not (bare / "gc.pid").exists())
        local = _kilobytes_in(Layout.of_execution(root).shadow_repository)
        remote = _kilobytes_in(bare)

    name, limit = f"the mirror after {count:,} of them", AtMost(SIZE * local)
    return Figure(BENCH, name, remote, "KiB", "the local store", local, limit)


@asynccontextmanager
async def _serving(root: Path, *options: str) -> AsyncIterator[Client]:
    hank = write_hank(root.with_name(f"hank-{root.name}"), codon("one"))
    started = running_server(hank, None, root, "--no-autostart", "--yes", *options)
    async with started as server, server.client(0) as client:
        yield client


def _bare(path: Path) -> Path:
    subprocess.run(("git", "init", "--quiet", "--bare", path), check=True)
    return path


async def _checkpoint(client: Client, root: Path, after: float) -> float:
    """Change one file after some seconds; return the milliseconds of a checkpoint."""
    await anyio.sleep(after)
    (root / "agentRoot" / "changed.txt").write_bytes(os.urandom(1024))
    began = perf_counter()
    await client.send(CheckpointCreate())
    return (perf_counter() - began) * 1000


def _kilobytes_in(folder: Path) -> int:
    """Return what a folder takes on the disk."""
    found = subprocess.run(("du", "-sk", folder), check=True, capture_output=True, text=True)
    return int(found.stdout.split()[0])
