"""The execution plan: the codons that will run, with loops unrolled one iteration at a time.

Two rules keep it consistent. An ID appears in it once, so adding the same iteration twice adds it
once. And it never contains more of a loop than the iteration that runs or comes next, so a rollback
removes the iterations after its target.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import dropwhile, groupby, takewhile
from typing import Literal, NamedTuple

import msgspec

from hankweave_protocol.hank import Codon, ContextExceededEnd, Hank, Loop
from hankweave_protocol.ids import CodonId, iteration_id
from hankweave_protocol.instants import from_text, milliseconds_between
from hankweave_protocol.state import (
    NO_TOKENS,
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    LoopContext,
    PlanEntry,
    SkippedCodon,
    State,
    TerminalCodon,
    Tokens,
)
from hankweave_protocol.transitions import AddedStep, PlanChanged, PlanSet
from hankweave_server.domain.execution_thread import is_done, next_codon, places, plan_entry, thread
from hankweave_server.domain.lifecycle import cost_of, tokens_of

Plan = tuple[PlanEntry, ...]


def initial_plan(hank: Hank) -> Plan:
    """Return the plan of a hank with the first iteration of each loop."""
    entries: list[PlanEntry] = []
    for step in hank.hank:
        match step:
            case Codon():
                entries.append(PlanEntry(codon=step, codon_id=CodonId(step.id)))
            case Loop():
                entries.extend(_iteration(step, 0))

    return tuple(entries)


def next_iteration(plan: Plan, loop: Loop, entry: PlanEntry) -> Plan:
    """Insert the iteration after an entry's own; return the plan unchanged if it has that already.

    The caller decides whether the loop continues. Raises ValueError for an entry of another loop or
    plan, which is a bug of the caller.
    """
    context = entry.loop_context
    if context is None or context.loop_id != loop.id:
        raise ValueError(f"{entry.codon_id} is no codon of the loop {loop.id}")

    end = places(plan).get(entry.codon_id)
    if end is None:
        raise ValueError(f"{entry.codon_id} is not in the plan")

    # After the whole iteration; the rest of the hank follows it.
    while end < len(plan) and _key(plan[end].loop_context) == _key(context):
        end += 1

    number = context.iteration + 1
    if end < len(plan) and _key(plan[end].loop_context) == (loop.id, number):
        return plan

    return (*plan[:end], *_iteration(loop, number), *plan[end:])


def without_rest(plan: Plan, entry: PlanEntry) -> Plan:
    """Remove the rest of an entry's loop, because the loop has ended early."""
    context = entry.loop_context
    if context is None:
        return plan

    at = places(plan)[entry.codon_id]
    rest = (each for each in plan[at + 1 :] if not _is_in(each, context.loop_id))
    return (*plan[: at + 1], *rest)


def prune_after(plan: Plan, codon_id: CodonId) -> Plan:
    """Remove the iterations that were added after a codon, as a rollback to it requires.

    The next entry after the codon stays, so that work can continue; of later loops the first
    iteration stays. Raises ValueError for a codon that is not in the plan.
    """
    position = [entry.codon_id for entry in plan].index(codon_id)
    newest: dict[str, int] = {}
    for reached in plan[: position + 2]:
        if reached.loop_context is not None:
            newest[reached.loop_context.loop_id] = reached.loop_context.iteration

    return tuple(entry for entry in plan if _is_within(entry, newest))


def reentered(plan: Plan, hank: Hank, after_codon: CodonId | None) -> Plan:
    """Return the plan with which work continues after a codon; None means from the beginning.

    A codon that is no longer in the plan, because the hank was changed, leaves it whole.
    """
    if after_codon is None:
        return initial_plan(hank)

    return plan if plan_entry(plan, after_codon) is None else prune_after(plan, after_codon)


def after(plan: Plan, codon_id: CodonId) -> PlanEntry | None:
    """Return the entry after a codon; None if it is the last one or not in the plan."""
    following = iter(plan)
    found = any(entry.codon_id == codon_id for entry in following)
    return next(following, None) if found else None


def change(before: Plan, after: Plan) -> PlanSet | PlanChanged:
    """Return the transition from one plan to another, as small as possible."""
    if not before:
        return PlanSet(execution_plan=after)

    first = _equal_at_first(before, after)
    last = _equal_at_first(before[first:][::-1], after[first:][::-1])
    return PlanChanged(
        at=first,
        removed=len(before) - first - last,
        added=tuple(_added(each, before) for each in after[first : len(after) - last]),
    )


