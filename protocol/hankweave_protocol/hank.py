"""The shapes of hank.json.

Field names, defaults and ranges are Hankweave's, so that its hanks load unchanged; `agent` is an
extension. Shapes are strict or open as in Hankweave: an unknown key is an error in a strict shape,
and dropped with a warning in an open one. The loader checks references (prompts, rigs, unique ids)
and reports all faults at once.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hankweave_protocol.shapes import Value

CodonName = Annotated[str, Meta(min_length=1, pattern=r"^(?!\.{1,2}$)[^\s/\\#\x00]+$(?!\n)")]
"""Used in file names and coordinates: no `/`, `#` or space, and neither `.` nor `..`."""
Dollars = Annotated[float, Meta(ge=0)]
"""Zero is refused when a hank is loaded, but recorded plans of earlier versions may have it."""

Seconds = Annotated[float, Meta(gt=0)]
PositiveInt = Annotated[int, Meta(ge=1)]
IdleSeconds = Annotated[int, Meta(ge=1, le=1800)]
WaitSeconds = Annotated[float, Meta(ge=0, le=31_536_000)]
PatienceSeconds = Annotated[float, Meta(gt=0, le=604_800)]
"""At most a week."""
Texts = str | tuple[str, ...]
KeyName = Annotated[str, Meta(pattern=r"^(?!HANKWEAVE_)[A-Za-z][A-Za-z0-9_]*$(?!\n)")]
"""A name or prefix of environment variables, except the server's own."""
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)")]


class HankValue(Value, forbid_unknown_fields=True):
    """A value of hank.json; an unknown key is an error."""


class OpenHankValue(Value):
    """A value of hank.json whose unknown keys are dropped with a warning, as in Hankweave.

    Hankweave's schemas are strict for the root, codons, loops, budgets, `overrides`, `outputFiles`
    and sentinels; everything else ignores unknown keys.
    """


class CopySpec(OpenHankValue):
    """The source and target of a copy."""

    source: str = msgspec.field(name="from")
    """POSIX path relative to the hank's directory."""
    to: str
    """POSIX path relative to agentRoot; an existing target is replaced."""


class RigCopy(OpenHankValue, tag_field="type", tag="copy"):
    """A copy of a file or folder of the hank into the work tree before the agent starts."""

    copy: CopySpec
    allow_failure: bool = False
    """If true, a failure is reported and ignored."""
    archive_on_success: bool = False
    """Move the copied target to rigArchive after success (seed 001, rigArchive)."""


class CommandSpec(OpenHankValue):
    """A shell command."""

    run: str
    """A shell command line."""
    working_directory: Literal["project", "lastCopied"] = "project"
    """`project` is the work tree, `lastCopied` the last target that the rig copied."""
    timeout_seconds: Seconds | None = None
    """The time after which the command and all its processes are terminated."""


class RigCommand(OpenHankValue, tag_field="type", tag="command"):
    """A shell command that runs in the work tree before the agent starts."""

    command: CommandSpec
    allow_failure: bool = False
    """If true, a failure is reported and ignored."""


RigItem = RigCopy | RigCommand


class OutputFiles(HankValue):
    """The files that a codon exports after its success."""

    copy: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Paths or globs relative to agentRoot."""
    before_copy: tuple[RigCommand, ...] = ()
    """Commands to run in the work tree first."""


class RetryConfig(OpenHankValue):
    """How often and when a failed codon is retried."""

    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 3
    """Including the first."""
    delay_ms: Annotated[int, Meta(ge=0, le=60_000)] = 1000
    """The delay before the second attempt; it doubles before each further one."""
    max_delay_ms: Annotated[int, Meta(ge=0, le=600_000)] = 60_000
    """The longest delay, even if a provider requests a longer one."""


class CodonBudget(HankValue):
    """The limits of one execution of a codon."""

    max_dollars: Dollars | None = None
    """US dollars."""
    max_time_seconds: Seconds | None = None
    """Seconds since the agent's start."""
    max_output_tokens: PositiveInt | None = None
    max_context_tokens: PositiveInt | None = None
    """The maximum size of its context: input and output of one turn."""
    on_exceeded: Literal["complete", "fail"] = "complete"
    """Whether a codon that is stopped by its budget ends as completed or failed."""


class ContainerBudget(HankValue):
    """The limits of a whole hank, or of all iterations of a loop."""

    max_dollars: Dollars | None = None
    """US dollars."""
    max_time_seconds: Seconds | None = None
    """Seconds of work, for all codons together."""
    allocation: Literal["shared", "proportional", "proportional-strict"] = "shared"
    """`shared`: each may use the whole remainder. `proportional`: each may use its share and what
    earlier ones left over. `proportional-strict`: each may use its share."""
    shares: dict[str, Annotated[float, Meta(gt=0, le=1)]] | None = None
    """Shares of `maxDollars` by the id of a codon or loop; the rest is split evenly."""
    on_exceeded: Literal["complete", "fail"] = "complete"
    """Whether a codon that is stopped by this budget ends as completed or failed."""


