"""A collector of OpenTelemetry: an HTTP server that decodes what is exported to it."""

from __future__ import annotations

import gzip
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it arrived, with ids in hexadecimal."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...]
    links: tuple[tuple[str, str, Mapping[str, Any]], ...]
    start: int
    end: int
    error: str | None
    """The message of a failure."""

    @property
    def event_names(self) -> list[str]:
        return [name for name, _ in self.events]


@dataclass
class Collector:
    """A collector of traces and metrics, and all that it has received."""

    port: int = 0
    status: int = 200
    spans: list[ReceivedSpan] = field(default_factory=list)
    resources: list[Mapping[str, Any]] = field(default_factory=list)
    sums: dict[str, dict[tuple[Any, ...], float]] = field(default_factory=lambda: defaultdict(dict))
    """The last value of each counter and the last sum of each histogram, by attributes."""
    counts: dict[str, dict[tuple[Any, ...], int]] = field(default_factory=lambda: defaultdict(dict))
    headers: list[Mapping[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a program that exports to it, promptly."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def the(self, name: str) -> ReceivedSpan:
        (span,) = self.named(name)
        return span

    def below(self, parent: ReceivedSpan) -> list[str]:
        """Return the names of a span's children, in the order of their beginnings."""
        found = [
            span
            for span in self.spans
            if (span.trace_id, span.parent_id) == (parent.trace_id, parent.span_id)
        ]
        return [span.name for span in sorted(found, key=lambda span: span.start)]

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        body = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        self.headers.append(headers)
        self.bodies.append(body)
        if path == "/v1/traces":
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(_attributes(of_resource.resource.attributes))
                for scope in of_resource.scope_spans:
                    self.spans.extend(map(_received, scope.spans))
        elif path == "/v1/metrics":
            for of_resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in of_resource.scope_metrics:
                    for metric in scope.metrics:
                        self._measure(metric)

    def _measure(self, metric: Any) -> None:
        for point in metric.sum.data_points:
            self.sums[metric.name][_key(point.attributes)] = point.as_double or point.as_int

        for point in metric.histogram.data_points:
            self.sums[metric.name][_key(point.attributes)] = point.sum
            self.counts[metric.name][_key(point.attributes)] = point.count


def _key(attributes: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(_attributes(attributes).items()))


def _attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _received(span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        attributes=_attributes(span.attributes),
        events=tuple((each.name, _attributes(each.attributes)) for each in span.events),
        links=tuple(
            (each.trace_id.hex(), each.span_id.hex(), _attributes(each.attributes))
            for each in span.links
        ),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        error=span.status.message if span.status.code == Status.STATUS_CODE_ERROR else None,
    )


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a free port."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if collector.status == 200:
                collector.take(self.path, headers, body)

            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield collector
        finally:
            server.shutdown()
