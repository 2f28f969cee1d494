"""The vocabulary of this room: what an agent is asked, what it says, and how it can end."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from hankweave_protocol.ids import CodonId, RunId

TimeLimit: TypeAlias = Literal["start", "idle", "total"]


GO_ON = (
    "Your working directory and this conversation were taken back to this moment: whatever you did "
    "after it is undone. Go on with your task from here."
)
"""What an agent is told whose conversation is taken up in the midst of its work."""


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """How long an agent may take and how much it may print; None means without limit.

    Time in which the agent is paused, or waits because nobody reads its signals, does not count.
    """

    start: timedelta | None = timedelta(seconds=30)
    """From the start of the process to the beginning of its session."""

    idle: timedelta | None = timedelta(minutes=10)
    """Between two pieces of output, on stdout or stderr."""

    total: timedelta | None = None
    kill_grace: timedelta = timedelta(seconds=5)
    """Between SIGINT and SIGTERM, and again between SIGTERM and SIGKILL."""

    line_bytes: int = 1024 * 1024
    """What is longer loses its end; a marker tells how much."""

    log_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server of tools that an agent is offered, over stdio (Model Context Protocol)."""

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
    """The codon's `env`; wins over everything the agent would get otherwise."""

    run_id: RunId
    codon_id: CodonId
    processes_dir: Path
    """Where living agents are recorded for `leftovers.sweep`."""

    limits: AgentLimits = field(default_factory=AgentLimits)
    forks: bool = False
    """`resume_session` stays as it is: what follows is a session of its own that begins as it
    does. An agent that cannot do so goes on in the same session."""

    fork_at: str | None = None
    """The message of `resume_session` after which this conversation leaves it; None: its end."""

    goes_on: bool = False
    """The session was left in the midst of this very prompt's work: it is not told again."""

    budget_usd: float | None = None
    """What this conversation may cost; for agents that can watch it themselves."""

    tools: tuple[McpServer, ...] = ()
    """Offered besides the agent's own."""

    asks: bool = False
    """It is to ask us before every call that changes something: what it may do, we say."""

    @property
    def message(self) -> str:
        """What the agent is told now: its prompt, or in the midst of its work to go on."""
        return GO_ON if self.goes_on else self.prompt

    @property
    def notices_path(self) -> Path:
        """Where word is left for the agent: one JSON object a line, absent while there is none."""
        return self.log_path.with_suffix(".notices.jsonl")


@dataclass(frozen=True, slots=True)
class TokenCounts:
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_tokens: int = 0
    cache_read_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """The session has a name; if it is said more than once, the last one counts."""

    session_id: str
    model: str


@dataclass(frozen=True, slots=True)
class MessageNamed:
    """What follows is part of this message; a conversation can be forked after it."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Said:
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    text: str


@dataclass(frozen=True, slots=True)
class ToolAnnounced:
    """A call is about to be made that its agent describes later; none is told of a call twice."""

    tool_use_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    tool_use_id: str
    name: str
    input: dict[str, object]


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """`name` is empty where the call was never seen; such results can be ignored."""

    tool_use_id: str
    name: str
    result: str
    is_error: bool
    is_refused: bool = False
    """The agent says that the call was not allowed."""


@dataclass(frozen=True, slots=True)
class UsageReported:
    """What one message has used so far; a later report for the same message replaces this one."""

    message_id: str
    model: str
    tokens: TokenCounts


@dataclass(frozen=True, slots=True)
class ResultReported:
    """The agent's own verdict, or for a plain program the one read from its exit code."""

    success: bool
    text: str
    cost_usd: float | None
    tokens: TokenCounts | None
    session_id: str | None
    model_usage: Mapping[str, object]
    """Per model, as the program printed it (`modelUsage`); empty if it printed none."""
    is_over_budget: bool = False
    """It stopped because it had used up `AgentTask.budget_usd`."""
    denied_calls: tuple[str, ...] = ()
    """The ids of the calls of tools that were not allowed."""


@dataclass(frozen=True, slots=True)
class PlainOutput:
    """A line of stdout that is no message, or one that was too long to be read as one."""

    line: str


@dataclass(frozen=True, slots=True)
class Stderr:
    line: str


@dataclass(frozen=True, slots=True)
class ContextExceeded:
    reason: str


@dataclass(frozen=True, slots=True)
class RequestTimedOut:
    """The model did not answer the agent: stop it and try again (Hankweave, "API Error")."""

    reason: str


@dataclass(frozen=True, slots=True)
class PermissionAsked:
    """The agent waits, before it calls a tool, until `answer` lets it."""

    request_id: str
    name: str
    input: dict[str, object]
    by_hook: bool = False
    """It only waits for our word; whether the tool is allowed, its own rules say then."""


