"""The context of one execution: the collaborators and settings that its drivers need.

The composition root builds it once. Also here: the permission requests of agents that wait for a
client's answer, the form in which the hank is recorded, and the present values of the hank's
variables (its own, and answers its codons have captured).
"""

from __future__ import annotations

import random
import re
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import anyio
import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import EventData
from hankweave_protocol.hank import Codon, ConfinementProfile, Hank
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import PendingPermission
from hankweave_protocol.state import PlanEntry, State, Tokens
from hankweave_server.agents.base import Agent
from hankweave_server.clock import Clock
from hankweave_server.confinement.policy import Level, Probe
from hankweave_server.domain.budget.allowance import NO_CEILINGS, Ceilings
from hankweave_server.domain.conditions import parse
from hankweave_server.domain.execution_thread import answers_of, thread
from hankweave_server.domain.permission_patterns import Call, MalformedPattern
from hankweave_server.domain.permissions import PermissionVerdict, rule_from
from hankweave_server.domain.plan import tracked_patterns
from hankweave_server.domain.reuse.decision import HANK_DECIDES, ReuseSettings
from hankweave_server.domain.reuse.key import AgentIdentity
from hankweave_server.execution.account_limits import AccountLimits
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance.progress import ProgressWatch
from hankweave_server.execution.rollback.guard import TreeGuard
from hankweave_server.hank.load import LoadedHank
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout
from hankweave_server.redaction.redactor import Redactor
from hankweave_server.redaction.rules import MARKER, named_secrets, secrets_in
from hankweave_server.sentinels.providers.base import OpensModels
from hankweave_server.sentinels.providers.registry import Models
from hankweave_server.settings import ALL_SAFE_POINTS, IDLE_SECONDS, SafePoint

MOST_JITTER = 2.0
NOT_SHARED = AccountLimits(None)
REMEMBERED = 1000
"""Answered requests for which a second answer is refused as too late."""


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A pending permission request. The first answer counts."""

    request: PendingPermission
    call: Call
    answer: PermissionVerdict | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set when the answer is on record and was sent to the agent, or no answer will follow."""

    def settle_by(self, answer: PermissionVerdict) -> None:
        if self.answer is None:
            self.answer = answer
            self.answered.set()


class PendingPermissions:
    """The pending permission requests of one execution; the task that adds one also removes it."""

    def __init__(self) -> None:
        self._waiting: dict[str, PendingRequest] = {}
        self._answered: deque[str] = deque(maxlen=REMEMBERED)

    @property
    def pending(self) -> tuple[PendingPermission, ...]:
        """The requests without an answer, the oldest first."""
        return tuple(each.request for each in self._waiting.values() if each.answer is None)

    def new_id(self) -> str:
        """Return a new id that is short enough to be typed."""
        while (name := secrets.token_hex(4)) in self._waiting:
            pass

        return name

    def add(self, request: PendingPermission, call: Call) -> PendingRequest:
        waiting = self._waiting[request.request_id] = PendingRequest(request, call)
        return waiting

    def remove(self, waiting: PendingRequest) -> None:
        del self._waiting[waiting.request.request_id]
        self._answered.append(waiting.request.request_id)

    async def answer(self, request_id: str, answer: PermissionVerdict) -> None:
        """Give a client's answer; return when it is on record. Raises Refused."""
        waiting = self._waiting.get(request_id)
        if request_id in self._answered or (waiting is not None and waiting.answer is not None):
            raise Refused(
                ErrorCode.PERMISSION_ANSWERED,
                f"Request {request_id} has already been answered.",
                path="$.data.requestId",
                hint=Hint.PERMISSION_IS_ANSWERED,
            )

        if waiting is None:
            raise self._unknown(request_id)

        if answer.always is not None:
            _refuse_unfit_rule(answer.always, waiting)

        waiting.settle_by(answer)
        await waiting.settled.wait()

    def _unknown(self, request_id: str) -> Refused:
        listed = ", ".join(each.request_id for each in self.pending)
        return Refused(
            ErrorCode.UNKNOWN_PERMISSION,
            f"There is no pending permission request {request_id}.",
            path="$.data.requestId",
            hint=f"Pending requests: {listed}." if listed else "No requests are pending.",
        )


