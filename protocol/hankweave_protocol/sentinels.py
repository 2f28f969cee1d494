"""The shapes of a sentinel's configuration: a file that a hank names, or an object in the hank.

Field names, ranges and defaults are Hankweave's, so that its sentinels load unchanged; `jsonSchema`
and `jsonSchemaFile` are extensions. The sentinel itself is strict, its values are open: their
unknown keys are dropped with a warning. The loader checks what a shape cannot express (event types,
paths of conditions, fields that exclude each other).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hankweave_protocol.hank import HankValue, OpenHankValue, PositiveInt, SentinelReports, Texts

Text = Annotated[str, Meta(min_length=1)]
Operator = Literal[
    "equals",
    "notEquals",
    "in",
    "notIn",
    "contains",
    "matches",
    "greaterThan",
    "lessThan",
]

LONGEST_DEBOUNCE_MS = 300_000
LONGEST_WINDOW_MS = 3_600_000


class Condition(OpenHankValue):
    """A condition on an event's data."""

    operator: Operator
    path: Text
    """A dotted path in the event's `data`; a number is an index."""
    value: object


class EventTrigger(OpenHankValue, tag_field="type", tag="event"):
    """A trigger that fires at every event of these types for which all conditions hold."""

    on: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Event types, or `*`."""
    conditions: tuple[Condition, ...] = ()


class InterestFilter(OpenHankValue):
    on: Annotated[tuple[str, ...], Meta(min_length=1)]


class PatternStep(OpenHankValue):
    type: str
    conditions: tuple[Condition, ...] = ()


class SequenceOptions(OpenHankValue):
    consecutive: bool = True
    """If false, other events of the filter may occur between the steps."""


class SequenceTrigger(OpenHankValue, tag_field="type", tag="sequence"):
    """A trigger that fires when events have occurred in the order of the pattern."""

    interest_filter: InterestFilter
    pattern: Annotated[tuple[PatternStep, ...], Meta(min_length=1)]
    options: SequenceOptions | None = None


class ImmediateExecution(OpenHankValue, tag_field="strategy", tag="immediate"):
    """One call for each firing."""


class DebounceExecution(OpenHankValue, tag_field="strategy", tag="debounce"):
    """One call after a period without firings."""

    milliseconds: Annotated[int, Meta(ge=1, le=LONGEST_DEBOUNCE_MS)]


class CountExecution(OpenHankValue, tag_field="strategy", tag="count"):
    """One call for every N firings."""

    threshold: Annotated[int, Meta(ge=1, le=1000)]


class TimeWindowExecution(OpenHankValue, tag_field="strategy", tag="timeWindow"):
    """One call at the end of each window with a firing."""

    milliseconds: Annotated[int, Meta(ge=1, le=LONGEST_WINDOW_MS)]


class MaxTurns(OpenHankValue, tag_field="type", tag="maxTurns"):
    """A limit to the newest turns; a question and its answer are one turn."""

    max_turns: Annotated[int, Meta(ge=1, le=100)]


class MaxTokens(OpenHankValue, tag_field="type", tag="maxTokens"):
    max_tokens: Annotated[int, Meta(ge=1, le=100_000)]


class Conversational(OpenHankValue):
    """The conversation of a sentinel that remembers earlier turns."""

    trimming_strategy: MaxTurns | MaxTokens
    continue_on_error: bool = False
    """If false, a failed call ends the conversation and the sentinel."""


class ErrorHandling(OpenHankValue):
    max_consecutive_failures: PositiveInt = 3
    unload_on_fatal_error: bool = True


class LlmParams(OpenHankValue):
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """Sent only if set, because some models refuse it."""
    max_output_tokens: PositiveInt = 8192
    max_retries: Annotated[int, Meta(ge=0, le=10)] = 2


class StructuredOutput(OpenHankValue):
    """An answer in JSON: according to one of the four schemas, or one of `enumValues`."""

    output: Literal["object", "array", "enum"]
    schema_str: str | None = None
    """A JavaScript expression for a zod schema; evaluated in isolation, in QuickJS."""
    schema_file: str | None = None
    """The path of such an expression, or of a module that exports a schema."""
    json_schema: dict[str, object] | None = None
    """Not in Hankweave: the schema of the object, or of one element of the array."""
    json_schema_file: str | None = None
    enum_values: tuple[str, ...] | None = None
    schema_name: str | None = None
    schema_description: str | None = None


class SentinelOutputPlace(OpenHankValue):
    format: Literal["text", "jsonl"] | None = None
    file: str | None = None
    """A name in the sentinel's own folder; with a slash, a path in the work tree."""
    last_value_file: str | None = None


class SentinelConfig(HankValue):
    """The configuration of a sentinel."""

    id: Text
    name: Text
    model: Text
    trigger: EventTrigger | SequenceTrigger
    execution: ImmediateExecution | DebounceExecution | CountExecution | TimeWindowExecution
    schema: str | None = msgspec.field(name="$schema", default=None)
    description: str | None = None
    system_prompt_file: Texts | None = None
    system_prompt_text: str | None = None
    user_prompt_file: Texts | None = None
    user_prompt_text: str | None = None
    template_engine: Literal["eta", "jinja"] | None = None
    """Not in Hankweave: the template language of the prompts. By default, jinja for files that end
    in `.j2`, `.jinja` or `.jinja2`, otherwise Eta as in Hankweave."""
    conversational: Conversational | None = None
    error_handling: ErrorHandling = ErrorHandling()
    llm_params: LlmParams = LlmParams()
    structured_output: StructuredOutput | None = None
    join_string: str | None = None
    """Precedes each text in the log; `\\n`, `\\t`, `\\r` and `\\\\` are escapes."""
    report_to_websocket: SentinelReports | None = None
    output: SentinelOutputPlace | None = None
