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
    """POSIX path relative to the hank's directory.
    Example: "templates/report.md"
    """
    to: str
    """POSIX path relative to agentRoot; an existing target is replaced.
    Example: "notes/report.md"
    """


class RigCopy(OpenHankValue, tag_field="type", tag="copy"):
    """A copy of a file or folder of the hank into the work tree before the agent starts."""

    copy: CopySpec
    """What is copied, and where to.
    Example: {"from": "templates", "to": "templates"}"""
    allow_failure: bool = False
    """If true, a failure is reported and ignored.
    Example: true"""
    archive_on_success: bool = False
    """Move the copied target to rigArchive after success (`rigArchive`).
    Example: true"""


class CommandSpec(OpenHankValue):
    """A shell command."""

    run: str
    """A shell command line.
    Example: "pip install -r requirements.txt"
    """
    working_directory: Literal["project", "lastCopied"] = "project"
    """`project` is the work tree, `lastCopied` the last target that the rig copied.
    Example: "lastCopied"
    """
    timeout_seconds: Seconds | None = None
    """The time after which the command and all its processes are terminated.
    Example: 600"""


class RigCommand(OpenHankValue, tag_field="type", tag="command"):
    """A shell command that runs in the work tree before the agent starts."""

    command: CommandSpec
    """The command.
    Example: {"run": "npm ci"}"""
    allow_failure: bool = False
    """If true, a failure is reported and ignored.
    Example: true"""


RigItem = RigCopy | RigCommand


class OutputFiles(HankValue):
    """The files that a codon exports after its success."""

    copy: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Paths or globs relative to agentRoot.
    Example: ["reports/**/*.md"]"""
    before_copy: tuple[RigCommand, ...] = ()
    """Commands to run in the work tree first.
    Example: [{"type": "command", "command": {"run": "make report"}}]"""


class RetryConfig(OpenHankValue):
    """How often and when a failed codon is retried."""

    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 3
    """Including the first.
    Example: 5"""
    delay_ms: Annotated[int, Meta(ge=0, le=60_000)] = 1000
    """The delay before the second attempt; it doubles before each further one.
    Example: 5000"""
    max_delay_ms: Annotated[int, Meta(ge=0, le=600_000)] = 60_000
    """The longest delay, even if a provider requests a longer one.
    Example: 120000"""


class CodonBudget(HankValue):
    """The limits of one execution of a codon."""

    max_dollars: Dollars | None = None
    """US dollars.
    Example: 1.5"""
    max_time_seconds: Seconds | None = None
    """Seconds since the agent's start.
    Example: 1800"""
    max_output_tokens: PositiveInt | None = None
    """All tokens that the agent writes.
    Example: 50000"""
    max_context_tokens: PositiveInt | None = None
    """The maximum size of its context: input and output of one turn.
    Example: 150000"""
    on_exceeded: Literal["complete", "fail"] = "complete"
    """Whether a codon that is stopped by its budget ends as completed or failed.
    Example: "fail"
    """


class ContainerBudget(HankValue):
    """The limits of a whole hank, or of all iterations of a loop."""

    max_dollars: Dollars | None = None
    """US dollars.
    Example: 10"""
    max_time_seconds: Seconds | None = None
    """Seconds of work, for all codons together.
    Example: 7200"""
    allocation: Literal["shared", "proportional", "proportional-strict"] = "shared"
    """`shared`: each may use the whole remainder. `proportional`: each may use its share and what
    earlier ones left over. `proportional-strict`: each may use its share.
    Example: "proportional"
    """
    shares: dict[str, Annotated[float, Meta(gt=0, le=1)]] | None = None
    """Shares of `maxDollars` by the id of a codon or loop; the rest is split evenly.
    Example: {"research": 0.6, "review": 0.4}"""
    on_exceeded: Literal["complete", "fail"] = "complete"
    """Whether a codon that is stopped by this budget ends as completed or failed.
    Example: "fail"
    """


class SentinelOutputPaths(OpenHankValue):
    """The files of a sentinel; a name without `/` is in its own folder, a path in agentRoot."""

    log_file: str | None = None
    """Its log; a name without `/` is in its own folder, any other path in agentRoot.
    Example: "narration.md"
    """
    last_value_file: str | None = None
    """Its newest answer alone; likewise.
    Example: "notes/latest.md"
    """


class SentinelReports(OpenHankValue):
    """The events of a sentinel that clients get; the sentinel decides about absent ones."""

    lifecycle: bool | None = None
    """`sentinel.loaded` and `sentinel.unloaded`.
    Example: true"""
    errors: bool | None = None
    """`sentinel.error`.
    Example: true"""
    outputs: bool | None = None
    """`sentinel.output`.
    Example: false"""
    triggers: bool | None = None
    """`sentinel.triggered`.
    Example: false"""


class SentinelSettings(OpenHankValue):
    """A codon's settings for a sentinel."""

    fail_codon_if_not_loaded: bool = False
    """If true, the codon does not start without this sentinel.
    Example: true"""
    output_paths: SentinelOutputPaths | None = None
    """Where it writes; takes precedence over the sentinel's own.
    Example: {"logFile": "narration.md"}"""
    report_to_websocket: SentinelReports | None = None
    """Which of its events clients get; takes precedence over the sentinel's own.
    Example: {"triggers": true}"""


