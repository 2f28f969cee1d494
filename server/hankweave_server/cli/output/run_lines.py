"""Format events as the plain lines that `hankweave run` and `log` print."""

from __future__ import annotations

from hankweave_protocol import codec
from hankweave_protocol.events import (
    ArchivePartial,
    CheckpointPinned,
    CheckpointPruned,
    CodonCompletedEvent,
    CodonExtended,
    CodonRetrying,
    CodonStartedEvent,
    CodonWarning,
    ErrorEvent,
    Event,
    ExecutionBranched,
    ExecutionOrigin,
    HankChanged,
    LoopIterationCompleted,
    PermissionRequested,
    PermissionResolved,
    RigSetupFailed,
    RollbackCompleted,
    RollbackStarted,
    SentinelError,
    SentinelOutput,
    ServerDegraded,
    ServerIdle,
    ServerRecovered,
    ServerStarted,
    StateRecovered,
)
from hankweave_server.cli.output.text import clock, date, zone
from hankweave_server.domain.lifecycle import was_stopped
from hankweave_server.domain.permission_patterns import arguments_of
from hankweave_server.plain_text import one_line

LONGEST = 100
"""Maximum characters of a sentinel's output in a line."""


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
        found = [line for line in (line_of(event), self._summary_at(event)) if line is not None]
        day = date(event.timestamp)
        if not found or day == self._day:
            return found

        self._day = day
        return [f"{day} ({zone(event.timestamp)})", *found]

    def _summary_at(self, event: Event) -> str | None:
        """Return, at the end of a plan, a list of the codons with warnings."""
        match event.data:
            case CodonStartedEvent(codon_id=codon):
                self._warned.pop(codon, None)
            case CodonWarning(codon_id=codon):
                self._warned[codon] = None
            case ServerIdle(reason="all-codons-completed") if self._warned:
                named = one_line(", ".join(self._warned))
                return f"{clock(event.timestamp)}  completed with a warning: {named}"
            case _:
                pass

        return None


def line_of(event: Event) -> str | None:
    """Return the line of an event, or None; most events have none."""
    text = _text_of(event)
    return None if text is None else f"{clock(event.timestamp)}  {one_line(text)}"


def _text_of(event: Event) -> str | None:
    match event.data:
        case CodonStartedEvent(codon_id=codon, codon_name=name):
            return f"{codon:<14} running    {name}"
        case CodonCompletedEvent() as done:
            return _ended(done)
        case CodonRetrying(codon_id=codon, attempt=number, max_attempts=most, delay_ms=delay):
            return f"{codon:<14} again in {delay / 1000:g} s, attempt {number} of {most}"
        case CodonWarning(codon_id=codon, message=message):
            return f"{codon:<14} warning: {message}"
        case CodonExtended(codon_id=codon, extension_number=number):
            return f"{codon:<14} sent on    extension {number}"
        case PermissionRequested(codon_id=codon, request_id=request) as asked:
            what = call_text(asked.tool_name, asked.tool_input)
            return f"{codon:<14} asks       {what}  (hankweave allow {request}, or deny)"
        case PermissionResolved(codon_id=codon, by="policy", decision="allow"):
            return None  # The hank's own rules allow most calls.
        case PermissionResolved(codon_id=codon) as done:
            verb = "allowed" if done.decision == "allow" else "denied"
            why = f"by {done.by}" if done.rule is None else f"by {done.by}: {done.rule}"
            return f"{codon:<14} {verb:<10} {done.tool_name}  {why}"
        case SentinelOutput(sentinel_id=sentinel, content=content):
            return f"{sentinel:<14} {_first_line(content)}"
        case SentinelError(sentinel_id=sentinel, message=message):
            return f"{sentinel:<14} warning: {message}"
        case ArchivePartial(codon_id=codon, failed_paths=failed):
            return f"{codon:<14} warning: {len(failed)} paths could not be archived"
        case LoopIterationCompleted(loop_id=loop, iteration=number):
            return f"{loop:<14} iteration {number} ended"
        case RigSetupFailed(codon_id=codon, message=message):
            return f"{codon:<14} rig failed {message or ''}"
        case RollbackStarted(to_checkpoint=sha, checkpoint_type=kind):
            return f"rolling back to {sha[:12]} ({kind})"
        case RollbackCompleted(report=report):
            if report is None:
                return "rolled back"

            added, updated, removed = len(report.added), len(report.updated), len(report.removed)
            return f"rolled back: {added} added, {updated} updated, {removed} removed"
        case ServerStarted(previous_pid=int() as pid, previous_heartbeat_age_ms=age):
            ago = "" if age is None else f", last heard of {age / 1000:.0f} s ago"
            return f"found a dead server: pid {pid}{ago}; recovering"
        case CheckpointPinned(checkpoint_sha=sha, pinned=pinned, name=name):
            called = f" as {name!r}" if name else ""
            return f"{sha[:12]} is {'' if pinned else 'not '}pinned{called}"
        case ExecutionBranched(execution_path=path, coordinate=coordinate):
            return f"branched at {coordinate.checkpoint_sha[:12]}: {path}"
        case ExecutionOrigin(execution_path=path, coordinate=coordinate):
            return f"a branch of {path}, made at {coordinate.checkpoint_sha[:12]}"
        case CheckpointPruned(checkpoints=shas):
            return f"{len(shas)} checkpoints were pruned"
        case HankChanged():
            return "warning: hank.json has changed since this execution began"
        case StateRecovered(source=source):
            return f"state.json was recovered from: {source}"
        case ServerDegraded(message=message):
            return f"degraded: {message}"
        case ServerRecovered(message=message):
            return message
        case ErrorEvent(message=message):
            return f"error: {message}"
        case ServerIdle(message=message):
            return message
        case _:
            return None


def _ended(done: CodonCompletedEvent) -> str:
    if done.success:
        outcome = "completed"
    elif was_stopped(done.failure_reason):
        outcome = "stopped"
    else:
        outcome = "skipped" if done.skipped else "failed"

    line = f"{done.codon_id:<14} {outcome:<10} {done.duration / 1000:.1f} s  ${done.cost:.4f}"
    reason, over = done.failure_reason, done.budget_exceeded
    if reason is not None and reason.message is not None:
        return f"{line}  {reason.message}"

    if over is not None and over.limit == 0:
        line = f"{line}  no budget was left: {over.currency}"
    elif over is not None:
        line = f"{line}  {over.currency} {over.used:g} of {over.limit:g}"

    return f"{line}  with a warning" if done.warnings else line


def _first_line(content: str | dict[str, object] | list[object]) -> str:
    text = content if isinstance(content, str) else codec.encode(content).decode()
    line = text.strip().partition("\n")[0]
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def call_text(tool: str, given: dict[str, object]) -> str:
    """Format a tool call in the notation of permission patterns: `Bash(git push)`."""
    found = arguments_of(tool, given)
    if found is None:
        return tool if not given else f"{tool}({_first_line(given)})"

    return f"{tool}({_first_line(', '.join(found[1]))})"
