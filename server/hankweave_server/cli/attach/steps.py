"""The steps of the plan as rows of the list, with the rounds of a loop folded; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from hankweave_protocol.events import BudgetFigures
from hankweave_protocol.ids import CodonId
from hankweave_protocol.replies import Forecast
from hankweave_protocol.state import (
    CodonExecution,
    FailedCodon,
    LoopContext,
    PlanEntry,
    SkippedCodon,
    State,
)
from hankweave_server.cli.attach.session import AttachSession
from hankweave_server.cli.live.model import StepRow, row_of
from hankweave_server.cli.output.text import cut, dollars
from hankweave_server.cli.status.steps import step_time
from hankweave_server.domain.budget.estimates import forecast
from hankweave_server.domain.execution_thread import (
    active_codon,
    next_codon,
    plan_entry,
    thread,
)
from hankweave_server.domain.lifecycle import is_active, wait_of, was_stopped
from hankweave_server.plain_text import one_line

_WIDE = 34
"""Columns from which a row has its cost."""

_GOOD, _RUNS, _WAITS = "$text-success", "bold $text-accent", "$text-warning"


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step, a loop, or a round of one."""

    key: str
    """The id of the codon, or of the loop after `loop `."""
    codon_id: CodonId
    """The codon that it shows: of a loop, the newest round."""
    mark: str
    name: str
    seconds: float | None = None
    cost: float = 0.0
    about: str = ""
    """`~` if the numbers are likely ones."""
    note: str = ""
    """The state, where the mark does not say it."""
    style: str = ""
    """In the words of Textual, whose theme has the colours."""
    is_folded: bool | None = None
    """None for what has no rounds."""

    def text(self, width: int) -> str:
        """Return the row in exactly `width` columns: mark, name, note, time and cost."""
        time = "" if self.seconds is None else f"{self.about}{step_time(self.seconds)}"
        cost = f"{self.about}{dollars(self.cost)}" if self.cost and width >= _WIDE else ""
        numbers = f" {time:>6}" + (f" {cost:>7}" if width >= _WIDE else "")
        room = width - len(numbers) - 2
        name = f"{self.name}  {self.note}" if self.note else self.name
        return f"{self.mark} {cut(name, room):<{room}}{numbers}"


def step_lines(session: AttachSession, unfolded: frozenset[str]) -> tuple[StepLine, ...]:
    """Return the rows of the list; loops whose key is in `unfolded` are followed by all rounds."""
    state, now = session.state, session.clock.now()
    ran = {entry.codon.codon_id: entry.codon for entry in thread(state)}
    status = session.status
    expected = forecast(state, now) if status is None else status.forecast
    asked = {each.codon_id for each in session.asked}

    def budget(entry: PlanEntry, _state: State) -> BudgetFigures:
        return session.allowed(entry.codon_id)

    def line(entry: PlanEntry) -> StepLine:
        codon = ran.get(entry.codon_id)
        if codon is None:
            return _ahead(entry, expected)

        row = row_of(entry, ran, state, session.facts, now, budget)
        return _begun(entry, codon, row, is_asking=entry.codon_id in asked)

    lines: list[StepLine] = []
    for loop, group in groupby(state.execution_plan, _loop_of):
        entries = list(group)
        rounds = [line(entry) for entry in entries]
        if loop is None:
            lines += rounds
        else:
            head = _loop(loop, entries, rounds, is_folded=f"loop {loop}" not in unfolded)
            lines += [head] if head.is_folded else [head, *map(_indented, rounds)]

    return tuple(lines)


def _loop_of(entry: PlanEntry) -> str | None:
    return None if entry.loop_context is None else entry.loop_context.loop_id


def followed(state: State) -> CodonId | None:
    """Return the codon that a reader who has chosen none wants to see: what runs, or failed."""
    active = active_codon(state)
    if active is not None:
        return active.codon_id

    newest = thread(state)[-1:]
    return newest[0].codon.codon_id if newest else next_codon(state)


def execution_of(state: State, codon_id: CodonId) -> CodonExecution | None:
    """Return the newest execution of a codon on the current thread."""
    found = (entry.codon for entry in thread(state) if entry.codon.codon_id == codon_id)
    return next(reversed(list(found)), None)


def title_of_step(state: State, codon_id: CodonId) -> str:
    """Return the name of a codon, with its round."""
    entry = plan_entry(state.execution_plan, codon_id)
    return one_line(codon_id) if entry is None else _name(entry)