class SentinelEntry(OpenHankValue):
    """A sentinel of a codon."""

    sentinel_config: str | dict[str, object]
    """A configuration, or the path of its file relative to the hank's directory.
    Example: "sentinels/narrator.json"
    """
    settings: SentinelSettings | None = None
    """The codon's settings for it.
    Example: {"failCodonIfNotLoaded": true}"""


class ScriptedAgentSpec(HankValue, tag_field="type", tag="scripted"):
    """The built-in deterministic agent, for demonstrations and tests."""

    script: str | None = None
    """Path of a JSON script in the hank's directory; by default, the prompt is the script.
    Example: "scripts/observe.json"
    """


class CommandAgentSpec(HankValue, tag_field="type", tag="command"):
    """Any program; it gets the prompt on stdin and works in the work tree."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    """The program and its arguments; it gets the prompt on stdin.
    Example: ["python3", "agent.py"]"""
    version: Annotated[str, Meta(min_length=1)] | None = None
    """A name for everything that the program is made of; without one, its results are not reused.
    Change it whenever the program changes. The files that `command` names are compared as well.
    Example: "1.2"
    """


class ClaudeAgentSpec(HankValue, tag_field="type", tag="claude"):
    """The `claude` program, driven over its stream-json protocol."""

    permission_mode: Literal["default", "acceptEdits", "bypassPermissions", "plan"] = (
        "bypassPermissions"
    )
    """The program's own setting for calls without permission; by default, as in Hankweave, all.
    `permissions` of the codon take precedence.
    Example: "acceptEdits"
    """


class CodexAgentSpec(HankValue, tag_field="type", tag="codex"):
    """The `codex` program, driven by `codex exec --json`."""

    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = "danger-full-access"
    """The program's own setting for what its commands can access; by default, everything.
    Example: "workspace-write"
    """
    config: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings of its config.toml, such as `model_reasoning_effort`; values are in TOML.
    Example: {"model_reasoning_effort": "\\"high\\""}"""