def _equal_at_first(one: Plan, other: Plan) -> int:
    """Return how many entries are equal, up to the first that is not."""
    low, high = 0, min(len(one), len(other))
    while low < high:  # Slices are compared much faster than entries one by one.
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1

    return low


def _added(entry: PlanEntry, former: Plan) -> AddedStep:
    step = AddedStep(codon_id=entry.codon_id, loop_context=entry.loop_context)
    like = next((each for each in reversed(former) if each.codon.id == entry.codon.id), None)
    if like is not None and like.codon == entry.codon:
        return msgspec.structs.replace(step, like=like.codon_id)

    return msgspec.structs.replace(step, codon=entry.codon)


def changed(plan: Plan, change: PlanChanged) -> Plan:
    """Return the plan after a change; raise ValueError for a change of another plan."""
    end = change.at + change.removed
    if not (0 <= change.at <= end <= len(plan)):
        raise ValueError(f"it has {len(plan)} entries, and no entries {change.at} to {end}")

    added: list[PlanEntry] = []
    for step in change.added:
        codon = step.codon
        if step.like is not None:
            like = plan_entry(plan, step.like)
            codon = None if like is None else like.codon

        if codon is None:
            raise ValueError(f"{step.codon_id} is like {step.like}, which is not in it")

        place = places(plan).get(step.codon_id)
        if place is not None and not change.at <= place < end:
            raise ValueError(f"{step.codon_id} is in it already")

        added.append(PlanEntry(codon=codon, codon_id=step.codon_id, loop_context=step.loop_context))

    return (*plan[: change.at], *added, *plan[end:])


def shared(plan: Plan) -> Plan:
    """Return an equal plan that has each codon, with its prompts, in memory once."""
    known: dict[str, Codon] = {}

    def with_known(entry: PlanEntry) -> PlanEntry:
        codon = known.setdefault(entry.codon.id, entry.codon)
        is_other = codon is not entry.codon and codon == entry.codon
        return msgspec.structs.replace(entry, codon=codon) if is_other else entry

    return tuple(map(with_known, plan))


class Progress(NamedTuple):
    """How far a plan is, in steps: a codon is one, and a loop with all its iterations."""

    step: int
    """The step that runs or has failed, from 1; otherwise the number of steps that are done."""
    steps: int


NO_PROGRESS = Progress(0, 0)


def progress(state: State) -> Progress:
    """Return how far the plan is on the current line, as the page shows it, too."""
    plan, entries, ahead = state.execution_plan, thread(state), next_codon(state)
    steps = [[each.codon_id for each in step] for _, step in groupby(plan, _step)]
    if entries and not is_done(entries[-1].codon, plan):
        at = next((number for number, step in enumerate(steps, 1) if ahead in step), 0)
    else:
        done = {entry.codon.codon_id for entry in entries if is_done(entry.codon, plan)} - {ahead}
        at = sum(done.issuperset(step) for step in steps)

    return Progress(at, len(steps))


def _step(entry: PlanEntry) -> tuple[str, bool]:
    loop = entry.loop_context
    return (entry.codon_id, False) if loop is None else (loop.loop_id, True)


def tracked_patterns(plan: Plan, upto: CodonId) -> tuple[str, ...]:
    """Return the patterns (`trackedFiles`) of the codons up to and including one, each once.

    The last of equal patterns counts, because in a list with negations the last match decides.
    """
    known, known_upto, found = _last_patterns[0]  # Called several times for one codon.
    if known is not plan or known_upto != upto:
        found = _patterns_of(plan, upto)
        _last_patterns[0] = (plan, upto, found)

    return found


_last_patterns: list[tuple[Plan, str, tuple[str, ...]]] = [((), "", ())]


def _patterns_of(plan: Plan, upto: CodonId) -> tuple[str, ...]:
    place = places(plan).get(upto)
    reached = plan if place is None else plan[: place + 1]
    # An iteration of a loop has the very codons of the one before.
    codons = {id(entry.codon): entry.codon for entry in reversed(reached)}
    patterns = (pattern for codon in codons.values() for pattern in reversed(codon.patterns))
    return tuple(reversed(dict.fromkeys(patterns)))


def loop_of(hank: Hank, entry: PlanEntry) -> Loop | None:
    """Return the loop an entry belongs to; None for a codon outside a loop."""
    if entry.loop_context is None:
        return None

    name = entry.loop_context.loop_id
    return next((step for step in hank.hank if isinstance(step, Loop) and step.id == name), None)