def reason_of_end(codon: CodonExecution | None) -> str:
    """Return why a codon failed or was skipped; empty for others."""
    match codon:
        case FailedCodon(failure_reason=reason):
            return reason.message or f"It failed: {reason.type}."
        case SkippedCodon(condition=str(condition)):
            return f"Skipped: {condition} does not hold."
        case SkippedCodon():
            return "Skipped."
        case _:
            return ""


# --- rows -----------------------------------------------------------------------------------------


def _name(entry: PlanEntry) -> str:
    name = one_line(entry.codon.name or entry.codon_id)
    context: LoopContext | None = entry.loop_context
    return name if context is None else f"{name} #{context.iteration}"


def _ahead(entry: PlanEntry, expected: Forecast | None) -> StepLine:
    steps = () if expected is None else expected.steps
    likely = next((each for each in steps if each.codon_id == entry.codon_id), None)
    if likely is None:
        return StepLine(entry.codon_id, entry.codon_id, "·", _name(entry), style="dim")

    seconds = None if likely.ms is None else likely.ms / 1000
    return StepLine(
        *(entry.codon_id, entry.codon_id, "·", _name(entry)),
        seconds=seconds,
        cost=likely.cost or 0.0,
        about="~",
        style="dim",
    )


def _begun(entry: PlanEntry, codon: CodonExecution, row: StepRow, *, is_asking: bool) -> StepLine:
    note = {"completed": "", "failed": "", "skipped": "", "running": ""}.get(row.state, row.state)
    if not note and row.attempt > 1:
        note = f"attempt {row.attempt}"

    mark, style = "✓", _GOOD
    if isinstance(codon, FailedCodon):
        is_stopped = was_stopped(codon.failure_reason)
        mark, style = ("■", _WAITS) if is_stopped else ("✗", "$text-error")
    elif isinstance(codon, SkippedCodon):
        mark, style = "»", ""
    elif is_asking:
        mark, style, note = "?", f"bold {_WAITS}", "asks you"
    elif is_active(codon):
        mark, style = ("◷", _WAITS) if wait_of(codon) else ("▸", _RUNS)

    return StepLine(
        *(entry.codon_id, entry.codon_id, mark, _name(entry)),
        seconds=row.seconds,
        cost=row.cost,
        note=note,
        style=style,
    )


def _loop(
    loop: str, entries: Sequence[PlanEntry], rounds: Sequence[StepLine], *, is_folded: bool
) -> StepLine:
    names = {entry.codon.name for entry in entries}
    name = one_line(names.pop() if len(names) == 1 else loop)
    number = len({entry.loop_context.iteration for entry in entries if entry.loop_context})
    begun = [each for each in rounds if each.style != "dim"]
    if not begun:
        return StepLine(
            *(f"loop {loop}", rounds[0].codon_id, "·", f"{name} ×{number}"),
            style="dim",
            is_folded=is_folded,
        )

    newest = begun[-1]
    is_over = len(begun) == len(rounds)
    mark, style = (newest.mark, newest.style)
    if not is_over and mark == "✓":
        mark, style = "▸", _RUNS

    return StepLine(
        *(f"loop {loop}", newest.codon_id, mark, f"{name} ×{number}"),
        seconds=sum(each.seconds or 0.0 for each in begun),
        cost=sum(each.cost for each in begun),
        note=newest.note,
        style=style,
        is_folded=is_folded,
    )


def _indented(line: StepLine) -> StepLine:
    return replace(line, name=f"  {line.name}")


def place_of(lines: Sequence[StepLine], codon_id: CodonId | None, key: str | None) -> int | None:
    """Return the row of a codon: the one with a key, its own, or that of the loop that hides it."""
    places = [number for number, line in enumerate(lines) if line.codon_id == codon_id]
    for wanted in (key, codon_id):
        for number in places:
            if lines[number].key == wanted:
                return number

    return next(iter(places), None)


def facts_of(session: AttachSession, codon_id: CodonId) -> Iterator[str]:
    """Yield the name, time, cost and what is left of the budget of a step."""
    state = session.state
    yield title_of_step(state, codon_id)
    codon = execution_of(state, codon_id)
    entry = plan_entry(state.execution_plan, codon_id)
    if codon is None or entry is None:
        return

    row = row_of(
        entry,
        {codon_id: codon},
        state,
        session.facts,
        session.clock.now(),
        lambda *_: session.allowed(codon_id),
    )
    if row.attempt > 1:
        yield f"attempt {row.attempt}"

    if row.seconds is not None:
        yield step_time(row.seconds)

    if row.cost:
        yield dollars(row.cost)

    if row.left:
        yield f"left {row.left}"
