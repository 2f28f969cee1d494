"""The page in Chromium, on an execution with a very long past: first paint, scrolling, memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import msgspec

from bench.executions import Prepared
from bench.figures import AtLeast, AtMost, Figure, Target
from bench.scale import Scale
from support.running_server import journal, running_server
from support.scripted_hank import codon, write_hank, writes

BENCH = "ui"
BROWSER = Path(__file__).resolve().parents[1] / "browser"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
STEPS = 500
"""Checkpoints of one codon."""

DEADLINE = 1_200.0
MEMORY = Path("/dev/shm")
"""The long past is not what is measured: it is made where nothing waits for a disk."""

FIGURES: dict[str, tuple[str, str, Target | None]] = {
    "firstPaint": ("first paint", "s", AtMost(1)),
    "plan": ("until the plan stands", "s", None),
    "everything": ("until all checkpoints are listed", "s", None),
    "treeFrames": ("frames while the tree is scrolled", "/s", AtLeast(50)),
    "eventFrames": ("frames while the events are scrolled", "/s", AtLeast(50)),
    "feedFrames": ("frames while the agent's words are scrolled", "/s", AtLeast(50)),
    "heap": ("memory of the page's scripts afterwards", "MB", AtMost(150)),
    "nodes": ("elements in the page at most", "", AtMost(5_000)),
}


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    missing = _missing()
    if missing is not None:
        print(f"{BENCH}: skipped, because there is no {missing}", file=sys.stderr)
        return []

    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else folder) as quick:
        past = Path(quick)
        return await _measure(await _with_a_past(past, scale.page_checkpoints, scale.page_words))


async def _measure(prepared: Prepared) -> list[Figure]:
    async with prepared.serve() as server:
        token = (prepared.root / ".hankweave" / "server.token").read_text().strip()
        port = msgspec.json.decode((prepared.root / ".hankweave" / "runtime.lock").read_bytes())
        address = f"http://127.0.0.1:{port['port']}/#token={token}"
        found = await _look(address)
        await server.stop()

    past = f"{found['checkpoints']:,} checkpoints, {found['events']:,} events"
    return [
        Figure(BENCH, f"{name}; {past}", found[key], unit, target=target)
        for key, (name, unit, target) in FIGURES.items()
    ]


def _missing() -> str | None:
    if shutil.which("node") is None:
        return "node"

    if not (BROWSER / "node_modules" / "playwright-core").exists():
        return "playwright-core: `scripts/test --browser` installs it"

    return None if Path(CHROMIUM).exists() else f"Chromium at {CHROMIUM}"


async def _with_a_past(folder: Path, checkpoints: int, words: int) -> Prepared:
    """Runs a hank whose agents ask before each write: so each of these has a checkpoint."""
    hank = write_hank(folder / "hank", *_codons(checkpoints, words))
    prepared = Prepared(hank, folder / "execution")
    async with running_server(hank, None, prepared.root, "--headless") as server:
        with anyio.fail_after(DEADLINE):
            assert await server.process.wait() == 0, server.output[-3:]

    assert journal(prepared.root)[-1].seq > checkpoints
    return prepared


def _codons(checkpoints: int, words: int) -> list[dict[str, Any]]:
    codons = []
    for first in range(0, checkpoints, STEPS):
        steps: list[Any] = []
        for number in range(first, min(first + STEPS, checkpoints)):
            steps += [{"say": f"Sentence {number}.{part} of a long past."} for part in range(words)]
            steps.append(writes(f"notes/{number % 50}.md", f"Number {number}.\n"))

        script = msgspec.json.encode({"steps": steps, "asks": True}).decode()
        codons.append({**codon(f"part-{first // STEPS}"), "promptText": script})

    return codons


async def _look(address: str) -> dict[str, float]:
    done = await anyio.run_process(
        ["node", "measure.mjs", address], cwd=BROWSER, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout.decode()
    found: dict[str, float] = msgspec.json.decode(done.stdout.splitlines()[-1])
    return found
