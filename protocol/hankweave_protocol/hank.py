"""The shapes of hank.json: what a hank's author writes.

Field names, defaults and ranges are Hankweave's, so that its hanks load unchanged; `agent` is ours.
These shapes are strict: an unknown key is an error. Whether the references hold (prompts, rigs,
unique ids) is for the loader, which reports all faults at once.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hankweave_protocol.shapes import Value

CodonName = Annotated[str, Meta(min_length=1, pattern=r"^(?!\.{1,2}$)[^\s/\\#\x00]+$(?!\n)")]
"""Part of file names and coordinates: no `/`, no `#`, no space; and neither `.` nor `..`."""
Dollars = Annotated[float, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
PositiveInt = Annotated[int, Meta(ge=1)]
IdleSeconds = Annotated[int, Meta(ge=1, le=1800)]
Texts = str | tuple[str, ...]


class HankValue(Value, forbid_unknown_fields=True):
    """A value of hank.json; an unknown key is a mistake of its author."""


class CopySpec(HankValue):
    source: str = msgspec.field(name="from")
    """POSIX path below the hank's directory."""
    to: str
    """POSIX path below agentRoot; an existing target is replaced."""


class RigCopy(HankValue, tag_field="type", tag="copy"):
    """Copies a file or tree of the hank into the work tree before the agent starts."""

    copy: CopySpec
    allow_failure: bool = False
    archive_on_success: bool = False
    """Moves the copied target to rigArchive after success (seed 001, rigArchive)."""


class CommandSpec(HankValue):
    run: str
    """A shell command line."""
    working_directory: Literal["project", "lastCopied"] = "project"
    timeout_seconds: Seconds | None = None


class RigCommand(HankValue, tag_field="type", tag="command"):
    """Runs a shell command in the work tree before the agent starts."""

    command: CommandSpec
    allow_failure: bool = False


RigItem = RigCopy | RigCommand


class OutputFiles(HankValue):
    copy: Annotated[tuple[str, ...], Meta(min_length=1)]
    before_copy: tuple[RigCommand, ...] = ()


class RetryConfig(HankValue):
    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 3
    delay_ms: Annotated[int, Meta(ge=0, le=60_000)] = 1000
    max_delay_ms: Annotated[int, Meta(ge=0, le=600_000)] = 60_000


class CodonBudget(HankValue):
    max_dollars: Dollars | None = None
    max_time_seconds: Seconds | None = None
    max_output_tokens: PositiveInt | None = None
    max_context_tokens: PositiveInt | None = None
    on_exceeded: Literal["complete", "fail"] = "complete"


class ContainerBudget(HankValue):
    max_dollars: Dollars | None = None
    max_time_seconds: Seconds | None = None
    allocation: Literal["shared", "proportional", "proportional-strict"] = "shared"
    shares: dict[str, Annotated[float, Meta(gt=0, le=1)]] | None = None
    on_exceeded: Literal["complete", "fail"] = "complete"


class SentinelSettings(HankValue):
    fail_codon_if_not_loaded: bool = False
    output_paths: dict[str, str] | None = None
    report_to_websocket: dict[str, bool] | None = None


class SentinelEntry(HankValue):
    sentinel_config: str | dict[str, object]
    settings: SentinelSettings | None = None


class ScriptedAgentSpec(HankValue, tag_field="type", tag="scripted"):
    """The deterministic agent that is built in: for demonstrations and tests."""

    script: str | None = None
    """Path of a JSON script below the hank's directory; absent: the prompt is the script."""


class CommandAgentSpec(HankValue, tag_field="type", tag="command"):
    """Any program; it gets the prompt on stdin and works in the work tree."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)]


class ClaudeAgentSpec(HankValue, tag_field="type", tag="claude"):
    """The `claude` program, driven over its stream-json protocol."""


AgentSpec = ScriptedAgentSpec | CommandAgentSpec | ClaudeAgentSpec


class Codon(HankValue, tag_field="type", tag="codon"):
    """One step of the pipeline, done by one agent."""

    id: CodonName
    name: str
    model: str
    continuation_mode: Literal["fresh", "continue-previous"]
    description: str | None = None
    prompt_file: Texts | None = None
    prompt_text: str | None = None
    append_system_prompt_file: Texts | None = None
    append_system_prompt_text: str | None = None
    rig_setup: tuple[RigItem, ...] = ()
    checkpointed_files: tuple[str, ...] = ()
    tracked_files: tuple[str, ...] = ()
    """The seeds' name of `checkpointedFiles`; both are accepted and mean the same (DESIGN 7)."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    output_files: tuple[OutputFiles, ...] = ()
    sentinels: tuple[SentinelEntry, ...] = ()
    archive_on_success: tuple[str, ...] = ()
    on_failure: Literal["abort", "retry", "ignore"] = "abort"
    retry_config: RetryConfig | None = None
    exhaust_with_prompt: str | None = None
    max_extensions: PositiveInt = 100
    auto_compact: bool = False
    shim_idle_timeout: IdleSeconds | None = None
    budget: CodonBudget | None = None
    agent: AgentSpec | None = None
    """Who does this step; absent: the agent named on the command line, else `claude`."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """What this codon adds to the tracked files."""
        return self.tracked_files + self.checkpointed_files


class IterationLimit(HankValue, tag_field="type", tag="iterationLimit"):
    limit: PositiveInt


class ContextExceededEnd(HankValue, tag_field="type", tag="contextExceeded"):
    """Ends the loop when an agent's context is full."""


class Loop(HankValue, tag_field="type", tag="loop"):
    """Codons that run again and again, one iteration at a time."""

    id: CodonName
    name: str
    terminate_on: IterationLimit | ContextExceededEnd
    codons: Annotated[tuple[Codon, ...], Meta(min_length=1)]
    description: str | None = None
    budget: ContainerBudget | None = None
    archive_on_success: tuple[str, ...] = ()


class HankMeta(HankValue):
    name: str
    version: str
    description: str | None = None
    author: str | None = None


class SentinelOverrides(HankValue):
    enable_persistence: bool | None = None
    health_check_grace_period_ms: int | None = None
    wait_for_all_health_checks: bool | None = None


class Overrides(HankValue):
    model: str | None = None
    data_hash_time_limit: PositiveInt | None = None
    sentinel: SentinelOverrides | None = None
    shim_idle_timeout: IdleSeconds | None = None
    budget: ContainerBudget | None = None


class Requirements(HankValue):
    env: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class Hank(HankValue):
    """A whole hank.json."""

    hank: Annotated[tuple[Codon | Loop, ...], Meta(min_length=1)]
    schema: str | None = msgspec.field(name="$schema", default=None)
    meta: HankMeta | None = None
    overrides: Overrides | None = None
    requirements: Requirements | None = None
    global_system_prompt_file: Texts | None = None
    global_system_prompt_text: str | None = None