class AcpAgentSpec(HankValue, tag_field="type", tag="acp"):
    """Any program that speaks the Agent Client Protocol on its stdin and stdout."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    """For example `["opencode", "acp"]` or `["gemini", "--acp"]`.
    Example: ["opencode", "acp"]"""
    mode: str | None = None
    """The agent's id of the session mode to use; by default, the agent chooses.
    Example: "plan"
    """
    keys: tuple[KeyName, ...] | None = None
    """Variables of the server's environment to pass on: names, or prefixes that end in `_`, such as
    `MISTRAL_`. By default, those that a known agent needs, and none for other agents.
    Example: ["MISTRAL_"]"""


AgentSpec = ScriptedAgentSpec | CommandAgentSpec | ClaudeAgentSpec | CodexAgentSpec | AcpAgentSpec


class CheckFailure(HankValue):
    """The reaction to a failed check, before the codon fails."""

    bisect: Annotated[str, Meta(min_length=1)]
    """A shell command line that finds the call that broke it: it runs in throw-away copies of the
    codon's checkpoints, as with `hankweave bisect`. The reason of the failure names the first one
    at which it fails. `onFailure` of the codon counts afterwards.
    Example: "pytest -q tests/test_rows.py"
    """
    timeout_seconds: Seconds = 600.0
    """The time after which the search ends without a result.
    Example: 60"""


class Check(HankValue):
    """A shell command in the work tree whose exit code decides whether a codon succeeded."""

    run: str
    """A shell command line; exit code 0 means success.
    Example: "pytest -q"
    """
    timeout_seconds: Seconds = 120.0
    """The time after which the command is terminated and the check fails.
    Example: 600"""
    allow_failure: bool = False
    """If true, a failed check is reported and ignored.
    Example: true"""
    on_failure: CheckFailure | None = None
    """What is done when it has failed; excludes `allowFailure`.
    Example: {"bisect": "pytest -q tests/test_rows.py"}"""


class Permissions(HankValue):
    """The permissions of an agent, checked before each tool call with effects. Deny wins."""

    allow: tuple[str, ...] = ()
    """Patterns of allowed calls: `Bash(git *)`, `Write(src/**)`, `mcp__server__*`.
    Example: ["Bash(git *)", "Write(src/**)"]"""
    deny: tuple[str, ...] = ()
    """Patterns of denied calls, even if `allow` matches.
    Example: ["Bash(git push*)"]"""
    otherwise: Literal["ask", "allow", "deny"] = "ask"
    """The decision for a call that no pattern matches; with `ask`, a client decides.
    Example: "deny"
    """
    timeout_seconds: PatienceSeconds = 300.0
    """The time that a client has to answer.
    Example: 3600"""
    on_timeout: Literal["deny", "allow"] = "deny"
    """The decision for a call without an answer.
    Example: "allow"
    """


ConfinementProfile = Literal["workspace", "readonly", "none"]
"""`workspace`: the work tree can be changed, and nothing else of the user. `readonly`: nothing can.
`none`: everything that the user can do."""

TcpPort = Annotated[int, Meta(ge=1, le=65535)]


class Confinement(HankValue):
    """The limits of an agent and of the rig, checks and output commands of its codon."""

    profile: ConfinementProfile = "workspace"
    """What they can reach without the fields below.
    Example: "readonly"
    """
    extra_read: tuple[str, ...] = ()
    """Further files and folders that they can read: absolute, below `~`, or relative to the hank's
    directory.
    Example: ["~/datasets"]"""
    extra_write: tuple[str, ...] = ()
    """Further files and folders that they can read and change.
    Example: ["~/.cache/models"]"""
    connect: tuple[TcpPort, ...] | None = None
    """The only TCP ports that they can connect to, on any host; by default all but the server's.
    Example: [443]"""


class Variant(HankValue):
    """The differences of an attempt; an absent field means what the hank says."""

    name: str | None = None
    """For people.
    Example: "short"
    """
    prompt_text: str | None = None
    """The prompt of the explored codon.
    Example: "Answer in one paragraph."
    """
    prompt_file: str | None = None
    """The file with the prompt, relative to the hank's directory; excludes `promptText`.
    Example: "prompts/long.md"
    """
    model: str | None = None
    """The model of all codons of the attempt.
    Example: "opus"
    """
    agent: str | AgentSpec | None = None
    """The agent of all codons of the attempt: a name, as of `--agent`, or as in a codon.
    Example: "codex"
    """
    variables: dict[VariableName, str] = msgspec.field(default_factory=dict)
    """Values for variables of the hank.
    Example: {"tone": "formal"}"""


class CodonAttempts(HankValue):
    """How often a codon is tried, side by side, and which attempt is adopted."""

    n: Annotated[int, Meta(ge=1, le=100)] | None = None
    """The number of attempts; by default, one for each variant, or two.
    Example: 3"""
    variants: tuple[Variant, ...] = ()
    """What the attempts do differently, in turn.
    Example: [{"model": "sonnet"}, {"model": "opus"}]"""
    score: Annotated[str, Meta(min_length=1)] | None = None
    """A shell command that runs in the work tree of each attempt when the codon is done. The last
    line of its output is the score: a number, the higher the better.
    Example: "python3 score.py"
    """
    judge: Annotated[str, Meta(min_length=1)] | None = None
    """A model that compares the results if their scores are equal, as `provider/model`.
    Example: "anthropic/claude-sonnet-4-5"
    """
    adopt: Literal["best", "ask"] = "best"
    """Whether the best attempt is adopted, or a person chooses one.
    Example: "ask"
    """
    parallel: Annotated[int, Meta(ge=1, le=100)] | None = None
    """How many attempts run at the same time; by default, all.
    Example: 2"""
    max_dollars: Dollars | None = None
    """The budget of all attempts together, in US dollars.
    Example: 4"""
    good_enough: float | None = None
    """A score with which no further attempt is started.
    Example: 0.95"""


class Codon(HankValue, tag_field="type", tag="codon"):
    """One step of the pipeline, done by one agent."""

    id: CodonName
    """Its name in coordinates and files; unique in the hank.
    Example: "research"
    """
    name: str
    """For people.
    Example: "Research"
    """
    model: str
    """The model, such as `sonnet`, `gpt-5.4`, `google/gemini-3-pro-preview`; it selects the agent
    if none is named.
    Example: "sonnet"
    """
    continuation_mode: Literal["fresh", "continue-previous"]
    """Whether the agent starts a new session or continues that of the previous codon.
    Example: "fresh"
    """
    description: str | None = None
    """For people.
    Example: "Reads the data and writes down what is in it."
    """
    prompt_file: Texts | None = None
    """Paths relative to the hank's directory; several are joined with a blank line. Takes
    precedence over `promptText`.
    Example: "prompts/research.md"
    """
    prompt_text: str | None = None
    """The prompt of the agent, if there is no `promptFile`.
    Example: "Describe the data in notes/data.md."
    """
    append_system_prompt_file: Texts | None = None
    """Paths of texts to append to the system prompt; excludes `appendSystemPromptText`.
    Example: "prompts/style.md"
    """
    append_system_prompt_text: str | None = None
    """A text to append to the system prompt.
    Example: "Write plain English."
    """
    rig_setup: tuple[RigItem, ...] = ()
    """Preparations of the work tree before the agent starts, in this order.
    Example: [{"type": "copy", "copy": {"from": "templates", "to": "templates"}}]"""
    checkpointed_files: tuple[str, ...] = ()
    """Hankweave's name for `trackedFiles`; both are accepted and mean the same.
    Example: ["notes/**"]"""
    tracked_files: tuple[str, ...] = ()
    """Patterns, as in a .gitignore, of the files that checkpoints contain from this codon on.
    Example: ["notes/**", "!notes/drafts/**"]"""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Environment variables of the agent and of the rig's commands.
    Example: {"LANG": "C.UTF-8"}"""
    output_files: tuple[OutputFiles, ...] = ()
    """Files to copy to the output directory, if one is configured.
    Example: [{"copy": ["reports/*.md"]}]"""
    sentinels: tuple[SentinelEntry, ...] = ()
    """The sentinels that observe the codon.
    Example: [{"sentinelConfig": "sentinels/narrator.json"}]"""
    archive_on_success: tuple[str, ...] = ()
    """Paths or globs relative to agentRoot that are moved to rigArchive after success.
    Example: ["templates"]"""
    on_failure: Literal["abort", "retry", "ignore"] = "abort"
    """What follows a failure: the run ends, the codon is retried, or the next one starts.
    Example: "retry"
    """
    retry_config: RetryConfig | None = None
    """Only with `onFailure: "retry"`.
    Example: {"maxAttempts": 5}"""
    fallback_models: tuple[str, ...] = ()
    """Models that take over the conversation while the codon's model has reached a limit, the
    preferred one first; they must run with the same agent.
    Example: ["haiku"]"""
    fallback_after: WaitSeconds = 300.0
    """A limit that ends within so many seconds is waited for, instead of using another model.
    Example: 60"""
    exhaust_with_prompt: str | None = None
    """A prompt to send after each success, in the same session, until its context is full.
    Example: "Look for further errors."
    """
    max_extensions: PositiveInt = 100
    """The maximum number of times that `exhaustWithPrompt` is sent.
    Example: 10"""
    auto_compact: bool = False
    """If true, an agent whose context is full may compact it and continue.
    Example: true"""
    shim_idle_timeout: IdleSeconds | None = None
    """Seconds without output after which the agent has failed.
    Example: 900"""
    budget: CodonBudget | None = None
    """The limits of one execution.
    Example: {"maxDollars": 1.5}"""
    agent: AgentSpec | None = None
    """The agent; by default, the one that runs the model. `--agent` takes precedence.
    Example: {"type": "claude", "permissionMode": "acceptEdits"}"""
    timeout_seconds: Seconds | None = None
    """The time that the agent may work on one prompt; after it, the codon fails.
    Example: 3600"""
    condition: str | None = None
    """An expression over the hank's variables; if it is false, the codon is skipped.
    Example: "mode == 'full'"
    """
    checks: tuple[Check, ...] = ()
    """Checks to run after the agent's success, in order; the codon fails with the first failure.
    Example: [{"run": "pytest -q"}]"""
    output_var: VariableName | None = None
    """The variable that is set to the agent's last answer, for later codons.
    Example: "summary"
    """
    checkpoint_label: str | None = None
    """The label of the checkpoint of its success.
    Example: "after the research"
    """
    permissions: Permissions | None = None
    """The permissions of its agent; they replace those of `overrides` entirely. By default, the
    agent's own mode decides.
    Example: {"allow": ["Bash(git *)"], "otherwise": "deny"}"""
    confinement: ConfinementProfile | Confinement | None = None
    """What its agent and commands can reach; it replaces that of `overrides` entirely.
    Example: "readonly"
    """
    attempts: CodonAttempts | None = None
    """How often it is tried, each time in an execution of its own; by default, it runs here.
    Example: {"n": 3, "score": "python3 score.py"}"""
    reuse: bool | None = None
    """Whether it takes over the result of an earlier codon with the same inputs, if there is one,
    instead of running. If false, it always runs. By default, the `overrides` decide.
    Example: true"""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns that this codon adds to the tracked files."""
        return self.tracked_files + self.checkpointed_files

    @property
    def codons(self) -> tuple[Codon, ...]:
        """The codon itself, as a loop has several."""
        return (self,)


class IterationLimit(OpenHankValue, tag_field="type", tag="iterationLimit"):
    """The end of a loop after a number of iterations."""

    limit: PositiveInt
    """The number of iterations.
    Example: 3"""


class ContextExceededEnd(OpenHankValue, tag_field="type", tag="contextExceeded"):
    """The end of a loop when an agent's context is full."""


