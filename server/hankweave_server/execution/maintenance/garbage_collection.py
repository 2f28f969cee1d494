"""Pin checkpoints, prune those outside the retention policy, and repair the store.

Pruning deletes what cannot be recreated, so it uses an intent, like a rollback:

    intent     write `prune.intent` durably: the checkpoints that are about to go
    prune      delete them from the repository
    record     `checkpoint.pruned`, naming those that are gone
    forget     remove the intent

The journal is written after the deletion, so it never says that an existing checkpoint is gone. The
intent is written before it, so a crash in between leaves no unexplained loss: the next start
records those checkpoints of the intent that the repository no longer has (`recovered: true`), and
leaves the others alone. A pin is a ref, and the ref is authoritative; `checkpoint.pinned` only
reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import (
    CheckpointPinned,
    CheckpointPruned,
    StoreRepaired,
)
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import (
    CheckpointRecord,
    PruneIntent,
    StoreRepair,
)
from hankweave_protocol.replies import Consolidation, GcReport
from hankweave_protocol.state import State
from hankweave_server import fsutil
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.records import moved_refs
from hankweave_server.checkpoints.repair import Source
from hankweave_server.clock import Clock
from hankweave_server.domain import undo
from hankweave_server.domain.checkpoints.records import OnRecord
from hankweave_server.domain.plan import tracked_patterns
from hankweave_server.domain.retention import (
    Pruning,
    RetentionPolicy,
    journeys_need,
    kept_because,
    of_discarded_attempts,
    reasons,
    thread_needs,
)
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance.repack import Repacker
from hankweave_server.execution.rollback.guard import TreeGuard
from hankweave_server.execution.rollback.intents import standing
from hankweave_server.git.repack import Consolidated
from hankweave_server.ledger.writer import Ledger
from hankweave_server.meter import Meter
from hankweave_server.paths import Layout

Causes = tuple[int | str, ...]

SHAS_PER_EVENT = 1_000
"""Shas in one `checkpoint.pruned` event: some forty kilobytes."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The findings of a gc before it deletes anything."""

    pruning: Pruning
    report: GcReport


