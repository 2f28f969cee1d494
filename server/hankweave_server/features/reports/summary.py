"""The facts that a report needs of the journal's events, collected one by one.

The memory that this takes is bounded, however long the journal is: of each list, the newest entries
are kept and the others counted, and beyond a number of paths only changes are counted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypedDict, TypeVar

import msgspec

from hankweave_protocol import events
from hankweave_protocol.events import Event
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import CheckpointRecord, RollbackReport, TouchedFile
from hankweave_protocol.shapes import Value
from hankweave_server.domain.checkpoints.titles import title_of
from hankweave_server.domain.lifecycle import was_stopped
from hankweave_server.features.reports.rows import (
    Author,
    FailedPart,
    FileAction,
    ReportedCheckpoint,
    ReportedEdit,
    ReportedFailure,
    ReportedRetry,
    ReportedRollback,
    ReportedWait,
    WaitEnd,
)

MOST = 200
"""Entries of each list; the others are counted."""

MOST_PATHS = 10_000
"""Paths of which the changes are told apart."""

_AUTHORS: dict[str, Author] = {
    "tool_use": "agent",
    "codon-start": "agent",
    "codon-end": "agent",
    "rig": "rig",
    "person": "person",
    "rollback": "rollback",
    "archive": "archive",
}


_INCIDENTS = (
    events.AgentConfined,
    events.ArchivePartial,
    events.CheckpointSecret,
    events.ClockJumped,
    events.CodonWarning,
    events.ExecutionOrigin,
    events.HankChanged,
    events.HistoryIdentified,
    events.JournalRepaired,
    events.ServerDegraded,
    events.ServerResumed,
    events.ServerStarted,
    events.StateRecovered,
    events.StoreRepaired,
)
_OTHERS = (
    events.CheckCompleted,
    events.CheckpointPruned,
    events.CheckpointRollback,
    events.CodonCompletedEvent,
    events.CodonResumed,
    events.CodonRetrying,
    events.CodonStartedEvent,
    events.CodonWaiting,
    events.ErrorEvent,
    events.FilesChanged,
    events.FileUpdated,
    events.RigSetupFailed,
    events.RollbackCompleted,
    events.RollbackFailed,
    events.SentinelError,
)
SUMMED_UP = frozenset(each.TYPE for each in (*_INCIDENTS, *_OTHERS))
"""The types of events that `EventSummary` uses; of transitions, it uses those with a checkpoint."""

_STEPS = ("tool", "turn")

E = TypeVar("E", bound=Value)


@dataclass(slots=True)
class _Newest(Generic[E]):
    """The newest entries of a list, and the number of all."""

    entries: deque[E] = field(default_factory=lambda: deque(maxlen=MOST))
    count: int = 0

    def add(self, entry: E) -> None:
        self.entries.append(entry)
        self.count += 1

    @property
    def listed(self) -> tuple[E, ...]:
        return tuple(self.entries)


@dataclass(slots=True)
class _ChangedFile:
    existed: bool
    action: FileAction
    changes: int = 0
    by: dict[Author, None] = field(default_factory=dict)
    seq: int = 0

    @property
    def outcome(self) -> FileAction | None:
        """Return the outcome; None if there was no file before and is none now."""
        if self.action == "deleted":
            return "deleted" if self.existed else None

        return "modified" if self.existed else "created"


@dataclass(slots=True)
class EventSummary:
    """The part of an execution's or run's events that its report shows."""

    run_id: RunId | None = None
    files: dict[str, _ChangedFile] = field(default_factory=dict)
    other_file_changes: int = 0
    file_changes: Counter[CodonId] = field(default_factory=Counter)
    checks: dict[CodonId, list[bool]] = field(default_factory=dict)
    retries: _Newest[ReportedRetry] = field(default_factory=_Newest)
    waits: _Newest[ReportedWait] = field(default_factory=_Newest)
    failures: _Newest[ReportedFailure] = field(default_factory=_Newest)
    edits: _Newest[ReportedEdit] = field(default_factory=_Newest)
    checkpoints: _Newest[ReportedCheckpoint] = field(default_factory=_Newest)
    checkpoint_kinds: Counter[str] = field(default_factory=Counter)
    rollbacks: _Newest[ReportedRollback] = field(default_factory=_Newest)
    incidents: _Newest[Event] = field(default_factory=_Newest)
    open_waits: dict[CodonId, ReportedWait] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take the next event, oldest first; events of other runs are left out."""
        if self.run_id is not None and event.run_id != self.run_id:
            return

        match data := event.data:
            case events.FileUpdated(path=path, action=action, source=source, codon_id=codon):
                self._change(event, codon, _AUTHORS[source.kind], path, action)
            case events.FilesChanged():
                self._add_burst(event, data)
            case events.CheckpointPruned(checkpoints=shas):
                left = [each for each in self.checkpoints.entries if each.sha not in shas]
                self.checkpoints.entries = deque(left, maxlen=MOST)
            case events.CheckpointRollback() | events.RollbackCompleted():
                self._roll_back(event, data)
            case events.CodonStartedEvent(codon_id=codon):
                self.checks.pop(codon, None)
            case events.CheckCompleted(codon_id=codon, passed=passed):
                self.checks.setdefault(codon, []).append(passed)
                if not passed:
                    self._fail(event, "check", data.message or data.command, ignored=data.ignored)
            case events.CodonRetrying():
                self._retry(event, data)
            case events.CodonWaiting():
                self._wait(event, data)
            case events.CodonResumed(codon_id=codon, by=by):
                self._end_wait(codon, event, by)
            case events.CodonCompletedEvent(codon_id=codon, failure_reason=reason):
                self._end_wait(codon, event, "ended")
                if not (data.success or data.skipped or was_stopped(reason)):
                    message = "" if reason is None else reason.message or reason.type
                    self._fail(event, "codon", message, ignored=bool(data.failure_ignored))
            case events.RigSetupFailed(message=message, failure_type=kind, ignored=ignored):
                self._fail(event, "rig", message or kind, ignored=ignored)
            case events.RollbackFailed(message=message):
                self._fail(event, "rollback", message)
            case events.SentinelError(sentinel_id=sentinel, message=message, retriable=retriable):
                self._fail(event, "sentinel", f"{sentinel}: {message}", ignored=retriable)
            case events.ErrorEvent(message=message, severity=severity):
                self._fail(event, "server", message, ignored=severity == "warning")
            case events.ServerStarted(previous_pid=None):
                pass  # A crash of the server before it is an incident, and not its start.
            case _ if isinstance(data, _INCIDENTS):
                self.incidents.add(event)

    def add_checkpoint(self, event: Event, made: CheckpointRecord) -> None:
        """Take a checkpoint, from its transition."""
        if self.run_id not in (None, made.coordinate.run_id):
            return

        self.checkpoint_kinds[made.kind] += 1
        if made.kind not in _STEPS:
            self.checkpoints.add(
                ReportedCheckpoint(
                    **_moment(event, made.coordinate.codon_id),
                    sha=made.sha,
                    kind=made.kind,
                    label=made.label,
                    title=title_of(made),
                    partial=made.partial,
                )
            )

    def all_waits(self) -> Iterator[ReportedWait]:
        """Yield the newest waits; those that last come last."""
        yield from (*self.waits.entries, *self.open_waits.values())

    def _change(
        self, event: Event, codon: CodonId | None, by: Author, path: str, action: FileAction
    ) -> None:
        if codon is not None:
            self.file_changes[codon] += 1

        if by == "person":
            self.edits.add(ReportedEdit(**_moment(event, codon), path=path, action=action))

        file = self.files.get(path)
        if file is None and len(self.files) >= MOST_PATHS:
            self.other_file_changes += 1
            return

        if file is None:
            file = self.files[path] = _ChangedFile(existed=action != "created", action=action)

        file.action, file.seq = action, event.seq
        file.changes += 1
        file.by[by] = None

    def _add_burst(self, event: Event, burst: events.FilesChanged) -> None:
        """Take the changes that a burst names, and count the others."""
        author, codon = _AUTHORS[burst.source.kind], burst.codon_id
        for each in burst.paths:
            self._change(event, codon, author, each.path, each.action)

        unnamed = burst.total - len(burst.paths)
        self.other_file_changes += unnamed
        self.edits.count += unnamed * (author == "person")
        if codon is not None:
            self.file_changes[codon] += unnamed

    def _roll_back(
        self, event: Event, data: events.CheckpointRollback | events.RollbackCompleted
    ) -> None:
        """Take a rollback from the event that has its report; a retry only restores files."""
        report = data.report
        is_whole = isinstance(data, events.RollbackCompleted)
        if report is None and not is_whole:
            return

        if report is not None:
            self._restore(event, report)

        if data.direction == "retry":
            return

        counts = None if report is None else report.counts
        self.rollbacks.add(
            ReportedRollback(
                **_moment(event, None if report is None else report.target.codon_id),
                direction=data.direction,
                checkpoint=data.checkpoint,
                paths=None if isinstance(data, events.RollbackCompleted) else data.paths,
                added=0 if counts is None else counts.added,
                updated=0 if counts is None else counts.updated,
                removed=0 if counts is None else counts.removed,
                reason=data.reason,
            )
        )

    def _restore(self, event: Event, report: RollbackReport) -> None:
        """Take the changes of a rollback, of which there are no events."""
        lists: tuple[tuple[tuple[TouchedFile, ...], FileAction, int], ...] = (
            (report.added, "created", report.counts.added),
            (report.updated, "modified", report.counts.updated),
            (report.removed, "deleted", report.counts.removed),
        )
        for files, action, count in lists:
            self.other_file_changes += count - len(files)
            for file in files:
                self._change(event, None, "rollback", file.path, action)

    def _retry(self, event: Event, data: events.CodonRetrying) -> None:
        reason = data.failure_reason
        self.retries.add(
            ReportedRetry(
                **_moment(event, data.codon_id),
                attempt=data.attempt,
                max_attempts=data.max_attempts,
                reason=reason.message or reason.type,
            )
        )

    def _wait(self, event: Event, data: events.CodonWaiting) -> None:
        """Begin a wait; the same one may be told again with another end."""
        known = self.open_waits.get(data.codon_id) or ReportedWait(
            **_moment(event, data.codon_id),
            reason=data.reason,
            until=data.until,
            ended=None,
            by=None,
            message=data.message,
        )
        self.open_waits[data.codon_id] = msgspec.structs.replace(known, until=data.until)

    def _end_wait(self, codon: CodonId, event: Event, by: WaitEnd) -> None:
        wait = self.open_waits.pop(codon, None)
        if wait is not None:
            self.waits.add(msgspec.structs.replace(wait, ended=event.timestamp, by=by))

    def _fail(self, event: Event, what: FailedPart, message: str, *, ignored: bool = False) -> None:
        moment = _moment(event, getattr(event.data, "codon_id", None))
        failure = ReportedFailure(**moment, what=what, message=message, ignored=ignored)
        self.failures.add(failure)


class _MomentFields(TypedDict):
    """The fields of every row about an event."""

    seq: int
    timestamp: str
    codon_id: CodonId | None


def _moment(event: Event, codon: CodonId | None) -> _MomentFields:
    return {"seq": event.seq, "timestamp": event.timestamp, "codon_id": codon or event.codon_id}