def _refuse_unfit_rule(text: str, waiting: PendingRequest) -> None:
    try:
        rule_from(text, waiting.call)
    except MalformedPattern as fault:
        suggested = waiting.request.suggestion
        hint = fault.hint if suggested is None else f"For example: {suggested}"
        raise Refused(
            ErrorCode.INVALID_COMMAND, str(fault), path="$.data.always", hint=hint
        ) from None


@dataclass(frozen=True, slots=True)
class ConfinementSettings:
    """How agents and commands are confined, unless the hank says otherwise."""

    probe: Callable[[], Probe] = lambda: Probe(Level.NONE)
    """Find the strongest level of this machine; blocks the first time."""
    chosen: ConfinementProfile | None = None
    """The profile of the command line; overrides the hank."""
    default: ConfinementProfile = "workspace"
    server_ports: Callable[[], tuple[int, ...]] = lambda: ()
    """The TCP ports of this server, which agents must not reach."""


FindsTraceparent = Callable[[RunId, CodonId], str | None]


def untraced(_run_id: RunId, _codon_id: CodonId) -> str | None:
    return None


OpensAgentAccess = Callable[[Path], AbstractAsyncContextManager[None]]
"""Serve one agent on a Unix socket at this path until the block is left; raises OSError."""


def redactor_of(hank: Hank, environment: Mapping[str, str]) -> Redactor:
    """Return a redactor that knows the secrets of the server's environment and of a hank."""
    redactor = Redactor(secrets_in(environment))
    for codon in hank.codons:
        for name, value in named_secrets(codon.env).items():
            redactor.add(name, value)

    return redactor


class HankRecord:
    """The hank as state and journal have it: without secrets, which its codons still run with.

    Every plan is made of this hank, so that it compares equal to the recorded one. A codon of the
    plan is exchanged for the original just before it runs.
    """

    def __init__(self, hank: Hank, redactor: Redactor) -> None:
        self.hank = redactor.value(hank)
        self._originals = {codon.id: codon for codon in hank.codons}

    def original(self, codon: Codon) -> Codon:
        """Return a codon as the hank has it; itself if it is no longer in the hank."""
        whole = self._originals.get(codon.id, codon)
        if whole == codon:
            return codon

        # A marker stands for any value: it may have been set by another start's rules, or by
        # `hankweave redact`.
        kept, *rest = MARKER.split(codec.encode(codon))
        pattern = b".*".join(map(re.escape, (kept, *rest)))
        return whole if rest and re.fullmatch(pattern, codec.encode(whole), re.DOTALL) else codon

    def original_entry(self, entry: PlanEntry) -> PlanEntry:
        """Return an entry of the plan with the codon as the hank has it."""
        codon = self.original(entry.codon)
        return entry if codon is entry.codon else msgspec.structs.replace(entry, codon=codon)


