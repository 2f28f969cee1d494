"""The exporter against a real receiver, and against none."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from hankweave_server.features.tracing import conventions as names
from hankweave_server.features.tracing import otlp
from hankweave_server.features.tracing.environment import TelemetryUnavailable, Wanted
from hankweave_server.features.tracing.otlp import Exporter
from hankweave_server.features.tracing.spans import Measurement, Span, SpanEvent, SpanLink
from hankweave_server.features.tracing.subscriber import open_exporter
from hankweave_server.logs import server_log
from support.collector import Collector, collecting
from support.waiting import LIMIT, eventually_blocking

EVERYTHING = Wanted(traces=True, metrics=True, with_content=False)
PASSWORD = "hunter2-of-the-collector"
TRACE, CHILD, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, 0x00F067AA0BA902B7
SPAN = Span(
    name="invoke_agent one",
    trace_id=TRACE,
    span_id=CHILD,
    parent_id=PARENT,
    start=1_000_000_000,
    end=3_000_000_000,
    attributes={"text": "a", "truth": True, "number": 3, "ratio": 0.5},
    events=[SpanEvent("hankweave.codon.waiting", 2_000_000_000, {"hankweave.number": 1})],
    links=(SpanLink(TRACE + 1, PARENT, {names.LINK: "rollback"}),),
    error="timeout",
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is left be sent, however busy the machine is."""
    monkeypatch.setattr(otlp, "FLUSH", LIMIT)


def exporting(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, wanted: Wanted = EVERYTHING, **variables: str
) -> Exporter:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    return open_exporter(wanted, "tonight")


def exported(
    monkeypatch: pytest.MonkeyPatch, *sent: Any, wanted: Wanted = EVERYTHING, **variables: str
) -> Collector:
    with collecting() as collector:
        exporter = exporting(monkeypatch, collector.url, wanted, **variables)
        for each in sent:
            exporter.send(each)

        exporter.close(within=60)

    return collector


def test_a_span_arrives_as_it_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the ids that the translation chose, and with the resource of the variables."""
    collector = exported(monkeypatch, SPAN, OTEL_RESOURCE_ATTRIBUTES="team=night")
    (span,) = collector.spans
    assert (span.name, span.error) == ("invoke_agent one", "timeout")
    assert (span.trace_id, span.span_id) == (f"{TRACE:032x}", f"{CHILD:016x}")
    assert span.parent_id == f"{PARENT:016x}"
    assert (span.start, span.end) == (1_000_000_000, 3_000_000_000)
    assert span.attributes == {"text": "a", "truth": True, "number": 3, "ratio": 0.5}
    assert span.events == (("hankweave.codon.waiting", {"hankweave.number": 1}),)
    assert span.links == ((f"{TRACE + 1:032x}", f"{PARENT:016x}", {names.LINK: "rollback"}),)
    resource = collector.resources[0]
    assert (resource["service.name"], resource["team"]) == ("hankweave", "night")
    assert resource["hankweave.execution"] == "tonight"


def test_measurements_arrive_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters add up; histograms have their sums."""
    cost = Measurement(names.DOLLARS, 0.25, {names.COST_SOURCE: "agent"})
    took = Measurement(names.TOOL_DURATION, 1.5, {names.TOOL: "Bash"})
    collector = exported(monkeypatch, cost, cost, took, took)
    assert collector.sums["hankweave.cost"] == {((names.COST_SOURCE, "agent"),): 0.5}
    assert collector.sums["gen_ai.execute_tool.duration"] == {((names.TOOL, "Bash"),): 3.0}
    assert list(collector.counts["gen_ai.execute_tool.duration"].values()) == [2]


def test_the_standard_variables_reach_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers, compression and the service's name, for example."""
    collector = exported(
        monkeypatch,
        SPAN,
        OTEL_EXPORTER_OTLP_HEADERS=f"x-key={PASSWORD}",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
        OTEL_SERVICE_NAME="mine",
    )
    assert collector.headers[0]["x-key"] == PASSWORD
    assert collector.headers[0]["content-encoding"] == "gzip"
    assert collector.resources[0]["service.name"] == "mine"


@pytest.mark.parametrize(
    ("wanted", "variables"),
    [
        (Wanted(traces=False, metrics=True, with_content=False), {}),
        (EVERYTHING, {"OTEL_TRACES_SAMPLER": "always_off"}),
    ],
)
def test_what_is_not_wanted_is_not_sent(
    monkeypatch: pytest.MonkeyPatch, wanted: Wanted, variables: dict[str, str]
) -> None:
    """Nor is an agent told that its trace is sampled."""
    with collecting() as collector:
        exporter = exporting(monkeypatch, collector.url, wanted, **variables)
        assert not exporter.is_sampled(TRACE)
        exporter.send(SPAN)
        exporter.close(within=60)

    assert collector.spans == []


def test_a_silent_collector_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The queue is bounded, and so is the end, although an attempt may last an hour."""
    monkeypatch.setattr(otlp, "FLUSH", 0.1)
    before = threading.enumerate()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        exporter = exporting(
            monkeypatch,
            f"http://127.0.0.1:{silent.getsockname()[1]}",
            OTEL_EXPORTER_OTLP_TIMEOUT="3600",
            OTEL_BSP_MAX_QUEUE_SIZE="10",
            OTEL_BSP_MAX_EXPORT_BATCH_SIZE="5",
        )
        sender = threading.Thread(target=lambda: [exporter.send(SPAN) for _ in range(10_000)])
        sender.start()
        sender.join(LIMIT)
        assert not sender.is_alive()
        exporter.close(within=60)

    assert "could not be sent in time" in capsys.readouterr().out
    # The SDK's threads go on until the connection breaks; what they log is for no other test.
    eventually_blocking(lambda: {*threading.enumerate()} <= {*before})


def test_a_collector_that_is_down_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In server.log, also what came before it; without URL, headers and what the library quotes."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"no header, but {PASSWORD}")
    with collecting() as collector:
        collector.status = 400
        exporter = exporting(
            monkeypatch,
            collector.url,
            OTEL_BSP_SCHEDULE_DELAY="1",
            OTEL_BSP_MAX_EXPORT_BATCH_SIZE="1",
        )
        with server_log(tmp_path / "server.log"):
            exporter.open_log()
            for _ in range(5):
                exporter.send(SPAN)

            exporter.close(within=60)

    first, *others = (tmp_path / "server.log").read_text().splitlines()
    assert "[WARNING] OpenTelemetry: Header format invalid!" in first
    assert [line.partition("] ")[2] for line in others] == [
        "OpenTelemetry: Failed to export spans batch code: 400, reason: Bad Request"
    ]
    assert PASSWORD not in first


def test_a_variable_with_an_invalid_value_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, with what to check."""
    with pytest.raises(TelemetryUnavailable, match=r"invalid value \(ValueError\)") as raised:
        exporting(monkeypatch, "http://127.0.0.1:9", OTEL_BSP_MAX_QUEUE_SIZE="0")

    assert raised.value.hint == "Check the numbers, and the paths of certificates."
