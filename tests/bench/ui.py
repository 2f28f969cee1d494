"""The page in Chromium with a very long history: first paint, scrolling, memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Literal

import anyio
import msgspec

from bench.executions import Prepared
from bench.figures import AtLeast, AtMost, Figure, Target
from bench.plans import moved, opened
from bench.scale import Scale
from hankweave_protocol.events import (
    AssistantAction,
    EventData,
    FileSource,
    FileUpdated,
    TokenUsage,
    ToolResult,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.instants import to_text
from hankweave_protocol.records import CheckpointKind, CheckpointRecord
from hankweave_protocol.state import PlanEntry, PreparingCodon, RunningCodon, Tokens
from hankweave_protocol.transitions import CodonStarted, CostsIncremented, Transition
from hankweave_server.clock import SystemClock
from hankweave_server.domain import lifecycle
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.git.repack import Pace
from hankweave_server.ledger.writer import Ledger
from hankweave_server.meter import UNWATCHED
from support.scripted_hank import codon, write_hank

BENCH = "ui"
BROWSER = Path(__file__).resolve().parents[1] / "browser"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
STEPS = 500
"""Checkpoints of one codon."""

COST = 0.0004
TOKENS = Tokens(input_tokens=900, output_tokens=60, cache_creation_tokens=0, cache_read_tokens=0)
MEMORY = Path("/dev/shm")
"""Creating the history is not measured: it happens where nothing waits for a disk."""

FIGURES: dict[str, tuple[str, str, Target | None]] = {
    "firstPaint": ("first paint", "s", AtMost(1)),
    "plan": ("until the plan stands", "s", None),
    "everything": ("until all checkpoints are listed", "s", None),
    "treeFrames": ("frames while the tree is scrolled", "/s", AtLeast(50)),
    "eventFrames": ("frames while the events are scrolled", "/s", AtLeast(50)),
    "feedFrames": ("frames while the agent's words are scrolled", "/s", AtLeast(50)),
    "heap": ("memory of the page's scripts afterwards", "MB", AtMost(50)),
    "nodes": ("elements in the page at most", "", AtMost(2_000)),
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
    """Record the history as the server does, but without its agents, which would take an hour."""
    codons = [codon(f"part-{n}") for n in range(max(1, checkpoints // STEPS))]
    prepared = Prepared(write_hank(folder / "hank", *codons), folder / "execution")
    async with prepared.serve() as server:
        await server.stop()

    async with opened(prepared.root) as (ledger, checkpointer):
        await checkpointer.load()
        for number, entry in enumerate(ledger.state.execution_plan):
            past = _Past(ledger, checkpointer, entry, prepared.root / "agentRoot" / "notes")
            await past.live_through(range(number * STEPS, (number + 1) * STEPS), words)

    return prepared


class _Past:
    """The life of one codon."""

    def __init__(
        self, ledger: Ledger, checkpointer: Checkpointer, entry: PlanEntry, notes: Path
    ) -> None:
        self._ledger = ledger
        self._checkpointer = checkpointer
        self._entry = entry
        self._notes = notes
        self._run_id = ledger.state.runs[0].run_id

    async def live_through(self, steps: range, words: int) -> None:
        now = to_text(SystemClock().now())
        begun = PreparingCodon(codon_id=self._entry.codon_id, start_time=now)
        starting = lifecycle.start_agent(begun)
        waiting = lifecycle.await_session(
            starting, pid=os.getpid(), log_path="log", previous_session_id=None
        )
        running = lifecycle.begin(waiting, session_id="s")
        await self._post(CodonStarted(run_id=self._run_id, codon=begun))
        for before, after in pairwise((begun, starting, waiting, running)):
            await self._post(moved(self._run_id, before, after))

        for number in steps:
            await self._step(number, words, running)

        record = await self._take("completed", running)
        ended = lifecycle.complete(
            running, end_time=now, exit_code=0, result_received=True, checkpoint=record.sha
        )
        await self._post(moved(self._run_id, running, ended))
        # A server packs its store now and then.
        await self._checkpointer.consolidate(Pace(lambda: False), UNWATCHED)

    async def _step(self, number: int, words: int, running: RunningCodon) -> None:
        """Record words, a tool call that writes a file, and the checkpoint after it."""
        for part in range(words):
            await self._post(self._says("message", f"Sentence {number}.{part} of a long past."))
            await self._post(self._costs(), self._uses())

        path = f"notes/{number % 50}.md"
        call = f"call-{number}"
        await self._post(
            AssistantAction(
                codon_id=self._entry.codon_id,
                action="tool_use",
                content="",
                tool_name="Write",
                tool_input={"file_path": path},
                tool_use_id=call,
            )
        )
        self._notes.mkdir(exist_ok=True)
        (self._notes / f"{number % 50}.md").write_text(f"Number {number}.\n")
        await self._post(_result(self._entry.codon_id, call, path), _change(path, call))
        await self._take("tool", running)

    async def _take(self, kind: CheckpointKind, running: RunningCodon) -> CheckpointRecord:
        return await self._checkpointer.take(
            kind,
            run_id=self._run_id,
            codon=running,
            codon_name=self._entry.codon.name,
            patterns=self._entry.codon.patterns,
        )

    async def _post(self, *entries: Transition | EventData) -> None:
        await self._ledger.post(*entries, run_id=self._run_id, codon_id=self._entry.codon_id)

    def _says(self, action: Literal["message"], content: str) -> AssistantAction:
        return AssistantAction(codon_id=self._entry.codon_id, action=action, content=content)

    def _costs(self) -> CostsIncremented:
        return CostsIncremented(
            run_id=self._run_id,
            codon_id=self._entry.codon_id,
            cost=COST,
            tokens=TOKENS,
            messages=1,
        )

    def _uses(self) -> TokenUsage:
        return TokenUsage(
            codon_id=self._entry.codon_id,
            input_tokens=TOKENS.input_tokens,
            output_tokens=TOKENS.output_tokens,
            cache_creation_tokens=0,
            cache_read_tokens=0,
            total_cost=COST,
        )


def _result(codon_id: CodonId, call: str, path: str) -> ToolResult:
    return ToolResult(
        codon_id=codon_id,
        tool_use_id=call,
        tool_name="Write",
        result=f"File written: {path}",
        truncated=False,
        original_length=30,
        execution_time_ms=1,
        is_error=False,
    )


def _change(path: str, call: str) -> FileUpdated:
    return FileUpdated(
        path=path,
        filename=path.rpartition("/")[2],
        action="modified",
        sha256="0" * 64,
        bytes=12,
        source=FileSource(kind="tool_use", tool_use_id=call),
    )


async def _look(address: str) -> dict[str, float]:
    done = await anyio.run_process(
        ["node", "measure.mjs", address], cwd=BROWSER, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout.decode()
    found: dict[str, float] = msgspec.json.decode(done.stdout.splitlines()[-1])
    return found