class Loop(HankValue, tag_field="type", tag="loop"):
    """Codons that are repeated, one iteration at a time."""

    id: CodonName
    """Its name; a codon of it is called `{id of the codon}#{iteration}`.
    Example: "review-loop"
    """
    name: str
    """For people.
    Example: "Review"
    """
    terminate_on: IterationLimit | ContextExceededEnd
    """When it ends.
    Example: {"type": "iterationLimit", "limit": 3}"""
    codons: Annotated[tuple[Codon, ...], Meta(min_length=1)]
    """The codons of one iteration; a loop cannot contain a loop.
    Example: [{"id": "review", "name": "Review", "model": "sonnet", "continuationMode": "fresh",
    "promptText": "Review the notes."}]"""
    description: str | None = None
    """For people.
    Example: "Reviews until it is good."
    """
    budget: ContainerBudget | None = None
    """For all iterations together.
    Example: {"maxDollars": 5}"""
    archive_on_success: tuple[str, ...] = ()
    """Paths or globs relative to agentRoot that are moved to rigArchive after the loop.
    Example: ["reviews"]"""


class HankMeta(OpenHankValue):
    """Information about the hank."""

    name: str
    """The name of the hank.
    Example: "earthquakes"
    """
    version: str
    """Any text, such as `1.0.0`.
    Example: "1.0.0"
    """
    description: str | None = None
    """For people.
    Example: "Describes a catalogue of earthquakes."
    """
    author: str | None = None
    """For people.
    Example: "Ann"
    """