class SentinelOutputPaths(OpenHankValue):
    """The files of a sentinel; a name without `/` is in its own folder, a path in agentRoot."""

    log_file: str | None = None
    last_value_file: str | None = None


class SentinelReports(OpenHankValue):
    """The events of a sentinel that clients get; the sentinel decides about absent ones."""

    lifecycle: bool | None = None
    errors: bool | None = None
    outputs: bool | None = None
    triggers: bool | None = None


class SentinelSettings(OpenHankValue):
    """A codon's settings for a sentinel."""

    fail_codon_if_not_loaded: bool = False
    """If true, the codon does not start without this sentinel."""
    output_paths: SentinelOutputPaths | None = None
    report_to_websocket: SentinelReports | None = None


class SentinelEntry(OpenHankValue):
    """A sentinel of a codon."""

    sentinel_config: str | dict[str, object]
    """A configuration, or the path of its file relative to the hank's directory."""
    settings: SentinelSettings | None = None


class ScriptedAgentSpec(HankValue, tag_field="type", tag="scripted"):
    """The built-in deterministic agent, for demonstrations and tests."""

    script: str | None = None
    """Path of a JSON script in the hank's directory; by default, the prompt is the script."""


class CommandAgentSpec(HankValue, tag_field="type", tag="command"):
    """Any program; it gets the prompt on stdin and works in the work tree."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)]


class ClaudeAgentSpec(HankValue, tag_field="type", tag="claude"):
    """The `claude` program, driven over its stream-json protocol."""

    permission_mode: Literal["default", "acceptEdits", "bypassPermissions", "plan"] = (
        "bypassPermissions"
    )
    """The program's own setting for calls without permission; by default, as in Hankweave, all.
    `permissions` of the codon take precedence."""


class CodexAgentSpec(HankValue, tag_field="type", tag="codex"):
    """The `codex` program, driven by `codex exec --json`."""

    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = "danger-full-access"
    """The program's own setting for what its commands can access; by default, everything."""
    config: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings of its config.toml, such as `model_reasoning_effort`; values are in TOML."""


class AcpAgentSpec(HankValue, tag_field="type", tag="acp"):
    """Any program that speaks the Agent Client Protocol on its stdin and stdout."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    """For example `["opencode", "acp"]` or `["gemini", "--acp"]`."""
    mode: str | None = None
    """The agent's id of the session mode to use; by default, the agent chooses."""
    keys: tuple[KeyName, ...] | None = None
    """Variables of the server's environment to pass on: names, or prefixes that end in `_`, such as
    `MISTRAL_`. By default, those that a known agent needs, and none for other agents."""


AgentSpec = ScriptedAgentSpec | CommandAgentSpec | ClaudeAgentSpec | CodexAgentSpec | AcpAgentSpec


class Check(HankValue):
    """A shell command in the work tree whose exit code decides whether a codon succeeded."""

    run: str
    """A shell command line; exit code 0 means success."""
    timeout_seconds: Seconds = 120.0
    """The time after which the command is terminated and the check fails."""
    allow_failure: bool = False
    """If true, a failed check is reported and ignored."""


class Permissions(HankValue):
    """The permissions of an agent, checked before each tool call with effects. Deny wins."""

    allow: tuple[str, ...] = ()
    """Patterns of allowed calls: `Bash(git *)`, `Write(src/**)`, `mcp__server__*`."""
    deny: tuple[str, ...] = ()
    """Patterns of denied calls, even if `allow` matches."""
    otherwise: Literal["ask", "allow", "deny"] = "ask"
    """The decision for a call that no pattern matches; with `ask`, a client decides."""
    timeout_seconds: PatienceSeconds = 300.0
    """The time that a client has to answer."""
    on_timeout: Literal["deny", "allow"] = "deny"
    """The decision for a call without an answer."""


ConfinementProfile = Literal["workspace", "readonly", "none"]
"""`workspace`: the work tree can be changed, and nothing else of the user. `readonly`: nothing can.
`none`: everything that the user can do."""

TcpPort = Annotated[int, Meta(ge=1, le=65535)]


class Confinement(HankValue):
    """The limits of an agent and of the rig, checks and output commands of its codon."""

    profile: ConfinementProfile = "workspace"
    """What they can reach without the fields below."""
    extra_read: tuple[str, ...] = ()
    """Further files and folders that they can read: absolute, below `~`, or relative to the hank's
    directory."""
    extra_write: tuple[str, ...] = ()
    """Further files and folders that they can read and change."""
    connect: tuple[TcpPort, ...] | None = None
    """The only TCP ports that they can connect to, on any host; by default all but the server's."""


