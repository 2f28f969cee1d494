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
    """How the value at the path is compared.
    Example: "equals"
    """
    path: Text
    """A dotted path in the event's `data`; a number is an index.
    Example: "exitStatus.type"
    """
    value: object
    """The value to compare with.
    Example: "success"
    """


class EventTrigger(OpenHankValue, tag_field="type", tag="event"):
    """A trigger that fires at every event of these types for which all conditions hold."""

    on: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Event types, or `*`.
    Example: ["codon.completed"]"""
    conditions: tuple[Condition, ...] = ()
    """All of them must hold.
    Example: [{"operator": "equals", "path": "success", "value": false}]"""


class InterestFilter(OpenHankValue):
    """The events among which a sequence is searched."""

    on: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Event types, or `*`; the sequence is searched among these events.
    Example: ["tool.result"]"""


class PatternStep(OpenHankValue):
    """One step of a sequence."""

    type: str
    """The event type.
    Example: "tool.result"
    """
    conditions: tuple[Condition, ...] = ()
    """All of them must hold.
    Example: [{"operator": "equals", "path": "isError", "value": true}]"""


class SequenceOptions(OpenHankValue):
    """How strict the order of a sequence is."""

    consecutive: bool = True
    """If false, other events of the filter may occur between the steps.
    Example: false"""


class SequenceTrigger(OpenHankValue, tag_field="type", tag="sequence"):
    """A trigger that fires when events have occurred in the order of the pattern."""

    interest_filter: InterestFilter
    """The events among which the sequence is searched.
    Example: {"on": ["tool.result"]}"""
    pattern: Annotated[tuple[PatternStep, ...], Meta(min_length=1)]
    """The steps, in order.
    Example: [{"type": "tool.result"}, {"type": "tool.result"}]"""
    options: SequenceOptions | None = None
    """How strict the order is.
    Example: {"consecutive": false}"""


class ImmediateExecution(OpenHankValue, tag_field="strategy", tag="immediate"):
    """One call for each firing."""


class DebounceExecution(OpenHankValue, tag_field="strategy", tag="debounce"):
    """One call after a period without firings."""

    milliseconds: Annotated[int, Meta(ge=1, le=LONGEST_DEBOUNCE_MS)]
    """The length of the period.
    Example: 5000"""


class CountExecution(OpenHankValue, tag_field="strategy", tag="count"):
    """One call for every N firings."""

    threshold: Annotated[int, Meta(ge=1, le=1000)]
    """The number of firings.
    Example: 10"""


class TimeWindowExecution(OpenHankValue, tag_field="strategy", tag="timeWindow"):
    """One call at the end of each window with a firing."""

    milliseconds: Annotated[int, Meta(ge=1, le=LONGEST_WINDOW_MS)]
    """The length of the window.
    Example: 60000"""


class MaxTurns(OpenHankValue, tag_field="type", tag="maxTurns"):
    """A limit to the newest turns; a question and its answer are one turn."""

    max_turns: Annotated[int, Meta(ge=1, le=100)]
    """The number of turns that are kept.
    Example: 10"""


class MaxTokens(OpenHankValue, tag_field="type", tag="maxTokens"):
    """A limit to the tokens of the conversation."""

    max_tokens: Annotated[int, Meta(ge=1, le=100_000)]
    """The number of tokens that are kept.
    Example: 20000"""


class Conversational(OpenHankValue):
    """The conversation of a sentinel that remembers earlier turns."""

    trimming_strategy: MaxTurns | MaxTokens
    """How the conversation is kept short.
    Example: {"type": "maxTurns", "maxTurns": 10}"""
    continue_on_error: bool = False
    """If false, a failed call ends the conversation and the sentinel.
    Example: true"""


class ErrorHandling(OpenHankValue):
    """The consequences of a sentinel's failures."""

    max_consecutive_failures: PositiveInt = 3
    """After so many failures in a row the sentinel is unloaded.
    Example: 5"""
    unload_on_fatal_error: bool = True
    """Whether an error that a repetition cannot mend unloads it.
    Example: false"""


