"""The past of the execution that the page is measured with: what hours of agents leave behind.

Their events are written by the ledger and their checkpoints by the engine, as in a server, so that
the next start is an ordinary one. Only the agents are missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from bench.executions import Prepared
from bench.plans import moved, opened
from hankweave_protocol.events import (
    AssistantAction,
    EventData,
    FileSource,
    FileUpdated,
    TokenUsage,
    ToolResult,
)
from hankweave_protocol.instants import to_text
from hankweave_protocol.records import CheckpointKind, CheckpointRecord
from hankweave_protocol.state import PlanEntry, PreparingCodon, RunningCodon, Tokens
from hankweave_protocol.transitions import CodonStarted, CostsIncremented, Transition
from hankweave_server.clock import SystemClock
from hankweave_server.domain import lifecycle
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.git.repack import Pace
from hankweave_server.ledger.writer import Ledger
from support.scripted_hank import codon, write_hank

ROUNDS = 500
"""Checkpoints of a step at most, each after a call that writes a file."""

CALL_EVENTS = 4
"""Of a call with its checkpoint."""
MESSAGE_EVENTS = 3

COST = 0.0004
TOKENS = Tokens(input_tokens=900, output_tokens=60, cache_creation_tokens=0, cache_read_tokens=0)
FILES = 50

SENTENCE = "The magnitudes are plausible, and two of the places have no country. "
REPORT = """## Part {n}

I have read `records-{n}.csv`: **{n} rows**, of which some have *no country*. The next steps are:

1. take the coordinates of the place,
2. look the country up in `countries.json`, and
3. write the row again.

| field | rows | empty |
|---|---|---|
| place | {n} | 0 |
| country | {n} | 12 |

