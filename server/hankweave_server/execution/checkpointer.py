"""Take checkpoints and record them in the journal; keep the watch of the work tree.

The engine makes the commit durable first; the journal names it second. A crash between the two
leaves a commit without a record: `adopt` finds it at the next start, exactly once.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec

from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import CheckpointPartial, ErrorEvent, StoreRepaired
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import CheckpointKind, CheckpointRecord, StoreRepair
from hankweave_protocol.state import CodonExecution
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.checkpoints.capture import CapturedChanges
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.imports import ForeignCheckpoint
from hankweave_server.checkpoints.model import CheckpointRequest, RestorePlan
from hankweave_server.checkpoints.records import STATE_OF_KIND, moved_refs
from hankweave_server.clock import Clock
from hankweave_server.domain.checkpoints.titles import Extent, summary_of
from hankweave_server.domain.execution_thread import session_of
from hankweave_server.domain.path_merge import ConflictPolicy
from hankweave_server.execution.checkpoint_access import (
    CheckpointAccess,
    IntentOf,
    MergeOutcome,
    Reporting,
)
from hankweave_server.execution.maintenance.progress import ProgressWatch
from hankweave_server.execution.maintenance.quiet import Quiet, Work
from hankweave_server.git.errors import ShadowRepositoryError, is_out_of_space
from hankweave_server.ledger.writer import Ledger
from hankweave_server.logs import logger
from hankweave_server.plain_text import counted
from hankweave_server.worktree.names import shown
from hankweave_server.worktree.open_files import OpenFiles, files_open_for_writing

if TYPE_CHECKING:
    from hankweave_server.execution.session_files import SessionFiles

VERIFIED_SECONDS = 600.0
"""Seconds between two comparisons of everything with the watch."""

PROVEN_AT_ONCE = 128
"""Files for which another caller may have to wait: about 5 ms."""

SETTLED_WITHIN = 30.0
"""Seconds after a checkpoint until it is late to settle and verify the watch."""

MISSED_SHOWN = 10

MOST_REPORTED = 200
"""Changes with a `file.updated` each; more than that found at once are one `files.changed`."""

TAIL_BYTES = 128 << 10
"""Lines of the journal that share the flush of a checkpoint; more are flushed before it."""

log = logger(__name__)


class Checkpointer(CheckpointAccess):
    """The checkpoints of one execution, and the journal's record of new ones."""

    def __init__(
        self,
        engine: CheckpointEngine,
        ledger: Ledger,
        clock: Clock,
        *,
        clean: Callable[[str], str] = str,
        sessions: SessionFiles | None = None,
        require_lock: Callable[[], None] = lambda: None,
        on_head_moved: Callable[[], None] = lambda: None,
        quiet: Quiet | None = None,
    ) -> None:
        super().__init__(
            engine,
            sessions=sessions,
            require_lock=require_lock,
            on_broken=ledger.report_broken_disk,
            on_head_moved=on_head_moved,
        )
        self.clean = clean
        """Removes secrets from a text that goes into a commit, a tag or the journal."""
        self.progress = ProgressWatch()
        """Tracks long operations; reports nothing until it runs and has a receiver."""
        self._ledger = ledger
        self._clock = clock
        self._quiet = Quiet() if quiet is None else quiet
        self._on_taken: list[Callable[[CheckpointRecord], None]] = []
        self._taken = anyio.Event()
        self._verified_at = clock.monotonic()
        self._must_verify = False
        self._writers: list[Callable[[], Iterable[int]]] = []

    def when_taken(self, callback: Callable[[CheckpointRecord], None]) -> None:
        """Call `callback` with each checkpoint that has been recorded."""
        self._on_taken.append(callback)

    @contextmanager
    def watching(self, processes: Callable[[], Iterable[int]]) -> Iterator[None]:
        """Mark what these processes have open for writing as unstable while the block runs.

        `processes` returns pids; it is called in a worker thread.
        """
        self._writers.append(processes)
        try:
            yield
        finally:
            self._writers.remove(processes)

    def _open_files(self) -> OpenFiles:
        pids = [pid for processes in tuple(self._writers) for pid in processes()]
        return files_open_for_writing(pids, self._engine.layout.work_tree)

    async def adopt(self, recorded: frozenset[Sha]) -> tuple[CheckpointRecord, ...]:
        """Record the commits that a server made but did not journal before it died."""
        orphans = tuple(record for sha, record in self.known.items() if sha not in recorded)
        for record in orphans:
            await self._ledger.record(
                CheckpointCreated(checkpoint=record, recovered=True),
                run_id=record.coordinate.run_id,
                codon_id=record.coordinate.codon_id,
            )

        return orphans

    async def take(
        self,
        kind: CheckpointKind,
        *,
        run_id: RunId,
        codon: CodonExecution | None,
        codon_name: str,
        patterns: Iterable[str],
        message_id: str | None = None,
        label: str | None = None,
        tools: Sequence[str] = (),
        before: RestorePlan | None = None,
        duration_ms: int | None = None,
        causes: tuple[int | str, ...] = (),
        waits_for_space: bool = True,
        intent_of: IntentOf | None = None,
        report: Callable[[CapturedChanges], Awaitable[None]] | None = None,
        session_id: str | None = None,
        session_files: frozenset[str] = frozenset(),
    ) -> CheckpointRecord:
        """Capture the work tree; return when commit and journal line are durable.

        All earlier decisions become durable before it or with it. If the disk is full, it waits for
        space, or raises InsufficientSpace. With `intent_of`, the intent of a restore is durable
        with the commit, and the journal line comes with what the caller records next. `report`
        queues events about what changed since the last report; they precede the checkpoint. `tools`
        are those whose calls have changed files, for the summary. `session_id` is the conversation
        that the codon has taken over, and `session_files` are its files.
        """
        label = None if label is None else self.clean(label)
        event_seq, tail = await self._position(waits_for_space=waits_for_space)
        request = CheckpointRequest(
            kind=kind,
            codon_id=None if codon is None else codon.codon_id,
            codon_name=self.clean(codon_name),
            run_id=run_id,
            timestamp=self._clock.now(),
            duration_ms=duration_ms,
            operation_id=uuid.uuid4().hex,
            event_seq=event_seq,
            session_id=session_id or (None if codon is None else session_of(codon)),
            message_id=message_id,
            session_files=session_files,
            memory_epoch=0,
            label=label,
            patterns=tuple(patterns),
            before=before,
            open_files=self._open_files,
            codon_state=STATE_OF_KIND.get(kind, _status_of(codon)),
            journal_tail=tail,
            summarized=functools.partial(self._summarized, kind, label, tools),
        )
        reporting = None
        if report is not None:
            first = functools.partial(self._report_first, report, waits_for_space=waits_for_space)
            reporting = Reporting(first, MOST_REPORTED)

        try:
            with self._quiet.serving(), self.progress.watching("capture", causes) as meter:
                if waits_for_space:
                    commit = functools.partial(self._commit, request, meter, intent_of, reporting)
                    space = self._ledger.space
                    record = await space.retry(commit, is_short=is_out_of_space)
                else:
                    record = await self._commit(request, meter, intent_of, reporting)
        except BaseException:
            self._ledger.write_now()
            raise

        await self._record(record, causes, waits=intent_of is None)
        return record

    async def adopt_foreign(
        self,
        foreign: ForeignCheckpoint,
        parent: Sha,
        *,
        run_id: RunId,
        codon: CodonExecution,
        codon_name: str,
        label: str,
    ) -> CheckpointRecord:
        """Import the `completed` checkpoint of an attempt's codon, and record it. Idempotent.

        Neither HEAD nor the work tree changes. Raises CheckpointNotFound, CheckpointDamaged,
        InsufficientSpace or ShadowRepositoryError.
        """
        made = (each for each in self.known.values() if each.operation_id == foreign.sha)
        if (record := next(made, None)) is not None:
            return record

        event_seq, tail = await self._position(waits_for_space=False)
        request = CheckpointRequest(
            kind="completed",
            codon_id=codon.codon_id,
            codon_name=self.clean(codon_name),
            run_id=run_id,
            timestamp=self._clock.now(),
            duration_ms=None,
            operation_id=foreign.sha,
            event_seq=event_seq,
            session_id=session_of(codon),
            message_id=None,
            memory_epoch=0,
            label=self.clean(label),
            patterns=(),
            codon_state="completed",
            journal_tail=tail,
        )
        try:
            record = await self.import_checkpoint(foreign, request, parent)
        except BaseException:
            self._ledger.write_now()
            raise

        await self._ledger.record(
            CheckpointCreated(checkpoint=record), run_id=run_id, codon_id=codon.codon_id
        )
        return record

    async def merge(
        self,
        origin: Sha,
        ours: CheckpointRecord,
        theirs: Sha,
        *,
        paths: frozenset[bytes] | None,
        policy: ConflictPolicy,
        conflicts_in: Path | None,
        label: str,
        causes: tuple[int | str, ...],
        kind: CheckpointKind = "manual",
        codon_name: str = "Merge",
    ) -> MergeOutcome:
        """Merge `theirs` into `ours`, and record the result; raises as `merged`."""
        event_seq = await self._ledger.catch_up(waits_for_space=False)
        label = self.clean(label)
        request = CheckpointRequest(
            kind=kind,
            codon_id=ours.coordinate.codon_id,
            codon_name=codon_name,
            run_id=ours.coordinate.run_id,
            timestamp=self._clock.now(),
            duration_ms=None,
            operation_id=uuid.uuid4().hex,
            event_seq=event_seq,
            session_id=None if ours.conversation is None else ours.conversation.session_id,
            message_id=None,
            memory_epoch=ours.coordinate.memory_epoch,
            label=label,
            patterns=(),
            codon_state=ours.coordinate.codon_state,
            summarized=functools.partial(self._summarized, kind, label, ()),
        )
        outcome = await self.merged(
            origin,
            ours.sha,
            theirs,
            request,
            paths=paths,
            policy=policy,
            conflicts_in=conflicts_in,
        )
        if outcome.record is not None:
            await self._ledger.record(
                CheckpointCreated(checkpoint=outcome.record),
                run_id=ours.coordinate.run_id,
                codon_id=ours.coordinate.codon_id,
                causes=causes,
            )

        return outcome

    def _summarized(
        self, kind: CheckpointKind, label: str | None, tools: Sequence[str], extent: Extent
    ) -> str:
        """Return a summary without secrets; it shortens names, so these are removed first."""
        path = None if extent.path is None else self.clean(extent.path)
        names = tuple(map(self.clean, tools))
        return summary_of(kind, replace(extent, path=path), label=label, tools=names)

    async def _report_first(
        self,
        report: Callable[[CapturedChanges], Awaitable[None]],
        captured: CapturedChanges,
        request: CheckpointRequest,
        *,
        waits_for_space: bool,
    ) -> CheckpointRequest:
        """Report what changed, and let the request follow the report in the journal."""
        await report(captured)
        event_seq, tail = await self._position(waits_for_space=waits_for_space)
        return replace(request, event_seq=event_seq, journal_tail=tail)

    async def _position(self, *, waits_for_space: bool) -> tuple[int, tuple[int, bytes] | None]:
        """Return the seq of the last event, and what must become durable with the checkpoint."""
        decided = self._ledger.decided()
        if not decided.lines:
            return decided.seq, None

        is_long = len(decided.lines) > TAIL_BYTES
        if is_long or self._ledger.space.is_short or not self._engine.has_log:
            return await self._ledger.catch_up(waits_for_space=waits_for_space), None

        return decided.seq, (decided.offset, decided.lines)

    async def _record(
        self, record: CheckpointRecord, causes: tuple[int | str, ...], *, waits: bool
    ) -> None:
        """Record a checkpoint, after the refs that had to move for it; then announce it."""
        coordinate = record.coordinate
        entries: list[CheckpointCreated | CheckpointPartial] = [
            CheckpointCreated(checkpoint=record)
        ]
        if record.partial:
            entries.append(
                CheckpointPartial(
                    checkpoint=coordinate,
                    skipped=record.skipped,
                    skipped_total=record.skipped_total,
                )
            )

        if moved := self._engine.detached.take():
            await self._ledger.record(
                StoreRepaired(repair=StoreRepair(moved_refs=moved_refs(moved)))
            )

        self._ledger.leave(
            *entries,
            run_id=coordinate.run_id,
            codon_id=coordinate.codon_id,
            causes=causes,
            urgent=waits,
        )
        if waits:
            await self._ledger.catch_up(waits_for_space=True)

        self._on_head_moved()
        self._must_verify |= record.kind == "completed"
        self._taken.set()
        for callback in self._on_taken:
            callback(record)

    def _note_written(self) -> None:
        self._taken.set()

    async def keep_watch(self) -> None:
        """Settle and verify the watch of the work tree after checkpoints; until cancelled.

        After a restore, the files that it has written are read again, before the next checkpoint
        would do so. The watch is verified after each `completed` checkpoint and every ten minutes.
        A missed change is journaled; the next checkpoint has it, and no later scan trusts the
        watch.
        """
        while True:
            with anyio.move_on_after(VERIFIED_SECONDS):
                await self._taken.wait()

            self._taken = anyio.Event()
            if self._engine.watch_state.reason is not None:
                continue

            with self._quiet.work("watch", within=SETTLED_WITHIN) as work:
                await work.turn()
                try:
                    await self._settle_watch(work)
                    if self._must_verify or self._clock.monotonic() - self._verified_at > (
                        VERIFIED_SECONDS
                    ):
                        await work.turn()
                        await self._verify_watch()
                except ShadowRepositoryError as fault:
                    log.warning("The watch of the work tree could not be verified: %s", fault)

    async def _settle_watch(self, work: Work) -> None:
        """Reduce what the next watched scan compares as far as possible, a few files per turn.

        It goes on although others call the engine meanwhile: a work tree of which most files are
        unproven costs each checkpoint a look at all of them.
        """
        while await self.call(lambda engine: engine.prove_unchanging(PROVEN_AT_ONCE)):
            await work.turn()

    async def _verify_watch(self) -> None:
        self._must_verify, self._verified_at = False, self._clock.monotonic()
        missed = await self.call(lambda engine: engine.verify_watch())
        if missed:
            some = ", ".join(self.clean(shown(path)) for path in missed[:MISSED_SHOWN])
            await self._ledger.record(
                ErrorEvent(
                    message=(
                        "The watch of the work tree missed changes of "
                        f"{counted(len(missed), 'path')} ({some}). "
                        "The next checkpoint has them, and is slower."
                    ),
                    fatal=False,
                    severity="warning",
                    context="watch",
                    code=ErrorCode.INTERNAL_ERROR,
                )
            )

    def reattached(self, sha: Sha, run_id: RunId, codon_id: CodonId) -> CheckpointCreated:
        """Return the event for a codon that starts from a rig set up by an earlier run."""
        record = self.known[sha]
        coordinate = msgspec.structs.replace(record.coordinate, run_id=run_id, codon_id=codon_id)
        return CheckpointCreated(checkpoint=msgspec.structs.replace(record, coordinate=coordinate))


def _status_of(codon: CodonExecution | None) -> str | None:
    return None if codon is None else str(codon.__struct_config__.tag)
