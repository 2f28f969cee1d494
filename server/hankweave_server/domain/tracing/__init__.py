"""The events of an execution as spans and measurements of OpenTelemetry.

Modules, in reading order:

- `conventions`: the names of OpenTelemetry's GenAI conventions, and ours beside them
- `spans`: spans, their ids, and measurements
- `translation`: events in, finished spans and measurements out
"""