class Variant(HankValue):
    """What an attempt does differently; without a field, as the hank says."""

    name: str | None = None
    """For people."""
    prompt_text: str | None = None
    """The prompt of the explored codon."""
    prompt_file: str | None = None
    """The file with the prompt, relative to the hank's directory; excludes `promptText`."""
    model: str | None = None
    """The model of all codons of the attempt."""
    agent: str | AgentSpec | None = None
    """The agent of all codons of the attempt: a name, as of `--agent`, or as in a codon."""
    variables: dict[VariableName, str] = msgspec.field(default_factory=dict)
    """Values for variables of the hank."""


class CodonAttempts(HankValue):
    """How often a codon is tried, side by side, and which attempt is adopted."""

    n: Annotated[int, Meta(ge=1, le=100)] | None = None
    """The number of attempts; by default, one for each variant, or two."""
    variants: tuple[Variant, ...] = ()
    """What the attempts do differently, in turn."""
    score: Annotated[str, Meta(min_length=1)] | None = None
    """A shell command that runs in the work tree of each attempt when the codon is done. The last
    line of its output is the score: a number, the higher the better."""
    judge: Annotated[str, Meta(min_length=1)] | None = None
    """A model that compares the results if their scores are equal, as `provider/model`."""
    adopt: Literal["best", "ask"] = "best"
    """Whether the best attempt is adopted, or a person chooses one."""
    parallel: Annotated[int, Meta(ge=1, le=100)] | None = None
    """How many attempts run at the same time; by default, all."""
    max_dollars: Dollars | None = None
    """The budget of all attempts together, in US dollars."""
    good_enough: float | None = None
    """A score with which no further attempt is started."""


class Codon(HankValue, tag_field="type", tag="codon"):
    """One step of the pipeline, done by one agent."""

    id: CodonName
    """Its name in coordinates and files; unique in the hank."""
    name: str
    """For people."""
    model: str
    """The model, such as `sonnet`, `gpt-5.4`, `google/gemini-3-pro-preview`; it selects the agent
    if none is named."""
    continuation_mode: Literal["fresh", "continue-previous"]
    """Whether the agent starts a new session or continues that of the previous codon."""
    description: str | None = None
    prompt_file: Texts | None = None
    """Paths relative to the hank's directory; several are joined with a blank line. Takes
    precedence over `promptText`."""
    prompt_text: str | None = None
    append_system_prompt_file: Texts | None = None
    """Paths of texts to append to the system prompt; excludes `appendSystemPromptText`."""
    append_system_prompt_text: str | None = None
    rig_setup: tuple[RigItem, ...] = ()
    """Preparations of the work tree before the agent starts, in this order."""
    checkpointed_files: tuple[str, ...] = ()
    """Hankweave's name for `trackedFiles`; both are accepted and mean the same."""
    tracked_files: tuple[str, ...] = ()
    """Patterns, as in a .gitignore, of the files that checkpoints contain from this codon on."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Environment variables of the agent and of the rig's commands."""
    output_files: tuple[OutputFiles, ...] = ()
    """Files to copy to the output directory, if one is configured."""
    sentinels: tuple[SentinelEntry, ...] = ()
    archive_on_success: tuple[str, ...] = ()
    """Paths or globs relative to agentRoot that are moved to rigArchive after success."""
    on_failure: Literal["abort", "retry", "ignore"] = "abort"
    """What follows a failure: the run ends, the codon is retried, or the next one starts."""
    retry_config: RetryConfig | None = None
    """Only with `onFailure: "retry"`."""
    fallback_models: tuple[str, ...] = ()
    """Models that take over the conversation while the codon's model has reached a limit, the
    preferred one first; they must run with the same agent."""
    fallback_after: WaitSeconds = 300.0
    """A limit that ends within so many seconds is waited for, instead of using another model."""
    exhaust_with_prompt: str | None = None
    """A prompt to send after each success, in the same session, until its context is full."""
    max_extensions: PositiveInt = 100
    """The maximum number of times that `exhaustWithPrompt` is sent."""
    auto_compact: bool = False
    """If true, an agent whose context is full may compact it and continue."""
    shim_idle_timeout: IdleSeconds | None = None
    """Seconds without output after which the agent has failed."""
    budget: CodonBudget | None = None
    agent: AgentSpec | None = None
    """The agent; by default, the one that runs the model. `--agent` takes precedence."""
    timeout_seconds: Seconds | None = None
    """The time that the agent may work on one prompt; after it, the codon fails."""
    condition: str | None = None
    """An expression over the hank's variables; if it is false, the codon is skipped."""
    checks: tuple[Check, ...] = ()
    """Checks to run after the agent's success, in order; the codon fails with the first failure."""
    output_var: VariableName | None = None
    """The variable that is set to the agent's last answer, for later codons."""
    checkpoint_label: str | None = None
    """The label of the checkpoint of its success."""
    permissions: Permissions | None = None
    """The permissions of its agent; they replace those of `overrides` entirely. By default, the
    agent's own mode decides."""
    confinement: ConfinementProfile | Confinement | None = None
    """What its agent and commands can reach; it replaces that of `overrides` entirely."""
    attempts: CodonAttempts | None = None
    """How often it is tried, each time in an execution of its own; by default, it runs here."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns that this codon adds to the tracked files."""
        return self.tracked_files + self.checkpointed_files


