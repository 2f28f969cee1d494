"""From the ledger's events to the exporter.

`handle` runs in the ledger's writer. It translates an event (`translation`), and hands what is
finished to the exporter, which queues it. An execution does not depend on its telemetry: a fault in
here ends the export, and not the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread

from hankweave_protocol import codec
from hankweave_protocol.events import Event, ExecutionOrigin
from hankweave_protocol.ids import CodonId, RunId
from hankweave_server.domain.execution_thread import run_named
from hankweave_server.features.tracing.environment import TelemetryUnavailable, Wanted
from hankweave_server.features.tracing.spans import trace_id_of, traceparent
from hankweave_server.features.tracing.translation import Tracing
from hankweave_server.ledger.writer import Ledger, Published
from hankweave_server.logs import logger

if TYPE_CHECKING:
    from hankweave_server.features.tracing.otlp import Exporter

log = logger(__name__)

RECALLED = 20_000
"""Events of a run, the newest, that are read again when another server has left it open."""

_PAGE = 2_000
_RUN_STARTED = b'"RunStarted"'


def open_exporter(wanted: Wanted, execution: str) -> Exporter:
    """Load the SDK and start its threads; raise TelemetryUnavailable.

    `execution` is the name of the execution's directory.
    """
    try:
        from hankweave_server.features.tracing import otlp
    except ImportError:
        raise TelemetryUnavailable(
            "OpenTelemetry is not installed.",
            "Install it with: pip install 'hankweave[otel]'",
        ) from None

    try:
        return otlp.open_exporter(wanted, execution)
    except (ValueError, OSError) as error:
        # Its message may quote a header.
        raise TelemetryUnavailable(
            f"A variable OTEL_... has an invalid value ({type(error).__name__}).",
            "Check the numbers, and the paths of certificates.",
        ) from None


class Telemetry:
    """The traces and metrics of one execution."""

    def __init__(self, exporter: Exporter, tracing: Tracing, ledger: Ledger) -> None:
        self._exporter = exporter
        self._tracing = tracing
        self._ledger = ledger
        self._has_failed = False
        exporter.open_log()
        try:
            state = ledger.durable_state
            tracing.restore_spans(state, _events_of_open_run(ledger), _first_run_of_branch(ledger))
        except Exception as error:
            self._end(error)

    def handle(self, published: Published) -> None:
        """Export what an event is about; neither waits nor raises."""
        if self._has_failed:
            return

        try:
            for each in self._tracing.handle(published.event, self._ledger.durable_state):
                self._exporter.send(each)
        except Exception as error:
            self._end(error)

    def _end(self, error: Exception) -> None:
        """End the export after a fault in it: raised, it would end the ledger's writer."""
        self._has_failed = True
        log.error("OpenTelemetry: the export has ended because of a fault in it", exc_info=error)

    def traceparent(self, run_id: RunId, codon_id: CodonId) -> str | None:
        """Return the trace context for the agent of the newest attempt of a codon.

        None if only metrics are exported: an agent may export traces of its own all the same.
        """
        if not self._exporter.wanted.traces:
            return None

        run = run_named(self._ledger.state, run_id)
        attempts = () if run is None else reversed(run.codons)
        codon = next((each for each in attempts if each.codon_id == codon_id), None)
        if codon is None:
            return None

        is_sampled = self._exporter.is_sampled(trace_id_of(run_id))
        return traceparent(run_id, codon, is_sampled=is_sampled)

    async def finish(self, within: float) -> None:
        """Send what is left, for a moment, of at most `within` seconds."""
        await anyio.to_thread.run_sync(self._exporter.close, within)


def _first_run_of_branch(ledger: Ledger) -> RunId | None:
    first = [codec.decode_event(frame).data for frame in ledger.read(0, 1)]
    return next((each.run_id for each in first if isinstance(each, ExecutionOrigin)), None)


def _events_of_open_run(ledger: Ledger) -> list[Event]:
    """Return the events since the open run began, the newest `RECALLED` at most."""
    state = ledger.durable_state
    if not state.runs or state.runs[0].status != "running":
        return []

    name = state.runs[0].run_id.encode()
    frames: list[bytes] = []
    until = ledger.last_seq
    while until > 0 and len(frames) < RECALLED:
        since = max(0, until - _PAGE)
        page = ledger.read(since, until - since)
        frames[:0] = page
        if any(_RUN_STARTED in frame and name in frame for frame in page):
            break

        until = since

    return [codec.decode_event(frame) for frame in frames]