class GarbageCollector:
    """Pinning, pruning and repair of one execution's store."""

    def __init__(
        self,
        layout: Layout,
        clock: Clock,
        ledger: Ledger,
        checkpointer: Checkpointer,
        packing: Repacker,
        *,
        guard: TreeGuard,
    ) -> None:
        self._layout = layout
        self._clock = clock
        self._ledger = ledger
        self._checkpointer = checkpointer
        self._packing = packing
        self._guard = guard

    # --- pins ----------------------------------------------------------------------------------

    async def pin(
        self, record: CheckpointRecord, name: str | None, *, pinned: bool, causes: Causes
    ) -> CheckpointRecord:
        """Pin a checkpoint, or remove its pin; no event is recorded if nothing changes."""
        changed = msgspec.structs.replace(record, pinned=pinned, name=name if pinned else None)
        if changed == record:
            return record

        if not await self._checkpointer.pin(changed):
            raise Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                f"Checkpoint {record.sha[:12]} has just been pruned.",
                path="$.data.checkpointSha",
            )

        await self._ledger.record(
            CheckpointPinned(checkpoint_sha=record.sha, pinned=pinned, name=changed.name),
            run_id=record.coordinate.run_id,
            codon_id=record.coordinate.codon_id,
            causes=causes,
        )
        return changed

    # --- gc ------------------------------------------------------------------------------------

    async def preview(self, policy: RetentionPolicy) -> GcReport:
        """Return the report that `collect` would give now, without touching anything."""
        found = await self._checkpointer.call(partial(self._examine, policy))
        return found.report

    async def collect(self, policy: RetentionPolicy, causes: Causes) -> GcReport:
        """Prune by the policy and pack the store; return the report when all is durable."""
        if self._packing.is_stopping:
            raise _stopping()

        async with self._packing.alone:
            with self._checkpointer.progress.watching("gc", causes) as meter:
                report = await self._prune(policy, causes, meter)
                packed = await self._packing.pack(causes, meter)

            after = await self._checkpointer.call(lambda engine: engine.housekeeping.size())

        return msgspec.structs.replace(
            report,
            dry_run=False,
            bytes_after=after.bytes_on_disk,
            consolidated=_consolidation(packed),
        )

    async def _prune(self, policy: RetentionPolicy, causes: Causes, meter: Meter) -> GcReport:
        """Prune to the end, including garbage; return the report of the state before."""
        reports: list[GcReport] = []
        for should_stop in self._packing.stop_conditions():
            try:
                choose = partial(self._choose, policy, reports, meter)
                pruned = await self._checkpointer.prune(choose, should_stop, meter)
            finally:
                # The caller may be gone by now; what was pruned is recorded all the same.
                with anyio.CancelScope(shield=True):
                    await self._record_pruned(causes)

            if pruned.finished:
                lost = None if pruned.unreadable is None else Sha(pruned.unreadable)
                return msgspec.structs.replace(reports[0], unreadable=lost)

        raise _stopping()

    # --- repair --------------------------------------------------------------------------------

    async def repair(self, sources: Iterable[Source], causes: Causes) -> StoreRepair:
        """Rewrite lost objects that can be found, give up the rest, and journal both."""
        if self._packing.is_stopping:
            raise _stopping()

        async with self._packing.alone:
            recorded = self._ledger.digest.checkpoints()
            stamp = str(instants.epoch_ms(self._clock.now()))
            with self._checkpointer.progress.watching("fsck", causes) as meter:
                made = await self._checkpointer.repair(
                    recorded.standing, self._patterns_to_repair, tuple(sources), stamp, meter
                )

            repair = StoreRepair(
                rewritten=made.rewritten[:SHAS_PER_EVENT],
                lost=made.lost,
                moved_refs=moved_refs(made.detached),
                unknown_permissions=made.unknown_manifests,
                quarantine=None if made.quarantine is None else str(made.quarantine),
            )
            if made.has_changed:
                await self._ledger.record(StoreRepaired(repair=repair), causes=causes)

            for at in range(0, len(made.lost), SHAS_PER_EVENT):
                shas = made.lost[at : at + SHAS_PER_EVENT]
                await self._ledger.record(
                    CheckpointPruned(checkpoints=shas, lost=True), causes=causes
                )

            await self.drop_unreachable_rollbacks(causes)

        return repair

    def _patterns_to_repair(self) -> tuple[str, ...]:
        """Return the tracked patterns, when the repair's turn has come; refuse in a rollback."""
        self._guard.refuse_command("store.fsck")
        plan = self._ledger.state.execution_plan
        return tracked_patterns(plan, plan[-1].codon_id) if plan else ()

    # --- gc: choose checkpoints ------------------------------------------------------------------

    def _examine(self, policy: RetentionPolicy, engine: CheckpointEngine) -> Examined:
        """Examine the store in the worker thread; safe, as states and records are immutable."""
        self._guard.refuse_command("store.gc")
        known = dict(self._checkpointer.known)
        return examined(self._layout, self._ledger.state, known, engine, policy, self._clock.now())

    def _choose(
        self,
        policy: RetentionPolicy,
        reports: list[GcReport],
        meter: Meter,
        engine: CheckpointEngine,
    ) -> Pruning:
        """Choose what goes, and write the intent, in the worker thread."""
        meter.begin("examining", "checkpoints")
        found = self._examine(policy, engine)
        reports.append(found.report)
        going = tuple(facts.sha for facts in found.pruning.checkpoints)
        if going:
            moment = instants.to_text(self._clock.now())
            intent = PruneIntent(checkpoints=going, started_at=moment)
            fsutil.replace_durably(self._layout.prune_intent, codec.encode(intent))

        return found.pruning

    # --- record the result -----------------------------------------------------------------------

    async def finish_interrupted(self, recorded: OnRecord) -> int:
        """Record, at a start, what a server pruned without recording it; return the number."""
        return await self._record_pruned((), recorded=recorded)

    async def _record_pruned(self, causes: Causes, recorded: OnRecord | None = None) -> int:
        """Record which checkpoints of the intent are gone, and remove the intent."""
        path = self._layout.prune_intent
        try:
            intent = codec.decode_value(PruneIntent, await anyio.Path(path).read_bytes())
        except FileNotFoundError:
            return 0

        gone = [sha for sha in intent.checkpoints if sha not in self._checkpointer.known]
        unrecorded = [sha for sha in gone if recorded is None or sha in recorded.standing]
        for at in range(0, len(unrecorded), SHAS_PER_EVENT):
            shas = tuple(unrecorded[at : at + SHAS_PER_EVENT])
            event = CheckpointPruned(checkpoints=shas, recovered=recorded is not None)
            await self._ledger.record(event, causes=causes)

        await self.drop_unreachable_rollbacks(causes)
        await anyio.to_thread.run_sync(fsutil.remove_durably, path)
        return len(unrecorded)

    async def drop_unreachable_rollbacks(self, causes: Causes = ()) -> None:
        """Take the rollbacks whose safety checkpoints are gone off the undo and redo stacks."""
        lost = undo.without_safety(self._ledger.state, self._checkpointer.known)
        if lost is not None:
            await self._ledger.record(lost, causes=causes)


