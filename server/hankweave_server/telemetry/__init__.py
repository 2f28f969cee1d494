"""Traces and metrics for a collector of OpenTelemetry, over OTLP/HTTP.

Modules, in reading order:

- `environment`: what the standard variables ask for
- `subscriber`: from the ledger's events to the exporter
- `otlp`: the SDK; nothing else imports it, and it is loaded only if it is asked for
"""
