"""Take over the result of an earlier codon with the same inputs, instead of running an agent.

`domain.reuse` defines which inputs count. This module collects them when the rig of a codon has
run, and restores the result of another one.

A takeover is an ordinary codon whose work is a restore: its record is `preparing`, its rig runs as
always (what it leaves outside the tracked files is in no checkpoint), the files are restored, its
own `completed` checkpoint is taken, and its record becomes `completed` without an agent. So a crash
needs no protocol of its own. The next start finds a codon that was cut short, rolls the files back
to the last success as after any crash, and the codon begins again.

Whatever keeps the result from being restored exactly (its checkpoint was pruned, is damaged, lacks
files, or its conversation is lost) is no error: the codon runs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import anyio.to_thread

from hankweave_protocol.errors import Refused
from hankweave_protocol.events import CodonKeyed, ExitStatus, Info
from hankweave_protocol.hank import Codon, RigCommand, RigCopy
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.state import FailureReason, PlanEntry, PreparingCodon, TerminalCodon
from hankweave_server.agents.base import AgentError
from hankweave_server.checkpoints.diff import Fingerprint, Incomparable
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.checkpoints.model import RestorePlan
from hankweave_server.confinement import landlock
from hankweave_server.confinement.policy import Level
from hankweave_server.domain import lifecycle
from hankweave_server.domain.confinement import confinement_of
from hankweave_server.domain.execution_thread import previous_session, run_named
from hankweave_server.domain.permissions import permissions_of
from hankweave_server.domain.reuse.decision import (
    TAKING_OVER,
    EarlierResult,
    candidates,
    is_wanted,
    obstacle,
)
from hankweave_server.domain.reuse.key import CodonInputs, digests_of, reuse_key
from hankweave_server.errors import Stop
from hankweave_server.execution.codon.agent_turn import prompts_of
from hankweave_server.execution.codon.confinement import wanted_confinement
from hankweave_server.execution.codon.environment import granted
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.resume import taken_up
from hankweave_server.git.errors import (
    InsufficientSpace,
    ShadowRepositoryError,
    is_out_of_space,
)
from hankweave_server.worktree.data_listing import TooManyFiles
from hankweave_server.worktree.names import shown

_VOLATILE = frozenset({"_", "COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "WINDOWID"})
_VOLATILE_PREFIXES = ("DBUS_", "HANKWEAVE_", "SSH_", "TERM_", "XDG_SESSION_")
"""Variables that differ from one login to the next, or that configure the server."""


_UNKNOWN = "unknown"


class _NotKeyed(Exception):
    """A codon's inputs cannot be determined, so its result is not reused; str: why, a clause."""


def wants_reuse(ctx: ExecutionContext, run_id: RunId, entry: PlanEntry) -> bool:
    """Return whether a codon that begins in this run is to take over an earlier result."""
    run = run_named(ctx.state, run_id)
    reuse_after = None if run is None else run.reuse_after
    overrides = ctx.hank.hank.overrides
    return is_wanted(entry.codon_id, entry.codon, overrides, ctx.reuse, reuse_after)


async def keyed(ctx: ExecutionContext, entry: PlanEntry) -> CodonKeyed:
    """Return the inputs of a codon whose rig has run, with their key or why there is none.

    `entry` has the codon as the hank has it, with its secrets.
    """
    try:
        found = await _files_of(ctx)
        inputs = await anyio.to_thread.run_sync(partial(_inputs, ctx, entry, found))
    except (_NotKeyed, TooManyFiles) as why:
        return CodonKeyed(codon_id=entry.codon_id, reason=str(why))
    except (OSError, ShadowRepositoryError, Stop, AgentError, *_UNREADABLE) as error:
        unread = f"its inputs cannot be read: {error}"
        return CodonKeyed(codon_id=entry.codon_id, reason=unread)

    reason, changed = _obstacle(ctx, entry, inputs), found.changed
    return CodonKeyed(
        codon_id=entry.codon_id,
        reuse_key=reuse_key(inputs) if reason is None else None,
        reason=reason,
        inputs=digests_of(inputs),
        checkpoint_sha=found.base,
        changed=None if changed is None else {shown(p): each for p, each in changed.items()},
    )


def _obstacle(ctx: ExecutionContext, entry: PlanEntry, inputs: CodonInputs) -> str | None:
    """Return why the codon cannot be compared with others, although its inputs are known."""
    codon, probe = entry.codon, ctx.confinement.probe()
    wished = confinement_of(codon, ctx.hank.hank.overrides)
    closes_ports = probe.level is not Level.NONE and landlock.knows_ports(probe.landlock_abi)
    why = obstacle(codon, wished, is_enforced=closes_ports)
    if why is None and taken_up(ctx, entry) is not None:
        return "it continues in the middle of its work"

    if why is None and inputs.agent.version is None:
        return "the version of its agent is unknown"

    if why is None and inputs.conversation == _UNKNOWN:
        return "it continues a conversation that its agent does not keep in a file"

    return why