def examined(
    layout: Layout,
    state: State,
    known: Mapping[Sha, CheckpointRecord],
    engine: CheckpointEngine,
    policy: RetentionPolicy,
    now: datetime,
) -> Examined:
    """Return what a gc would prune now, and its report; nothing is touched."""
    needed = thread_needs(state, known) | _needed_to_finish(layout)
    journeys, head = journeys_need(state, known), engine.head()
    needed |= frozenset() if head is None else {head}
    parents = {facts.sha: facts.parents for facts in engine.commits()}
    unwanted = of_discarded_attempts(state, parents)
    pruning = engine.housekeeping.prunable(policy, now, needed | journeys, unwanted)
    size = engine.housekeeping.size()
    going = {facts.sha for facts in pruning.checkpoints}
    newest_first = tuple(known.values())[::-1]
    kept = tuple(record for record in newest_first if record.sha not in going)
    reason = reasons(needed=needed, journeys=journeys, kinds=policy.kinds, unwanted=unwanted)
    report = GcReport(
        dry_run=True,
        undos_lost=sum(travel.safety in going for travel in state.undo),
        redos_lost=sum(travel.safety in going for travel in state.redo),
        pruned=tuple(record for record in newest_first if record.sha in going),
        kept=len(kept),
        kept_because=kept_because(kept, reason, parents),
        bytes_before=size.bytes_on_disk,
        bytes_after=max(0, size.bytes_on_disk - pruning.bytes_freed),
        consolidated=None,
    )
    return Examined(pruning, report)


def _needed_to_finish(layout: Layout) -> frozenset[Sha]:
    """Return the checkpoints that the next start needs for an unfinished rollback."""
    intent = standing(layout)
    return frozenset() if intent is None else frozenset({intent.target.sha, intent.safety.sha})


def _stopping() -> Refused:
    return Refused(
        ErrorCode.SHUTTING_DOWN,
        "The server is stopping.",
        hint="What has been pruned so far is recorded; a later gc does the rest.",
    )


def _consolidation(packed: Consolidated) -> Consolidation:
    return Consolidation(
        packs_before=packed.packs_before,
        packs_after=packed.packs_after,
        loose_before=packed.loose_before,
        loose_after=packed.loose_after,
        finished=packed.finished,
    )
