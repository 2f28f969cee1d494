"""What must hold in a sentinel beyond its shape.

Each rule takes one part of the configuration, so that a fault in one part hides none in another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, assert_never

import msgspec

from hankweave_protocol.events import EVENTS
from hankweave_protocol.hank import SentinelSettings
from hankweave_protocol.sentinels import (
    Condition,
    EventTrigger,
    SentinelOutputPlace,
    SequenceTrigger,
    StructuredOutput,
)
from hankweave_server.hank import references
from hankweave_server.hank.problems import Finding, JsonPath, did_you_mean
from hankweave_server.sentinels.conditions import fault_of_value, has_path
from hankweave_server.sentinels.routing import EVERY, ROUTED
from hankweave_server.sentinels.triggers import HISTORY_LIMIT

_ID = re.compile(r"[a-z0-9-]+")
_SCHEMAS = ("schemaStr", "schemaFile", "jsonSchema", "jsonSchemaFile")


def findings(raw: dict[str, Any]) -> Iterator[Finding]:
    """Finds what cannot be right; what has the wrong shape is passed over, it is told already."""
    yield from _of_id(raw)
    yield from _of_prompts(raw)
    yield from _of_exclusions(raw)
    trigger = _part(raw, "trigger", EventTrigger | SequenceTrigger)
    if trigger is not None:
        yield from _of_trigger(trigger)

    structured = _part(raw, "structuredOutput", StructuredOutput)
    if structured is not None:
        yield from _of_structured(structured)

    output = _part(raw, "output", SentinelOutputPlace)
    if output is not None:
        yield from _of_places(output.file, output.last_value_file, raw, ("output",))


def of_settings(settings: SentinelSettings, raw: dict[str, Any]) -> Iterator[Finding]:
    """Finds what cannot be right in what a codon says about a sentinel."""
    if (paths := settings.output_paths) is not None:
        path = ("settings", "outputPaths")
        yield from _of_places(paths.log_file, paths.last_value_file, raw, path, log_key="logFile")


def _part(raw: dict[str, Any], key: str, shape: Any) -> Any:
    try:
        return msgspec.convert(raw[key], shape)
    except (KeyError, msgspec.ValidationError):
        return None


def _of_id(raw: dict[str, Any]) -> Iterator[Finding]:
    name = raw.get("id")
    if isinstance(name, str) and name and _ID.fullmatch(name) is None:
        hint = "It has small letters, digits and '-' only."
        yield Finding(("id",), f"{name!r} cannot be the id of a sentinel.", hint)


def _of_prompts(raw: dict[str, Any]) -> Iterator[Finding]:
    if not (raw.get("userPromptFile") or raw.get("userPromptText")):
        message = "The sentinel has no prompt: give a userPromptFile or a userPromptText."
        yield Finding(("userPromptText",), message)

    is_told = raw.get("systemPromptFile") or raw.get("systemPromptText")
    if raw.get("conversational") is not None and not is_told:
        message = "A conversational sentinel needs a systemPromptFile or a systemPromptText."
        yield Finding(("conversational",), message)


def _of_exclusions(raw: dict[str, Any]) -> Iterator[Finding]:
    if raw.get("structuredOutput") is None:
        return

    if raw.get("joinString") is not None:
        yield Finding(("joinString",), "'joinString' is for texts, not for structured output.")

    output = raw.get("output")
    if isinstance(output, dict) and output.get("format") is not None:
        yield Finding(("output", "format"), "'format' is for texts, not for structured output.")


# --- triggers ---------------------------------------------------------------------------------


def _of_trigger(trigger: EventTrigger | SequenceTrigger) -> Iterator[Finding]:
    match trigger:
        case EventTrigger(on=on, conditions=conditions):
            yield from _of_types(on, ("trigger", "on"))
            yield from _of_conditions(conditions, on, ("trigger", "conditions"))
        case SequenceTrigger():
            yield from _of_sequence(trigger)
        case other:
            assert_never(other)


def _of_sequence(trigger: SequenceTrigger) -> Iterator[Finding]:
    interest = trigger.interest_filter.on
    yield from _of_types(interest, ("trigger", "interestFilter", "on"))
    if len(trigger.pattern) > HISTORY_LIMIT:
        message = f"A pattern reaches back {HISTORY_LIMIT} events at most."
        yield Finding(("trigger", "pattern"), message)

    for index, step in enumerate(trigger.pattern):
        path = ("trigger", "pattern", index)
        yield from _of_types((step.type,), (*path, "type"))
        yield from _of_conditions(step.conditions, (step.type,), (*path, "conditions"))
        if EVERY not in (*interest, step.type) and step.type not in interest:
            message = f"{step.type!r} is not in the interestFilter: the pattern can never match."
            yield Finding((*path, "type"), message)


def _of_types(types: Sequence[str], path: JsonPath) -> Iterator[Finding]:
    for name in types:
        if name == EVERY or name in ROUTED:
            continue

        if name in EVENTS.members:
            yield Finding(path, f"{name!r} is not shown to sentinels.")
        else:
            hint = did_you_mean(name, sorted(ROUTED))
            yield Finding(path, f"There is no event {name!r}.", hint)


def _of_conditions(
    conditions: Sequence[Condition], types: Sequence[str], path: JsonPath
) -> Iterator[Finding]:
    for index, condition in enumerate(conditions):
        fault = fault_of_value(condition)
        if fault is not None:
            yield Finding((*path, index, "value"), fault)

        known = [name for name in types if name in ROUTED]
        is_known = EVERY in types or not known
        if not is_known and not any(has_path(name, condition.path) for name in known):
            message = f"No {' or '.join(known)} has a field {condition.path!r} in its data."
            yield Finding((*path, index, "path"), message)


# --- answers ----------------------------------------------------------------------------------


def _of_structured(structured: StructuredOutput) -> Iterator[Finding]:
    given = [
        name
        for name, value in zip(
            _SCHEMAS,
            (
                structured.schema_str,
                structured.schema_file,
                structured.json_schema,
                structured.json_schema_file,
            ),
            strict=True,
        )
        if value is not None
    ]
    path = ("structuredOutput",)
    if structured.output == "enum":
        if given or not structured.enum_values:
            yield Finding(path, "With 'output': 'enum' give 'enumValues', and no schema.")
    elif len(given) != 1 or structured.enum_values is not None:
        yield Finding(path, f"Give exactly one of {', '.join(_SCHEMAS)}.")


def _of_places(
    log: str | None,
    last: str | None,
    raw: dict[str, Any],
    path: JsonPath,
    *,
    log_key: str = "file",
) -> Iterator[Finding]:
    is_structured = raw.get("structuredOutput") is not None
    for key, place, endings in (
        (log_key, log, (".ndjson", ".jsonl")),
        ("lastValueFile", last, (".json",)),
    ):
        if place is None:
            continue

        fault = references.fault_of_target(place)
        if fault is not None or place.endswith("/"):
            yield Finding((*path, key), fault or f"{place!r} is a folder.")
        elif is_structured and not place.endswith(endings):
            message = f"The file of structured output ends in {' or '.join(endings)}."
            yield Finding((*path, key), message)