class SentinelOverrides(HankValue):
    """Settings for all sentinels of the hank."""

    enable_persistence: bool | None = None
    """Accepted for compatibility with Hankweave.
    Example: true"""
    health_check_grace_period_ms: int | None = None
    """Accepted for compatibility with Hankweave.
    Example: 5000"""
    wait_for_all_health_checks: bool | None = None
    """Accepted for compatibility with Hankweave.
    Example: true"""


class AgentTools(HankValue):
    """The checkpoint tools that `hankweave mcp` offers to agents."""

    enabled: bool = True
    """If false, no tools are offered, and connections are refused.
    Example: false"""
    rollback_paths: bool = False
    """If true, an agent may restore files from a checkpoint by itself.
    Example: true"""


class Overrides(HankValue):
    """Settings for the whole hank."""

    model: str | None = None
    """The model of every codon; it takes precedence over the codon's own.
    Example: "opus"
    """
    data_hash_time_limit: PositiveInt | None = None
    """In milliseconds; accepted for compatibility with Hankweave.
    Example: 5000"""
    sentinel: SentinelOverrides | None = None
    """Settings for all sentinels.
    Example: {"enablePersistence": true}"""
    shim_idle_timeout: IdleSeconds | None = None
    """The idle timeout, in seconds, of codons without their own.
    Example: 900"""
    budget: ContainerBudget | None = None
    """The limits of the whole hank.
    Example: {"maxDollars": 10}"""
    checkpoint_every_steps: Annotated[int, Meta(ge=1, le=50)] | None = None
    """Not in Hankweave: checkpoint every N steps of an agent (in Architect: `every_n_steps`).
    Example: 10"""
    checkpoint_repository: Literal["shadow", "workspace"] = "shadow"
    """Not in Hankweave: `workspace` also commits labelled checkpoints to the project's branch.
    Example: "workspace"
    """
    permissions: Permissions | None = None
    """Not in Hankweave: the permissions of codons without their own.
    Example: {"otherwise": "deny"}"""
    confinement: ConfinementProfile | Confinement | None = None
    """Not in Hankweave: what the agents and commands of codons without their own can reach; by
    default `workspace`.
    Example: {"profile": "workspace", "connect": [443]}"""
    agent_tools: AgentTools = AgentTools()
    """Not in Hankweave: the checkpoint tools that agents are offered.
    Example: {"rollbackPaths": true}"""
    reuse: bool | None = None
    """Not in Hankweave: the `reuse` of codons without their own.
    Example: true"""