async def _files_of(ctx: ExecutionContext) -> Fingerprint:
    patterns = ctx.patterns()
    found = await ctx.checkpointer.call(lambda engine: engine.fingerprint(patterns))
    if isinstance(found, Incomparable):
        raise _NotKeyed(found.reason)

    return found


def _inputs(ctx: ExecutionContext, entry: PlanEntry, files: Fingerprint) -> CodonInputs:
    codon, overrides = entry.codon, ctx.hank.hank.overrides
    agent = ctx.identity_of(codon)
    if agent is None:
        raise _NotKeyed("its agent is unknown")

    prompts = prompts_of(ctx, entry)
    tools, idle = granted(ctx), ctx.idle_override or ctx.idle_timeout
    return CodonInputs(
        codon_id=entry.codon_id,
        codon=codon,
        loop=entry.loop_context,
        prompt=prompts.prompt,
        system_prompt=prompts.system_prompt,
        extension=prompts.extension,
        model=ctx.model_for(codon),
        agent=agent,
        permissions=permissions_of(codon, overrides),
        confinement=wanted_confinement(ctx, codon),
        confinement_level=ctx.confinement.probe().level.value,
        tools=(tools.enabled, tools.rollback_paths, find_spec("mcp") is not None),
        rig=_rig_sources(ctx, codon),
        ignores_rig_failures=ctx.ignore_rig_failures,
        idle_seconds=None if idle is None else idle.total_seconds(),
        hank_budget=None if overrides is None else overrides.budget,
        max_cost=ctx.ceilings.max_dollars,
        max_time=ctx.ceilings.max_time_seconds,
        conversation=_conversation(ctx, entry),
        command_environment=_command_environment(codon, os.environ),
        tree=files.tree,
        modes=files.modes,
        patterns=ctx.patterns(),
        data=ctx.data_digest(),
    )


def _rig_sources(ctx: ExecutionContext, codon: Codon) -> dict[str, str]:
    copies = (item.copy.source for item in codon.rig_setup if isinstance(item, RigCopy))
    return {source: _digest_of_tree(ctx.hank.directory / source) for source in copies}


def _command_environment(codon: Codon, host: Mapping[str, str]) -> dict[str, str]:
    """Return hashes of the variables that commands of the codon inherit; none without commands."""
    runs_commands = any(isinstance(item, RigCommand) for item in codon.rig_setup)
    if not (runs_commands or codon.checks):
        return {}

    return {
        name: hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()
        for name, value in host.items()
        if name not in _VOLATILE and not name.startswith(_VOLATILE_PREFIXES)
    }


def _conversation(ctx: ExecutionContext, entry: PlanEntry) -> str | None:
    """Return a hash of the conversation that the codon continues; None if it begins one."""
    codon = entry.codon
    if codon.continuation_mode == "fresh":
        return None

    session = previous_session(ctx.state, entry.codon_id)
    if session is None:
        raise _NotKeyed("there is no conversation that it could continue")

    agent = ctx.agent_for(codon)
    files = agent.memory_of(session, ctx.layout.work_tree, codon.env)
    found = [path for path in files if path.is_file()]
    if not found:
        return _UNKNOWN

    content = hashlib.sha256()
    for path in sorted(found):
        content.update(hashlib.sha256(path.read_bytes()).digest())

    return content.hexdigest()


def _digest_of_tree(top: Path) -> str:
    """Return a hash of a file, or of a folder with everything in it."""
    content = hashlib.sha256()
    for path in _walk(top):
        status = path.lstat()
        name = os.fsencode(path.relative_to(top))
        content.update(repr((name, status.st_mode)).encode())
        if path.is_symlink():
            content.update(os.fsencode(os.readlink(path)))
        elif path.is_file():
            with path.open("rb") as file:
                content.update(hashlib.file_digest(file, "sha256").digest())

    return content.hexdigest()


def _walk(top: Path) -> Iterator[Path]:
    """Yield a path and everything below it, in a fixed order; links are not followed."""
    yield top
    if top.is_dir() and not top.is_symlink():
        for name in sorted(os.listdir(os.fsencode(top))):
            yield from _walk(top / os.fsdecode(name))


# --- taking over ----------------------------------------------------------------------------------

