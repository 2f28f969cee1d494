"""The names of OpenTelemetry's semantic conventions for generative AI, and ours beside them.

They are in development, and names still change between versions. All names that are exported stand
here, so that a later version of the conventions changes this module alone.

Source: https://github.com/open-telemetry/semantic-conventions-genai, `VERSION`. In this version a
workflow is an agent invocation whose operation is `invoke_workflow`: its name is
`gen_ai.agent.name`, and its duration is recorded in `gen_ai.invoke_agent.duration`.

Names that begin with `hankweave.` are ours. Cost has no name in the conventions. Their metrics of
tokens count single requests, and are for the program that makes them: an agent may export them
itself. Ours count what codons have used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

VERSION: Final = "0.1.0"

# --- spans --------------------------------------------------------------------------------------

INVOKE_WORKFLOW: Final = "invoke_workflow"
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"

OPERATION: Final = "gen_ai.operation.name"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
MODEL: Final = "gen_ai.request.model"
PROVIDER: Final = "gen_ai.provider.name"
"""As far as the model's name or the agent tells it."""
PROVIDERS: Final = {
    "amazon-bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "google": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""Their names in the conventions, where they differ from those that models have."""
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
"""All of them, cached ones included."""
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
TOOL: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
FUNCTION: Final = "function"
"""The type of a tool that runs where the agent does, not at its provider."""
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
"""Content: exported on request."""
TOOL_RESULT: Final = "gen_ai.tool.call.result"
"""Content: exported on request."""
ERROR: Final = "error.type"

OURS: Final = "hankweave."
RUN: Final = "hankweave.run.id"
RUN_STATUS: Final = "hankweave.run.status"
CODON: Final = "hankweave.codon.id"
"""With the iteration of its loop; `AGENT` is without, so that it has few values."""
CODON_STATUS: Final = "hankweave.codon.status"
ATTEMPT: Final = "hankweave.codon.attempt"
WAITED: Final = "hankweave.codon.waited"
"""Seconds spent waiting for the end of limits."""
COST: Final = "hankweave.cost"
"""USD, those of sentinels included."""
CHECKPOINTS: Final = "hankweave.checkpoints"
"""The number of checkpoints of a codon."""
EXTERNAL: Final = "hankweave.tool.external"
"""True if a call has effects outside the work tree, which no rollback undoes."""
CALLS_LEFT_OUT: Final = "hankweave.tool_calls.left_out"
"""The number of tool calls of a codon that have no span, because too many came at once."""
LEFT_OUT: Final = "hankweave.events.left_out"
"""The number of events that a span has no room for."""
LINK: Final = "hankweave.link"
"""Why a run is linked to another one: `rollback`, `retry`, `continue`, `branch` or `previous`."""
BEFORE: Final = "hankweave.seconds_before"
"""How long before its span an event happened: a server starts before its run, for example."""

# --- metrics ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric."""

    name: str
    unit: str
    description: str
    boundaries: tuple[float, ...] = ()
    """The upper bounds of the buckets of a histogram; a counter has none."""


def _doubling(first: float, count: int) -> tuple[float, ...]:
    return tuple(round(first * 2**power, 6) for power in range(count))


INVOKE_DURATION: Final = Instrument(
    "gen_ai.invoke_agent.duration",
    "s",
    "Duration of a run or of an attempt of a codon.",
    # The conventions end at 409.6 s; codons work for hours.
    _doubling(0.1, 19),
)
TOOL_DURATION: Final = Instrument(
    "gen_ai.execute_tool.duration",
    "s",
    "Duration of a tool call.",
    _doubling(0.01, 14),
)
_CALLS = (1, 2, 4, 8, 16, 32, 64, 128)
INFERENCE_CALLS: Final = Instrument(
    "gen_ai.invoke_agent.inference_calls",
    "{inference_call}",
    "Messages of the model in an attempt of a codon.",
    _CALLS,
)
TOOL_CALLS: Final = Instrument(
    "gen_ai.invoke_agent.tool_calls",
    "{tool_call}",
    "Tool calls in an attempt of a codon.",
    _CALLS,
)
TOKENS: Final = Instrument("hankweave.tokens", "{token}", "Tokens that ended codons have used.")
DOLLARS: Final = Instrument("hankweave.cost", "USD", "Cost of codons and sentinels.")
INSTRUMENTS: Final = (
    INVOKE_DURATION,
    TOOL_DURATION,
    INFERENCE_CALLS,
    TOOL_CALLS,
    TOKENS,
    DOLLARS,
)

TOKEN_TYPE: Final = "hankweave.token.type"
"""`input` (not cached), `output`, `cache_read` or `cache_write`."""
COST_SOURCE: Final = "hankweave.cost.source"
"""`agent` or `sentinel`."""
