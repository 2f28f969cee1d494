"""The shapes of hank.json: what a hank's author writes.

Field names, defaults and ranges are Hankweave's, so that its hanks load unchanged; `agent` is ours.
Shapes are strict or open where Hankweave's are: an unknown key of a strict one is an error, of an
open one it is dropped and the loader warns. Whether the references hold (prompts, rigs, unique ids)
is for the loader, which reports all faults at once.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hankweave_protocol.shapes import Value

CodonName = Annotated[str, Meta(min_length=1, pattern=r"^(?!\.{1,2}$)[^\s/\\#\x00]+$(?!\n)")]
"""Part of file names and coordinates: no `/`, no `#`, no space; and neither `.` nor `..`."""
Dollars = Annotated[float, Meta(ge=0)]
"""Zero is refused when a hank is loaded, but plans of earlier versions on record may have it."""

Seconds = Annotated[float, Meta(gt=0)]
PositiveInt = Annotated[int, Meta(ge=1)]
IdleSeconds = Annotated[int, Meta(ge=1, le=1800)]
PatienceSeconds = Annotated[float, Meta(gt=0, le=604_800)]
"""Up to a week."""
Texts = str | tuple[str, ...]
KeyName = Annotated[str, Meta(pattern=r"^(?!HANKWEAVE_)[A-Za-z][A-Za-z0-9_]*$(?!\n)")]
"""A name, or a beginning of names, of environment variables; none of the server's own."""
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)")]


class HankValue(Value, forbid_unknown_fields=True):
    """A value of hank.json; an unknown key is a mistake of its author."""


class OpenHankValue(Value):
    """A value of hank.json whose unknown keys are dropped with a warning, as Hankweave drops them.

    Hankweave's schemas are strict for the root, codons, loops, budgets, `overrides`, `outputFiles`
    and sentinels; everything else ignores what it does not know.
    """


class CopySpec(OpenHankValue):
    """What is copied where."""

    source: str = msgspec.field(name="from")
    """POSIX path below the hank's directory."""
    to: str
    """POSIX path below agentRoot; an existing target is replaced."""


class RigCopy(OpenHankValue, tag_field="type", tag="copy"):
    """Copies a file or tree of the hank into the work tree before the agent starts."""

    copy: CopySpec
    allow_failure: bool = False
    """True: a failure is told and passed over."""
    archive_on_success: bool = False
    """Moves the copied target to rigArchive after success (seed 001, rigArchive)."""


class CommandSpec(OpenHankValue):
    """A command of a shell."""

    run: str
    """A shell command line."""
    working_directory: Literal["project", "lastCopied"] = "project"
    """`project` is the work tree, `lastCopied` what the rig copied last."""
    timeout_seconds: Seconds | None = None
    """The command and all it started are ended after so long."""


class RigCommand(OpenHankValue, tag_field="type", tag="command"):
    """Runs a shell command in the work tree before the agent starts."""

    command: CommandSpec
    allow_failure: bool = False
    """True: a failure is told and passed over."""


RigItem = RigCopy | RigCommand


class OutputFiles(HankValue):
    """What a codon hands out once it has succeeded."""

    copy: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Paths or globs below agentRoot."""
    before_copy: tuple[RigCommand, ...] = ()
    """Commands that run in the work tree first."""


class RetryConfig(OpenHankValue):
    """How often and when a codon that failed is tried again."""

    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 3
    """All of them, the first included."""
    delay_ms: Annotated[int, Meta(ge=0, le=60_000)] = 1000
    """Before the second attempt; twice as long before each further one."""
    max_delay_ms: Annotated[int, Meta(ge=0, le=600_000)] = 60_000
    """The longest wait, whatever a provider asks for."""


class CodonBudget(HankValue):
    """What one execution of a codon may use."""

    max_dollars: Dollars | None = None
    """US dollars."""
    max_time_seconds: Seconds | None = None
    """Seconds from the agent's start."""
    max_output_tokens: PositiveInt | None = None
    max_context_tokens: PositiveInt | None = None
    """The fullest its context may become: input and output of one turn."""
    on_exceeded: Literal["complete", "fail"] = "complete"
    """Whether a codon that is stopped by its budget is completed or failed."""


class ContainerBudget(HankValue):
    """What a whole hank, or all iterations of a loop, may use."""

    max_dollars: Dollars | None = None
    """US dollars."""
    max_time_seconds: Seconds | None = None
    """Seconds of work, for all codons together."""
    allocation: Literal["shared", "proportional", "proportional-strict"] = "shared"
    """`shared`: each may use all that is left. `proportional`: each its share, and what others
    left over. `proportional-strict`: each its share."""
    shares: dict[str, Annotated[float, Meta(gt=0, le=1)]] | None = None
    """Parts of `maxDollars` by the id of a codon or loop; what they leave is split evenly."""
    on_exceeded: Literal["complete", "fail"] = "complete"
    """Whether a codon that is stopped by this budget is completed or failed."""


