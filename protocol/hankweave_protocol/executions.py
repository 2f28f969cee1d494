"""The executions of a user, as `hankweave ls --json` and `executions.list` tell of them."""

from __future__ import annotations

from typing import Literal

from hankweave_protocol.shapes import Value

Standing = Literal[
    "new",
    "running",
    "completed",
    "failed",
    "stopped",
    "crashed",
    "waiting",
    "removing",
    "unreadable",
]


class MapProgress(Value, omit_defaults=False):
    """How far a map is."""

    inputs: int
    """How many it has."""
    completed: int
    """Inputs whose execution has succeeded."""
    failed: int
    """Inputs whose execution has failed, and is not run again unless that is asked for."""
    running: int
    """Inputs whose execution was started and has not ended."""

    @property
    def waiting(self) -> int:
        return self.inputs - self.completed - self.failed - self.running


class ListedExecution(Value, kw_only=True):
    """One execution, as its files tell of it."""

    path: str
    """The directory of the execution."""
    state: Standing
    """`stopped`: its server was ended during a codon, and a start resumes there; `waiting`: a
    branch that has never been served; `removing`: a cleanup was interrupted."""
    hank: str | None = None
    """The path of its hank."""
    data: str | None = None
    """Its data, as it was named."""
    last_codon: str | None = None
    """The newest codon: the one that runs, if one does."""
    last_codon_name: str | None = None
    """What the hank calls its step, with the round of a loop."""
    codons_done: int = 0
    """Entries of the plan on the current line that have succeeded or were skipped."""
    codons_planned: int = 0
    """Entries of the plan."""
    step: int = 0
    """The step that runs or has failed, from 1; otherwise the number of steps that are done. A loop
    is one step with all its iterations. Of a map, the inputs that are done."""
    steps: int = 0
    """Steps of the plan; of a map, its inputs."""
    last_used: str | None = None
    """When a server was last started there, or last saved the state."""
    server_pid: int | None = None
    """The pid of the server that is running there."""
    checkpoints: int | None = None
    """Null if counting would take too long."""
    bytes: int | None = None
    """Null if measuring would take too long."""
    is_branch: bool = False
    """Whether it was made from a checkpoint of another one."""
    attempt: str | None = None
    """The id of the attempt that it is, of an exploration of another execution."""
    in_place: bool = False
    """Whether it is a project that is served in place."""
    problem: str | None = None
    """The reason why it cannot be read."""
    hank_name: str | None = None
    """The name that its hank has given itself, or else that of the hank's folder."""
    attempt_of: str | None = None
    """The execution that is explored, if it is an attempt."""
    cost: float | None = None
    """USD, over all runs; null if the state cannot be read."""
    max_dollars: float | None = None
    """The budget of its last start, in USD; null if there was none."""
    last_activity: str | None = None
    """When its journal or its state last changed."""
    page_url: str | None = None
    """The address of its server's page, without a token; null if no server listens."""
    doing: str | None = None
    """The newest tool call of the codon that runs."""
    waits_for: str | None = None
    """The oldest tool call that waits for a person's permission."""
    answer_until: str | None = None
    """When that call is decided without an answer."""
    waits_until: str | None = None
    """When the codon continues that waits for the end of a provider's limit."""
    failure: str | None = None
    """Why it failed or crashed, or why its last codon failed while it is idle, in a sentence."""
    is_idle: bool = False
    """Whether its server runs nothing until the next command."""
    map_of: str | None = None
    """The directory of the map that it is an execution of."""
    map: MapProgress | None = None
    """Of a map itself: a row without a work tree, whose `path` is its directory. Its numbers of
    codons are those of its inputs."""


class ExecutionPage(Value):
    """The reply to `executions.list`.

    Those that need a person come first, then those that run, then by their last activity.
    """

    executions: tuple[ListedExecution, ...]
    """The executions of this page, without sizes and numbers of checkpoints."""
    total: int
    """How many match, on all pages."""
    needing: int
    """How many of them need a person: they wait for permission, or have failed."""
    cursor: str | None = None
    """Send it to get the next page; absent on the last one."""
    spent: float | None = None
    """USD since `spentSince`, over all executions, whatever was searched for; what a branch or an
    adopted attempt shares with its origin is counted once. Null without `spentSince`."""


class ExecutionAddress(Value):
    """The reply to `executions.address`."""

    page_url: str
    """The address of the page, without a token."""
    token: str | None
    """The token of controllers; null if the server needs none."""
