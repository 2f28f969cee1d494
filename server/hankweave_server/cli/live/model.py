"""The contents of the live view, computed from the state and from events; pure.

The state is a fold of the journal. `ObservedFacts` is a fold of what the state leaves out and the
view shows: the last message, the last files, the next attempt, pending permission requests. `view`
joins the two into the rows that fit. Nothing here depends on a terminal or a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hankweave_protocol.events import (
    AgentOutput,
    AssistantAction,
    BudgetFigures,
    CodonCompletedEvent,
    CodonRetrying,
    CodonStartedEvent,
    Event,
    FilesChanged,
    FileUpdated,
    PermissionRequested,
    PermissionResolved,
    RigOutput,
    SentinelError,
    SentinelOutput,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.instants import from_text, to_text
from hankweave_protocol.state import (
    NO_TOKENS,
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    PlanEntry,
    SkippedCodon,
    State,
    Tokens,
)
from hankweave_server.cli.output.event_lines import asking_line
from hankweave_server.cli.output.text import span
from hankweave_server.domain.budget.spending import Costs, costs
from hankweave_server.domain.costs import dollars_of
from hankweave_server.domain.execution_thread import active_codon, next_codon, thread
from hankweave_server.domain.lifecycle import (
    is_active,
    status_of,
    tokens_of,
    wait_of,
    waited_ms_at,
    was_stopped,
)
from hankweave_server.domain.plan import progress
from hankweave_server.plain_text import counted, one_line

_FILES_REMEMBERED = 200
_REQUESTS_SHOWN = 3
_LONGEST = 500
"""Maximum characters of a message: more than a line of any terminal."""

AllowanceOf = Callable[[PlanEntry, State], BudgetFigures]


@dataclass(frozen=True, slots=True)
class Retry:
    codon_id: CodonId
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True)
class ObservedFacts:
    """Facts from events that the state does not hold; all text is safe for a terminal."""

    words: str = ""
    sentinel: str = ""
    files: Mapping[CodonId, str] = field(default_factory=dict)
    retry: Retry | None = None
    asking: Mapping[str, str] = field(default_factory=dict)
    """Pending permission requests by id, each as a line that says how to answer."""


NOTHING = ObservedFacts()


def observe(facts: ObservedFacts, event: Event) -> ObservedFacts:
    """Return `facts` updated with an event."""
    match event.data:
        case CodonStartedEvent():
            return replace(facts, words="", retry=None)
        case AssistantAction(action="tool_use", tool_name=tool):
            return replace(facts, words=f"[{one_line(tool or 'tool')}]")
        case AssistantAction(action="message", content=text):
            return replace(facts, words=_last_line(text) or facts.words)
        case AgentOutput(line=text) | RigOutput(line=text):
            return replace(facts, words=_last_line(text) or facts.words)
        case SentinelOutput(sentinel_id=name, content=content):
            text = content if isinstance(content, str) else str(content)
            return replace(facts, sentinel=f"{one_line(name)}: {_last_line(text)}")
        case SentinelError(sentinel_id=name, message=message):
            return replace(facts, sentinel=f"{one_line(name)}: {_last_line(message)}")
        case PermissionRequested() as asked:
            line = asking_line(asked)
            return replace(facts, asking={**facts.asking, asked.request_id: line})
        case PermissionResolved(request_id=request) if request in facts.asking:
            left = {key: line for key, line in facts.asking.items() if key != request}
            return replace(facts, asking=left)
        case CodonCompletedEvent() if facts.asking:
            return replace(facts, asking={})
        case FileUpdated(codon_id=str() as codon, path=path):
            return replace(facts, files=_with(facts.files, CodonId(codon), one_line(path)))
        case FilesChanged(codon_id=str() as codon) as burst:
            return replace(
                facts, files=_with(facts.files, CodonId(codon), counted(burst.total, "file"))
            )
        case CodonRetrying(codon_id=codon, attempt=attempt, delay_ms=delay):
            at = from_text(event.timestamp) + timedelta(milliseconds=delay)
            return replace(facts, retry=Retry(codon, attempt, at))
        case _:
            return facts


def _last_line(text: str) -> str:
    lines = text[-4 * _LONGEST :].split("\n")
    return one_line(next((line for line in reversed(lines) if line.strip()), ""))[:_LONGEST]


def _with(files: Mapping[CodonId, str], codon: CodonId, path: str) -> Mapping[CodonId, str]:
    others = [(key, value) for key, value in files.items() if key != codon]
    return dict([*others[-_FILES_REMEMBERED:], (codon, path)])


# --- the view -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepRow:
    """One codon of the plan."""

    codon_id: str
    state: str
    attempt: int = 0
    """0 if it has not run."""
    seconds: float | None = None
    cost: float = 0.0
    tokens: int = 0
    left: str = ""
    """The rest of its budget."""
    last_file: str = ""


@dataclass(frozen=True, slots=True)
class LiveState:
    """The complete contents of the live view."""

    rows: tuple[StepRow, ...]
    above: int
    """Codons before the first row."""
    below: int
    step: int
    steps: int
    paid: Costs
    tokens: int
    seconds: float
    words: str
    sentinel: str
    asking: tuple[str, ...] = ()
    """The oldest pending permission requests."""


def view(
    state: State,
    facts: ObservedFacts,
    now: datetime,
    room: int,
    allowance_of: AllowanceOf = lambda _entry, _state: BudgetFigures(),
    budget: float | None = None,
) -> LiveState:
    """Return the view, with at most `room` rows around the codon that runs or comes next.

    `budget` is what the hank may use, in USD.
    """
    plan = state.execution_plan
    ran = {entry.codon.codon_id: entry.codon for entry in thread(state)}
    step, steps = progress(state)
    start = first_row(len(plan), _place(state), room)
    shown = plan[start : start + room]
    codons = (codon for run in state.runs for codon in run.codons)
    return LiveState(
        rows=tuple(row_of(entry, ran, state, facts, now, allowance_of) for entry in shown),
        above=start,
        below=len(plan) - start - len(shown),
        step=step,
        steps=steps,
        paid=costs(state, budget),
        tokens=_count(sum(map(tokens_of, codons), NO_TOKENS)),
        seconds=_seconds_of_run(state, now),
        words=facts.words,
        sentinel=facts.sentinel,
        asking=tuple(facts.asking.values())[:_REQUESTS_SHOWN],
    )


def first_row(total: int, at: int, room: int) -> int:
    """Return the first of `room` rows, so that about a third of them precede row `at`."""
    return max(0, min(at - room // 3, total - room))


def _place(state: State) -> int:
    active = active_codon(state)
    wanted = next_codon(state) if active is None else active.codon_id
    places = (i for i, entry in enumerate(state.execution_plan) if entry.codon_id == wanted)
    return next(places, len(state.execution_plan) - 1)


def row_of(
    entry: PlanEntry,
    ran: Mapping[CodonId, CodonExecution],
    state: State,
    facts: ObservedFacts,
    now: datetime,
    allowance_of: AllowanceOf,
) -> StepRow:
    """Return an entry of the plan with the execution of it, if there is one."""
    codon = ran.get(entry.codon_id)
    name = one_line(entry.codon_id)
    if codon is None:
        return StepRow(name, "")

    seconds = _seconds(codon, now)
    cost = dollars_of(codon)
    return StepRow(
        name,
        _state_text(codon, facts.retry, now),
        attempt=codon.attempt,
        seconds=seconds,
        cost=cost,
        tokens=_count(tokens_of(codon)),
        left=_left(allowance_of(entry, state), cost, seconds) if is_active(codon) else "",
        last_file=facts.files.get(entry.codon_id, ""),
    )


def _state_text(codon: CodonExecution, retry: Retry | None, now: datetime) -> str:
    if retry is not None and retry.codon_id == codon.codon_id and not is_active(codon):
        left = max(0.0, (retry.at - now).total_seconds())
        return f"retry in {left:.0f} s"

    if (wait := wait_of(codon)) is not None:
        ahead = (from_text(wait.until) - now).total_seconds()
        return f"waits {span(ahead)} ({wait.kind} limit)"

    if isinstance(codon, FailedCodon) and was_stopped(codon.failure_reason):
        return "stopped"

    if isinstance(codon, CompletedCodon) and codon.reused is not None:
        return "reused"

    status = status_of(codon)
    return "sentinels" if status == "completing-sentinels" else status


def _left(allowed: BudgetFigures, cost: float, seconds: float) -> str:
    """Return what is left of the limits on dollars and seconds."""
    parts = []
    if allowed.max_dollars is not None:
        parts.append(f"${max(0.0, allowed.max_dollars - cost):.2f}")

    if allowed.max_time_seconds is not None:
        parts.append(f"{max(0.0, allowed.max_time_seconds - seconds):.0f} s")

    return " ".join(parts)


def _seconds(codon: CodonExecution, now: datetime) -> float:
    match codon:
        case CompletedCodon() | FailedCodon() | SkippedCodon():
            end = from_text(codon.end_time)
        case _:
            end = now

    waited = waited_ms_at(codon, to_text(end)) / 1000
    return max(0.0, (end - from_text(codon.start_time)).total_seconds() - waited)


def _seconds_of_run(state: State, now: datetime) -> float:
    if not state.runs:
        return 0.0

    run = state.runs[0]
    end = now if run.end_time is None else from_text(run.end_time)
    return max(0.0, (end - from_text(run.start_time)).total_seconds())


def _count(tokens: Tokens) -> int:
    cached = tokens.cache_creation_tokens + tokens.cache_read_tokens
    return tokens.input_tokens + tokens.output_tokens + cached
