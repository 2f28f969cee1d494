"""Answer the permission requests of a codon's agent: by the lists, a client, or a timeout.

Every decision is durable before the agent gets it. A pending request blocks nothing else: other
signals of the agent are recorded, and more requests may be pending beside it. A request ends with
whatever ends the codon; an agent that is being stopped needs no answer.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from hankweave_protocol import instants
from hankweave_protocol.events import PermissionRequested, PermissionResolved
from hankweave_protocol.hank import Permissions
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import PendingPermission
from hankweave_protocol.state import PermissionRule
from hankweave_protocol.transitions import PermissionRuleAdded
from hankweave_server.agents.base import (
    AgentSession,
    AgentSignal,
    Forbidden,
    Granted,
    PermissionAsked,
    PermissionWithdrawn,
    ToBeAsked,
)
from hankweave_server.background_tasks import task_group
from hankweave_server.domain.permission_patterns import (
    Call,
    Kind,
    MalformedPattern,
    Pattern,
    PatternPlace,
    arguments_of,
    parse,
)
from hankweave_server.domain.permissions import (
    NeedsAnswer,
    PermissionPolicy,
    PermissionVerdict,
    answer_on_expiry,
    by_policy,
    is_asked_for,
    policy_of,
    refusal,
    suggestion_for,
)
from hankweave_server.execution.codon.event_recorder import readable
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.context import ExecutionContext, PendingRequest

MOST_WAITING = 100
"""Pending requests of one agent; further ones are denied."""

AGENT_ENDED = "The agent has ended."
WITHDRAWN = "The agent is no longer waiting for an answer."


class Permits:
    """The permission requests of one codon's agent, and their answers."""

    def __init__(
        self,
        ctx: ExecutionContext,
        record: CodonRecord,
        permissions: Permissions | None,
        files: anyio.Lock,
        *,
        on_denied: Callable[[str], None] = lambda _tool: None,
    ) -> None:
        """`files` is held while the agent is frozen. Without permissions everything is allowed.

        `on_denied` is called with the tool of each denied call, except when the agent's end denied
        it.
        """
        self._ctx = ctx
        self._record = record
        self._policy = None if permissions is None else policy_of(permissions)
        self._files = files
        self._on_denied = on_denied
        self._waiting: dict[str, PendingRequest] = {}
        """Keyed by the agent's own id for its request."""
        self._over: str | None = None
        """Why no request is kept pending any more."""
        self.has_asked_people = False
        """The hank's lists did not decide: a person did, or none answered in time."""

    @asynccontextmanager
    async def handling(self) -> AsyncIterator[TaskGroup]:
        """Provide a task group while an agent may ask; the end settles what is pending."""
        async with task_group() as tasks:
            yield tasks
            self._settle_all(AGENT_ENDED)

    def end(self, why: str) -> None:
        """Settle pending and all later requests: the codon is being ended."""
        self._over = why
        self._settle_all(why)

    async def handle(self, signal: AgentSignal, session: AgentSession, tasks: TaskGroup) -> None:
        """Answer a request, at once or as soon as it is decided."""
        match signal:
            case PermissionAsked():
                await self._answer(signal, session, tasks)
            case PermissionWithdrawn(request_id=request_id) if request_id in self._waiting:
                self._waiting[request_id].settle_by(_ended(WITHDRAWN))
            case _:
                pass

    async def _answer(
        self, asked: PermissionAsked, session: AgentSession, tasks: TaskGroup
    ) -> None:
        if self._policy is None:
            await session.answer(asked, Granted())
            return

        call = await anyio.to_thread.run_sync(call_of, asked, self._ctx.layout.work_tree)
        if asked.by_hook:
            await self._apply_denials(asked, call, self._policy, session)
            return

        judged = self._policy.judge(call, self._added_rules())
        if not isinstance(judged, NeedsAnswer):
            await self._settle(
                asked, self._ctx.permission_requests.new_id(), by_policy(judged), session
            )
        elif self._over is not None:
            await self._resolve(asked, self._ctx.permission_requests.new_id(), _ended(self._over))
        elif len(self._waiting) >= MOST_WAITING:
            many = PermissionVerdict(
                "deny", "policy", message=f"{MOST_WAITING} requests are already pending."
            )
            await self._settle(asked, self._ctx.permission_requests.new_id(), many, session)
        elif asked.request_id not in self._waiting:
            waiting = self._add_request(asked, call, self._policy, judged.reason)
            requested = msgspec.structs.asdict(waiting.request)
            await self._record.append(PermissionRequested(**requested))
            tasks.start_soon(self._wait, asked, waiting, self._policy, session)

    async def _apply_denials(
        self, asked: PermissionAsked, call: Call, policy: PermissionPolicy, session: AgentSession
    ) -> None:
        """Apply what no rule of the agent's own can change; it asks for permission after this."""
        if (denied := policy.denied(call)) is not None:
            await self._settle(
                asked, self._ctx.permission_requests.new_id(), by_policy(denied), session
            )
        else:
            await session.answer(asked, ToBeAsked() if is_asked_for(call.tool) else Granted())

    def _added_rules(self) -> Iterator[Pattern]:
        """Yield the rules of earlier answers; one that a redaction has changed allows nothing."""
        for added in self._ctx.state.permission_rules:
            with suppress(MalformedPattern):
                yield parse(added.rule)

    def _add_request(
        self, asked: PermissionAsked, call: Call, policy: PermissionPolicy, reason: str
    ) -> PendingRequest:
        self.has_asked_people = True
        expires_at = instants.to_text(self._ctx.clock.now() + policy.timeout)
        waiting = self._ctx.permission_requests.add(
            PendingPermission(
                codon_id=self._record.entry.codon_id,
                request_id=self._ctx.permission_requests.new_id(),
                tool_name=asked.name,
                tool_input=readable(asked.input),
                expires_at=expires_at,
                reason=reason,
                suggestion=suggestion_for(call),
                on_expiry=policy.on_timeout,
            ),
            call,
        )
        self._waiting[asked.request_id] = waiting
        return waiting

    async def _wait(
        self,
        asked: PermissionAsked,
        waiting: PendingRequest,
        policy: PermissionPolicy,
        session: AgentSession,
    ) -> None:
        try:
            with (
                self._registered(asked, waiting),
                anyio.move_on_after(policy.timeout.total_seconds()),
            ):
                await waiting.answered.wait()

            answer = waiting.answer or answer_on_expiry(policy)
            await self._settle(asked, waiting.request.request_id, answer, session)
        finally:
            waiting.settled.set()

    @contextmanager
    def _registered(self, asked: PermissionAsked, waiting: PendingRequest) -> Iterator[None]:
        """Remove the request from the pending ones at the end of the block, even on error."""
        try:
            yield
        finally:
            self._ctx.permission_requests.remove(waiting)
            del self._waiting[asked.request_id]

    async def _settle(
        self,
        asked: PermissionAsked,
        request_id: str,
        answer: PermissionVerdict,
        session: AgentSession,
    ) -> None:
        await self._resolve(asked, request_id, answer)
        if answer.by == "ended":
            return

        if answer.decision == "deny":
            self._on_denied(asked.name)

        async with self._files:
            pass  # A frozen agent would not read its answer.

        allowed = answer.decision == "allow"
        verdict = Granted() if allowed else Forbidden(refusal(asked.name, answer))
        await session.answer(asked, verdict)

    async def _resolve(
        self, asked: PermissionAsked, request_id: str, answer: PermissionVerdict
    ) -> None:
        codon_id = self._record.entry.codon_id
        added = () if answer.always is None else (_added(answer.always, codon_id, request_id),)
        await self._ctx.ledger.record(
            *added,
            PermissionResolved(
                codon_id=codon_id,
                request_id=request_id,
                tool_name=asked.name,
                decision=answer.decision,
                by=answer.by,
                client_id=answer.client_id,
                rule=answer.rule,
                message=answer.message,
                always=answer.always,
            ),
            run_id=self._record.run_id,
            codon_id=codon_id,
            causes=answer.causes,
        )

    def _settle_all(self, why: str) -> None:
        for waiting in self._waiting.values():
            waiting.settle_by(_ended(why))


