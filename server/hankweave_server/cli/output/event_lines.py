"""Turn events into the text that terminals show.

`event_line` decides what is said about an event. The renderers only arrange it: `RunLines` in the
columns of `hankweave run`, `attach` and `log`, the live view below its table, and `pipeline` as
banners. server.log has other readers, and its lines are in `execution/event_log.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from hankweave_protocol import codec, events
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import Event, EventData, PermissionRequested
from hankweave_protocol.records import PendingPermission, RollbackReport
from hankweave_server.cli.output.text import clock, date, moment, span, zone
from hankweave_server.domain.lifecycle import was_stopped
from hankweave_server.domain.permission_patterns import arguments_of
from hankweave_server.plain_text import acted_on, counted, one_line

LONGEST = 100
"""Maximum characters of an agent's or sentinel's text in a line."""


SHOWN_TYPES = frozenset(
    kind.TYPE
    for kind in (
        events.CodonKeyed,
        events.CodonStartedEvent,
        events.CodonCompletedEvent,
        events.CodonRetrying,
        events.CodonWaiting,
        events.CodonResumed,
        events.SentinelError,
        events.CodonExtended,
        events.SentinelOutput,
        events.ArchivePartial,
        events.FilesChanged,
        events.LoopIterationCompleted,
        events.RigSetupFailed,
        events.PermissionRequested,
        events.PermissionResolved,
        events.CodonWarning,
        events.AgentConfined,
        events.RollbackStarted,
        events.RollbackCompleted,
        events.CheckpointRollback,
        events.CheckpointSecret,
        events.CheckpointPinned,
        events.CheckpointPruned,
        events.ExecutionBranched,
        events.ExplorationStarted,
        events.AttemptEnded,
        events.ExplorationEnded,
        events.BisectStarted,
        events.BisectProgress,
        events.BisectEnded,
        events.ExecutionOrigin,
        events.ServerStarted,
        events.HankChanged,
        events.HistoryIdentified,
        events.StateRecovered,
        events.ServerDegraded,
        events.ErrorEvent,
        events.ServerRecovered,
        events.ServerIdle,
    )
)
"""The types of the events that may have a line."""


class EventLine(NamedTuple):
    """An event as a line of a terminal; control characters are not escaped yet."""

    text: str
    subject: str | None = None
    """The codon, sentinel or loop; None for the whole execution."""
    word: str = ""
    """What happened, in a word; empty if the text says it."""
    severity: Literal["info", "warning", "degraded", "error"] = "info"

    @property
    def message(self) -> str:
        """The text, after the severity if that is not `info`."""
        return self.text if self.severity == "info" else f"{self.severity}: {self.text}"

    def columns(self) -> str:
        text = f"{self.word:<10} {self.text}" if self.word else self.message
        return text if self.subject is None else f"{self.subject:<14} {text}"


class RunLines:
    """A formatter of an execution's events as lines, with a heading for each day.

    Lines begin with the time of day; the heading names the date and the time zone.
    """

    def __init__(self) -> None:
        self._day = ""
        self._warned: dict[str, None] = {}
        """The codons that completed with a warning, in order."""

    def lines(self, event: Event) -> list[str]:
        """Return the lines of an event; most events have none."""
        line, at = event_line(event.data), clock(event.timestamp)
        texts = (None if line is None else line.columns(), self._summary_at(event.data))
        found = [f"{at}  {one_line(text)}" for text in texts if text is not None]
        day = date(event.timestamp)
        if not found or day == self._day:
            return found

        self._day = day
        return [f"{day} ({zone(event.timestamp)})", *found]

    def _summary_at(self, data: EventData) -> str | None:
        """Return, at the end of a plan, a list of the codons with warnings."""
        match data:
            case events.CodonStartedEvent(codon_id=codon):
                self._warned.pop(codon, None)
            case events.CodonWarning(codon_id=codon):
                self._warned[codon] = None
            case events.ServerIdle(reason="all-codons-completed") if self._warned:
                return f"completed with a warning: {', '.join(self._warned)}"
            case _:
                pass

        return None


def event_line(data: EventData) -> EventLine | None:
    """Return what terminals say about an event; about most events, nothing."""
    return _of_codon(data) or _of_checkpoints(data) or _of_server(data)


def _of_codon(data: EventData) -> EventLine | None:
    match data:
        case events.CodonStartedEvent(codon_id=codon, codon_name=name):
            return EventLine(name, codon, "running")
        case events.CodonCompletedEvent():
            return _ended(data)
        case events.CodonKeyed(codon_id=codon, wanted=True, reason=str(reason)):
            return EventLine(f"nothing is reused: {reason}", codon)
        case events.CodonRetrying(codon_id=codon, delay_ms=delay):
            attempt = f"attempt {data.attempt} of {data.max_attempts}"
            return EventLine(f"retrying in {delay / 1000:g} s, {attempt}", codon)
        case events.CodonWaiting(codon_id=codon, until=until, reason=reason):
            text = f"waits for the end of a {reason} limit, until {moment(until)}"
            return EventLine(text, codon, severity="warning")
        case events.CodonResumed(codon_id=codon, waited_ms=waited):
            return EventLine(f"continues after {span(waited / 1000)} of waiting", codon)
        case (
            events.CodonWarning(codon_id=subject, message=message)
            | events.AgentConfined(codon_id=subject, message=message)
        ):
            return EventLine(message, subject, severity="warning")
        case events.SentinelError(sentinel_id=subject, message=message):
            return EventLine(message, subject, severity="warning")
        case events.CodonExtended(codon_id=codon, extension_number=number):
            return EventLine(f"extension {number}", codon, "continued")
        case events.SentinelOutput(sentinel_id=sentinel, content=content):
            return EventLine(short(content), sentinel)
        case events.ArchivePartial(codon_id=codon, failed_paths=failed):
            text = f"{counted(len(failed), 'path')} could not be archived"
            return EventLine(text, codon, severity="warning")
        case events.FilesChanged(codon_id=subject):
            return EventLine(data.summary, subject)
        case events.LoopIterationCompleted(loop_id=loop, iteration=number):
            return EventLine(f"iteration {number} ended", loop)
        case events.RigSetupFailed(codon_id=codon, message=message):
            return EventLine(message or "", codon, "rig failed")
        case events.PermissionRequested():
            return asking(data)
        case events.PermissionResolved(by="policy", decision="allow"):
            return None  # The hank's own rules allow most calls.
        case events.PermissionResolved(codon_id=codon, tool_name=tool, by=by, rule=rule):
            verb = "allowed" if data.decision == "allow" else "denied"
            return EventLine(f"{tool}  by {by}{'' if rule is None else f': {rule}'}", codon, verb)
        case _:
            return None


def _ended(done: events.CodonCompletedEvent) -> EventLine:
    if done.reused is not None:
        outcome = "reused"
    elif done.success:
        outcome = "completed"
    elif was_stopped(done.failure_reason):
        outcome = "stopped"
    else:
        outcome = "skipped" if done.skipped else "failed"

    text = f"{done.duration / 1000:.1f} s  ${done.cost:.4f}"
    reason, over = done.failure_reason, done.budget_exceeded
    if reason is not None and reason.message is not None:
        text += f"  {reason.message}"
    else:
        if over is not None and over.limit == 0:
            text += f"  no budget was left: {over.currency}"
        elif over is not None:
            text += f"  {over.currency} {over.used:g} of {over.limit:g}"

        text += "  with a warning" * bool(done.warnings)
        if done.reused is not None:
            text += f"  from run {done.reused.run_id}, {done.reused.checkpoint_sha[:8]}"

    return EventLine(text, done.codon_id, outcome)


def asking(asked: PermissionRequested | PendingPermission) -> EventLine:
    """Return the call of a permission request, and how to answer."""
    what = call_text(asked.tool_name, asked.tool_input)
    how = f"(hankweave allow {asked.request_id}, or deny)"
    return EventLine(f"{what}  {how}", asked.codon_id, "asks")


def asking_line(asked: PermissionRequested | PendingPermission) -> str:
    line = asking(asked)
    return one_line(f"{line.subject} {line.word}: {line.text}")


def _of_checkpoints(data: EventData) -> EventLine | None:
    match data:
        case events.RollbackStarted(to_checkpoint=sha, checkpoint_type=kind):
            return EventLine(f"rolling back to {sha[:12]} ({kind})")
        case events.RollbackCompleted(report=report):
            return _rolled_back("rolled back", report)
        case events.CheckpointRollback(report=report) if _is_notable(report):
            if data.direction == "retry":
                return _rolled_back("restored for another attempt", report, has_title=False)

            return _rolled_back("restored by a rollback of files", report)
        case events.CheckpointSecret(checkpoint=where):
            return EventLine(secrets_text(data), where.codon_id, severity="warning")
        case events.CheckpointPinned(checkpoint_sha=sha, pinned=pinned, name=name):
            called = f" as {name!r}" if name else ""
            return EventLine(f"{sha[:12]} is {'' if pinned else 'not '}pinned{called}")
        case events.CheckpointPruned(checkpoints=shas):
            return EventLine(f"{acted_on(len(shas), 'checkpoint')} pruned")
        case events.ExecutionBranched(execution_path=path, coordinate=coordinate):
            return EventLine(f"branched at {coordinate.checkpoint_sha[:12]}: {path}")
        case events.ExplorationStarted(exploration=begun):
            attempts = counted(len(begun.attempts), "attempt")
            return EventLine(f"exploring in {attempts}", begun.codon_id)
        case events.AttemptEnded(attempt=attempt):
            score = "" if attempt.score is None else f", score {attempt.score:g}"
            why = "" if attempt.message is None else f": {attempt.message}"
            return EventLine(f"attempt {attempt.attempt_id} {attempt.status}{score}{why}")
        case events.ExplorationEnded(best=best):
            return EventLine(f"exploration ended; best attempt: {best or 'none'}")
        case events.BisectStarted(command=command, checkpoints=count):
            return EventLine(
                f"searching {counted(count, 'checkpoint')} for the first failure of: {command}"
            )
        case events.BisectProgress(checkpoint_sha=sha, verdict=verdict):
            return EventLine(f"{sha[:12]} {verdict}")
        case events.BisectEnded(checkpoint_sha=found, message=why, suspects=suspects):
            first = f"{len(suspects)} suspects" if found is None else found[:12]
            end = why or first
            return EventLine(f"search for the first failure ended: {end}")
        case events.ExecutionOrigin(execution_path=path, coordinate=coordinate):
            return EventLine(f"a branch of {path}, made at {coordinate.checkpoint_sha[:12]}")
        case _:
            return None


def secrets_text(flagged: events.CheckpointSecret) -> str:
    """Return which secret a checkpoint holds, and what to do about it."""
    first = flagged.secrets[0]
    others = f" and {flagged.total - 1} more" if flagged.total > 1 else ""
    return (
        f"checkpoint {flagged.checkpoint.checkpoint_sha[:12]} holds a secret: {first.rule} in "
        f"{first.path}:{first.line}{others} (hankweave redact removes it)"
    )


def _is_notable(report: RollbackReport | None) -> bool:
    """Return whether a restore of files alone touched edits of people, or could not do all."""
    return report is not None and bool(report.cannot_restore or report.in_words)


def _rolled_back(what: str, report: RollbackReport | None, *, has_title: bool = True) -> EventLine:
    if report is None:
        return EventLine(what)

    to = f" to {report.target_title}" if has_title and report.target_title is not None else ""
    text = f"{what}{to}: {_counts(report)}"
    if not report.cannot_restore:
        return EventLine(text)

    left, first = counted(report.counts.cannot_restore, "path"), report.cannot_restore[0].sentence
    text += f"; {left} could not be restored, first: {first}"
    return EventLine(text, severity="warning")


def _counts(report: RollbackReport) -> str:
    counts = report.counts
    numbers = f"{counts.added} added, {counts.updated} updated, {counts.removed} removed"
    return numbers if report.in_words is None else f"{numbers}. {report.in_words}"


def _of_server(data: EventData) -> EventLine | None:
    match data:
        case events.ServerStarted(previous_pid=int() as pid, previous_heartbeat_age_ms=age):
            ago = "" if age is None else f", last heartbeat {age / 1000:.0f} s ago"
            return EventLine(f"found a dead server: pid {pid}{ago}; recovering")
        case events.HankChanged():
            text = "hank.json has changed since this execution began"
            return EventLine(text, severity="warning")
        case events.HistoryIdentified(finding=finding, message=message):
            is_calm = finding in ("moved", "adopted", "relocated")
            return EventLine(message, severity="info" if is_calm else "warning")
        case events.StateRecovered(source=source):
            return EventLine(f"state.json was recovered from: {source}")
        case events.ServerDegraded(message=message):
            return EventLine(message, severity="degraded")
        case events.ErrorEvent(message=message, severity=severity):
            return EventLine(message, severity="warning" if severity == "warning" else "error")
        case events.ServerRecovered(message=message) | events.ServerIdle(message=message):
            return EventLine(message)
        case _:
            return None


def call_text(tool: str, given: dict[str, object]) -> str:
    """Format a tool call in the notation of permission patterns: `Bash(git push)`."""
    found = arguments_of(tool, given)
    if found is None:
        return f"{tool}({short(given)})" if given else tool

    return f"{tool}({short(', '.join(found[1]))})"


def short(content: str | dict[str, object] | list[object]) -> str:
    """Return the first line of a text, safe for a terminal and truncated; other values as JSON."""
    text = content if isinstance(content, str) else codec.encode(content).decode()
    line = one_line(text.strip().partition("\n")[0])
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def journal_line(item: bytes, when: Callable[[str], str]) -> str:
    """Format an event, given as JSON: number, time, type, and what it says.

    An event that has no line on a terminal is shown by its short values. `when` formats the time.
    """
    head = _decode_head(item)
    text = _summary(item, head.type)
    return one_line(f"{head.seq:>6}  {when(head.timestamp)}  {head.type:<20}  {text}".rstrip())


def _summary(item: bytes, kind: str) -> str:
    try:
        line = event_line(codec.decode_event(item).data)
    except (Refused, msgspec.MsgspecError, UnicodeError):
        line = None  # Written by a newer version.

    if line is not None:
        is_in_type = kind.rpartition(".")[2] == line.severity
        shown = line._replace(severity="info") if is_in_type else line
        return " ".join(shown.columns().split())

    try:
        return _values(_decode_body(item).data)
    except (msgspec.MsgspecError, UnicodeError):
        return ""  # Damaged; a start reports it.


class _Head(msgspec.Struct):
    seq: int
    timestamp: str
    type: str


class _Body(msgspec.Struct):
    data: dict[str, Any] = {}


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_body = msgspec.json.Decoder(_Body).decode


_UNNAMED_FIELDS = ("message", "content", "transitionType")
"""Fields whose values need no name."""


def _values(data: dict[str, Any]) -> str:
    """Return the subject of an event and its other short values."""
    subject = data.get("codonId")
    parts = [] if subject is None else [f"{subject}:"]
    for key, value in data.items():
        if key not in ("codonId", "runId") and isinstance(value, str | int | float) and value != "":
            shown = short(str(value).lower() if isinstance(value, bool) else str(value))
            parts.append(shown if key in _UNNAMED_FIELDS else f"{key} {shown}")

    return " ".join(parts)
