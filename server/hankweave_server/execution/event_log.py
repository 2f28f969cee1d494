"""Write server.log from the journal's events.

The ledger calls `handle` with each event, in its writer. If many single files change, only the
first hundred of a second get a line and the rest are counted; at debug level each has its line. A
burst that one scan finds is one event, with one line.

Level info has what a person wants to know the day after: runs, codons, checkpoints at the ends of
codons, rollbacks, warnings. Level debug has the rest, without the contents of messages, tools and
files: these are in the journal and in the agents' logs.

Changed files are marked DEBUG, as in Hankweave (seed 001), but a person wants to know them, too.
So they go to a logger of their own, `hankweave.files`, which is open at level info
(`logs.server_log`).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from hankweave_protocol import events, transitions
from hankweave_protocol.codec import decode_transition_body
from hankweave_protocol.events import Event, EventData, FilesChanged, FileUpdated, TransitionBody
from hankweave_protocol.records import CheckpointRecord, RollbackReport
from hankweave_server.clock import Clock
from hankweave_server.domain.checkpoints.titles import title_of
from hankweave_server.ledger.batch import Published
from hankweave_server.logs import FILES
from hankweave_server.paths import Layout
from hankweave_server.plain_text import acted_on, counted

_STEPS = frozenset({"tool", "turn"})
"""Kinds of checkpoints that a codon makes by the hundred."""

_LOGGED_TRANSITIONS = frozenset(
    {"RunStarted", "RunCompleted", "RunFailed", "CodonStarted", "CheckpointCreated"}
)
"""Transitions with a line of their own; the others, which may be large, are not decoded."""


class LogLine(NamedTuple):
    level: int
    text: str


def log_line(event: Event, work_tree: str) -> LogLine:
    """Return the log line of an event; `work_tree` is prepended to the paths of files."""
    data = event.data
    if isinstance(data, events.StateTransition):
        return _of_transition(data.transition)

    if isinstance(data, events.FileUpdated):
        gone = " (deleted)" if data.action == "deleted" else ""
        return _debug(f"File change detected: {work_tree}{data.path}{gone}")

    if isinstance(data, events.FilesChanged):
        return _debug(data.summary)

    return _of_codon(data) or _of_rollback(data) or _of_server(data) or _debug(f"{event.type}")


def _info(text: str) -> LogLine:
    return LogLine(logging.INFO, text)


def _warning(text: str) -> LogLine:
    return LogLine(logging.WARNING, text)


def _debug(text: str) -> LogLine:
    return LogLine(logging.DEBUG, text)


def _of_transition(body: TransitionBody) -> LogLine:
    if body.type not in _LOGGED_TRANSITIONS:
        return _debug(f"State changed: {body.type}")

    match decode_transition_body(body):
        case transitions.RunStarted(run=run):
            return _info(f"Run {run.run_id} started")
        case transitions.RunCompleted(run_id=run_id):
            return _info(f"Run {run_id} completed")
        case transitions.RunFailed(run_id=run_id):
            return LogLine(logging.ERROR, f"Run {run_id} failed")
        case transitions.CodonStarted(codon=codon):
            return _info(f"Beginning codon: {codon.codon_id}")
        case transitions.CheckpointCreated(checkpoint=checkpoint):
            return _checkpoint(checkpoint)
        case _:
            return _debug(f"State changed: {body.type}")


def _checkpoint(made: CheckpointRecord) -> LogLine:
    of = made.coordinate.codon_id or made.coordinate.run_id
    text = f"Checkpoint created: {made.kind}:{of} {made.sha[:12]} ({title_of(made)})"
    return _debug(text) if made.kind in _STEPS and not made.label else _info(text)


def _of_codon(data: EventData) -> LogLine | None:
    match data:
        case events.CodonStartedEvent(codon_id=codon, session_id=session):
            return _debug(f"Session of codon {codon}: {session}")
        case events.CodonCompletedEvent():
            return _codon_ended(data)
        case events.CodonKeyed(codon_id=codon, reason=str(reason)):
            return (_info if data.wanted else _debug)(f"Codon {codon} reuses nothing: {reason}")
        case events.CodonExtended(codon_id=codon, extension_number=number):
            return _info(f"Codon {codon} continues: extension {number}")
        case events.CodonRetrying():
            reason = data.failure_reason.message or data.failure_reason.type
            return _warning(
                f"Retrying codon {data.codon_id} (attempt {data.attempt}/{data.max_attempts}) "
                f"in {data.delay_ms / 1000:g} s: {reason}"
            )
        case events.CodonWaiting():
            return _warning(
                f"Codon {data.codon_id} waits for the end of a {data.reason} limit until "
                f"{data.until} (wait {data.number}, source: {data.source})"
            )
        case events.CodonResumed(codon_id=codon, by=by):
            return _info(f"Codon {codon} continues after {data.waited_ms / 1000:.0f} s ({by})")
        case (
            events.CodonWarning(codon_id=codon, message=message)
            | events.AgentConfined(codon_id=codon, message=message)
        ):
            return _warning(f"Codon {codon}: {message}")
        case events.AssistantAction(codon_id=codon, action="tool_use", tool_name=tool):
            return _debug(f"Codon {codon} calls {tool}")
        case events.AssistantAction(codon_id=codon, action=action, content=content):
            return _debug(f"Codon {codon}: {action} of {counted(len(content), 'character')}")
        case events.ToolResult(codon_id=codon, tool_name=tool):
            how = "failed" if data.is_error else "returned"
            return _debug(f"Codon {codon}: {tool} {how} after {data.execution_time_ms} ms")
        case events.PermissionRequested(codon_id=codon, tool_name=tool):
            return _info(f"Codon {codon} is waiting for permission to call {tool}")
        case events.PermissionResolved(codon_id=codon, tool_name=tool):
            return _info(f"Codon {codon}: permission to call {tool}: {data.decision}, by {data.by}")
        case events.RigSetupCompleted(codon_id=codon, command_count=count):
            return _info(f"Rig of codon {codon} set up: {counted(count, 'operation')}")
        case events.RigSetupFailed(codon_id=codon, message=message):
            return _warning(f"Rig of codon {codon} failed: {message or data.failure_type}")
        case events.CheckCompleted(codon_id=codon, command=command, passed=passed):
            how = "passed" if passed else f"failed: {data.message or data.exit_code}"
            return LogLine(
                logging.INFO if passed else logging.WARNING, f"Check of {codon} {how}: {command}"
            )
        case events.LoopIterationCompleted(loop_id=loop, iteration=iteration):
            return _info(f"Loop {loop}: iteration {iteration + 1} completed")
        case events.SentinelLoaded(sentinel_id=sentinel, codon_id=codon):
            return _info(f"Sentinel {sentinel} loaded for {codon}")
        case events.SentinelError(sentinel_id=sentinel, message=message):
            return _warning(f"Sentinel {sentinel}: {message}")
        case _:
            return None


def _codon_ended(ended: events.CodonCompletedEvent) -> LogLine:
    figures = f"in {ended.duration / 1000:.1f} s, ${ended.cost:.4f}"
    if ended.skipped:
        return _info(f"Codon skipped: {ended.codon_id}")

    if ended.reused is not None:
        source = f"run {ended.reused.run_id}, checkpoint {ended.reused.checkpoint_sha[:12]}"
        return _info(f"Codon reused: {ended.codon_id} {figures}, from {source}")

    if ended.success:
        return _info(f"Codon completed: {ended.codon_id} {figures}")

    reason = ended.failure_reason
    why = "" if reason is None else f": {reason.message or reason.type}"
    level = logging.WARNING if ended.failure_ignored else logging.ERROR
    return LogLine(level, f"Codon failed: {ended.codon_id} {figures}{why}")


def _of_rollback(data: EventData) -> LogLine | None:
    match data:
        case events.RollbackStarted(to_checkpoint=sha, checkpoint_type=kind):
            return _info(f"Rolling back to {kind}:{data.to_codon or '-'} {sha[:12]}")
        case events.RollbackProgress(message=message):
            return _debug(f"Rollback {data.current_step}/{data.total_steps}: {message}")
        case events.RollbackCompleted(checkpoint=sha, report=report):
            return _rolled_back(f"Rolled back to {sha[:12]}", report, f"; run {data.to_run}")
        case events.CheckpointRollback(checkpoint=sha, report=report) if report is not None:
            return _rolled_back(f"Files rolled back to {sha[:12]}", report)
        case events.RollbackFailed(message=message):
            return LogLine(logging.ERROR, f"Rollback failed: {message}")
        case events.CheckpointPartial(checkpoint=where):
            of = where.codon_id or where.run_id
            missing = data.skipped_total or len(data.skipped)
            return _warning(f"The checkpoint of {of} is missing {counted(missing, 'file')}")
        case events.CheckpointSecret(checkpoint=where, total=total):
            found = ", ".join(sorted({each.rule for each in data.secrets}))
            return _warning(
                f"Checkpoint {where.checkpoint_sha[:12]} holds {counted(total, 'secret')}: {found}"
            )
        case events.CheckpointPinned(checkpoint_sha=sha, pinned=pinned):
            return _info(f"Checkpoint {sha[:12]} is {'pinned' if pinned else 'no longer pinned'}")
        case events.CheckpointPruned(checkpoints=pruned):
            return _info(f"{acted_on(len(pruned), 'checkpoint')} pruned")
        case events.ExecutionBranched(execution_path=path):
            return _info(f"Branched into {path}")
        case events.ExplorationStarted(exploration=begun):
            count = counted(len(begun.attempts), "attempt")
            return _info(f"Exploring {begun.codon_id} in {count} ({begun.exploration_id})")
        case events.AttemptEnded(attempt=attempt):
            why = "" if attempt.message is None else f": {attempt.message}"
            return _info(f"Attempt {attempt.attempt_id} {attempt.status}{why}")
        case events.ExplorationEnded(best=best):
            name = data.exploration_id
            return _info(f"Exploration {name} ended; best attempt: {best or 'none'}")
        case events.BisectStarted(checkpoints=count):
            return _info(f"Bisection {data.bisect_id} of {counted(count, 'checkpoint')} started")
        case events.BisectEnded(checkpoint_sha=sha, message=why):
            return _info(f"Bisection {data.bisect_id} ended: {why or sha or 'several suspects'}")
        case _:
            return None


def _rolled_back(what: str, report: RollbackReport | None, more: str = "") -> LogLine:
    if report is None:
        return _info(what + more)

    counts = report.counts
    what += f": {counts.added} added, {counts.updated} updated, {counts.removed} removed{more}"
    if report.in_words is not None:
        what += f". {report.in_words}"

    if not report.cannot_restore:
        return _info(what)

    left = " ".join(each.sentence for each in report.cannot_restore)
    paths = counted(counts.cannot_restore, "path")
    return _warning(f"{what.removesuffix('.')}. {paths} could not be restored: {left}")


def _of_server(data: EventData) -> LogLine | None:
    match data:
        case events.Info(message=message):
            return _info(message)
        case events.ErrorEvent(message=message, severity=severity):
            return LogLine(logging.WARNING if severity == "warning" else logging.ERROR, message)
        case events.ServerIdle(message=message):
            return _info(f"Idle: {message}")
        case events.JournalRepaired(bytes=size, quarantine=name):
            return _warning(f"Recovery: {size} bytes of an incomplete event were moved to {name}")
        case events.StateRecovered(source=source, errors=errors, warnings=warnings):
            found = "; ".join([*(e.message for e in errors), *(w.message for w in warnings)])
            return _warning(
                f"Recovery: the state was restored from {source}{': ' if found else ''}{found}"
            )
        case events.ServerResumed(suspended_seconds=seconds, cause=cause):
            pause = "machine was suspended" if cause == "suspended" else "server did not run"
            return _warning(f"The {pause} for {seconds:.0f} s")
        case events.ClockJumped(seconds=seconds, direction=direction):
            return _warning(f"The clock was set {direction} by {seconds:.0f} s")
        case events.HistoryIdentified(message=message):
            return _warning(message)
        case events.DataChanged(current_path=path):
            return _warning(f"The data has changed: {path}")
        case events.StoreRepaired():
            return _warning("The checkpoint store was repaired")
        case _:
            return None


BURST = 100
BURST_SECONDS = 1.0

_log = logging.getLogger("hankweave.events")
_files_log = logging.getLogger(FILES)


class EventLog:
    """A writer of server.log, fed by the ledger."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        beside = layout.work_tree != layout.root
        self._work_tree = f"{layout.work_tree.relative_to(layout.root)}/" if beside else ""
        self._clock = clock
        self._began = 0.0
        self._files = 0
        """Files changed since `_began`."""

    def handle(self, published: Published) -> None:
        """Write the line of an event, if the level includes it."""
        event = published.event
        if isinstance(event.data, FileUpdated) and not _log.isEnabledFor(logging.DEBUG):
            if not self._is_within_burst():
                return
        else:
            self._end_burst()

        line = log_line(event, self._work_tree)
        log = _files_log if isinstance(event.data, FileUpdated | FilesChanged) else _log
        if log.isEnabledFor(line.level):
            log.log(line.level, "%s", line.text)

    def _is_within_burst(self) -> bool:
        now = self._clock.monotonic()
        if now - self._began > BURST_SECONDS:
            self._end_burst()
            self._began = now

        self._files += 1
        return self._files <= BURST

    def _end_burst(self) -> None:
        left_out, self._files = self._files - BURST, 0
        if left_out > 0:
            _files_log.debug("File changes detected: %d more", left_out)
