"""The settings in the standard variables of OpenTelemetry."""

from __future__ import annotations

import pytest

from hankweave_server.features.tracing.environment import (
    CONTENT,
    TelemetryUnavailable,
    Wanted,
    wanted,
)

ALL = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
METRICS = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
URL = "http://collector:4318"
BOTH = Wanted(traces=True, metrics=True, with_content=False)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({ALL: ""}, None),
        ({"OTEL_SERVICE_NAME": "mine", "OTEL_TRACES_EXPORTER": "otlp"}, None),
        ({ALL: URL}, BOTH),
        ({ALL: URL, "OTEL_SDK_DISABLED": "True"}, None),
        ({ALL: URL, "OTEL_SDK_DISABLED": "false"}, BOTH),
        ({TRACES: URL}, Wanted(traces=True, metrics=False, with_content=False)),
        ({METRICS: URL}, Wanted(traces=False, metrics=True, with_content=False)),
        ({ALL: URL, "OTEL_METRICS_EXPORTER": "none"}, Wanted(True, False, False)),
        ({ALL: URL, "OTEL_TRACES_EXPORTER": "none"}, Wanted(False, True, False)),
        ({ALL: URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, BOTH),
        ({ALL: URL, CONTENT: "true"}, Wanted(True, True, True)),
        ({ALL: URL, CONTENT: "SPAN_ONLY"}, Wanted(True, True, True)),
        ({ALL: URL, CONTENT: "NO_CONTENT"}, BOTH),
    ],
)
def test_an_endpoint_switches_the_export_on(
    environment: dict[str, str], expected: Wanted | None
) -> None:
    assert wanted(environment) == expected


@pytest.mark.parametrize(
    ("environment", "message", "hint"),
    [
        ({ALL: "collector:4318"}, f"{ALL} is not a URL.", "It must begin with http://"),
        ({TRACES: "http://x:nan"}, f"{TRACES} is not a URL.", "It must begin with http://"),
        (
            {ALL: URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is not http/protobuf",
            "Set it to http/protobuf; collectors usually listen for it on port 4318.",
        ),
        (
            {ALL: URL, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL is not http/protobuf",
            "Set it to http/protobuf",
        ),
        (
            {ALL: URL, "OTEL_TRACES_EXPORTER": "zipkin"},
            "OTEL_TRACES_EXPORTER is not an exporter that Hankweave has.",
            "Set it to otlp or none.",
        ),
    ],
)
def test_a_wrong_setting_is_reported_with_a_hint(
    environment: dict[str, str], message: str, hint: str
) -> None:
    """The value itself is not repeated: it may contain a password."""
    with pytest.raises(TelemetryUnavailable) as raised:
        wanted(environment)

    assert raised.value.message.startswith(message)
    assert raised.value.hint.startswith(hint)