def ends_iteration(loop: Loop, entry: PlanEntry) -> bool:
    """Return whether an entry is the last codon of the loop's body."""
    context = entry.loop_context
    return context is not None and context.codon_index_in_loop == len(loop.codons) - 1


def is_loop_finished(loop: Loop, entry: PlanEntry, ended: CodonExecution) -> bool:
    """Return whether the loop ends with an execution that has ended.

    A loop ends at its limit once the last codon of the last iteration is done, at once if a budget
    is spent, and on a full context if that is its condition.
    """
    if ends_loop_early(loop, ended):
        return True

    if isinstance(loop.terminate_on, ContextExceededEnd):
        return False

    context = entry.loop_context
    iterations = 0 if context is None else context.iteration + 1
    return ends_iteration(loop, entry) and iterations >= loop.terminate_on.limit


def awaits_full_context(hank: Hank, entry: PlanEntry) -> bool:
    """Return whether a full context is a normal end: the codon or its loop waits for it."""
    loop = loop_of(hank, entry)
    exhausts = entry.codon.exhaust_with_prompt is not None
    return exhausts or (loop is not None and isinstance(loop.terminate_on, ContextExceededEnd))


def ends_loop_early(loop: Loop, ended: CodonExecution) -> bool:
    """Return whether an execution ends its loop in mid-iteration."""
    if _is_over_budget(ended):
        return True

    awaited = isinstance(loop.terminate_on, ContextExceededEnd)
    return awaited and isinstance(ended, CompletedCodon) and ended.context_exceeded


def why_loop_ends(
    loop: Loop, ended: CodonExecution
) -> Literal["iteration_limit", "context_exceeded", "budget_exceeded"]:
    """Return why a loop ended with an execution."""
    if _is_over_budget(ended):
        return "budget_exceeded"

    return "context_exceeded" if ends_loop_early(loop, ended) else "iteration_limit"


def iteration_cost(state: State, entry: PlanEntry) -> float:
    """Return the cost of an iteration's codons in USD, failed attempts included."""
    return sum(cost_of(codon) for codon in _iteration_codons(state, entry))


def iteration_tokens(state: State, entry: PlanEntry) -> Tokens:
    return sum((tokens_of(codon) for codon in _iteration_codons(state, entry)), NO_TOKENS)


def iteration_duration_ms(state: State, entry: PlanEntry) -> int:
    """Return the milliseconds from the start of an iteration's first codon to the entry's end."""
    own = _iteration_codons(state, entry)
    ended = [codon for codon in own if codon.codon_id == entry.codon_id]
    if not ended:
        return 0

    last = ended[-1]
    match last:
        case CompletedCodon() | FailedCodon() | SkippedCodon():
            spent = milliseconds_between(from_text(own[0].start_time), from_text(last.end_time))
            return max(0, spent)
        case _:
            return 0


def _is_over_budget(ended: CodonExecution) -> bool:
    return isinstance(ended, TerminalCodon) and ended.budget_exceeded is not None


def _iteration_codons(state: State, entry: PlanEntry) -> list[CodonExecution]:
    """Return the executions of an iteration, which follow one another on the thread."""
    newest_first = (item.codon for item in reversed(thread(state)))
    others = dropwhile(lambda codon: not _is_of(codon, entry.loop_context), newest_first)
    return [*takewhile(lambda codon: _is_of(codon, entry.loop_context), others)][::-1]


def _is_of(codon: CodonExecution, context: LoopContext | None) -> bool:
    return codon.loop_context is not None and _key(codon.loop_context) == _key(context)


def _is_in(entry: PlanEntry, loop_id: str) -> bool:
    return entry.loop_context is not None and entry.loop_context.loop_id == loop_id


def _is_within(entry: PlanEntry, newest: Mapping[str, int]) -> bool:
    context = entry.loop_context
    return context is None or context.iteration <= newest.get(context.loop_id, 0)


def _key(context: LoopContext | None) -> tuple[str, int] | None:
    return None if context is None else (context.loop_id, context.iteration)


def _iteration(loop: Loop, number: int) -> list[PlanEntry]:
    return [
        PlanEntry(
            codon=codon,
            codon_id=iteration_id(codon.id, number),
            loop_context=LoopContext(
                loop_id=loop.id,
                iteration=number,
                codon_index_in_loop=index,
                loop_budget=loop.budget,
            ),
        )
        for index, codon in enumerate(loop.codons)
    ]