@dataclass(frozen=True, slots=True)
class PermissionWithdrawn:
    """The agent does not wait for an answer any more."""

    request_id: str


@dataclass(frozen=True, slots=True)
class WordReceived:
    """The agent has read what `leave_word` left for it."""

    operation_id: str


AgentSignal: TypeAlias = (
    SessionStarted
    | MessageNamed
    | Said
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
    | PermissionAsked
    | PermissionWithdrawn
    | WordReceived
)


@dataclass(frozen=True, slots=True)
class Granted:
    """It may be called; of what a hook asks about, the agent's own rules decide then."""


@dataclass(frozen=True, slots=True)
class ToBeAsked:
    """For a hook: the agent has to ask for leave, whatever its own rules say."""


@dataclass(frozen=True, slots=True)
class Forbidden:
    """It may not be called; the agent is told why."""

    message: str


Verdict: TypeAlias = Granted | ToBeAsked | Forbidden


@dataclass(frozen=True, slots=True)
class Exited:
    code: int


@dataclass(frozen=True, slots=True)
class Killed:
    signal: int


@dataclass(frozen=True, slots=True)
class TimedOut:
    which: TimeLimit


AgentOutcome: TypeAlias = Exited | Killed | TimedOut


class AgentError(Exception):
    """An agent could not be started or ended; carries a sentence and, where it helps, a hint."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class AgentNotFound(AgentError):
    """The agent's program is not on this machine; the hank or the machine must change."""


class AgentStartFailed(AgentError):
    """The program is there but the kernel refused to run it."""


class AgentOutOfControl(AgentError):
    """The agent disabled what keeps its processes together, and was ended for it."""

    def __init__(self) -> None:
        super().__init__(
            "The agent kept stopping the keeper of its processes (SIGSTOP), so it was ended.",
            hint="Find out what sends SIGSTOP to processes that it did not start.",
        )


class AgentUnkillable(AgentError):
    """Processes of the agent outlived SIGKILL; nothing may touch the work tree until they end."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        listed = ", ".join(str(pid) for pid in pids)
        super().__init__(
            f"Processes of the agent survived SIGKILL: {listed}",
            hint="They hang in the kernel or belong to another user; end them by hand.",
        )
        self.pids = pids


class AgentSession(Protocol):
    """One agent at work, between the start and the end of its processes."""

    @property
    def pid(self) -> int: ...

    @property
    def log_path(self) -> Path: ...

    def signals(self) -> AsyncIterator[AgentSignal]:
        """Tells what the agent says, until it has ended and everything was read. For one reader.

        A reader that is slow slows the agent down; one that stops reading stops it at last.
        Raises OSError at the end if the log could not be written, which also ends the agent, and
        AgentOutOfControl if it was ended because it kept stopping its keeper.
        """

    async def stop(self) -> None:
        """Ends the agent: INT, TERM, KILL of the whole tree; returns when nothing of it lives.

        May be called more than once and while it ends by itself. Raises AgentUnkillable.
        """

    async def pause(self) -> None:
        """Stops every process of the tree where it is; time limits stand still."""

    async def resume(self) -> None:
        """Lets a paused agent go on."""

    def processes(self) -> frozenset[int]:
        """Return the pids of its processes that live now. May be called in any thread."""

    async def leave_word(self, operation_id: str, text: str) -> None:
        """Leaves a message where the agent finds it at its next step (`HANKWEAVE_NOTICES`).

        One that reads it says so with a `WordReceived`; one that cannot never does.
        """

    async def answer(self, asked: PermissionAsked, verdict: Verdict) -> None:
        """Lets the agent go on that asked; one that has ended, or waits no more, needs none."""

    async def wait(self) -> AgentOutcome:
        """Returns how the agent ended, once nothing of its tree lives."""


class Agent(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def can_ask(self) -> bool:
        """Tells whether it waits for leave where `AgentTask.asks` demands that."""

    @property
    def waits_before_tools(self) -> bool:
        """Tell whether it says before each tool that may change files, and waits for an answer."""

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        """Starts the agent; leaving the context kills whatever of its tree still lives.

        Raises AgentNotFound or AgentStartFailed on entering, AgentUnkillable on leaving.
        """

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        """Names the files by which a session is resumed, there or not; no two of one name.

        `environment` is the codon's `env`. Nothing for an agent that keeps none.
        """


_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_file_name(session_id: str) -> bool:
    """Tells whether a session's id, which an agent made up, can safely be part of a path."""
    return _FILE_NAME.fullmatch(session_id) is not None
