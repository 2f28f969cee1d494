"""How long the rest of a plan takes, from what its codons have taken before.

An estimate is a range, because an agent's work varies. Each remaining execution of a codon takes
between the shortest and the longest time that finished executions of the same codon have taken:
those of this execution (iterations of its loop, earlier runs) if there are any, else those of
earlier executions of the same hank. Of ten or more, the outermost tenth on each side is left out;
one or two alone say little, so their range is widened. Waits for the end of limits count nowhere,
except for one that goes on now, whose end is known.

Failed attempts count only if no execution has succeeded: most fail early.

Where nothing is known, no number is made up. A codon that has never run, or a loop that ends with
a full context and has never ended, leaves the range without an upper end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

from hankweave_protocol.hank import Hank, IterationLimit, Loop
from hankweave_protocol.instants import from_text, milliseconds_between, to_text
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    PlanEntry,
    SkippedCodon,
    State,
)
from hankweave_server.domain.budget.spending import ended
from hankweave_server.domain.execution_thread import active_codon, next_codon, suspended_codon
from hankweave_server.domain.lifecycle import wait_of, waited_ms_at, was_stopped

FEW = 3
"""Fewer durations than this say little about the next one."""

WIDER = 1.5
"""The factor by which the range of few durations is widened, at both ends."""

TAIL = 10
"""One in so many durations is left out at each end of the range."""


class Eta(Value, kw_only=True, omit_defaults=False):
    """The time that the rest of a plan takes, in milliseconds."""

    shortest_ms: int
    """Only of the codons that are known, if `unknown` names others."""
    likely_ms: int | None
    longest_ms: int | None
    """Null if there is no upper end, because something is unknown."""
    earliest: str | None
    """When the plan ends at the earliest; null if no server is running it."""
    latest: str | None
    codons_left: int
    """Executions that remain at least, the current one included."""
    unknown: tuple[str, ...]
    """Codons that have never finished, and loops whose number of iterations is unknown."""
    durations: int
    """The number of durations in this execution that the range comes from."""
    earlier_durations: int
    """The number of durations in earlier executions of the same hank that it comes from."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Durations of codons in milliseconds, without waits, and numbers of iterations of loops."""

    durations: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of successful executions, by the codon's id in the hank, without an iteration."""
    iterations: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By the loop's id; only of loops that have ended."""
    failed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The durations of failed attempts."""


NOTHING_OBSERVED = Observed()


def observed(states: Iterable[State]) -> Observed:
    """Return what finished executions of codons have taken in some executions of a hank."""
    succeeded, failed = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    iterations = defaultdict[str, list[int]](list)
    for state in states:
        for each in ended(state):
            took = round(each.spent.seconds * 1000)
            match each.codon:
                case CompletedCodon(claude_log_path=log, reused=None) if log:
                    succeeded[_base(each.codon)].append(took)
                case SkippedCodon(condition=str()):
                    succeeded[_base(each.codon)].append(took)
                case FailedCodon(failure_reason=reason) if took and not was_stopped(reason):
                    failed[_base(each.codon)].append(took)
                case _:
                    pass  # A person, a spent budget or the server's end cut it short.

        for loop, count in _ended_loops(state):
            iterations[loop].append(count)

    return Observed(_frozen(succeeded), _frozen(iterations), _frozen(failed))


def _frozen(lists: Mapping[str, list[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(found) for name, found in lists.items()}


def _base(codon: CodonExecution) -> str:
    return codon.codon_id.partition("#")[0]


def _ended_loops(state: State) -> Iterator[tuple[str, int]]:
    """Yield the loops of the plan that work has gone past, and the number of their iterations."""
    counts: dict[str, int] = {}
    for entry in state.execution_plan[: _position(state)]:
        if entry.loop_context is not None:
            counts[entry.loop_context.loop_id] = entry.loop_context.iteration + 1

    for entry in state.execution_plan[_position(state) :]:
        if entry.loop_context is not None:
            counts.pop(entry.loop_context.loop_id, None)

    yield from counts.items()


def _position(state: State) -> int:
    """Return the index in the plan of the next codon; the plan's length if it has ended."""
    upcoming = next_codon(state)
    plan = state.execution_plan
    return next((i for i, entry in enumerate(plan) if entry.codon_id == upcoming), len(plan))


def eta(
    state: State,
    now: datetime,
    *,
    hank: Hank | None = None,
    earlier: Observed = NOTHING_OBSERVED,
    is_running: bool = True,
) -> Eta | None:
    """Return what is known about the rest of a plan; None if it has ended, or nothing is known.

    Without the hank, the number of a loop's iterations is unknown. `is_running` is false if no
    server is running: then the active codon will start again.
    """
    rest = state.execution_plan[_position(state) :]
    if not rest:
        return None

    own = observed([state])
    total = _Total()
    active = active_codon(state) if is_running else None
    for entry in rest:
        span = _span_of(entry.codon.id, own, earlier, total)
        if active is not None and active.codon_id == entry.codon_id:
            span = _rest_of(active, span, now)

        total.add(entry.codon.id, span, 1, 1)

    for loop in _loops_in(rest):
        _add_iterations(total, loop, rest, hank, own, earlier)

    total.spans.append(_waiting(state, now))
    return total.eta(None if active is None else now)


@dataclass(frozen=True, slots=True)
class _Span:
    """A range of milliseconds; without a longest, its length is unknown."""

    shortest: float
    likely: float | None
    longest: float | None

    def times(self, fewest: int, most: int | None) -> _Span:
        if most == 0:
            return _NOTHING

        middle = None if self.likely is None or most is None else (fewest + most) / 2 * self.likely
        longest = None if self.longest is None or most is None else self.longest * most
        return _Span(self.shortest * fewest, middle, longest)


