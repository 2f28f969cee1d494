"""Types shared by all agents: their task, their signals, their outcomes and errors."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import Tokens
from hankweave_server.confinement.policy import Fence
from hankweave_server.domain.limits import LimitFacts
from hankweave_server.redaction.redactor import NOTHING_KNOWN, Redactor
from hankweave_server.settings import IDLE_SECONDS

TimeLimit: TypeAlias = Literal["start", "idle", "total"]


GO_ON = (
    "Your working directory and this conversation were rolled back to this moment: everything you "
    "did after it has been undone. Continue your task from here."
)
"""The prompt of an agent whose conversation resumes in the middle of its work."""

AFTER_LIMIT = (
    "A usage or rate limit of the model's provider interrupted you, and has ended. Nothing else "
    "has changed: continue your task from where you stopped."
)
"""The prompt of an agent that has waited for the end of a limit."""


NOTICES = "notices.jsonl"


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """Limits on an agent's time and output; None means no limit.

    Time in which the agent is paused, or waits because its signals are not read, does not count.
    """

    start: timedelta | None = timedelta(seconds=30)
    """From the start of the process to the beginning of its session."""

    idle: timedelta | None = timedelta(seconds=IDLE_SECONDS)
    """Longest time between two pieces of output, on stdout or stderr."""

    total: timedelta | None = None
    kill_grace: timedelta = timedelta(seconds=5)
    """Time between SIGINT and SIGTERM, and again between SIGTERM and SIGKILL."""

    line_bytes: int = 1024 * 1024
    """A longer line is truncated; a marker has the number of bytes dropped."""

    log_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server over stdio that is offered to an agent."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One codon's work for an agent."""

    prompt: str
    system_prompt: str | None
    model: str
    work_tree: Path
    data_dir: Path
    log_path: Path
    resume_session: str | None
    environment: Mapping[str, str]
    """The codon's `env`; overrides every other variable that the agent gets."""

    run_id: RunId
    codon_id: CodonId
    processes_dir: Path
    """The folder of records of running agents, for `leftovers.sweep`."""

    limits: AgentLimits = field(default_factory=AgentLimits)
    forks: bool = False
    """If true, `resume_session` stays unchanged and the conversation becomes a new session that
    begins like it. An agent that cannot fork continues in the same session."""

    fork_at: str | None = None
    """The message of `resume_session` after which the conversation forks; None: at its end."""

    continues: bool = False
    """If true, the session was interrupted while it worked on this prompt; it is not sent again."""

    continuation_prompt: str = GO_ON
    """The message that is sent in place of the prompt if `continues`."""

    budget_usd: float | None = None
    """The most this conversation may cost, in USD; for agents that can enforce it themselves."""

    tools: tuple[McpServer, ...] = ()
    """MCP servers offered in addition to the agent's own tools."""

    access_folder: Path | None = None
    """The folder of what it is given of the server: sockets and notices; None: there is none."""

    socket: Path | None = None
    """The socket on which it may send commands to the server; None: it may not."""

    asks: bool = False
    """If true, the agent asks the server for permission before each call that changes something."""

    fence: Fence | None = None
    """What confines the agent; None leaves it unconfined."""
    redactor: Redactor = NOTHING_KNOWN
    """Removes secrets from the agent's log, and from lines of text before they become signals."""

    traceparent: str | None = None
    """The W3C Trace Context of its codon; None if nothing is traced."""

    @property
    def message(self) -> str:
        """The message to send now; `continuation_prompt` if the work was interrupted."""
        return self.continuation_prompt if self.continues else self.prompt

    @property
    def notices_path(self) -> Path:
        """The file of messages for the agent: one JSON object per line; absent if there is none."""
        if self.access_folder is not None:
            return self.access_folder / NOTICES

        return self.log_path.with_suffix(f".{NOTICES}")


