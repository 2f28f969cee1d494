"""Executions for benchmarks to start servers in: a fresh one, and one with a long history."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from support.running_server import RunningServer, running_server

WORDS = "The magnitudes are plausible, and two of the places have no country. "
SCRIPT = "script.json"
DEADLINE = 60.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """An execution whose server has been stopped in good order."""

    hank: Path
    root: Path

    @property
    def events(self) -> int:
        journal = self.root / ".hankweave" / "events" / "events.jsonl"
        return journal.read_bytes().count(b"\n")

    def serve(self) -> AbstractAsyncContextManager[RunningServer]:
        """Start the real server on it, without work."""
        return running_server(self.hank, None, self.root, "--no-autostart")


async def without_a_past(folder: Path) -> Prepared:
    """Create an execution that was begun and left: its next start creates nothing."""
    prepared = Prepared(_write_hank(folder, messages=1), folder / "execution")
    async with prepared.serve() as server:
        await server.stop()

    return prepared


async def with_a_past(folder: Path, messages: int) -> Prepared:
    """Create an execution by running a hank: its agent prints the messages, three events each."""
    prepared = Prepared(_write_hank(folder, messages), folder / "execution")
    async with running_server(prepared.hank, None, prepared.root, "--headless") as server:
        with anyio.fail_after(DEADLINE):
            exit_code = await server.process.wait()

    assert exit_code == 0, server.output[-3:]
    assert prepared.events >= 3 * messages
    return prepared


def _write_hank(folder: Path, messages: int) -> Path:
    folder.mkdir()
    step = {"say": WORDS * 9}  # About 850 bytes with its envelope.
    _write(folder / SCRIPT, {"steps": [step] * messages})
    codon = {
        "type": "codon",
        "id": "talk",
        "name": "Talk",
        "model": "sonnet",
        "continuationMode": "fresh",
        "promptText": "Talk.",
        "agent": {"type": "scripted", "script": SCRIPT},
    }
    return _write(folder / "hank.json", {"hank": [codon]})


def _write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
