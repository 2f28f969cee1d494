"""The fence around a codon's agent and commands, and reports of what it refuses.

Commands of a rig, checks and output commands get the same fence as the agent, without the agent's
home and login.

The kernel does not report to an unprivileged server what it refuses. `FenceReporter` therefore
reads the errors that agents and their tools print. It reports a path if the fence forbids it and
this server, which runs as the same user outside the fence, would have been allowed to do it.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import anyio.to_thread
import msgspec

from hankweave_protocol.events import AgentConfined, ErrorEvent
from hankweave_protocol.hank import Codon, Confinement
from hankweave_protocol.ids import CodonId
from hankweave_protocol.replies import ConfinementStatus
from hankweave_server.agents.base import (
    AgentNeeds,
    AgentSignal,
    PlainOutput,
    ResultReported,
    Stderr,
    ToolReturned,
)
from hankweave_server.agents.fence import fence_for, home_directory, status_of
from hankweave_server.confinement.namespaces import is_below
from hankweave_server.confinement.policy import Fence, Policy, Probe
from hankweave_server.domain.confinement import (
    Operation,
    Refusal,
    confinement_of,
    outer_path,
    refusals_in,
    setting_for,
)
from hankweave_server.execution.codon.environment import AgentAccess
from hankweave_server.execution.context import ExecutionContext


async def agent_fence(ctx: ExecutionContext, codon: Codon, access: AgentAccess) -> Fence | None:
    """Return the fence of a codon's agent; None: it is not confined."""
    needs = ctx.agent_for(codon).needs(codon.env)
    return await anyio.to_thread.run_sync(_fence, ctx, codon, needs, access)


async def command_fence(ctx: ExecutionContext, codon: Codon) -> Fence | None:
    """Return the fence of a codon's rig commands, checks and output commands; None: none."""
    return await anyio.to_thread.run_sync(_fence, ctx, codon, AgentNeeds(), None)


def _fence(
    ctx: ExecutionContext, codon: Codon, needs: AgentNeeds, access: AgentAccess | None
) -> Fence | None:
    return fence_for(
        ctx.layout,
        _wanted(ctx, codon, needs),
        needs,
        ctx.confinement.probe().level,
        codon.env,
        given=() if access is None else (access.folder,),
        ports=ctx.confinement.server_ports(),
    )


def wanted_confinement(ctx: ExecutionContext, codon: Codon) -> Confinement:
    """Return the confinement of a codon's agent, with absolute paths."""
    return _wanted(ctx, codon, ctx.agent_for(codon).needs(codon.env))


def _wanted(ctx: ExecutionContext, codon: Codon, needs: AgentNeeds) -> Confinement:
    """Return the confinement of a codon, with absolute paths."""
    chosen, default = ctx.confinement.chosen, ctx.confinement.default
    wanted = confinement_of(codon, ctx.hank.hank.overrides, chosen=chosen, default=default)
    is_readonly = wanted.profile == "workspace" and not needs.may_change_files
    return msgspec.structs.replace(
        wanted,
        profile="readonly" if is_readonly else wanted.profile,
        extra_read=_absolute(ctx, wanted.extra_read),
        extra_write=_absolute(ctx, wanted.extra_write),
    )


def _absolute(ctx: ExecutionContext, paths: tuple[str, ...]) -> tuple[str, ...]:
    home, folder = home_directory(), str(ctx.hank.directory)
    return tuple(outer_path(path, home=home, hank_directory=folder) for path in paths)


UNCONFINED = (
    "Agents are not confined on this machine: they run with all of your rights. "
    "SECURITY.md says what helps; `hankweave run --require-confinement` refuses to start then."
)


WEAKER = (
    "Agents are confined at the level {level}, because a stronger one does not work here. "
    "`hankweave status` lists what that does not cover."
)


def warning(status: ConfinementStatus, probe: Probe) -> ErrorEvent | None:
    """Return what to tell at the start: that agents are confined less than they might be."""
    if status.profile == "none" or not probe.reasons:
        return None

    sentence = UNCONFINED if status.level == "none" else WEAKER.format(level=status.level)
    reasons = "; ".join(f"{level}: {why}" for level, why in probe.reasons.items())
    return ErrorEvent(message=f"{sentence} ({reasons})", fatal=False, severity="warning")


def status(ctx: ExecutionContext, probe: Probe) -> ConfinementStatus:
    """Return what confines the agents of codons that do not set their own confinement."""
    nothing = Codon(id="-", name="-", model="-", continuation_mode="fresh")
    chosen, default = ctx.confinement.chosen, ctx.confinement.default
    wanted = confinement_of(nothing, ctx.hank.hank.overrides, chosen=chosen, default=default)
    return status_of(ctx.layout, probe, wanted.profile)


# --- refusals -------------------------------------------------------------------------------------

_TMP = "/tmp"
_MOST_REPORTS = 20
"""Paths reported for one codon: a program that searches everywhere would fill the journal."""


