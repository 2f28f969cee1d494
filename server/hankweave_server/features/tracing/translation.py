"""Translate the events of an execution into spans and measurements. Pure.

Each run is one trace. Its root span is the run; the children of that are the attempts of codons,
and their children the calls of tools. Everything else that is exported (waits, checkpoints,
rollbacks, retries) is an event of the span that it happens in. A new run is a trace of its own,
linked to the run that it continues and to the one before it.

A span is handed out once, by the server in which it ends; until then its children name a parent
that follows later. `restore_spans` restores the open spans from the state and the journal.

Names, numbers and times are exported always. What agents and people wrote, and paths of files, are
content, and exported on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from hankweave_protocol import events, transitions
from hankweave_protocol.codec import decode_transition_body
from hankweave_protocol.events import Event, EventData, StateTransition
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.state import (
    CodonExecution,
    FailedCodon,
    Run,
    State,
    TerminalCodon,
    Tokens,
)
from hankweave_server.domain.costs import run_cost
from hankweave_server.domain.execution_thread import plan_entry, run_named
from hankweave_server.domain.lifecycle import (
    cost_of,
    is_active,
    sentinel_cost_of,
    status_of,
    tokens_of,
)
from hankweave_server.features.tracing import conventions as names
from hankweave_server.features.tracing.spans import (
    LONGEST,
    Attribute,
    Exported,
    Measurement,
    Span,
    SpanEvent,
    attributes_of,
    duration,
    hashed,
    links_of,
    nanoseconds,
    provider_of,
    span_id_of_codon,
    span_id_of_run,
    trace_id_of,
    usage_of,
    used_by,
)

MOST_CALLS = 1000
"""Tool calls of one codon without a result that are remembered."""

MOST_TOOLS = 200
"""Different names of tools; further ones are exported as `OTHER`.

Each value of an attribute is a time series of its own, and agents choose these names.
"""

OTHER = "other"

LONGEST_NAME = 100

CALLS_A_SECOND = 50
"""Tool calls in one second that get a span and a measured duration; the others are counted.