@dataclass(frozen=True, slots=True)
class AgentNeeds:
    """The paths and programs that one kind of agent needs; they need not exist."""

    home: Path | None = None
    """Its own home in the execution directory."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    """For example a login that it renews."""

    programs: tuple[str, ...] = ()
    """The programs that it runs, by name or path."""

    may_change_files: bool = True
    """False if the hank has set the agent itself to read-only."""


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """The session has an id; if this is reported more than once, the last report counts."""

    session_id: str
    model: str


@dataclass(frozen=True, slots=True)
class MessageNamed:
    """The following signals belong to this message; a conversation can be forked after it."""

    message_id: str


@dataclass(frozen=True, slots=True)
class AgentSaid:
    """A text of the agent's."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """The text of the agent's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolAnnounced:
    """The agent is about to make a call that it describes later; reported once for each call."""

    tool_use_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A tool call, with its complete input."""

    tool_use_id: str
    name: str
    input: dict[str, object]


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A tool's result; `name` is empty if the call was never seen, and then it can be ignored."""

    tool_use_id: str
    name: str
    result: str
    is_error: bool
    is_refused: bool = False
    """True if the agent reports that the call was not allowed."""


@dataclass(frozen=True, slots=True)
class UsageReported:
    """Tokens of one message so far; a later report for the same message replaces this one."""

    message_id: str
    model: str
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class ResultReported:
    """The agent's own result, or for a plain program the one derived from its exit code."""

    success: bool
    text: str
    cost_usd: float | None
    tokens: Tokens | None
    session_id: str | None
    model_usage: Mapping[str, object]
    """Usage for each model, as the program printed it (`modelUsage`); empty if it printed none."""
    is_over_budget: bool = False
    """True if it stopped because it had used up `AgentTask.budget_usd`."""
    denied_calls: tuple[str, ...] = ()
    """The ids of tool calls that were not allowed."""


@dataclass(frozen=True, slots=True)
class PlainOutput:
    """A line of stdout that is not a message, or is too long to be parsed as one."""

    line: str


@dataclass(frozen=True, slots=True)
class Stderr:
    """A line of stderr."""

    line: str


@dataclass(frozen=True, slots=True)
class ContextExceeded:
    """The model's context or output limit was exceeded, or the context was compacted."""

    reason: str


@dataclass(frozen=True, slots=True)
class RequestTimedOut:
    """The model did not answer the agent; stop the agent and retry, as Hankweave does."""

    reason: str


@dataclass(frozen=True, slots=True)
class LimitReported:
    """A limit or error of the provider, as the agent reports it; the agent may continue."""

    facts: LimitFacts


@dataclass(frozen=True, slots=True)
class PermissionAsked:
    """The agent asks for permission to call a tool and waits for `answer`."""

    request_id: str
    name: str
    input: dict[str, object]
    by_hook: bool = False
    """True for a hook, which only waits; the agent's own rules then decide about the call."""


@dataclass(frozen=True, slots=True)
class PermissionWithdrawn:
    """The agent no longer waits for an answer."""

    request_id: str


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """The agent has read a message of `leave_message`."""

    operation_id: str


AgentSignal: TypeAlias = (
    SessionStarted
    | MessageNamed
    | AgentSaid
    | Thought
    | ToolAnnounced
    | ToolCalled
    | ToolReturned
    | UsageReported
    | ResultReported
    | PlainOutput
    | Stderr
    | ContextExceeded
    | RequestTimedOut
    | LimitReported
    | PermissionAsked
    | PermissionWithdrawn
    | MessageReceived
)


@dataclass(frozen=True, slots=True)
class Granted:
    """The tool may be called; for a hook, the agent's own rules decide."""


@dataclass(frozen=True, slots=True)
class ToBeAsked:
    """For a hook: the agent has to ask for permission, whatever its own rules say."""


@dataclass(frozen=True, slots=True)
class Forbidden:
    """The tool may not be called; `message` tells the agent why."""

    message: str


Verdict: TypeAlias = Granted | ToBeAsked | Forbidden


@dataclass(frozen=True, slots=True)
class Exited:
    """The agent exited with a code."""

    code: int


@dataclass(frozen=True, slots=True)
class AgentKilled:
    """A signal ended the agent."""

    signal: int


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The agent exceeded a time limit and was stopped."""

    which: TimeLimit


AgentOutcome: TypeAlias = Exited | AgentKilled | TimedOut


class AgentError(Exception):
    """An agent could not be started or ended; carries a message and an optional hint."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class AgentNotFound(AgentError):
    """The agent's program is not installed on this machine."""


class AgentStartFailed(AgentError):
    """The program exists, but the kernel refused to run it."""


class AgentOutOfControl(AgentError):
    """The agent was ended because it kept stopping the keeper of its processes."""

    def __init__(self) -> None:
        super().__init__(
            "The agent kept stopping its process keeper (SIGSTOP), so it was terminated.",
            hint="Find out what sends SIGSTOP to processes that it did not start.",
        )


