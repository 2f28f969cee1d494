"""Long plans: starting one, resuming in its middle, and the cost of each codon."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import anyio

from bench.figures import AtMost, Figure
from bench.rounds import medians
from bench.scale import Scale
from hankweave_client.client import Client
from hankweave_protocol.events import CodonStartedEvent
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.instants import from_text, milliseconds_between, to_text
from hankweave_protocol.state import PlanEntry, PreparingCodon
from hankweave_protocol.transitions import CodonStarted, CodonTransitioned
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.clock import SystemClock
from hankweave_server.domain import lifecycle
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.runs import snapshot_of
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout
from support.running_server import RunningServer, journal, running_server
from support.scripted_hank import codon, write_hank

BENCH = "plans"
PART_DONE = 10
"""A tenth of the longest plan is done before it is resumed: that past takes minutes to make."""

SHORT = 10
"""Codons of the plan that long ones are compared with."""

START_TARGET = AtMost(2)  # Seconds.
SLOWDOWN = 1.5
"""The time of the last hundred codons may be this multiple of the first hundred's."""

DEADLINE = 600.0
SESSION = '{"type":"system","subtype":"init","session_id":"s","model":"m"}'


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    long, short = _Plan(folder / "long", scale.codons), _Plan(folder / "short", SHORT)
    fresh = await medians({"long": long.start_anew, "short": short.start_anew}, scale.rounds)
    done = scale.codons // PART_DONE
    middle, begun = _Plan(folder / "middle", scale.codons), _Plan(folder / "begun", SHORT)
    for plan, ended in ((middle, done), (begun, SHORT // 2)):
        await plan.come_to(ended)

    resumed = await medians({"long": middle.start, "short": begun.start}, scale.rounds)
    many = f"{scale.codons:,} codons"
    reference = f"{SHORT} codons"
    return [
        Figure(
            BENCH, f"start of {many}", fresh["long"], "s", reference, fresh["short"], START_TARGET
        ),
        Figure(
            BENCH,
            f"start, {done:,} of {many} done",
            resumed["long"],
            "s",
            reference,
            resumed["short"],
            START_TARGET,
        ),
        *await _codon_by_codon(folder, scale),
        await _in_the_middle(folder, scale),
    ]


class _Plan:
    """A plan of codons whose agents begin a session at once, and then work without an end."""

    def __init__(self, folder: Path, codons: int, ending: str = "exec sleep 600") -> None:
        self._folder = folder
        self._rounds = 0
        agent = {"type": "command", "command": ["sh", "-c", f"echo '{SESSION}'; {ending}"]}
        steps = [codon(f"c{number}", agent=agent) for number in range(codons)]
        self.hank = write_hank(folder / "hank", *steps)
        self.root = folder / "execution"

    async def start_anew(self) -> float:
        self._rounds += 1
        self.root = self._folder / f"execution-{self._rounds}"
        return await self.start()

    async def start(self) -> float:
        """Return seconds from exec until the server serves and a codon's agent has printed."""
        began = perf_counter()
        async with running_server(self.hank, None, self.root) as server:
            await _wait_for_output(server, '"codon.started"')
            seconds = perf_counter() - began
            await server.stop()

        return seconds

    async def come_to(self, ended: int) -> None:
        """Create a past with this many completed codons, each with its checkpoint."""
        async with running_server(self.hank, None, self.root, "--no-autostart") as server:
            await server.stop()

        async with opened(self.root) as (ledger, checkpointer):
            await checkpointer.load()
            for entry in ledger.state.execution_plan[:ended]:
                await _live_through(entry, ledger, checkpointer)


async def _live_through(entry: PlanEntry, ledger: Ledger, checkpointer: Checkpointer) -> None:
    """Record one codon's life as the server does, but without its agent."""
    run_id = ledger.state.runs[0].run_id
    now = to_text(SystemClock().now())
    begun = PreparingCodon(codon_id=entry.codon_id, start_time=now)
    starting = lifecycle.start_agent(begun)
    waiting = lifecycle.await_session(
        starting, pid=os.getpid(), log_path="log", previous_session_id=None
    )
    running = lifecycle.begin(waiting, session_id="s")
    await ledger.post(CodonStarted(run_id=run_id, codon=begun))
    for before, after in pairwise((begun, starting, waiting, running)):
        await ledger.post(moved(run_id, before, after))

    record = await checkpointer.take(
        "completed",
        run_id=run_id,
        codon=running,
        codon_name=entry.codon.name,
        patterns=entry.codon.patterns,
    )
    ended = lifecycle.complete(
        running, end_time=now, exit_code=0, result_received=True, checkpoint=record.sha
    )
    await ledger.post(moved(run_id, running, ended))
    await ledger.post(snapshot_of(ledger.state, uptime_ms=0, is_rolling_back=False))


def moved(run_id: RunId, before: Any, after: Any) -> CodonTransitioned:
    return CodonTransitioned(run_id=run_id, from_status=lifecycle.status_of(before), codon=after)


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[tuple[Ledger, Checkpointer]]:
    layout, clock = Layout.of_execution(root), SystemClock()
    engine = CheckpointEngine.open(layout)
    ledger = await Ledger.open(layout, clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        yield ledger, Checkpointer(engine, ledger, clock)
        await ledger.aclose()

    engine.close()


async def _codon_by_codon(folder: Path, scale: Scale) -> list[Figure]:
    """Run a whole plan, and compare its beginning with its end."""
    plan = _Plan(folder / "whole", scale.short_codons, ending=_DONE)
    async with running_server(plan.hank, None, plan.root, "--headless") as server:
        with anyio.fail_after(DEADLINE):
            assert await server.process.wait() == 0, server.output[-3:]

    times = _steps(plan.root)
    part = max(1, len(times) // 10)
    first, last = median(times[:part]), median(times[-part:])
    each = 1_000 * len(times) / sum(times)
    return [
        Figure(BENCH, f"plan of {scale.short_codons:,} codons", each, "codons/s"),
        Figure(
            BENCH,
            "a codon of the last tenth",
            last,
            "ms",
            "first tenth",
            first,
            AtMost(SLOWDOWN * first),
        ),
    ]


async def _in_the_middle(folder: Path, scale: Scale) -> Figure:
    """Return a codon's time where half of the longest plan is done."""
    steps, part_done = scale.middle_codons, scale.codons // PART_DONE
    plan, begun = (
        _Plan(folder / f"step-{codons}", codons, ending=_DONE)
        for codons in (scale.codons, 2 * steps)
    )
    took = {}
    for each, done in ((plan, part_done), (begun, 0)):
        await each.come_to(done)
        async with running_server(each.hank, None, each.root) as server:
            async with server.client() as client:
                await _reaches(client, done + steps)

            await server.stop()

        took[done] = median(_steps(each.root)[-steps // 2 :])

    name = f"a codon, {part_done:,} of {scale.codons:,} done"
    return Figure(BENCH, name, took[part_done], "ms", f"0 of {2 * steps} done", took[0])


_DONE = 'echo \'{"type":"result","subtype":"success","is_error":false,"result":""}\''


async def _reaches(client: Client, number: int) -> None:
    name = CodonId(f"c{number - 1}")
    await client.until(
        CodonStartedEvent, lambda event: getattr(event.data, "codon_id", "") == name, timeout=120
    )


def _steps(root: Path) -> list[int]:
    """Return the milliseconds from each agent's first line to the next one's."""
    starts = [
        from_text(event.timestamp)
        for event in journal(root)
        if isinstance(event.data, CodonStartedEvent)
    ]
    return [milliseconds_between(one, other) for one, other in pairwise(starts)]


async def _wait_for_output(server: RunningServer, text: str) -> None:
    with anyio.fail_after(60):
        while not any(text in line for line in server.output):  # noqa: ASYNC110
            await anyio.sleep(0.002)
