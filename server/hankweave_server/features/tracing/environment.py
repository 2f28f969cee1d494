"""The settings in the standard variables of OpenTelemetry.

The export is on if they name an endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT`, or the one of a signal)
and do not disable the SDK. The SDK reads the others itself: headers, certificates, compression,
timeouts, the queue, the sampler, the resource.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable that asks for content; instrumentations of OpenTelemetry know it, too."""

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
_SPOKEN = "http/protobuf"


class TelemetryUnavailable(Exception):
    """A reason why nothing can be exported, and what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Wanted:
    """The exports that the environment asks for."""

    traces: bool
    metrics: bool
    with_content: bool


def wanted(environment: Mapping[str, str]) -> Wanted | None:
    """Return what the standard variables ask for; None if it is nothing.

    Raises TelemetryUnavailable for a protocol or an endpoint that cannot be used.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None

    signals = [name for name in ("TRACES", "METRICS") if _is_wanted(name, environment)]
    content = environment.get(CONTENT, "").strip().lower()
    with_content = content in ("true", "span_only", "span_and_event")
    found = Wanted("TRACES" in signals, "METRICS" in signals, with_content)
    return found if signals else None


def _is_wanted(signal: str, environment: Mapping[str, str]) -> bool:
    own = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
    name = own if environment.get(own) else _ENDPOINT
    endpoint = environment.get(name, "").strip()
    exporter = environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() or "otlp"
    if not endpoint or exporter == "none":
        return False

    if exporter != "otlp":
        raise TelemetryUnavailable(
            f"OTEL_{signal}_EXPORTER is not an exporter that Hankweave has.",
            "Set it to otlp or none.",
        )

    _check_protocol(signal, environment)
    _check_endpoint(name, endpoint)
    return True


def _check_protocol(signal: str, environment: Mapping[str, str]) -> None:
    own = f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"
    name = own if environment.get(own) else _PROTOCOL
    if environment.get(name, "").strip().lower() not in ("", _SPOKEN):
        raise TelemetryUnavailable(
            f"{name} is not {_SPOKEN}, the only protocol that Hankweave exports with.",
            f"Set it to {_SPOKEN}; collectors usually listen for it on port 4318.",
        )


def _check_endpoint(name: str, endpoint: str) -> None:
    try:
        parts = urllib.parse.urlsplit(endpoint)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False

    if not is_valid:
        raise TelemetryUnavailable(
            f"{name} is not a URL.", "It must begin with http:// or https://, followed by a host."
        )