class SentinelOutputPaths(OpenHankValue):
    """Where a sentinel writes; a name without `/` lies in its own folder, else in agentRoot."""

    log_file: str | None = None
    last_value_file: str | None = None


class SentinelReports(OpenHankValue):
    """Which of a sentinel's events clients are told; what is not said, the sentinel decides."""

    lifecycle: bool | None = None
    errors: bool | None = None
    outputs: bool | None = None
    triggers: bool | None = None


class SentinelSettings(OpenHankValue):
    """What a codon settles about a sentinel."""

    fail_codon_if_not_loaded: bool = False
    """True: without this sentinel the codon does not start."""
    output_paths: SentinelOutputPaths | None = None
    report_to_websocket: SentinelReports | None = None


class SentinelEntry(OpenHankValue):
    """What watches a codon."""

    sentinel_config: str | dict[str, object]
    """A sentinel, or the path of its file below the hank's directory."""
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

    permission_mode: Literal["default", "acceptEdits", "bypassPermissions", "plan"] = (
        "bypassPermissions"
    )
    """What it may do without asking, in its own words: everything, as in Hankweave, unless the hank
    says otherwise. `permissions` of the codon take precedence."""


class CodexAgentSpec(HankValue, tag_field="type", tag="codex"):
    """The `codex` program, driven by `codex exec --json`."""

    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = "danger-full-access"
    """What its commands can reach, in its own words: everything, unless the hank says otherwise."""
    config: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings of its config.toml, each a TOML value, such as `model_reasoning_effort`."""


class AcpAgentSpec(HankValue, tag_field="type", tag="acp"):
    """Any program that speaks the Agent Client Protocol on its stdin and stdout."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Such as `["opencode", "acp"]` or `["gemini", "--acp"]`."""
    mode: str | None = None
    """The session mode to work in, by the id that the agent gives it; absent: its own choice."""
    keys: tuple[KeyName, ...] | None = None
    """Variables of the server's environment that it gets: names, or beginnings that end in `_`,
    such as `MISTRAL_`. Absent: those that a known agent needs, for any other none."""


AgentSpec = ScriptedAgentSpec | CommandAgentSpec | ClaudeAgentSpec | CodexAgentSpec | AcpAgentSpec


class Check(HankValue):
    """A shell command in the work tree that says by its exit code whether a codon did its work."""

    run: str
    """A shell command line; 0 is a pass."""
    timeout_seconds: Seconds = 120.0
    """The command and all it started are ended after so long; that is a failed check."""
    allow_failure: bool = False
    """True: a failed check is told and passed over."""


class Permissions(HankValue):
    """What an agent may do: asked before each call of a tool that changes something. Deny wins."""

    allow: tuple[str, ...] = ()
    """Patterns of calls that are allowed: `Bash(git *)`, `Write(src/**)`, `mcp__server__*`."""
    deny: tuple[str, ...] = ()
    """Patterns of calls that are not, whatever `allow` says."""
    otherwise: Literal["ask", "allow", "deny"] = "ask"
    """What becomes of a call that no pattern fits; `ask`: a client says."""
    timeout_seconds: PatienceSeconds = 300.0
    """How long a client has to answer."""
    on_timeout: Literal["deny", "allow"] = "deny"
    """What becomes of a call that nobody answers."""


class Codon(HankValue, tag_field="type", tag="codon"):
    """One step of the pipeline, done by one agent."""

    id: CodonName
    """Names it in coordinates and files; no other codon of the hank has it."""
    name: str
    """For people."""
    model: str
    """What the agent is told to use, such as `sonnet`, `gpt-5.4`, `google/gemini-3-pro-preview`;
    it selects the agent where none is named."""
    continuation_mode: Literal["fresh", "continue-previous"]
    """Whether the agent begins anew or goes on in the session of the codon before."""
    description: str | None = None
    prompt_file: Texts | None = None
    """Paths below the hank's directory; several are joined with a blank line. Wins over
    `promptText`."""
    prompt_text: str | None = None
    append_system_prompt_file: Texts | None = None
    """Paths of what is added to the system prompt; excludes `appendSystemPromptText`."""
    append_system_prompt_text: str | None = None
    rig_setup: tuple[RigItem, ...] = ()
    """What is done in the work tree before the agent starts, in this order."""
    checkpointed_files: tuple[str, ...] = ()
    """Hankweave's name of `trackedFiles`; both are accepted and mean the same."""
    tracked_files: tuple[str, ...] = ()
    """Patterns as in a .gitignore, of the files that checkpoints hold from this codon on."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Environment variables of the agent and of the rig's commands."""
    output_files: tuple[OutputFiles, ...] = ()
    """What is copied to the output directory, where one is configured."""
    sentinels: tuple[SentinelEntry, ...] = ()
    archive_on_success: tuple[str, ...] = ()
    """Paths or globs below agentRoot that are moved to rigArchive after success."""
    on_failure: Literal["abort", "retry", "ignore"] = "abort"
    """What follows a failure: the run ends, the codon is tried again, or the next one starts."""
    retry_config: RetryConfig | None = None
    """Only with `onFailure` `retry`."""
    exhaust_with_prompt: str | None = None
    """Said after each success, in the same session, until its context is full."""
    max_extensions: PositiveInt = 100
    """How often `exhaustWithPrompt` is said at most."""
    auto_compact: bool = False
    """True: an agent whose context is full may compact it and go on."""
    shim_idle_timeout: IdleSeconds | None = None
    """Seconds without a word of the agent after which it has failed."""
    budget: CodonBudget | None = None
    agent: AgentSpec | None = None
    """Who does this step; absent: the agent that runs its model. `--agent` wins."""
    timeout_seconds: Seconds | None = None
    """How long its agent may work on one prompt; then the codon has failed."""
    condition: str | None = None
    """An expression over the hank's variables; where it does not hold the codon is skipped."""
    checks: tuple[Check, ...] = ()
    """Run after the agent's success, in this order; the first that fails fails the codon."""
    output_var: VariableName | None = None
    """The variable that takes the agent's last answer, for the codons that follow."""
    checkpoint_label: str | None = None
    """What the checkpoint of its success is labelled with."""
    permissions: Permissions | None = None
    """What its agent may do; wins as a whole over those of `overrides`. Absent: what the agent's
    own mode lets it do."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """What this codon adds to the tracked files."""
        return self.tracked_files + self.checkpointed_files


class IterationLimit(OpenHankValue, tag_field="type", tag="iterationLimit"):
    """Ends the loop after so many iterations."""

    limit: PositiveInt


class ContextExceededEnd(OpenHankValue, tag_field="type", tag="contextExceeded"):
    """Ends the loop when an agent's context is full."""