def _ended(why: str) -> PermissionVerdict:
    return PermissionVerdict("deny", "ended", message=why)


def _added(rule: str, codon_id: CodonId, request_id: str) -> PermissionRuleAdded:
    return PermissionRuleAdded(
        rule=PermissionRule(rule=rule, codon_id=codon_id, request_id=request_id)
    )


# --- requests as calls in the work tree ----------------------------------------------------------


def call_of(asked: PermissionAsked, work_tree: Path) -> Call:
    """Return a request as a call, with its paths resolved in the work tree."""
    match arguments_of(asked.name, asked.input):
        case None:
            return Call(asked.name)
        case (Kind.PATH, paths):
            return Call(asked.name, places=_places(paths, work_tree))
        case (_, texts):
            return Call(asked.name, texts=texts)


def _places(paths: Iterable[str], work_tree: Path) -> tuple[PatternPlace, ...]:
    """Return where the paths lead; nothing at all if one of them cannot be a path."""
    root = os.path.abspath(work_tree)
    roots = root, os.path.realpath(root)
    try:
        whole = [os.path.join(root, os.path.expanduser(path)) for path in paths]
        return tuple(
            PatternPlace(
                _within(roots, os.path.normpath(path)), _within(roots, os.path.realpath(path))
            )
            for path in whole
        )
    except (OSError, ValueError):
        return ()


def _within(roots: Iterable[str], path: str) -> str:
    for root in roots:
        if path == root or path.startswith(root.rstrip("/") + "/"):
            return os.path.relpath(path, root)

    return path