class FenceReporter:
    """Reports of the paths that the fence of one codon has refused, each path once."""

    def __init__(self, ctx: ExecutionContext, codon: Codon, codon_id: CodonId) -> None:
        self._ctx = ctx
        self._codon = codon
        self._codon_id = codon_id
        self._reported: set[tuple[str, str]] = set()

    async def in_signal(
        self, signal: AgentSignal, fence: Fence | None
    ) -> tuple[AgentConfined, ...]:
        """Return the events for what an agent has printed."""
        match signal:
            case ToolReturned(result=text) | ResultReported(text=text):
                return await self.in_text(text, fence)
            case Stderr(line=text) | PlainOutput(line=text):
                return await self.in_text(text, fence)
            case _:
                return ()

    async def in_text(self, text: str, fence: Fence | None) -> tuple[AgentConfined, ...]:
        """Return the events for the errors in a text that the fence explains."""
        if fence is None or fence.is_open or len(self._reported) >= _MOST_REPORTS:
            return ()

        refusals = tuple(dict.fromkeys(refusals_in(text)))
        if not refusals:
            return ()

        return await anyio.to_thread.run_sync(partial(self._events, refusals, fence.policy))

    def _events(self, refusals: tuple[Refusal, ...], policy: Policy) -> tuple[AgentConfined, ...]:
        events = []
        for refusal in refusals:
            operation = refused_by(policy, refusal)
            if operation is None:
                continue

            key = (refusal.path, operation)
            if key not in self._reported and len(self._reported) < _MOST_REPORTS:
                self._reported.add(key)
                events.append(self._event(refusal.path, operation, policy))

        return tuple(events)

    def _event(self, path: str, operation: Operation, policy: Policy) -> AgentConfined:
        overrides = self._ctx.hank.hank.overrides
        is_hidden = _is_hidden(os.path.realpath(path), policy)
        setting = None
        advice = _why_hidden(path, self._ctx.layout.state_directory)
        if not is_hidden:
            work_tree = str(self._ctx.layout.work_tree)
            opened = to_open(path, operation, work_tree)
            setting = setting_for(opened, operation, self._codon, overrides)
            advice = f"To allow it, set {setting} in the hank."
            if os.path.isdir(opened) and is_broad(opened, work_tree):
                advice += f" That opens all of {opened}: name a part of it, if one is enough."

        verb = "change" if operation == "write" else "read"
        return AgentConfined(
            codon_id=self._codon_id,
            path=path,
            operation=operation,
            setting=setting,
            message=f"The sandbox around the agent did not let it {verb} {path}. {advice}",
        )


def refused_by(policy: Policy, refusal: Refusal) -> Operation | None:
    """Return the operation on a path that the policy refused; None if it did not refuse any.

    The user must be allowed to do it: otherwise the file's mode is what refused it.
    """
    path = os.path.realpath(refusal.path)
    if _is_hidden(path, policy):
        return (refusal.operation or "read") if os.path.lexists(path) else None

    if _is_among(path, policy.write):
        return None

    is_readable = _is_among(path, policy.read)
    if refusal.is_missing:
        # Only where the fence replaces what is there, a path can be missing that exists outside.
        folder = os.path.dirname(path)
        replaced = (_TMP, *policy.concealed)
        is_replaced = any(folder != each and is_below(folder, each) for each in replaced)
        exists = os.path.lexists(path) or (is_replaced and os.path.isdir(folder))
        return (refusal.operation or "read") if exists and not is_readable else None

    if is_readable or refusal.operation == "write":
        return "write" if os.access(_nearest(path), os.W_OK) else None

    return "read" if os.path.exists(path) and os.access(path, os.R_OK) else None


def _is_hidden(path: str, policy: Policy) -> bool:
    return _is_among(path, policy.hidden) and not _is_among(path, policy.granted)


def _is_among(path: str, folders: tuple[str, ...]) -> bool:
    return any(is_below(path, os.path.realpath(folder)) for folder in folders)


def _nearest(path: str) -> str:
    """Return the path, or the nearest folder above it that exists."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)

    return path


def to_open(path: str, operation: Operation, work_tree: str) -> str:
    """Return what to open for a path: the folder of a new file, unless that holds much else."""
    nearest = _nearest(path) if operation == "write" else path
    return path if is_broad(nearest, work_tree) else nearest


def is_broad(folder: str, work_tree: str) -> bool:
    """Return whether a folder holds much that no codon needs: a home, or a top folder of the disk.

    So does one that contains the work tree.
    """
    is_home = os.path.dirname(folder) in ("/home", "/Users")
    contains = any(is_below(each, folder) for each in (home_directory(), work_tree))
    return contains or is_home or os.path.dirname(folder) == "/"


def _why_hidden(path: str, state: Path) -> str:
    if is_below(os.path.realpath(path), os.path.realpath(state)):
        return "It belongs to the server, and nothing can open it."

    return (
        "The program behind it would act with all of your rights, outside the fence. If this codon "
        'needs it, set "confinement": "none" for this codon alone.'
    )