class Requirements(OpenHankValue):
    """The requirements of a hank."""

    env: tuple[str, ...] = ()
    """Environment variables; `HANKWEAVE_X` satisfies `X`.
    Example: ["ANTHROPIC_API_KEY"]"""
    tools: tuple[str, ...] = ()
    """Programs on the PATH, by their bare names.
    Example: ["git", "jq"]"""


class Hank(HankValue):
    """A whole hank.json."""

    hank: Annotated[tuple[Codon | Loop, ...], Meta(min_length=1)]
    """The codons and loops, in the order in which they run.
    Example: [{"id": "research", "name": "Research", "model": "sonnet", "continuationMode":
    "fresh", "promptText": "Describe the data."}]"""
    schema: str | None = msgspec.field(name="$schema", default=None)
    """For editors; not included in the hank's hash.
    Example: "hank.schema.json"
    """
    meta: HankMeta | None = None
    """Name, version and more, for people.
    Example: {"name": "earthquakes", "version": "1.0.0"}"""
    overrides: Overrides | None = None
    """Settings for the whole hank.
    Example: {"budget": {"maxDollars": 10}}"""
    requirements: Requirements | None = None
    """Checked before the hank runs.
    Example: {"tools": ["git"]}"""
    global_system_prompt_file: Texts | None = None
    """Paths of texts at the start of every system prompt; excludes `globalSystemPromptText`.
    Example: "prompts/system.md"
    """
    global_system_prompt_text: str | None = None
    """A text at the start of every system prompt.
    Example: "Write plain English."
    """
    variables: dict[VariableName, str] = msgspec.field(default_factory=dict)
    """Values for `{{name}}` in prompts, and for conditions; `outputVar` adds more.
    Example: {"mode": "full"}"""

    @property
    def codons(self) -> tuple[Codon, ...]:
        """All codons in their order, those of loops included."""
        return tuple(codon for step in self.hank for codon in step.codons)
