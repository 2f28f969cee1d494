"""Between a real ledger and the exporter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from hankweave_protocol.events import Info
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.transitions import (
    CheckpointCreated,
    CodonStarted,
    RunCompleted,
    RunStarted,
)
from hankweave_server.features.tracing import subscriber
from hankweave_server.features.tracing.environment import Wanted
from hankweave_server.features.tracing.spans import Exported, Span, trace_id_of
from hankweave_server.features.tracing.subscriber import Telemetry
from hankweave_server.features.tracing.translation import Tracing
from hankweave_server.ledger.writer import Ledger
from hankweave_server.logs import server_log
from hankweave_server.paths import Layout
from support.histories import LATER, SteppingClock, a_checkpoint, a_run, preparing

ONE, TWO = RunId("run-1"), RunId("run-2")

EVERYTHING = Wanted(traces=True, metrics=True, with_content=False)


@dataclass
class Kept:
    """An exporter that keeps what it is to send, or has a fault."""

    has_fault: bool = False
    wanted: Wanted = EVERYTHING
    sent: list[Exported] = field(default_factory=list)

    def open_log(self) -> None: ...

    def is_sampled(self, _trace_id: int) -> bool:
        return True

    def send(self, exported: Exported) -> None:
        if self.has_fault:
            raise ZeroDivisionError

        self.sent.append(exported)


def telemetry_of(kept: Kept, ledger: Ledger) -> Telemetry:
    return Telemetry(cast(Any, kept), Tracing("nightly"), ledger)


@asynccontextmanager
async def open_ledger(folder: Path) -> AsyncIterator[Ledger]:
    ledger = await Ledger.open(Layout.of_execution(folder), SteppingClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        yield ledger
        await ledger.aclose()


async def test_a_fault_ends_the_export_and_not_the_ledger(tmp_path: Path) -> None:
    """It is logged once; what is recorded afterwards is recorded."""
    kept = Kept(has_fault=True)
    with server_log(tmp_path / "server.log"):
        async with open_ledger(tmp_path) as ledger:
            with ledger.subscribe(telemetry_of(kept, ledger).handle):
                for run in (ONE, TWO):
                    await ledger.record(RunStarted(run=a_run(run)))
                    await ledger.record(RunCompleted(run_id=run, end_time=LATER))

            assert ledger.last_seq == 4

    text = (tmp_path / "server.log").read_text()
    assert text.count("the export has ended because of a fault in it") == 1
    assert "ZeroDivisionError" in text


@pytest.mark.parametrize("page", [3, 1_000])
async def test_the_next_server_reads_the_events_of_an_open_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Page by page, from the end of the journal back to where the run began."""
    monkeypatch.setattr(subscriber, "_PAGE", page)
    async with open_ledger(tmp_path) as ledger:
        for run, number in ((ONE, 1), (TWO, 2)):
            if run is TWO:
                await ledger.record(RunCompleted(run_id=ONE, end_time=LATER))

            await ledger.record(RunStarted(run=a_run(run)))
            checkpoint = a_checkpoint("manual", run, None, number)
            await ledger.record(CheckpointCreated(checkpoint=checkpoint))
            await ledger.record(*(Info(message="noise") for _ in range(7)))

    kept = Kept()
    async with open_ledger(tmp_path) as ledger:
        with ledger.subscribe(telemetry_of(kept, ledger).handle):
            await ledger.record(RunCompleted(run_id=TWO, end_time=LATER))

    (span,) = (each for each in kept.sent if isinstance(each, Span))
    assert span.trace_id == trace_id_of(TWO)
    assert [event.attributes["hankweave.sha"] for event in span.events] == [f"{2:040x}"]


async def test_an_agent_receives_a_trace_context_only_if_there_is_one(tmp_path: Path) -> None:
    """With metrics alone it gets nothing: it may export traces of its own."""
    codon = CodonId("observe")
    metrics = Wanted(traces=False, metrics=True, with_content=False)
    async with open_ledger(tmp_path) as ledger:
        traced = telemetry_of(Kept(), ledger)
        assert traced.traceparent(ONE, codon) is None
        await ledger.record(
            RunStarted(run=a_run(ONE)), CodonStarted(run_id=ONE, codon=preparing("observe"))
        )
        context = traced.traceparent(ONE, codon)
        assert context.startswith(f"00-{trace_id_of(ONE):032x}-")
        assert telemetry_of(Kept(wanted=metrics), ledger).traceparent(ONE, codon) is None