class AgentUnkillable(AgentError):
    """Processes of the agent survived SIGKILL; nothing may touch the work tree until they end."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        listed = ", ".join(str(pid) for pid in pids)
        super().__init__(
            f"Processes of the agent survived SIGKILL: {listed}",
            hint="They hang in the kernel or belong to another user; kill them manually.",
        )
        self.pids = pids


class AgentSession(Protocol):
    """One running agent, from the start to the end of its processes."""

    @property
    def pid(self) -> int: ...

    @property
    def log_path(self) -> Path: ...

    def signals(self) -> AsyncIterator[AgentSignal]:
        """Yield the agent's signals until it has ended and all of them were read. For one reader.

        A slow reader slows the agent down; one that stops reading finally blocks it. Raises OSError
        at the end if the log could not be written, which also ends the agent, and AgentOutOfControl
        if it was ended because it kept stopping its keeper.
        """

    async def unread_signals(self) -> Sequence[AgentSignal]:
        """Return the signals that `signals` has yet to yield, in order.

        What the agent has printed before this call is read first. If it is so far ahead that it
        waits for the reader, the rest is not read.
        """

    async def stop(self) -> None:
        """End the agent: SIGINT, SIGTERM, then SIGKILL to the whole tree; return when it is gone.

        Idempotent; may be called while the agent ends by itself. Raises AgentUnkillable.
        """

    async def pause(self) -> None:
        """Stop every process of the tree (SIGSTOP); the time limits stand still."""

    async def resume(self) -> None:
        """Continue a paused agent."""

    def processes(self) -> frozenset[int]:
        """Return the pids of the agent's current processes. Thread-safe."""

    async def leave_message(self, operation_id: str, text: str) -> None:
        """Append a message to the file that the agent reads at its next step (`HANKWEAVE_NOTICES`).

        An agent that reads it acknowledges with a `MessageReceived`; others never do.
        """

    async def answer(self, asked: PermissionAsked, verdict: Verdict) -> None:
        """Answer a permission request; ignored if the agent has ended or no longer waits."""

    async def wait(self) -> AgentOutcome:
        """Wait until the whole tree has ended, and return how the agent ended."""


@dataclass(frozen=True, slots=True)
class AgentAccount:
    """The program behind an agent, and the account that it uses at its provider."""

    program: str
    """The program whose messages it prints: claude, codex, gemini, opencode, or another name."""
    fingerprint: str | None = None
    """The same for all executions that share an account; not a secret. None: unknown."""


ACCOUNT = "HANKWEAVE_AGENT_ACCOUNT"
"""The variable in a codon's `env` that names the account of an agent about which nothing is known.
"""


def named_account(program: str, environment: Mapping[str, str]) -> AgentAccount:
    """Return the account that a codon's `env` names, for an agent about which nothing is known."""
    name = environment.get(ACCOUNT)
    return AgentAccount(program, None if name is None else fingerprint(program, name))


def fingerprint(program: str, *identity: str) -> str:
    """Return a text that identifies an account without revealing its key."""
    digest = sha256("\0".join(("hankweave account", program, *identity)).encode(errors="replace"))
    return f"{program}-{digest.hexdigest()[:32]}"


class Agent(Protocol):
    """One kind of agent, which can be started for a task."""

    @property
    def name(self) -> str: ...

    @property
    def can_ask(self) -> bool:
        """True if it asks for permission when `AgentTask.asks` demands that."""

    @property
    def waits_before_tools(self) -> bool:
        """True if it waits for an answer before each tool call that may change files."""

    def account(self, model: str, environment: Mapping[str, str]) -> AgentAccount:
        """Return the account that it uses for a model; `environment` is the codon's `env`."""

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        """Start the agent; leaving the context kills what is left of its process tree.

        Raises AgentNotFound or AgentStartFailed on entering, AgentUnkillable on leaving.
        """

    def needs(self, environment: Mapping[str, str]) -> AgentNeeds:
        """Return what it must reach when it is confined; `environment` is the codon's `env`."""

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        """Return the files from which a session is resumed; they may not exist.

        No two have the same name. `environment` is the codon's `env`. Empty for an agent that keeps
        no such files.
        """


_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_file_name(session_id: str) -> bool:
    """Return whether a session id, which comes from an agent, can safely be part of a path."""
    return _FILE_NAME.fullmatch(session_id) is not None
