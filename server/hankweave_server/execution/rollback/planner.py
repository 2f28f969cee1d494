"""Plan a rollback and decide whether it may happen: everything before the first file moves.

Nothing is modified here. A preview is this plan and nothing else; `rollback` makes the same plan
and then carries it out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import msgspec

from hankweave_protocol.commands import OnRunning
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import Coordinate, ForeseenDiff, Movement, RollbackReport
from hankweave_protocol.state import Continuation
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.checkpoints.model import RestorePlan
from hankweave_server.domain.history import (
    end_checkpoint,
    is_done,
    now_coordinate,
    restored_checkpoint,
    thread,
    waiting_run,
)
from hankweave_server.domain.targets import RollbackTarget
from hankweave_server.domain.undo import leftovers
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.rollback import user_edits
from hankweave_server.execution.rollback.events import foreseen, left_alone, touched
from hankweave_server.execution.runner import Runner
from hankweave_server.git.errors import InsufficientSpace
from hankweave_server.worktree.names import shown


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
    after_crash: bool = False
    """The work tree may hold what an agent wrote before its server died."""

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


class RollbackPlanner:
    """Previews, checks and plans for the rollbacks of one execution."""

    def __init__(self, ctx: ExecutionContext, runner: Runner) -> None:
        self._ctx = ctx
        self._runner = runner

    async def preview(
        self, journey: RollbackRequest, causes: tuple[int | str, ...] = (), *, patch: bool = False
    ) -> RollbackReport:
        """Return the report that `perform` would give now, without touching anything."""
        left = self.leftovers(journey)
        plan = await self.plan(journey.sha, journey.paths, left, causes)
        found = user_edits.conflicts(self._ctx.state, plan, leftovers=left)
        kept = frozenset(found) if journey.keep_edits else frozenset[bytes]()
        return RollbackReport(
            target=journey.target.checkpoint.coordinate,
            source=self.now(),
            safety=None,
            added=touched(entry for entry in plan.added if entry.path not in kept),
            updated=touched(entry for entry in plan.updated if entry.path not in kept),
            removed=touched(entry for entry in plan.removed if entry.path not in kept),
            kept=user_edits.listed(kept),
            conflicts=user_edits.listed(found),
            skipped=left_alone(plan.kept),
            recovered=False,
            external_effects=await self.effects_since(journey.target.place),
            diffs=await self._foreseen(plan, kept) if patch else (),
            note=journey.target.note,
        )

    def refuse_if_running(self, journey: RollbackRequest) -> None:
        """Raise Refused while a codon runs that the request neither ends nor may freeze."""
        active = self._runner.active
        if journey.on_running == "refuse" or (journey.on_running == "pause" and active is None):
            self._runner.refuse_while_running()
        elif active is not None and self.keeps_active_codon(journey):
            active.refuse_unless_pausable()

    def keeps_active_codon(self, journey: RollbackRequest) -> bool:
        """Return whether the running codon continues afterwards: only files move under it."""
        if journey.on_running != "pause" or self._runner.active is None:
            return False

        return journey.paths is not None or self._is_of_active_codon(journey.target)

    def ends_active_codon(self, journey: RollbackRequest) -> bool:
        """Return whether a codon that was to be paused ends: it does not exist at the target."""
        is_paused = journey.on_running == "pause" and self._runner.active is not None
        return is_paused and not self.keeps_active_codon(journey)

    def is_there_already(self, journey: RollbackRequest, plan: RestorePlan) -> bool:
        """Return whether files and plan already stand at the target: there is nothing to do."""
        target, state = journey.target, self._ctx.state
        moves_more = journey.rewinds or journey.moves_files_only or target.undone is not None
        if moves_more or not plan.changes_nothing or target.passed or self._runner.active:
            return False

        waiting = waiting_run(state)
        if waiting is not None:
            conditions = waiting.starting_conditions
            assert isinstance(conditions, Continuation), "a rollback opened it"
            source = conditions.source
            return (source.checkpoint_sha, source.after_codon, source.conversation) == (
                journey.sha,
                target.after_codon,
                None,
            )

        newest = thread(state)[-1:]
        return any(
            entry.codon.codon_id == target.after_codon
            and is_done(entry.codon, state.execution_plan)
            and end_checkpoint(entry.codon) == journey.sha
            for entry in newest
        )

    def _is_of_active_codon(self, target: RollbackTarget) -> bool:
        """Return whether the target belongs to the codon that runs now.

        That holds for its own checkpoints and for safety checkpoints taken while it was frozen.
        """
        record = target.checkpoint
        entries = thread(self._ctx.state)
        newest = entries[-1] if entries else None
        active = self._runner.active
        return (
            newest is not None
            and active is not None
            and record.coordinate.run_id == newest.run_id
            and (target.is_in_place or record.coordinate.codon_id == newest.codon.codon_id)
            and record.coordinate.event_seq >= active.first_seq
        )

    def leftovers(self, journey: RollbackRequest) -> tuple[str, ...]:
        """Return the rig targets that are removed too: none if only files move."""
        if journey.moves_files_only or self._runner.active is not None:
            return ()

        passed = {entry.codon.codon_id for entry in journey.target.passed}
        return leftovers(self._ctx.state, passed)

    async def plan(
        self,
        sha: Sha,
        paths: frozenset[bytes] | None,
        leftovers: tuple[str, ...] = (),
        causes: tuple[int | str, ...] = (),
    ) -> RestorePlan:
        """Compute what will change.

        Raises Refused for a checkpoint that is gone or damaged, and for a disk without enough
        space.
        """
        checkpointer = self._ctx.checkpointer
        try:
            with checkpointer.progress.watching("restore", causes) as meter:
                rigs = frozenset(map(os.fsencode, leftovers))
                return await checkpointer.plan_restore(sha, self._ctx.patterns, paths, meter, rigs)

        except CheckpointNotFound:
            raise Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                f"Checkpoint {sha[:12]} was pruned.",
                path="$.data.checkpointSha",
                hint="checkpoint.list lists those that remain.",
            ) from None
        except CheckpointDamaged as error:
            first = error.damages[0]
            raise Refused(
                ErrorCode.CHECKPOINT_DAMAGED,
                f"Checkpoint {sha[:12]} cannot be read: {len(error.damages)} objects are damaged.",
                hint=f"First: {first.kind} {first.sha} at {os.fsdecode(first.path)!r}. "
                "`hankweave fsck --repair` restores what can be found.",
            ) from None
        except InsufficientSpace as error:
            raise Refused(
                ErrorCode.INSUFFICIENT_SPACE,
                f"The rollback needs {error.need} bytes, but only {error.free} are free.",
                hint="Free some space and send the command again; nothing was changed.",
            ) from None

    def now(self) -> Coordinate | None:
        """Return the moment that is left: a restored one or the newest.

        None before any checkpoint.
        """
        state, last_seq = self._ctx.state, self._ctx.ledger.last_seq
        restored = restored_checkpoint(state)
        there = None if restored is None else self._ctx.checkpointer.known.get(restored)
        if there is not None:
            return msgspec.structs.replace(there.coordinate, event_seq=last_seq)

        now = now_coordinate(state, last_seq)
        record = None if now is None else self._ctx.checkpointer.known.get(now.checkpoint_sha)
        if now is None or record is None:
            return now

        return msgspec.structs.replace(now, memory_epoch=record.coordinate.memory_epoch)

    async def effects_since(self, target: Coordinate) -> tuple[str, ...]:
        """Name what was done outside the work tree since the target; nothing can revert it."""
        return await user_edits.since(self._ctx.ledger, target.event_seq)

    async def _foreseen(
        self, plan: RestorePlan, kept: frozenset[bytes]
    ) -> tuple[ForeseenDiff, ...]:
        found = await self._ctx.checkpointer.foresee(plan)
        return tuple(foreseen(diff) for diff in found if diff.path not in kept)


def refuse_half_a_rewind(journey: RollbackRequest) -> None:
    """Refuse to rewind sessions for some paths only, or under a running agent.

    Sessions go back only together with the whole execution.
    """
    if journey.rewinds and (journey.paths is not None or journey.on_running == "pause"):
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            "Memory can only be rewound with the whole work tree, and while no agent is running.",
            path="$.data.rewindMemory",
            hint="Leave out paths and onRunning: pause, or leave out rewindMemory.",
        )