A span takes about 0.1 ms of the processor until it is sent. No agent works as fast as this, but one
that prints as fast as it is read must not be slowed down.
"""

MOST_UNPLACED = 16
"""Events between two runs, which the next run gets."""


@dataclass(slots=True)
class _OpenRun:
    span: Span
    tokens: Tokens | None = None


@dataclass(slots=True)
class _OpenCodon:
    span: Span
    agent: str
    model: str | None
    calls: dict[str, Span] = field(default_factory=dict)
    call_count: int = 0
    left_out: int = 0
    """The number of calls without a span."""
    checkpoints: int = 0


@dataclass(frozen=True, slots=True)
class _EventMapping:
    """How an event becomes an event of a span."""

    place: Literal["run", "codon"]
    fields: tuple[str, ...] = ()
    content: tuple[str, ...] = ()


_MAPPINGS: Mapping[type[EventData], _EventMapping] = {
    events.ServerStarted: _EventMapping("run", ("server_version",)),
    events.ServerStopping: _EventMapping("run"),
    events.ServerDegraded: _EventMapping("run", ("code",), ("message",)),
    events.ServerRecovered: _EventMapping("run", ("code",), ("message",)),
    events.CodonRetrying: _EventMapping("run", ("codon_id", "attempt", "max_attempts", "delay_ms")),
    events.CodonWaiting: _EventMapping(
        "codon", ("until", "reason", "source", "number", "model"), ("message",)
    ),
    events.CodonResumed: _EventMapping("codon", ("by", "waited_ms")),
    events.CodonExtended: _EventMapping("codon", ("extension_number",), ("exhaust_with_prompt",)),
    events.CodonWarning: _EventMapping("codon", ("kind",), ("message",)),
    events.PermissionRequested: _EventMapping("codon", ("request_id", "tool_name"), ("reason",)),
    events.PermissionResolved: _EventMapping(
        "codon", ("request_id", "tool_name", "decision", "by"), ("message",)
    ),
    events.CheckCompleted: _EventMapping(
        "codon", ("check_index", "passed", "duration_ms", "exit_code"), ("command", "output")
    ),
    events.RigSetupCompleted: _EventMapping("codon", ("command_count", "duration_ms")),
    events.RigSetupFailed: _EventMapping(
        "codon", ("failure_type", "command_index", "exit_code", "ignored"), ("message",)
    ),
    events.RollbackStarted: _EventMapping(
        "run", ("from_run", "from_codon", "to_codon", "to_checkpoint", "checkpoint_type")
    ),
    events.RollbackFailed: _EventMapping("run", (), ("message",)),
    events.RollbackCompleted: _EventMapping(
        "run", ("from_run", "to_run", "checkpoint", "codon_id", "direction"), ("reason",)
    ),
    events.CheckpointRollback: _EventMapping("codon", ("checkpoint", "direction"), ("reason",)),
}

_FOLLOWED = frozenset(
    {
        *("RunStarted", "RunCompleted", "RunFailed", "RunCrashed"),
        *("CodonStarted", "CodonTransitioned", "CheckpointCreated"),
    }
)
"""Transitions that matter here; the others, which come with every message, are not decoded."""

_STEPS = frozenset({"tool", "turn"})
"""Kinds of checkpoints that a codon makes by the hundred: they are counted."""


class Tracing:
    """The open spans of one execution."""

    def __init__(self, workflow: str, *, with_content: bool = False) -> None:
        """`workflow` is the name of the hank."""
        self._workflow = workflow
        self._with_content = with_content
        self._runs: dict[RunId, _OpenRun] = {}
        self._codons: dict[CodonId, _OpenCodon] = {}
        self._first_of_branch: RunId | None = None
        self._unplaced: list[SpanEvent] = []
        """Events while no run was open."""
        self._tools: set[str] = set()
        self._second = ""
        self._calls_in_second = 0

    def restore_spans(
        self, state: State, history: Iterable[Event], first_of_branch: RunId | None = None
    ) -> None:
        """Open the spans of a run that an earlier server has left open.

        `history` are the last events; if it does not reach back to the beginning of the run, some
        of the spans' data is missing. `first_of_branch` is the first run of a branch itself.
        """
        self._first_of_branch = first_of_branch
        run = state.runs[0] if state.runs else None
        if run is None or run.status != "running":
            return

        known = tuple(history)
        if not any(event.run_id == run.run_id and _is_start(event) for event in known):
            self._open_from(run, state)

        for event in known:
            self.handle(event, state)

        self._open_from(run, state)
        self._runs = {run.run_id: self._runs[run.run_id]}

    def _open_from(self, run: Run, state: State) -> None:
        self._open_run(run, state)
        for codon in run.codons[-1:]:
            if is_active(codon):
                self._open_codon(run.run_id, codon, state)

    def handle(self, event: Event, state: State) -> Iterable[Exported]:
        """Return what is to be exported after an event; `state` is the one that it has led to."""
        match event.data:
            case StateTransition(transition_type=kind) as moved if kind in _FOLLOWED:
                return self._transition(event, moved, state)
            case events.AssistantAction() as action:
                self._action(event, action)
            case events.ToolResult() as result:
                return self._result(event, result)
            case events.SentinelUnloaded() as ended:
                return self._sentinel(ended)
            case data if (mapping := _MAPPINGS.get(type(data))) is not None:
                self._convert(event, mapping)
            case _:
                pass

        return ()

    # --- runs ------------------------------------------------------------------------------------

    def _transition(self, event: Event, moved: StateTransition, state: State) -> Iterable[Exported]:
        match decode_transition_body(moved.transition):
            case transitions.RunStarted(run=run):
                self._open_run(run, state)
            case transitions.RunCompleted(run_id=run_id, end_time=end_time):
                return self._end_run(run_id, end_time, "completed", state)
            case transitions.RunFailed(run_id=run_id, end_time=end_time):
                return self._end_run(run_id, end_time, "failed", state)
            case transitions.RunCrashed(run_id=run_id, end_time=end_time):
                return self._end_run(run_id, end_time, "crashed", state)
            case transitions.CodonStarted(run_id=run_id, codon=codon):
                self._open_codon(run_id, codon, state)
            case transitions.CodonTransitioned(run_id=run_id, codon=codon):
                if isinstance(codon, TerminalCodon):
                    return tuple(self._end_codon(run_id, codon))
            case transitions.CheckpointCreated(checkpoint=checkpoint):
                self._checkpoint(event, checkpoint)
            case _:
                pass

        return ()

    def _open_run(self, run: Run, state: State) -> None:
        span_id, trace_id = span_id_of_run(run), trace_id_of(run.run_id)
        known = self._runs.get(run.run_id)
        if run.status != "running" or (known is not None and known.span.span_id == span_id):
            return

        span = Span(
            name=f"{names.INVOKE_WORKFLOW} {self._workflow}",
            trace_id=trace_id,
            span_id=span_id,
            parent_id=None,
            start=nanoseconds(run.start_time),
            attributes={
                names.OPERATION: names.INVOKE_WORKFLOW,
                names.AGENT: self._workflow,
                names.RUN: run.run_id,
            },
            links=tuple(links_of(run, state, self._first_of_branch)),
        )
        for noted in self._unplaced:
            span.note(noted)

        self._unplaced = []
        self._runs[run.run_id] = _OpenRun(span)

    def _end_run(
        self, run_id: RunId, end_time: str, status: str, state: State
    ) -> Iterable[Exported]:
        opened = self._runs.pop(run_id, None)
        if opened is None:
            self._unplaced.clear()  # They belong to this run, of whose beginning nothing is known.
            return ()

        run = run_named(state, run_id)
        span = opened.span
        span.attributes[names.RUN_STATUS] = status
        span.attributes[names.COST] = 0.0 if run is None else run_cost(run)
        if opened.tokens is not None:
            span.attributes.update(usage_of(opened.tokens))

        error = "" if status == "completed" else status
        finished = span.ended(nanoseconds(end_time), error=error)
        return finished, duration(names.INVOKE_DURATION, finished, names.OPERATION, names.AGENT)

    # --- codons ----------------------------------------------------------------------------------

    def _open_codon(self, run_id: RunId, codon: CodonExecution, state: State) -> None:
        span_id = span_id_of_codon(run_id, codon)
        known = self._codons.get(codon.codon_id)
        if known is not None and known.span.span_id == span_id:
            return

        entry = plan_entry(state.execution_plan, codon.codon_id)
        agent = codon.codon_id if entry is None else entry.codon.id
        model = None if entry is None else entry.codon.model
        run = run_named(state, run_id)
        attributes: dict[str, Attribute] = {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT: agent,
            names.CODON: codon.codon_id,
            names.ATTEMPT: codon.attempt,
            names.RUN: run_id,
        }
        if model:
            attributes[names.MODEL] = model

        if entry is not None and (provider := provider_of(entry.codon)) is not None:
            attributes[names.PROVIDER] = provider

        span = Span(
            name=f"{names.INVOKE_AGENT} {agent}",
            trace_id=trace_id_of(run_id),
            span_id=span_id,
            parent_id=None if run is None else span_id_of_run(run),
            start=nanoseconds(codon.start_time),
            attributes=attributes,
        )
        self._codons[codon.codon_id] = _OpenCodon(span, agent, model)

    def _end_codon(self, run_id: RunId, codon: TerminalCodon) -> Iterator[Exported]:
        opened = self._codons.pop(codon.codon_id, None)
        if opened is None:
            return

        span, end, tokens = opened.span, nanoseconds(codon.end_time), tokens_of(codon)
        for call in opened.calls.values():
            yield call.ended(end, error="unfinished")

        if (run := self._runs.get(run_id)) is not None:
            run.tokens = tokens if run.tokens is None else run.tokens + tokens

        span.attributes |= {
            names.CODON_STATUS: status_of(codon),
            names.COST: cost_of(codon) + sentinel_cost_of(codon),
            names.CHECKPOINTS: opened.checkpoints,
            **usage_of(tokens),
        }
        if opened.left_out:
            span.attributes[names.CALLS_LEFT_OUT] = opened.left_out

        if codon.claude_session_id:
            span.attributes[names.CONVERSATION] = codon.claude_session_id

        if codon.waited_ms:
            span.attributes[names.WAITED] = codon.waited_ms / 1000

        error, message = "", None
        if isinstance(codon, FailedCodon):
            error = codon.failure_reason.type
            message = codon.failure_reason.message if self._with_content else None

        finished = span.ended(end, error=error, message=message)
        yield finished
        yield duration(names.INVOKE_DURATION, finished, names.OPERATION, names.AGENT)
        yield from used_by(codon, opened.agent, opened.model, opened.call_count)

    def _sentinel(self, ended: events.SentinelUnloaded) -> Iterable[Exported]:
        # A codon that waits into another server is still open; its sentinels count on there.
        continues = ended.codon_id in self._codons and ended.reason == "shutdown"
        if continues or not ended.final_cost:
            return ()

        attributes = {names.COST_SOURCE: "sentinel", names.AGENT: ended.sentinel_id}
        return (Measurement(names.DOLLARS, ended.final_cost, attributes),)

    # --- tools -----------------------------------------------------------------------------------

    def _action(self, event: Event, data: events.AssistantAction) -> None:
        codon = self._codons.get(data.codon_id)
        if codon is None or data.tool_use_id is None or data.action != "tool_use":
            return

        if len(codon.calls) >= MOST_CALLS or not self._has_room(event):
            return

        call = self._call(codon, event, data.tool_use_id, data.tool_name or OTHER)
        if data.external:
            call.attributes[names.EXTERNAL] = True

        if self._with_content and data.tool_input is not None:
            arguments = msgspec.json.encode(data.tool_input).decode()
            call.attributes[names.TOOL_ARGUMENTS] = arguments[:LONGEST]

        codon.calls[data.tool_use_id] = call

    def _has_room(self, event: Event) -> bool:
        """Return whether another tool call of this second gets a span."""
        second = event.timestamp[:19]
        if second != self._second:
            self._second, self._calls_in_second = second, 0

        self._calls_in_second += 1
        return self._calls_in_second <= CALLS_A_SECOND

    def _call(self, codon: _OpenCodon, event: Event, call_id: str, tool: str) -> Span:
        tool = tool[:LONGEST_NAME]
        if len(self._tools) < MOST_TOOLS:
            self._tools.add(tool)
        elif tool not in self._tools:
            tool = OTHER

        return Span(
            name=f"{names.EXECUTE_TOOL} {tool}",
            trace_id=codon.span.trace_id,
            span_id=hashed(8, "event", event.id),
            parent_id=codon.span.span_id,
            start=nanoseconds(event.timestamp),
            attributes={
                names.OPERATION: names.EXECUTE_TOOL,
                names.TOOL: tool,
                names.TOOL_CALL: call_id[:LONGEST_NAME],
                names.TOOL_TYPE: names.FUNCTION,
                names.AGENT: codon.agent,
            },
        )

    def _result(self, event: Event, data: events.ToolResult) -> Iterable[Exported]:
        codon = self._codons.get(data.codon_id)
        if codon is None:
            return ()

        codon.call_count += 1
        call = codon.calls.pop(data.tool_use_id, None)
        if call is None:
            codon.left_out += 1
            return ()

        if self._with_content:
            call.attributes[names.TOOL_RESULT] = data.result[:LONGEST]

        error = "tool_error" if data.is_error else ""
        finished = call.ended(nanoseconds(event.timestamp), error=error)
        kept = (names.TOOL, names.TOOL_TYPE, names.AGENT)
        return finished, duration(names.TOOL_DURATION, finished, *kept)

    # --- events of spans -------------------------------------------------------------------------

    def _convert(self, event: Event, mapping: _EventMapping) -> None:
        data = event.data
        if isinstance(data, events.CheckpointRollback) and data.report is None:
            return  # `rollback.completed` follows, and says more.

        fields = mapping.fields + (mapping.content if self._with_content else ())
        attributes = dict(attributes_of(data, fields))
        if isinstance(data, events.RollbackCompleted | events.CheckpointRollback) and data.report:
            counts = data.report.counts
            attributes |= dict(attributes_of(counts, ("added", "updated", "removed", "kept")))

        self._note(event, attributes, event.codon_id if mapping.place == "codon" else None)

    def _checkpoint(self, event: Event, checkpoint: CheckpointRecord) -> None:
        codon_id = checkpoint.coordinate.codon_id
        codon = None if codon_id is None else self._codons.get(codon_id)
        if codon is not None:
            codon.checkpoints += 1

        if checkpoint.kind not in _STEPS:
            fields = ("sha", "kind", "partial", *(("label",) if self._with_content else ()))
            self._note(event, dict(attributes_of(checkpoint, fields)), codon_id)

    def _note(self, event: Event, attributes: dict[str, Attribute], codon: CodonId | None) -> None:
        """Add an event to the span of its codon, else of its run, else of the next run."""
        data = event.data
        kind = "checkpoint.created" if isinstance(data, StateTransition) else data.TYPE
        noted = SpanEvent(f"{names.OURS}{kind}", nanoseconds(event.timestamp), attributes)
        found = None if codon is None else self._codons.get(codon)
        run = next(reversed(self._runs.values()), None)
        if found is not None:
            found.span.note(noted)
        elif run is not None:
            run.span.note(noted)
        elif len(self._unplaced) < MOST_UNPLACED:
            self._unplaced.append(noted)


def _is_start(event: Event) -> bool:
    return isinstance(event.data, StateTransition) and event.data.transition_type == "RunStarted"