_UNREADABLE = (CheckpointNotFound, CheckpointDamaged, InsufficientSpace, Refused)


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A result that is in the work tree."""

    candidate: EarlierResult
    session_files: frozenset[str]


class NotRestored(Exception):
    """A result is in the work tree only in part."""

    def __init__(self, candidate: EarlierResult, paths: tuple[bytes, ...]) -> None:
        named = ", ".join(map(shown, paths[:3]))
        super().__init__(f"{named} could not be restored from run {candidate.reused.run_id}")

    @property
    def reason(self) -> FailureReason:
        return FailureReason(type="unknown", retriable=True, message=f"Reuse: {self}.")


class Takeover:
    """The takeover of a result by one codon."""

    def __init__(self, ctx: ExecutionContext, record: CodonRecord, inputs: CodonKeyed) -> None:
        self._ctx = ctx
        self._record = record
        self._inputs = inputs

    async def find(self) -> EarlierResult | str:
        """Return the newest result with the same key that can be restored, or why there is none."""
        key, lost = self._inputs.reuse_key, 0
        for candidate in () if key is None else candidates(self._ctx.state, key):
            if await self._plan(candidate) is not None:
                return candidate

            lost += 1

        if key is None:
            return self._inputs.reason or "its inputs are not known"

        if lost:
            return "the checkpoint of the earlier result was pruned, or is damaged or incomplete"

        return "no earlier result has the same inputs"

    def _checkpoint(self, candidate: EarlierResult) -> CheckpointRecord | None:
        found = self._ctx.checkpointer.known.get(candidate.reused.checkpoint_sha)
        return None if found is None or found.partial or found.skipped else found

    async def _plan(self, candidate: EarlierResult) -> RestorePlan | None:
        """Plan the restore, which reads all of the checkpoint; None if it would be incomplete."""
        ctx, checkpointer = self._ctx, self._ctx.checkpointer
        checkpoint = self._checkpoint(candidate)
        if checkpoint is None:
            return None

        try:
            with checkpointer.progress.watching("restore", ()) as meter:
                plan = await checkpointer.plan_restore(
                    checkpoint.sha, ctx.patterns, None, meter, frozenset()
                )
        except _UNREADABLE:
            return None

        obstacles = await checkpointer.call(lambda engine: engine.obstacles(plan))
        return None if plan.kept or obstacles else plan

    async def restore(self, candidate: EarlierResult) -> TakenOver | None:
        """Restore files and conversation; None if that is impossible, with the files unchanged.

        The caller keeps everything else out of the work tree. What the rig has written is in a
        safety checkpoint first. Raises NotRestored if a file changed meanwhile.
        """
        ctx, checkpoint = self._ctx, self._checkpoint(candidate)
        if checkpoint is None or not await self._is_unchanged():
            return None

        plan = await self._plan(candidate)
        if plan is None:
            return None

        safety = await ctx.checkpointer.take(
            "safety",
            run_id=self._record.run_id,
            codon=None,
            codon_name="Before taking over a result",
            patterns=ctx.patterns(),
            label=TAKING_OVER + checkpoint.sha,
            before=plan,
        )
        epoch, session = checkpoint.coordinate.memory_epoch, candidate.codon.claude_session_id
        files, lost = await ctx.checkpointer.restore_session(epoch, session)
        if lost:
            return None

        with ctx.checkpointer.progress.watching("restore", ()) as meter:
            report = await ctx.ledger.space.retry(
                lambda: ctx.checkpointer.restore(
                    checkpoint.sha, safety.sha, None, frozenset(), meter, detaches=False
                ),
                is_short=is_out_of_space,
            )

        if report.unrestored:
            raise NotRestored(candidate, tuple(left.path for left in report.unrestored))

        return TakenOver(candidate, files)

    async def _is_unchanged(self) -> bool:
        """Return whether the files are still those of the key: people may have edited them."""
        now = await keyed(self._ctx, self._record.entry)
        return now.reuse_key == self._inputs.reuse_key

    async def complete(self, restored: TakenOver) -> TerminalCodon:
        """Take the codon's own checkpoint of what was restored, and complete its record."""
        ctx, record, candidate = self._ctx, self._record, restored.candidate
        reused, entry = candidate.reused, record.entry
        label = f"reused from {reused.run_id} {reused.checkpoint_sha[:12]}"
        checkpoint = await ctx.checkpointer.take(
            "completed",
            run_id=record.run_id,
            codon=record.current,
            codon_name=entry.codon.name,
            patterns=ctx.patterns(),
            duration_ms=record.elapsed_ms,
            label=entry.codon.checkpoint_label or label,
            session_id=candidate.codon.claude_session_id or None,
            session_files=restored.session_files,
        )
        done = lifecycle.complete_reused(
            record.expect(PreparingCodon),
            candidate.codon,
            reused,
            end_time=ctx.now_text(),
            checkpoint=checkpoint.sha,
        )
        message = f"Codon {entry.codon_id} was not run: its result is that of run {reused.run_id}."
        await ctx.ledger.post(Info(message=message), run_id=record.run_id, codon_id=entry.codon_id)
        return await record.end(done, ExitStatus(type="success"))