class LlmParams(OpenHankValue):
    """Parameters of the calls of a sentinel's model."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """Sent only if set, because some models refuse it.
    Example: 0.2"""
    max_output_tokens: PositiveInt = 8192
    """The longest answer.
    Example: 1024"""
    max_retries: Annotated[int, Meta(ge=0, le=10)] = 2
    """How many times a failed call is repeated.
    Example: 4"""


class StructuredOutput(OpenHankValue):
    """An answer in JSON: according to one of the four schemas, or one of `enumValues`."""

    output: Literal["object", "array", "enum"]
    """An object, a list of objects, or one of `enumValues`.
    Example: "object"
    """
    schema_str: str | None = None
    """A JavaScript expression for a zod schema; evaluated in isolation, in QuickJS.
    Example: "z.object({good: z.boolean()})"
    """
    schema_file: str | None = None
    """The path of such an expression, or of a module that exports a schema.
    Example: "schemas/verdict.js"
    """
    json_schema: dict[str, object] | None = None
    """Not in Hankweave: the schema of the object, or of one element of the array.
    Example: {"type": "object"}"""
    json_schema_file: str | None = None
    """Not in Hankweave: the path of such a schema.
    Example: "schemas/verdict.json"
    """
    enum_values: tuple[str, ...] | None = None
    """The possible answers.
    Example: ["good", "bad"]"""
    schema_name: str | None = None
    """The name of the schema that the model is told.
    Example: "verdict"
    """
    schema_description: str | None = None
    """The description of the schema that the model is told.
    Example: "Whether the work is good."
    """


class SentinelOutputPlace(OpenHankValue):
    """Where a sentinel writes its answers."""

    format: Literal["text", "jsonl"] | None = None
    """Whether the log is plain text, or has one JSON value on each line.
    Example: "jsonl"
    """
    file: str | None = None
    """A name in the sentinel's own folder; with a slash, a path in the work tree.
    Example: "narration.md"
    """
    last_value_file: str | None = None
    """The newest answer alone; a name or path as for `file`.
    Example: "notes/latest.md"
    """


class SentinelConfig(HankValue):
    """The configuration of a sentinel."""

    id: Text
    """Its name in events and files; unique in its codon.
    Example: "narrator"
    """
    name: Text
    """For people.
    Example: "Narrator"
    """
    model: Text
    """The model, as `provider/model`.
    Example: "anthropic/claude-haiku-4-5"
    """
    trigger: EventTrigger | SequenceTrigger
    """The events at which it is called.
    Example: {"type": "event", "on": ["codon.completed"]}"""
    execution: ImmediateExecution | DebounceExecution | CountExecution | TimeWindowExecution
    """How firings become calls of the model.
    Example: {"strategy": "immediate"}"""
    schema: str | None = msgspec.field(name="$schema", default=None)
    """For editors.
    Example: "sentinel.schema.json"
    """
    description: str | None = None
    """For people.
    Example: "Tells what happens."
    """
    system_prompt_file: Texts | None = None
    """Paths of its system prompt; excludes `systemPromptText`.
    Example: "prompts/narrator.md"
    """
    system_prompt_text: str | None = None
    """Its system prompt.
    Example: "You narrate a pipeline."
    """
    user_prompt_file: Texts | None = None
    """Paths of the prompt of each call, a template; excludes `userPromptText`.
    Example: "prompts/event.md"
    """
    user_prompt_text: str | None = None
    """The prompt of each call, a template.
    Example: "Say in one sentence what happened: <%= JSON.stringify(it.events) %>"
    """
    template_engine: Literal["eta", "jinja"] | None = None
    """Not in Hankweave: the template language of the prompts. By default, jinja for files that end
    in `.j2`, `.jinja` or `.jinja2`, otherwise Eta as in Hankweave.
    Example: "jinja"
    """
    conversational: Conversational | None = None
    """With it, the sentinel remembers earlier turns.
    Example: {"trimmingStrategy": {"type": "maxTurns", "maxTurns": 10}}"""
    error_handling: ErrorHandling = ErrorHandling()
    """What follows failures.
    Example: {"maxConsecutiveFailures": 5}"""
    llm_params: LlmParams = LlmParams()
    """Parameters of the calls.
    Example: {"maxOutputTokens": 1024}"""
    structured_output: StructuredOutput | None = None
    """With it, answers are JSON.
    Example: {"output": "enum", "enumValues": ["good", "bad"]}"""
    join_string: str | None = None
    """Precedes each text in the log; `\\n`, `\\t`, `\\r` and `\\\\` are escapes.
    Example: "\\\\n"
    """
    report_to_websocket: SentinelReports | None = None
    """Which of its events clients get.
    Example: {"outputs": true}"""
    output: SentinelOutputPlace | None = None
    """Where its answers are written.
    Example: {"format": "jsonl"}"""
