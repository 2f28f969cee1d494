"""The steps of `status` as lines; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from hankweave_protocol.replies import Forecast
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    PlanEntry,
    SkippedCodon,
)
from hankweave_server.cli.output.text import cut, dollars
from hankweave_server.cli.status.standing import STYLES, Standing, StatusFacts, StatusLine
from hankweave_server.domain.budget.estimates import forecast, spent_until
from hankweave_server.domain.execution_thread import active_codon, newest_run, next_codon, thread
from hankweave_server.plain_text import one_line

NAME_WIDTH = 20
_BEHIND = 2
"""Lines for the steps before the current one. The first one is for all that have no line."""
_BEHIND_THE_END = 4
"""Lines for the steps of a plan that has ended."""
_AHEAD = 3
"""Lines for the steps after the current one. The last one is for all that have no line."""


class _StepText(NamedTuple):
    mark: str
    name: str
    seconds: float | None
    dollars: float | None
    detail: str = ""
    style: str = ""
    about: str = ""
    """`~` before what is only likely."""

    def line(self) -> StatusLine:
        time = "" if self.seconds is None else f"{self.about}{step_time(self.seconds)}"
        cost = "" if not self.dollars else f"{self.about}{dollars(self.dollars)}"
        name = cut(one_line(self.name), NAME_WIDTH)
        row = f"  {self.mark} {name:<{NAME_WIDTH}} {time:>7} {cost:>7}   {one_line(self.detail)}"
        return StatusLine(row.rstrip(), self.style)


def step_rows(facts: StatusFacts, standing: Standing) -> Iterator[StatusLine]:
    state, plan = facts.state, facts.state.execution_plan
    ran = {entry.codon.codon_id: entry.codon for entry in thread(state)}
    active = active_codon(state) if facts.server is not None else None
    at = next_codon(state) if active is None else active.codon_id
    place = next((i for i, each in enumerate(plan) if each.codon_id == at), len(plan))
    most = _BEHIND if place < len(plan) else _BEHIND_THE_END
    behind = [
        _group_text([ran[each.codon_id] for each in group if each.codon_id in ran], name, facts)
        for name, group in _groups(plan[:place])
    ]
    shown = behind if len(behind) <= most else behind[1 - most :]
    if hidden := len(behind) - len(shown):
        yield StatusLine(f"  ✓ {hidden} before", "dim")

    yield from (each.line() for each in shown)
    if place == len(plan):
        return

    expected = facts.server.forecast if facts.server is not None else forecast(state, facts.now)
    codon = ran.get(plan[place].codon_id)
    if codon is None:
        yield _ahead(plan[place], expected).line()
    else:
        yield _current(plan[place], codon, facts, standing).line()

    following = plan[place + 1 :]
    shown_ahead = following if len(following) <= _AHEAD else following[: _AHEAD - 1]
    yield from (_ahead(entry, expected).line() for entry in shown_ahead)
    if left := len(following) - len(shown_ahead):
        yield StatusLine(f"  · {left} more", "dim")


def _groups(plan: Sequence[PlanEntry]) -> Iterator[tuple[str, list[PlanEntry]]]:
    """Yield the steps, with those of the same codon that follow each other as one."""
    for _, group in groupby(plan, lambda entry: entry.codon.id):
        steps = list(group)
        times = f" ×{len(steps)}" if len(steps) > 1 else ""
        yield f"{cut(one_line(steps[0].codon.name), NAME_WIDTH - len(times))}{times}", steps


def _group_text(codons: list[CodonExecution], name: str, facts: StatusFacts) -> _StepText:
    run = newest_run(facts.state)
    assert run is not None, "steps are behind"
    spent = [spent_until(run, codon, facts.now) for codon in codons]
    is_skipped = bool(codons) and all(isinstance(codon, SkippedCodon) for codon in codons)
    is_ignored = any(isinstance(codon, FailedCodon) for codon in codons)
    is_reused = bool(codons) and all(was_reused(codon) for codon in codons)
    return _StepText(
        "»" if is_skipped else "✗" if is_ignored else "✓",
        name,
        sum(each.seconds for each in spent),
        sum(each.dollars for each in spent),
        "skipped" if is_skipped else "reused" if is_reused else "",
        "" if is_skipped else "green",
    )


def _current(
    entry: PlanEntry, codon: CodonExecution, facts: StatusFacts, standing: Standing
) -> _StepText:
    run = newest_run(facts.state)
    assert run is not None, "it has run"
    spent = spent_until(run, codon, facts.now)
    name, seconds, cost = _name(entry), spent.seconds, spent.dollars
    match codon:
        case FailedCodon():
            mark = "✗" if standing == "failed" else "■"
            why = codon.failure_reason.message or codon.failure_reason.type
            return _StepText(mark, name, seconds, cost, why, STYLES.get(standing, "yellow"))
        case _ if standing == "crashed":
            return _StepText("✗", name, None, cost, "cut short", "red")
        case _:
            style = STYLES.get(standing, "")
            return _StepText("▸", name, seconds, cost, facts.listed.doing or "", style)


def _ahead(entry: PlanEntry, expected: Forecast | None) -> _StepText:
    steps = () if expected is None else expected.steps
    likely = next((each for each in steps if each.codon_id == entry.codon_id), None)
    seconds = None if likely is None or likely.ms is None else likely.ms / 1000
    cost = None if likely is None else likely.cost
    return _StepText("·", _name(entry), seconds, cost, style="dim", about="~")


def _name(entry: PlanEntry) -> str:
    name = entry.codon.name or entry.codon_id
    round_ = "" if entry.loop_context is None else f" #{entry.loop_context.iteration}"
    return f"{cut(name, NAME_WIDTH - len(round_))}{round_}"


def was_reused(codon: CodonExecution) -> bool:
    return isinstance(codon, CompletedCodon) and codon.reused is not None


def step_time(seconds: float) -> str:
    """Return `0:52`, `9:31` or `1:02:03`."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