class Loop(HankValue, tag_field="type", tag="loop"):
    """Codons that run again and again, one iteration at a time."""

    id: CodonName
    name: str
    terminate_on: IterationLimit | ContextExceededEnd
    codons: Annotated[tuple[Codon, ...], Meta(min_length=1)]
    """What one iteration does; a loop holds no loop."""
    description: str | None = None
    budget: ContainerBudget | None = None
    """For all iterations together."""
    archive_on_success: tuple[str, ...] = ()
    """Paths or globs below agentRoot that are moved to rigArchive when the loop has ended."""


class HankMeta(OpenHankValue):
    """What the hank says of itself."""

    name: str
    version: str
    description: str | None = None
    author: str | None = None


class SentinelOverrides(HankValue):
    """How the server treats sentinels while this hank runs."""

    enable_persistence: bool | None = None
    health_check_grace_period_ms: int | None = None
    wait_for_all_health_checks: bool | None = None


class AgentTools(HankValue):
    """What agents are given by `hankweave mcp`: tools for checkpoints of their own work."""

    enabled: bool = True
    """False: they are offered nothing, and who connects all the same is refused."""
    rollback_paths: bool = False
    """True: an agent may take files back to a checkpoint, by its own decision."""


class Overrides(HankValue):
    """Settings for the whole hank."""

    model: str | None = None
    """The model of every codon, whatever the codon says."""
    data_hash_time_limit: PositiveInt | None = None
    """Hankweave's, in milliseconds; taken as it is."""
    sentinel: SentinelOverrides | None = None
    shim_idle_timeout: IdleSeconds | None = None
    """The idle timeout of codons that have none of their own, in seconds."""
    budget: ContainerBudget | None = None
    checkpoint_every_steps: Annotated[int, Meta(ge=1, le=50)] | None = None
    """Ours: a checkpoint after every so many steps of an agent (seed 003, `every_n_steps`)."""
    checkpoint_repository: Literal["shadow", "workspace"] = "shadow"
    """Ours: `workspace` makes labelled checkpoints commits of the project's own branch, too."""
    permissions: Permissions | None = None
    """Ours: what the agents of codons may do that have no permissions of their own."""
    agent_tools: AgentTools = AgentTools()
    """Ours: which tools for checkpoints agents are given."""


class Requirements(OpenHankValue):
    """What must be there before the hank runs."""

    env: tuple[str, ...] = ()
    """Environment variables; `HANKWEAVE_X` satisfies `X`."""
    tools: tuple[str, ...] = ()
    """Programs on the PATH, by their bare names."""


class Hank(HankValue):
    """A whole hank.json."""

    hank: Annotated[tuple[Codon | Loop, ...], Meta(min_length=1)]
    """The codons and loops, in the order in which they run."""
    schema: str | None = msgspec.field(name="$schema", default=None)
    """For editors; it does not count in the hank's hash."""
    meta: HankMeta | None = None
    overrides: Overrides | None = None
    requirements: Requirements | None = None
    """Checked before the hank runs."""
    global_system_prompt_file: Texts | None = None
    """Paths of what begins the system prompt of every codon; excludes `globalSystemPromptText`."""
    global_system_prompt_text: str | None = None
    variables: dict[VariableName, str] = msgspec.field(default_factory=dict)
    """Stand for `{{name}}` in prompts, and in conditions; `outputVar` adds to them."""