NO_MODELS = Models({})
EVERYTHING = ("**",)


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """The collaborators and settings of one execution."""

    layout: Layout
    clock: Clock
    ledger: Ledger
    checkpointer: Checkpointer
    hank: LoadedHank
    recorded: HankRecord
    agent_for: Callable[[Codon], Agent]
    started_monotonic: float
    models: OpensModels = NO_MODELS
    """The opener of the models that sentinels call."""
    price: Callable[[str, Tokens], float | None] = lambda _model, _tokens: None
    """USD for tokens of a model; None if its price is unknown."""
    ceilings: Ceilings = NO_CEILINGS
    model_for: Callable[[Codon], str] = lambda codon: codon.model
    """The model of a codon under the name its agent uses."""
    tool_result_limit: int = 2500
    """Characters of a tool's result that an event carries (Hankweave's default)."""
    idle_timeout: timedelta | None = timedelta(seconds=IDLE_SECONDS)
    safe_points: frozenset[SafePoint] = ALL_SAFE_POINTS
    """The moments of automatic checkpoints, besides a codon's end."""
    permission_requests: PendingPermissions = field(default_factory=PendingPermissions)
    """The permission requests of agents that wait for an answer."""
    confinement: ConfinementSettings = ConfinementSettings()
    open_agent_access: OpensAgentAccess = lambda _path: nullcontext()
    broadcast: Callable[[EventData], None] = lambda _event: None
    """Send an event that is not kept to all clients."""
    searches: dict[str, anyio.CancelScope] = field(default_factory=dict)
    """The bisections that run, by their ids."""
    guard: TreeGuard = field(default_factory=TreeGuard)
    """The claim of a rollback on the work tree."""
    output_directory: Path | None = None
    """The directory that output files are copied to; None: not copied."""
    overwrite_output: bool = False
    """Replace existing files there; otherwise a copy gets another name."""
    idle_override: timedelta | None = None
    """The idle limit of agents in codons without their own limit; overrides the hank."""
    ignore_rig_failures: bool = False
    accounts: AccountLimits = NOT_SHARED
    """The limits that are known of the accounts of agents."""
    longest_wait: timedelta | None = None
    """The longest wait for the end of a limit; zero: none is waited for."""
    jitter: Callable[[], float] = lambda: random.uniform(0, MOST_JITTER)
    """Seconds to add to the end of a limit, so that not everybody comes back at once."""
    sentinel_persistence: bool | None = None
    """True if sentinels keep their memory; None: as the hank says."""
    traceparent: FindsTraceparent = untraced
    """Returns the trace context for the agent of a run's codon; None if nothing is traced."""
    reuse: ReuseSettings = HANK_DECIDES
    """Whether codons take over earlier results, unless the hank says it."""
    identity_of: Callable[[Codon], AgentIdentity | None] = lambda _codon: None
    """Identify the agent of a codon; None if that is impossible. Blocks; raises OSError."""
    data_digest: Callable[[], str | None] = lambda: None
    """Return a hash over the data; None if there is none. Blocks; raises as `DataListing`."""

    @property
    def state(self) -> State:
        return self.ledger.state

    @property
    def progress(self) -> ProgressWatch:
        return self.checkpointer.progress

    def now_text(self) -> str:
        return instants.to_text(self.clock.now())

    def new_run_id(self) -> RunId:
        """Return a new run id of three parts: epoch milliseconds and two random ones."""
        milliseconds = instants.epoch_ms(self.clock.now())
        return RunId(f"{milliseconds}-{secrets.token_hex(3)}-{secrets.token_hex(3)}")

    @property
    def has_hank(self) -> bool:
        """False for a server that takes checkpoints of a tree and has no plan for it."""
        return bool(self.hank.hank.hank)

    @property
    def default_patterns(self) -> tuple[str, ...]:
        """The patterns tracked if the plan tracks nothing: all of a person's own project."""
        return () if self.has_hank and not self.layout.is_in_place else EVERYTHING

    def patterns(self) -> tuple[str, ...]:
        """Return what is tracked now: the patterns of the plan up to the thread's newest codon."""
        entries = thread(self.state)
        if not entries:
            return self.default_patterns

        plan = self.state.execution_plan
        return tracked_patterns(plan, entries[-1].codon.codon_id) or self.default_patterns


def known(ctx: ExecutionContext) -> Mapping[str, str]:
    """Return the variables of the execution thread: a rollback takes back its answers too."""
    return {**ctx.hank.hank.variables, **answers_of(thread(ctx.state))}


def holds(condition: str, ctx: ExecutionContext) -> bool:
    """Return whether a codon's condition lets it run; the hank's loader has checked its grammar."""
    return parse(condition).holds(known(ctx))
