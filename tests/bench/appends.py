"""Journal appends per second: single durable ones, and batches.

The raw references write the very same bytes: one write(2) per line, with and without fdatasync(2).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import anyio

from bench.figures import AtLeast, Figure
from bench.rounds import Variant, medians
from bench.scale import Scale
from hankweave_protocol.events import AssistantAction
from hankweave_protocol.ids import CodonId
from hankweave_server.clock import SystemClock
from hankweave_server.ledger.journal import Journal
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout

TARGET = AtLeast(50_000)

BATCH = 100
"""Lines in one append: about as many as the ledger queues while the disk writes a batch."""

SAID = AssistantAction(
    codon_id=CodonId("observe"),
    action="message",
    content="The magnitudes are plausible, and two of the places have no country. " * 9,
)
"""About 850 bytes with its envelope, a typical size of agents' messages."""


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    async with _open_ledger(folder / "execution") as ledger:
        [example] = await ledger.record(SAID)
        lines = _Lines(folder, example.frame)
        try:
            durable = await medians(_one_by_one(lines, ledger, scale), scale.rounds)
            batched = await medians(_many_at_a_time(lines, ledger, scale), scale.rounds)
        finally:
            lines.close()

    synced, written = ("fdatasync each", durable["raw"]), ("write each", batched["raw"])
    return [
        Figure("journal", "journal, durable each", durable["journal"], "/s", *synced),
        Figure("journal", "ledger, durable each", durable["ledger"], "/s", *synced),
        Figure("journal", "journal, batched", batched["journal"], "/s", *written, TARGET),
        Figure("journal", "ledger, batched", batched["ledger"], "/s", *written, TARGET),
    ]


def _one_by_one(lines: _Lines, ledger: Ledger, scale: Scale) -> dict[str, Variant]:
    count = scale.durable_appends
    return {
        "raw": lambda: lines.write_raw(count, durable=True),
        "journal": lambda: lines.append(count, batch=1),
        "ledger": lambda: _record(ledger, count),
    }


def _many_at_a_time(lines: _Lines, ledger: Ledger, scale: Scale) -> dict[str, Variant]:
    count = scale.batched_appends
    return {
        "raw": lambda: lines.write_raw(count, durable=False),
        "journal": lambda: lines.append(count, batch=min(BATCH, count)),
        "ledger": lambda: _post(ledger, count),
    }


@dataclass
class _Lines:
    """The same line repeated, written without the ledger."""

    folder: Path
    line: bytes

    def __post_init__(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._raw = os.open(self.folder / "raw.jsonl", flags, 0o600)
        self._journal, _ = Journal.open(self.folder / "lines" / "events" / "events.jsonl")

    async def write_raw(self, count: int, *, durable: bool) -> float:
        line = self.line + b"\n"
        began = perf_counter()
        for _ in range(count):
            os.write(self._raw, line)
            if durable:
                os.fdatasync(self._raw)

        seconds = perf_counter() - began
        # Otherwise the next variant's first sync would write the dirty pages of this one.
        os.fdatasync(self._raw)
        return count / seconds

    async def append(self, count: int, *, batch: int) -> float:
        """Append durably: a batch shares one fdatasync."""
        lines = [self.line] * batch
        began = perf_counter()
        for _ in range(0, count, batch):
            self._journal.append(lines)

        return count / (perf_counter() - began)

    def close(self) -> None:
        os.close(self._raw)
        self._journal.close()


async def _record(ledger: Ledger, count: int) -> float:
    began = perf_counter()
    for _ in range(count):
        await ledger.record(SAID)

    return count / (perf_counter() - began)


async def _post(ledger: Ledger, count: int) -> float:
    """Post lines until the last one is durable, which is when an append counts."""
    began = perf_counter()
    for _ in range(count):
        await ledger.post(SAID)

    await ledger.flush()
    return count / (perf_counter() - began)


@asynccontextmanager
async def _open_ledger(root: Path) -> AsyncIterator[Ledger]:
    ledger = await Ledger.open(Layout.of_execution(root), SystemClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        yield ledger
        await ledger.aclose()
