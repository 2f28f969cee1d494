"""Plan a rollback and decide whether it may happen: everything before the first file moves.

Nothing is modified here. A preview is this plan and nothing else; `rollback` makes the same plan
and then carries it out.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Protocol

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.commands import OnRunning
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.records import (
    Coordinate,
    ForeseenDiff,
    Movement,
    RollbackReport,
    RunsAgain,
)
from hankweave_protocol.state import Continuation, State
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.checkpoints.model import RestorePlan
from hankweave_server.clock import Clock
from hankweave_server.domain.budget.estimates import runs_again
from hankweave_server.domain.checkpoints.titles import title_of
from hankweave_server.domain.effects.recorded import UNSEEN, effects_in, is_plain_program
from hankweave_server.domain.execution_thread import (
    end_checkpoint,
    is_done,
    now_coordinate,
    restored_checkpoint,
    thread,
    waiting_run,
)
from hankweave_server.domain.targets import RollbackTarget
from hankweave_server.domain.undo import leftovers
from hankweave_server.execution.checkpoint_access import CheckpointAccess
from hankweave_server.execution.maintenance.progress import ProgressWatch
from hankweave_server.execution.rollback import user_edits, warnings
from hankweave_server.execution.rollback.events import left_alone, preview_diff, shortened, touched
from hankweave_server.execution.rollback.unrestored import exceptions_of
from hankweave_server.git.errors import InsufficientSpace
from hankweave_server.ledger.digest import JournalDigest
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout
from hankweave_server.worktree.databases import base_of
from hankweave_server.worktree.names import shown

LISTED = 100
"""Effects listed by name; of any more, only the number is reported."""


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """A rollback as it was requested."""

    target: RollbackTarget
    direction: Movement = "back"
    paths: frozenset[bytes] | None = None
    """Files and folders; None means the whole work tree."""
    on_running: OnRunning = "refuse"
    keep_edits: bool = False
    auto_restart: bool = False
    rewind_memory: bool = False
    reason: str | None = None
    reuse_after: CodonId | None = None
    """The codon that is run again, and after which earlier results are taken over."""
    after_crash: bool = False
    """The work tree may hold what an agent wrote before its server died."""
    is_automatic: bool = False
    """No command asked for it: edits by people stay, except in files that an agent changed too."""
    contenders: frozenset[str] = frozenset()
    """Files that an agent changed elsewhere, in the attempt of an exploration."""

    @property
    def sha(self) -> Sha:
        return self.target.checkpoint.sha

    @property
    def moves_files_only(self) -> bool:
        """Return whether no run ends and HEAD stays."""
        return self.paths is not None or self.direction == "retry" or self.target.is_in_place

    @property
    def rewinds(self) -> bool:
        """Return whether the sessions of agents and sentinels are rewound too.

        An undo follows the rollback it undoes: the safety checkpoint holds the sessions that it
        rewound.
        """
        undone = self.target.undone
        return self.rewind_memory or (undone is not None and undone.rewound_memory)

    @property
    def path_texts(self) -> tuple[str, ...] | None:
        return None if self.paths is None else tuple(sorted(map(shown, self.paths)))


class EffectsJournal(Protocol):
    """The lines of a journal, and which of them tell of effects outside the work tree."""

    @property
    def digest(self) -> JournalDigest: ...

    async def lines(self, since: int, limit: int | None = None) -> list[bytes]: ...


class PlanContext(Protocol):
    """The sources of a plan: a server has it, and so have the files of an idle execution."""

    @property
    def layout(self) -> Layout: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def state(self) -> State: ...

    @property
    def checkpointer(self) -> CheckpointAccess: ...

    @property
    def progress(self) -> ProgressWatch: ...

    @property
    def ledger(self) -> EffectsJournal: ...

    def patterns(self) -> tuple[str, ...]: ...


class RollbackPlanner:
    """Previews, checks and plans for the rollbacks of one execution."""

    def __init__(self, ctx: PlanContext) -> None:
        self._ctx = ctx

    async def preview(
        self,
        request: RollbackRequest,
        causes: tuple[int | str, ...],
        *,
        beside_codon: bool,
        patch: bool,
    ) -> RollbackReport:
        """Return the report of the rollback as things stand, without touching anything."""
        refuse_half_a_rewind(request)
        left = self.leftovers(request, beside_codon=beside_codon)
        plan = await self.plan(request.sha, request.paths, left, causes)
        found = user_edits.conflicts(self._ctx.state, plan, leftovers=left)
        kept = frozenset(found) if request.keep_edits else frozenset[bytes]()
        obstacles = await self._ctx.checkpointer.call(lambda engine: engine.obstacles(plan))
        in_the_way = tuple(each for each in obstacles if each.path not in kept)
        stays = kept.union(each.path for each in in_the_way)
        losses = await self._ctx.checkpointer.call(lambda engine: engine.preview_losses(plan))
        warned = await warnings.of_rollback(
            self._ctx.state,
            self._ctx.layout.work_tree,
            plan,
            kept,
            direction=request.direction,
            passed=()
            if request.moves_files_only
            else [entry.codon.codon_id for entry in request.target.passed],
            rewinds=request.rewinds,
        )
        report = shortened(
            RollbackReport(
                target=request.target.checkpoint.coordinate,
                target_title=title_of(request.target.checkpoint),
                source=self.now(),
                safety=None,
                added=touched(entry for entry in plan.added if entry.path not in stays),
                updated=touched(entry for entry in plan.updated if entry.path not in stays),
                removed=touched(entry for entry in plan.removed if entry.path not in stays),
                kept=user_edits.listed(kept),
                conflicts=user_edits.listed(found),
                skipped=left_alone(plan.kept),
                recovered=False,
                external_effects=await self.effects_since(request.target.place),
                note=request.target.note,
                warnings=(
                    *warned,
                    *warnings.of_attributes(each for each in losses if each.path not in kept),
                ),
                cannot_restore=exceptions_of(in_the_way),
                runs_again=None
                if request.moves_files_only
                else self.runs_again(request.target.after_codon, request.target.place),
            )
        )
        if not patch:
            return report

        return msgspec.structs.replace(report, diffs=await self._preview_diffs(plan, report))

    def is_there_already(self, request: RollbackRequest, plan: RestorePlan) -> bool:
        """Return whether files and plan already stand at the target: there is nothing to do.

        To be asked when no codon runs.
        """
        target, state = request.target, self._ctx.state
        moves_more = (
            request.rewinds
            or request.moves_files_only
            or request.reuse_after is not None
            or target.undone is not None
        )
        if moves_more or not plan.changes_nothing or target.passed:
            return False

        waiting = waiting_run(state)
        if waiting is not None:
            conditions = waiting.starting_conditions
            assert isinstance(conditions, Continuation), "a rollback opened it"
            source = conditions.source
            return (source.checkpoint_sha, source.after_codon, source.conversation) == (
                request.sha,
                target.after_codon,
                None,
            )

        newest = thread(state)[-1:]
        return any(
            entry.codon.codon_id == target.after_codon
            and is_done(entry.codon, state.execution_plan)
            and end_checkpoint(entry.codon) == request.sha
            for entry in newest
        )

    def leftovers(self, request: RollbackRequest, *, beside_codon: bool) -> tuple[str, ...]:
        """Return the rig targets that are removed too: none if only files move.

        `beside_codon` is true while a codon runs.
        """
        if request.moves_files_only or beside_codon:
            return ()

        passed = {entry.codon.codon_id for entry in request.target.passed}
        return leftovers(self._ctx.state, passed)

    async def plan(
        self,
        sha: Sha,
        paths: frozenset[bytes] | None,
        leftovers: tuple[str, ...] = (),
        causes: tuple[int | str, ...] = (),
        *,
        reports: bool = False,
    ) -> RestorePlan:
        """Compute what will change; if it `reports`, with what has changed since the last scan.

        Raises Refused for a checkpoint that is gone or damaged, and for a disk without enough
        space.
        """
        checkpointer = self._ctx.checkpointer
        try:
            with self._ctx.progress.watching("restore", causes) as meter:
                rigs = frozenset(map(os.fsencode, leftovers))
                return await checkpointer.plan_restore(
                    sha, self._ctx.patterns, paths, meter, rigs, reports=reports
                )
        except CheckpointNotFound:
            raise Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                f"Checkpoint {sha[:12]} was pruned.",
                path="$.data.checkpointSha",
                hint=Hint.CHECKPOINTS,
            ) from None
        except CheckpointDamaged as error:
            first = error.damages[0]
            raise Refused(
                ErrorCode.CHECKPOINT_DAMAGED,
                f"Checkpoint {sha[:12]} cannot be read: {error.damage}.",
                hint=f"First: {first.kind} {first.sha} at {os.fsdecode(first.path)!r}. "
                "`hankweave fsck --repair` restores what can be found.",
            ) from None
        except InsufficientSpace as error:
            raise Refused(
                ErrorCode.INSUFFICIENT_SPACE,
                f"The rollback needs {error.need} bytes, but only {error.free} are free.",
                hint="Free some space and try again; nothing was changed.",
            ) from None

    def now(self) -> Coordinate | None:
        """Return the moment that is left: a restored one or the newest.

        None before any checkpoint.
        """
        state, last_seq = self._ctx.state, self._ctx.state.last_event_seq
        restored = restored_checkpoint(state)
        there = None if restored is None else self._ctx.checkpointer.known.get(restored)
        if there is not None:
            return msgspec.structs.replace(there.coordinate, event_seq=last_seq)

        now = now_coordinate(state, last_seq)
        record = None if now is None else self._ctx.checkpointer.known.get(now.checkpoint_sha)
        if now is None or record is None:
            return now

        return msgspec.structs.replace(now, memory_epoch=record.coordinate.memory_epoch)

    def runs_again(self, after_codon: CodonId | None, place: Coordinate) -> RunsAgain | None:
        """Return the steps that run again if work continues after a codon, from that place."""
        now = self._ctx.clock.now()
        return runs_again(self._ctx.state, after_codon, now, place.checkpoint_sha)

    async def effects_since(self, target: Coordinate) -> tuple[str, ...]:
        """Name what was done outside the work tree since the target; nothing can revert it.

        The last line says that there may be more, if anything ran that can do more than was seen.
        """
        ctx, seq = self._ctx, target.event_seq
        digest, plan = ctx.ledger.digest, ctx.state.execution_plan
        listed: list[str] = []
        is_unseen = digest.effects.last_command > seq
        for number in digest.effects.after(seq):
            for line in await ctx.ledger.lines(number - 1, 1):
                try:
                    event = codec.decode_event(line)
                except msgspec.MsgspecError:
                    listed.append("an event that cannot be read")
                    continue

                listed += effects_in(event, plan, ctx.layout.inside)
                is_unseen = is_unseen or is_plain_program(event, plan)

        if len(listed) > LISTED:
            listed[LISTED:] = [f"and {len(listed) - LISTED} more"]

        return (*listed, UNSEEN) if is_unseen else tuple(listed)

    async def _preview_diffs(
        self, plan: RestorePlan, report: RollbackReport
    ) -> tuple[ForeseenDiff, ...]:
        """Return the changes, line by line, to the files that the report lists."""
        files = (*report.added, *report.updated, *report.removed)
        listed = frozenset(os.fsencode(file.path) for file in files)
        part = dataclasses.replace(
            plan,
            added=tuple(entry for entry in plan.added if entry.path in listed),
            updated=tuple(entry for entry in plan.updated if entry.path in listed),
            removed=tuple(entry for entry in plan.removed if entry.path in listed),
        )
        return tuple(
            preview_diff(diff)
            for diff in await self._ctx.checkpointer.call(lambda engine: engine.preview_diffs(part))
        )


async def files_of_both(
    ledger: Ledger, request: RollbackRequest, plan: RestorePlan, held: frozenset[bytes]
) -> frozenset[str]:
    """Return the files of a plan that a person and an agent both changed since the target.

    None of `held`, which other programs have open, can be taken back.
    """
    since = request.target.checkpoint.coordinate.event_seq
    work = await user_edits.work_since(ledger, since)
    both = work.by_both() | (work.people & request.contenders)
    touched = (*plan.added, *plan.updated, *plan.removed)
    bases = frozenset(map(base_of, held))
    return both & {shown(each.path) for each in touched if base_of(each.path) not in bases}


def refuse_half_a_rewind(request: RollbackRequest) -> None:
    """Refuse to rewind sessions for some paths only, or under a running agent.

    Sessions go back only together with the whole execution.
    """
    if request.rewinds and (request.paths is not None or request.on_running == "pause"):
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            "Memory can only be rewound with the whole work tree, and while no agent is running.",
            path="$.data.rewindMemory",
            hint=Hint.MEMORY_OF_PART,
        )