```python
def country_of(row):
    return COUNTRIES.get((round(row["lat"]), round(row["lon"])))
```
"""
OUTPUT = "\n".join(
    f"row {n:04}: 64.1{n:02} N, 21.9{n:02} W, Reykjavik, M 2.{n:02}" for n in range(40)
)
BEFORE = "\n".join(f"    row[{n}] = read(line, {n})" for n in range(12))
AFTER = "\n".join(f"    row[{n}] = read(line, {n}).strip()" for n in range(12))


async def with_a_past(folder: Path, checkpoints: int, events: int, transcript: int) -> Prepared:
    """Create the past: so many checkpoints and events; the last step's texts have so many bytes."""
    rounds = min(ROUNDS, checkpoints)
    names = [f"part-{n}" for n in range(checkpoints // rounds)]
    prepared = Prepared(write_hank(folder / "hank", *map(codon, names)), folder / "execution")
    async with prepared.serve() as server:
        await server.stop()

    messages = max(1, (events // checkpoints - CALL_EVENTS) // MESSAGE_EVENTS)
    async with opened(prepared.root) as (ledger, checkpointer):
        await checkpointer.load()
        *plan, last = ledger.state.execution_plan
        for entry in plan:
            await _Step(ledger, checkpointer, entry, prepared.root).live(rounds, messages, 0)

        await _Step(ledger, checkpointer, last, prepared.root).live(rounds, 0, transcript // rounds)

    return prepared


class _Step:
    """The life of one codon."""

    def __init__(
        self, ledger: Ledger, checkpointer: Checkpointer, entry: PlanEntry, root: Path
    ) -> None:
        self._ledger = ledger
        self._checkpointer = checkpointer
        self._entry = entry
        self._codon_id = entry.codon_id
        self._notes = root / "agentRoot" / "notes"
        self._run_id = ledger.state.runs[0].run_id
        self._calls = 0

    async def live(self, rounds: int, messages: int, size: int) -> None:
        """Work for so many rounds: each has so many messages, or texts of so many bytes."""
        now = to_text(SystemClock().now())
        begun = PreparingCodon(codon_id=self._codon_id, start_time=now)
        starting = lifecycle.start_agent(begun)
        waiting = lifecycle.await_session(
            starting, pid=os.getpid(), log_path="log", previous_session_id=None
        )
        running = lifecycle.begin(waiting, session_id="s")
        await self._post(CodonStarted(run_id=self._run_id, codon=begun))
        for before, after in pairwise((begun, starting, waiting, running)):
            await self._post(moved(self._run_id, before, after))

        for number in range(rounds):
            entries = self._work(number, size) if size else self._talk(number, messages)
            await self._post(*entries, *self._writes(number))
            await self._take("tool", running)

        record = await self._take("completed", running)
        ended = lifecycle.complete(
            running,
            end_time=to_text(SystemClock().now()),
            exit_code=0,
            result_received=True,
            checkpoint=record.sha,
        )
        await self._post(moved(self._run_id, running, ended))
        # A server packs its store now and then.
        await self._checkpointer.call_concurrently(
            lambda engine: engine.housekeeping.consolidate(Pace(lambda: False))
        )

    def _talk(self, number: int, messages: int) -> Iterator[Transition | EventData]:
        for part in range(messages):
            yield from self._message(f"Sentence {number}.{part} of a long past. {SENTENCE}")

    def _work(self, number: int, size: int) -> Iterator[Transition | EventData]:
        """Report, run commands and edit files, in turn, up to a size."""
        while size > 0:
            report = REPORT.format(n=number) + SENTENCE * (1 + self._calls % 5)
            command: dict[str, object] = {
                "command": f"python check.py --part {number}",
                "description": "Check a part",
            }
            edit: dict[str, object] = {
                "file_path": f"notes/{number % FILES}.md",
                "old_string": BEFORE,
                "new_string": AFTER,
            }
            yield from self._message(report)
            yield from self._calls_tool("Bash", command, OUTPUT)
            yield from self._calls_tool("Edit", edit, "The file was updated.")
            size -= len(report) + len(OUTPUT) + len(BEFORE) + len(AFTER)

    def _writes(self, number: int) -> Iterator[Transition | EventData]:
        path = f"notes/{number % FILES}.md"
        self._notes.mkdir(exist_ok=True)
        (self._notes.parent / path).write_text(f"Number {number} of {self._codon_id}.\n")
        yield from self._calls_tool("Write", {"file_path": path, "content": SENTENCE}, "Written.")
        yield FileUpdated(
            path=path,
            filename=path.rpartition("/")[2],
            action="modified",
            sha256="0" * 64,
            bytes=12,
            source=FileSource(kind="tool_use", tool_use_id=f"{self._codon_id}-{self._calls}"),
        )

    def _message(self, content: str) -> Iterator[Transition | EventData]:
        yield self._acts("message", content)
        yield CostsIncremented(
            run_id=self._run_id, codon_id=self._codon_id, cost=COST, tokens=TOKENS, messages=1
        )
        yield TokenUsage(
            codon_id=self._codon_id,
            input_tokens=TOKENS.input_tokens,
            output_tokens=TOKENS.output_tokens,
            cache_creation_tokens=0,
            cache_read_tokens=0,
            total_cost=COST,
        )

    def _calls_tool(
        self, name: str, given: dict[str, object], result: str
    ) -> Iterator[Transition | EventData]:
        self._calls += 1
        call = f"{self._codon_id}-{self._calls}"
        yield self._acts("tool_use", "", tool_name=name, tool_input=given, tool_use_id=call)
        yield ToolResult(
            codon_id=self._codon_id,
            tool_use_id=call,
            tool_name=name,
            result=result,
            truncated=False,
            original_length=len(result),
            execution_time_ms=1,
            is_error=False,
        )

    def _acts(
        self, action: Literal["message", "tool_use"], content: str, **fields: Any
    ) -> AssistantAction:
        return AssistantAction(codon_id=self._codon_id, action=action, content=content, **fields)

    async def _take(self, kind: CheckpointKind, running: RunningCodon) -> CheckpointRecord:
        return await self._checkpointer.take(
            kind,
            run_id=self._run_id,
            codon=running,
            codon_name=self._entry.codon.name,
            patterns=self._entry.codon.patterns,
        )

    async def _post(self, *entries: Transition | EventData) -> None:
        await self._ledger.post(*entries, run_id=self._run_id, codon_id=self._codon_id)