class IterationLimit(OpenHankValue, tag_field="type", tag="iterationLimit"):
    """The end of a loop after a number of iterations."""

    limit: PositiveInt


class ContextExceededEnd(OpenHankValue, tag_field="type", tag="contextExceeded"):
    """The end of a loop when an agent's context is full."""


class Loop(HankValue, tag_field="type", tag="loop"):
    """Codons that are repeated, one iteration at a time."""

    id: CodonName
    name: str
    terminate_on: IterationLimit | ContextExceededEnd
    codons: Annotated[tuple[Codon, ...], Meta(min_length=1)]
    """The codons of one iteration; a loop cannot contain a loop."""
    description: str | None = None
    budget: ContainerBudget | None = None
    """For all iterations together."""
    archive_on_success: tuple[str, ...] = ()
    """Paths or globs relative to agentRoot that are moved to rigArchive after the loop."""


class HankMeta(OpenHankValue):
    """Information about the hank."""

    name: str
    version: str
    description: str | None = None
    author: str | None = None


class SentinelOverrides(HankValue):
    """Settings for all sentinels of the hank."""

    enable_persistence: bool | None = None
    health_check_grace_period_ms: int | None = None
    wait_for_all_health_checks: bool | None = None


class AgentTools(HankValue):
    """The checkpoint tools that `hankweave mcp` offers to agents."""

    enabled: bool = True
    """If false, no tools are offered, and connections are refused."""
    rollback_paths: bool = False
    """If true, an agent may restore files from a checkpoint by itself."""


class Overrides(HankValue):
    """Settings for the whole hank."""

    model: str | None = None
    """The model of every codon; it takes precedence over the codon's own."""
    data_hash_time_limit: PositiveInt | None = None
    """In milliseconds; accepted for compatibility with Hankweave."""
    sentinel: SentinelOverrides | None = None
    shim_idle_timeout: IdleSeconds | None = None
    """The idle timeout, in seconds, of codons without their own."""
    budget: ContainerBudget | None = None
    checkpoint_every_steps: Annotated[int, Meta(ge=1, le=50)] | None = None
    """Not in Hankweave: take a checkpoint every N steps of an agent (seed 003, `every_n_steps`)."""
    checkpoint_repository: Literal["shadow", "workspace"] = "shadow"
    """Not in Hankweave: `workspace` also commits labelled checkpoints to the project's branch."""
    permissions: Permissions | None = None
    """Not in Hankweave: the permissions of codons without their own."""
    confinement: ConfinementProfile | Confinement | None = None
    """Not in Hankweave: what the agents and commands of codons without their own can reach; by
    default `workspace`."""
    agent_tools: AgentTools = AgentTools()
    """Not in Hankweave: the checkpoint tools that agents are offered."""


class Requirements(OpenHankValue):
    """The requirements of a hank."""

    env: tuple[str, ...] = ()
    """Environment variables; `HANKWEAVE_X` satisfies `X`."""
    tools: tuple[str, ...] = ()
    """Programs on the PATH, by their bare names."""


class Hank(HankValue):
    """A whole hank.json."""

    hank: Annotated[tuple[Codon | Loop, ...], Meta(min_length=1)]
    """The codons and loops, in the order in which they run."""
    schema: str | None = msgspec.field(name="$schema", default=None)
    """For editors; not included in the hank's hash."""
    meta: HankMeta | None = None
    overrides: Overrides | None = None
    requirements: Requirements | None = None
    """Checked before the hank runs."""
    global_system_prompt_file: Texts | None = None
    """Paths of texts at the start of every system prompt; excludes `globalSystemPromptText`."""
    global_system_prompt_text: str | None = None
    variables: dict[VariableName, str] = msgspec.field(default_factory=dict)
    """Values for `{{name}}` in prompts, and for conditions; `outputVar` adds more."""