_UNKNOWN = _Span(0, None, None)
_NOTHING = _Span(0, 0, 0)


@dataclass(slots=True)
class _Total:
    """The sum of spans, and where they come from."""

    spans: list[_Span] = field(default_factory=list)
    unknown: dict[str, None] = field(default_factory=dict)
    own: dict[str, int] = field(default_factory=dict)
    earlier: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def add(self, name: str, span: _Span, fewest: int, most: int | None) -> None:
        self.count += fewest
        if span.longest is None and most != 0:
            self.unknown[name] = None

        self.spans.append(span.times(fewest, most))

    def eta(self, now: datetime | None) -> Eta | None:
        if not self.own and not self.earlier and all(span.shortest == 0 for span in self.spans):
            return None

        shortest = round(sum(span.shortest for span in self.spans))
        likely = _sum(span.likely for span in self.spans)
        longest = _sum(span.longest for span in self.spans)
        return Eta(
            shortest_ms=shortest,
            likely_ms=likely,
            longest_ms=longest,
            earliest=None if now is None else _after(now, shortest),
            latest=None if now is None or longest is None else _after(now, longest),
            codons_left=self.count,
            unknown=tuple(self.unknown),
            durations=sum(self.own.values()),
            earlier_durations=sum(self.earlier.values()),
        )


def _sum(amounts: Iterable[float | None]) -> int | None:
    total = 0.0
    for amount in amounts:
        if amount is None:
            return None

        total += amount

    return round(total)


def _after(now: datetime, milliseconds: int) -> str | None:
    """Return a timestamp; None beyond the year 9999."""
    try:
        return to_text(now + timedelta(milliseconds=milliseconds))
    except OverflowError:
        return None


def _span_of(name: str, own: Observed, earlier: Observed, total: _Total) -> _Span:
    """Return the span of one execution of a codon, and note what it comes from."""
    for found, source in (
        (own.durations.get(name), total.own),
        (earlier.durations.get(name), total.earlier),
        (own.failed.get(name), total.own),
        (earlier.failed.get(name), total.earlier),
    ):
        if found:
            source[name] = len(found)
            return _spread(found)

    return _UNKNOWN


def _spread(durations: Sequence[float]) -> _Span:
    """Return the range of some durations, at least one."""
    ordered = sorted(durations)
    left_out = len(ordered) // TAIL
    shortest, longest = ordered[left_out], ordered[-1 - left_out]
    wider = WIDER if len(ordered) < FEW else 1.0
    return _Span(shortest / wider, median(ordered), longest * wider)


def _rest_of(codon: CodonExecution, span: _Span, now: datetime) -> _Span:
    """Return what is left of the codon that is active.

    One that takes longer than any before may take as long again, as nothing else is known.
    """
    if span.longest is None:
        return span

    lasted = milliseconds_between(from_text(codon.start_time), now)
    worked = max(0, lasted - waited_ms_at(codon, to_text(now)))
    if worked >= span.longest:
        return _Span(0, worked / 2, worked)

    likely = span.likely
    if likely is None or worked >= likely:
        likely = (worked + span.longest) / 2

    return _Span(max(0, span.shortest - worked), likely - worked, span.longest - worked)


def _waiting(state: State, now: datetime) -> _Span:
    """Return what is left of a wait for the end of a limit, which is known exactly."""
    codon = active_codon(state) or suspended_codon(state)
    wait = None if codon is None else wait_of(codon)
    if wait is None:
        return _NOTHING

    left = max(0, milliseconds_between(now, from_text(wait.until)))
    return _Span(left, left, left)


# --- loops ----------------------------------------------------------------------------------------


def _loops_in(entries: Iterable[PlanEntry]) -> list[str]:
    """Return the loops that some entries belong to: those that have not ended."""
    contexts = (entry.loop_context for entry in entries)
    return list(dict.fromkeys(context.loop_id for context in contexts if context is not None))


def _add_iterations(
    total: _Total,
    loop_id: str,
    rest: Sequence[PlanEntry],
    hank: Hank | None,
    own: Observed,
    earlier: Observed,
) -> None:
    """Add the iterations of a loop that the plan does not contain yet."""
    contexts = [entry.loop_context for entry in rest]
    newest = max(each.iteration for each in contexts if each and each.loop_id == loop_id)
    loop = _loop_named(hank, loop_id)
    counts = earlier.iterations.get(loop_id, ())
    fewest, most = 0, None
    if loop is not None and isinstance(loop.terminate_on, IterationLimit):
        fewest = most = max(0, loop.terminate_on.limit - 1 - newest)
    elif counts and max(counts) > newest:
        fewest, most = max(0, min(counts) - 1 - newest), max(counts) - 1 - newest

    if most is None:
        total.unknown[loop_id] = None

    for name in _names_of(loop, loop_id, rest):
        total.add(name, _span_of(name, own, earlier, total), fewest, most)


def _loop_named(hank: Hank | None, loop_id: str) -> Loop | None:
    steps = () if hank is None else hank.hank
    return next((step for step in steps if isinstance(step, Loop) and step.id == loop_id), None)


def _names_of(loop: Loop | None, loop_id: str, rest: Sequence[PlanEntry]) -> list[str]:
    if loop is not None:
        return [codon.id for codon in loop.codons]

    own = (each for each in rest if each.loop_context and each.loop_context.loop_id == loop_id)
    return list(dict.fromkeys(entry.codon.id for entry in own))
