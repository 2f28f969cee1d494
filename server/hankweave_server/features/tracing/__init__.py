"""Traces and metrics for a collector of OpenTelemetry, over OTLP/HTTP.

Modules, in reading order:

- `conventions`: the names of attributes
- `spans`: traces, spans and their ids
- `translation`: from events to spans and metrics; pure
- `environment`: what the standard variables ask for
- `subscriber`: from the ledger's events to the exporter
- `otlp`: the SDK; nothing else imports it, and it is loaded only if it is asked for
- `observer`: all of it for a server
"""
