"""The SDK of OpenTelemetry, behind bounded queues.

An execution must not depend on its collector:

- Finished spans go into the SDK's queue, from which a thread of the SDK sends them. If the queue is
  full, because the collector is down or slow, spans are dropped.
- When the server ends, what is left gets `FLUSH` seconds, and `ABORT` more in which attempts are
  cut short. All threads are daemons, so that one that hangs delays nothing.
- What a collector answers is bounded in size and time, and a redirect is an error.
- The library's log entries may quote headers and URLs. server.log gets its texts without what they
  quote, and each once: a collector that is down for hours takes a line or two.

Spans are made from `ReadableSpan`, not with a tracer: a tracer makes ids at random, and here they
follow from the journal, so that each server of a run can name the spans of the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from hankweave_server import __version__, bounded_requests
from hankweave_server.features.tracing import conventions as names
from hankweave_server.features.tracing.environment import Wanted
from hankweave_server.features.tracing.spans import Attribute, Exported, Measurement, Span
from hankweave_server.logs import logger

log = logger(__name__)

FLUSH = 1.0
"""Seconds in which the last spans and metrics may be sent."""

ABORT = 0.5
"""Seconds after that for attempts to end when they are aborted."""

_NAME = "hankweave"
_UNNAMED = "unknown_service"
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_FINE = Status()
_WORDS = frozenset({"spans", "metrics", *(status.phrase for status in HTTPStatus)})
_Record = Callable[[float, Mapping[str, Attribute]], None]


class Exporter:
    """The queues, threads and instruments of the SDK."""

    def __init__(self, wanted: Wanted, resource: Resource, relay: _Relay) -> None:
        self.wanted = wanted
        self._resource = resource
        self._relay = relay
        self._scope = InstrumentationScope(
            _NAME, __version__, attributes={"hankweave.gen_ai.version": names.VERSION}
        )
        self._senders: list[OTLPSpanExporter | OTLPMetricExporter] = []
        self._spans: BatchSpanProcessor | None = None
        self._meters: MeterProvider | None = None
        self._record: Mapping[str, _Record] = {}
        self.is_sampled: Callable[[int], bool] = lambda _trace_id: False
        """Whether a trace is exported: the sampler decides by its id alone."""
        if wanted.traces:
            spans = OTLPSpanExporter()
            self._senders.append(spans)
            self._spans = BatchSpanProcessor(spans)
            self.is_sampled = _sampler()

        if wanted.metrics:
            metrics = OTLPMetricExporter()
            self._senders.append(metrics)
            reader = PeriodicExportingMetricReader(metrics)
            self._meters = MeterProvider([reader], resource, shutdown_on_exit=False)
            self._record = _instruments(self._meters)

    def open_log(self) -> None:
        """Pass warnings to server.log from now on: it is open."""
        self._relay.open()

    def send(self, exported: Exported) -> None:
        """Queue a span, or record a measurement."""
        if isinstance(exported, Measurement):
            if (record := self._record.get(exported.instrument.name)) is not None:
                record(exported.value, exported.attributes)
        elif self._spans is not None and self.is_sampled(exported.trace_id):
            self._spans.on_end(self._readable(exported))

    def _readable(self, span: Span) -> ReadableSpan:
        trace_id, parent_id = span.trace_id, span.parent_id
        return ReadableSpan(
            span.name,
            _context(trace_id, span.span_id),
            None if parent_id is None else _context(trace_id, parent_id),
            self._resource,
            span.attributes,
            [Event(each.name, each.attributes, each.time) for each in span.events],
            [Link(_context(each.trace_id, each.span_id), each.attributes) for each in span.links],
            SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else _FINE,
            start_time=span.start,
            end_time=span.end,
            instrumentation_scope=self._scope,
        )

    def close(self, within: float) -> None:
        """Send what is left; blocks, at most for `within` seconds."""
        deadline = time.monotonic() + within
        ends = [each.shutdown for each in (self._spans, self._meters) if each is not None]
        ending = _started(ends)
        _join(ending, min(deadline, time.monotonic() + FLUSH))
        if any(thread.is_alive() for thread in ending):
            log.warning("OpenTelemetry: the last spans and metrics could not be sent in time")
            self._relay.close()
            _started([each.shutdown for each in self._senders])
            _join(ending, min(deadline, time.monotonic() + ABORT))

        self._relay.close()


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)


def _started(calls: Iterable[Callable[[], object]]) -> Sequence[threading.Thread]:
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()

    return threads


def _join(threads: Iterable[threading.Thread], deadline: float) -> None:
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _sampler() -> Callable[[int], bool]:
    """Return what the variables `OTEL_TRACES_SAMPLER...` choose."""
    sampler = TracerProvider(shutdown_on_exit=False).sampler

    @lru_cache(maxsize=16)
    def is_sampled(trace_id: int) -> bool:
        return sampler.should_sample(None, trace_id, "").decision is Decision.RECORD_AND_SAMPLE

    return is_sampled


def _instruments(meters: MeterProvider) -> dict[str, _Record]:
    meter = meters.get_meter(_NAME, __version__)
    found: dict[str, _Record] = {}
    for each in names.INSTRUMENTS:
        described = (each.name, each.unit, each.description)
        if each.boundaries:
            found[each.name] = meter.create_histogram(
                *described, explicit_bucket_boundaries_advisory=each.boundaries
            ).record
        else:
            found[each.name] = meter.create_counter(*described).add

    return found


class _Relay(logging.Handler):
    """Passes the library's warnings to server.log, each text once, while that is open."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._relayed: set[str] = set()
        self._early: list[str] = []
        self._is_open = False
        self._is_closed = False

    def emit(self, record: logging.LogRecord) -> None:
        text = str(record.msg)
        if text in self._relayed or self._is_closed:
            return

        self._relayed.add(text)
        self._early.append(_without_quotes(text, record.args))
        if self._is_open:
            self.open()

    def open(self) -> None:
        self._is_open = True
        early, self._early = self._early, []
        for text in early:
            log.warning("OpenTelemetry: %s", text)

    def close(self) -> None:
        """Drop what follows: the server ends, and its log with it."""
        self._is_closed = True
        super().close()


def _without_quotes(text: str, arguments: object) -> str:
    """Fill in numbers, types and known words: other strings may be headers, or parts of a URL."""
    given = arguments if isinstance(arguments, tuple) else ()
    known = int | float | bounded_requests.ResponseRefused | None
    shown = tuple(
        each
        if isinstance(each, known) or (isinstance(each, str) and each in _WORDS)
        else f"<{type(each).__name__}>"
        for each in given
    )
    with suppress(TypeError, ValueError):  # It has another form; it is logged as it is.
        return text % shown

    return text


def open_exporter(wanted: Wanted, execution: str) -> Exporter:
    """Start the SDK's threads; raise ValueError or OSError for variables that it cannot use."""
    bounded_requests.install()
    library, relay = logging.getLogger("opentelemetry"), _Relay()
    library.addHandler(relay)
    library.propagate = False
    resource = Resource({SERVICE_VERSION: __version__, "hankweave.execution": execution})
    resource = resource.merge(Resource.create())
    if str(resource.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
        resource = resource.merge(Resource({SERVICE_NAME: _NAME}))

    return Exporter(wanted, resource, relay)
