"""The likely use of steps, from what executions of codons have used before.

`runs_again` tells of the steps that run again after a rollback: those of the plan after the target,
up to the newest one that has begun; an iteration of a loop counts for itself. A target in the
middle of a step lets the whole step run again. After a rollback that goes forward, such as the undo
of another one, nothing runs again. Each is likely to use what its last time did: the newest
execution that was whole, on any timeline, because most failures are early. Of a step that never
was, the newest execution counts, as far as it got.

`forecast` tells of the time and money to the end of the plan. A step is likely to use what its
codon did in earlier rounds of its loop or in earlier runs: the median. A codon that has never come
to its end is likely to use what the others of its model did. Where nothing is known, no number is
made up: then there is no sum either. Of the step that works, only the rest counts; a wait for the
end of a limit is added to it. Rounds of a loop that the plan does not contain yet are part of the
sums, but no steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from statistics import median
from typing import Literal, TypeAlias

from hankweave_protocol.hank import Hank, IterationLimit
from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.instants import from_text, milliseconds_between, to_text
from hankweave_protocol.records import RunsAgain
from hankweave_protocol.replies import Forecast, StepForecast
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    PlanEntry,
    Run,
    SkippedCodon,
    State,
    TerminalCodon,
)
from hankweave_server.domain.budget.spending import Execution, Spending, ended, spent_by
from hankweave_server.domain.costs import total_cost
from hankweave_server.domain.execution_thread import (
    active_codon,
    end_checkpoint,
    is_done,
    newest_run,
    next_codon,
    places,
    suspended_codon,
    thread,
)
from hankweave_server.domain.lifecycle import wait_of, waited_ms_at
from hankweave_server.domain.plan import loop_of

Source: TypeAlias = Literal["round", "run", "other step of the same model"]

_WORDS: dict[Source, tuple[str, str]] = {
    "round": ("earlier round", "earlier rounds"),
    "run": ("earlier run of a step", "earlier runs of a step"),
    "other step of the same model": (
        "other step of the same model",
        "other steps of the same model",
    ),
}


def runs_again(
    state: State, after: CodonId | None, now: datetime, at: Sha | None = None
) -> RunsAgain | None:
    """Return what runs again if work continues after a codon; None means from the beginning.

    The codon itself runs again if `at` is the checkpoint of its failure. Returns None if it is no
    longer in the plan, because the hank was changed.
    """
    plan, place = state.execution_plan, places(state.execution_plan)
    first = 0 if after is None else _place_after(after, plan)
    if first is None:
        return None

    own = (codon for run in state.runs for codon in run.codons if codon.codon_id == after)
    if any(at == end_checkpoint(each) and not is_done(each, plan) for each in own if at):
        first -= 1

    begun = (place.get(entry.codon.codon_id, -1) for entry in thread(state))
    steps = tuple(entry.codon_id for entry in plan[first : max(begun, default=-1) + 1])
    spent = _last_times(state, steps, now)
    is_known = len(spent) == len(steps)
    return RunsAgain(
        codon_ids=steps,
        total=len(steps),
        estimated_cost=sum(each.dollars for each in spent.values()) if is_known else None,
        estimated_ms=sum(round(each.seconds * 1000) for each in spent.values())
        if is_known
        else None,
    )


def was_whole(codon: CodonExecution) -> bool:
    """Return whether an execution came to its own end, so that the next one will be similar.

    Not if a failure, a person, a spent budget or the end of the server cut it short, nor if its
    result was taken over from another one.
    """
    match codon:
        case CompletedCodon(claude_log_path=log, reused=None):
            return bool(log)
        case SkippedCodon(condition=condition):
            return condition is not None
        case _:
            return False


def _place_after(codon_id: CodonId, plan: tuple[PlanEntry, ...]) -> int | None:
    """Return the place of the first step after a codon.

    Iterations that a rollback has removed from the plan come after those that are left.
    """
    at = places(plan).get(codon_id)
    if at is None:
        name = codon_id.partition("#")[0]
        looped = (i for i, entry in enumerate(plan) if entry.loop_context is not None)
        at = max((i for i in looped if plan[i].codon.id == name), default=None)

    return None if at is None else at + 1


def _last_times(state: State, steps: Iterable[CodonId], now: datetime) -> dict[CodonId, Spending]:
    """Return what the last time of each step used; nothing for a step that has never begun."""
    wanted, found = set(steps), dict[CodonId, Spending]()
    for run in state.runs:
        for codon in reversed(run.codons):
            if codon.codon_id not in wanted:
                continue

            is_last_time = was_whole(codon)
            if is_last_time or codon.codon_id not in found:
                found[codon.codon_id] = spent_until(run, codon, now)

            if is_last_time:
                wanted.remove(codon.codon_id)

        if not wanted:
            break

    return found


def spent_until(run: Run, codon: CodonExecution, now: datetime) -> Spending:
    """Return what an execution has used, until now if it has not ended."""
    if isinstance(codon, TerminalCodon):
        return Execution(run, codon).spent

    lasted = milliseconds_between(from_text(codon.start_time), now)
    worked = max(0, lasted - waited_ms_at(codon, to_text(now)))
    return spent_by(codon, seconds=worked / 1000)


def forecast(state: State, now: datetime, hank: Hank | None = None) -> Forecast | None:
    """Return the time and money to the end; None if the plan has ended, or nothing is known.

    Without the hank, the number of rounds of a loop is unknown.
    """
    plan, upcoming = state.execution_plan, next_codon(state)
    if upcoming is None or upcoming not in places(plan):
        return None

    first = places(plan)[upcoming]
    rest = plan[first:]
    history = _UsageHistory(state)
    left = [_left_of(history.of(entry), entry, state, now) for entry in rest]
    if all(each is None for each in left):
        return None

    more = rounds_to_come(plan, first, hank)
    sums = (*left, *(_times(history.of(entry), rounds) for _, entry, rounds in more))
    known = [each for each in sums if each is not None]
    is_known = len(known) == len(sums)
    paid = total_cost(state)
    return Forecast(
        remaining_ms=round(sum(each.seconds for each in known) * 1000) if is_known else None,
        cost_at_end=sum((each.dollars for each in known), paid) if is_known else None,
        basis=history.basis(),
        steps=tuple(
            StepForecast(
                codon_id=entry.codon_id,
                ms=None if each is None else round(each.seconds * 1000),
                cost=None if each is None else each.dollars,
            )
            for entry, each in zip(rest, left, strict=True)
        ),
    )


class _UsageHistory:
    """The use of earlier executions of codons, and a record of which were asked for."""

    def __init__(self, state: State) -> None:
        models = {entry.codon.id: entry.codon.model for entry in state.execution_plan}
        self._of_codon = defaultdict[str, list[Spending]](list)
        self._of_model = defaultdict[str, list[Spending]](list)
        self._used: dict[Source, int] = {}
        for each in filter(lambda each: was_whole(each.codon), ended(state)):
            name = each.codon.codon_id.partition("#")[0]
            self._of_codon[name].append(each.spent)
            self._of_model[models.get(name) or ""].append(each.spent)

    def of(self, entry: PlanEntry) -> Spending | None:
        """Return what an execution of a codon is likely to use; None if nothing is known."""
        own = self._of_codon.get(entry.codon.id, [])
        found = own or (self._of_model.get(entry.codon.model, []) if entry.codon.model else [])
        if not found:
            return None

        source: Source = "other step of the same model"
        if own:
            source = "run" if entry.loop_context is None else "round"

        self._used[source] = max(self._used.get(source, 0), len(found))
        return Spending(
            dollars=median(each.dollars for each in found),
            seconds=median(each.seconds for each in found),
        )

    def basis(self) -> str:
        """Return what was used: `from 3 earlier rounds`."""
        parts = (
            f"{count} {_WORDS[source][count > 1]}"
            for source in _WORDS
            if (count := self._used.get(source, 0))
        )
        return f"from {' and '.join(parts)}"


def _left_of(
    expected: Spending | None, entry: PlanEntry, state: State, now: datetime
) -> Spending | None:
    """Return what a step still uses: all, or the rest of the one that works."""
    codon = active_codon(state) or suspended_codon(state)
    run = newest_run(state)
    if expected is None or codon is None or run is None or codon.codon_id != entry.codon_id:
        return expected

    spent, wait = spent_until(run, codon, now), wait_of(codon)
    waits = 0 if wait is None else max(0, milliseconds_between(now, from_text(wait.until)))
    return Spending(
        dollars=max(0.0, expected.dollars - spent.dollars),
        seconds=max(0.0, expected.seconds - spent.seconds) + waits / 1000,
    )


def _times(spent: Spending | None, rounds: int | None) -> Spending | None:
    if spent is None or rounds is None:
        return None

    return Spending(spent.dollars * rounds, spent.seconds * rounds)


def rounds_to_come(
    plan: Sequence[PlanEntry], first: int, hank: Hank | None
) -> Iterator[tuple[str, PlanEntry, int | None]]:
    """Yield the loops that go on after entry `first` of the plan, with each step of a round.

    The number is that of the rounds which the plan does not contain yet; None if it is unknown.
    """
    contexts = (entry.loop_context for entry in plan[first:])
    newest = {each.loop_id: each.iteration for each in contexts if each is not None}
    for entry in plan:
        context = entry.loop_context
        if context is None or newest.get(context.loop_id) != context.iteration:
            continue

        loop = None if hank is None else loop_of(hank, entry)
        if loop is None or not isinstance(loop.terminate_on, IterationLimit):
            yield context.loop_id, entry, None
        elif (rounds := loop.terminate_on.limit - 1 - context.iteration) > 0:
            yield context.loop_id, entry, rounds
