"""The execution plan grows by iterations and never contains a codon twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol import codec
from hankweave_protocol.hank import (
    Codon,
    Hank,
    Loop,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import (
    EMPTY_STATE,
    BudgetExceeded,
    CodonExecution,
    CompletedCodon,
    PlanEntry,
    State,
)
from hankweave_protocol.transitions import AddedStep, PlanChanged, PlanSet
from hankweave_server.domain import plan as plans
from hankweave_server.domain.execution_thread import plan_entry
from support.budgets import a_loop
from support.histories import a_plan, a_run, completed, failed, running, skipped
from support.showing import state_of


def a_codon(name: str, *patterns: str) -> Codon:
    return Codon(
        id=name, name=name, model="m", continuation_mode="fresh", tracked_files=tuple(patterns)
    )


REVIEW = a_loop("review-loop", a_codon("review", "r/**"), a_codon("mend", "m/**", "!m/x"))
HANK = Hank(hank=(a_codon("observe", "*.ts"), REVIEW, a_codon("report", "*.md")))


def names(plan: plans.Plan) -> list[str]:
    return [entry.codon_id for entry in plan]


def entry_of(plan: plans.Plan, name: str) -> PlanEntry:
    found = plan_entry(plan, CodonId(name))
    assert found is not None
    return found


def ended(name: str, minute: int = 0, **facts: Any) -> CompletedCodon:
    """Return a completed execution that started at that minute and took half a minute."""
    return msgspec.structs.replace(
        completed(name),
        start_time=f"2025-01-04T12:{minute:02}:00.000Z",
        end_time=f"2025-01-04T12:{minute:02}:30.000Z",
        **facts,
    )


def grown(*after: str) -> plans.Plan:
    plan = plans.initial_plan(HANK)
    for name in after:
        plan = plans.next_iteration(plan, REVIEW, entry_of(plan, name))

    return plan


def test_a_plan_begins_with_the_first_iteration_of_each_loop() -> None:
    """Seed 002: entries are codons, never loops; ids in a loop end in `#0` and have its context."""
    plan = plans.initial_plan(HANK)
    assert names(plan) == ["observe", "review#0", "mend#0", "report"]
    contexts = [entry.loop_context for entry in plan]
    assert contexts[0] is contexts[3] is None
    assert [(c.loop_id, c.iteration, c.codon_index_in_loop) for c in contexts if c] == [
        ("review-loop", 0, 0),
        ("review-loop", 0, 1),
    ]


def test_the_next_iteration_stands_between_the_one_before_and_the_rest() -> None:
    """An iteration is inserted right after its predecessor, in the loop's order."""
    assert names(grown("mend#0", "mend#1")) == [
        "observe",
        "review#0",
        "mend#0",
        "review#1",
        "mend#1",
        "review#2",
        "mend#2",
        "report",
    ]


def test_completing_an_iteration_again_does_not_insert_the_next_one_again() -> None:
    """After a redo or rollback an iteration ends twice; Hankweave then has duplicate ids."""
    assert grown("mend#0", "mend#0") == grown("mend#0")
    assert grown("mend#0", "mend#1", "mend#0") == grown("mend#0", "mend#1")


def test_an_entry_of_another_loop_is_refused() -> None:
    """Growing a loop by a codon outside it is a caller's error."""
    with pytest.raises(ValueError, match="observe is no codon of the loop review-loop"):
        grown("observe")


@pytest.mark.parametrize(
    ("target", "left"),
    [
        ("observe", ["observe", "review#0", "mend#0", "report"]),
        ("review#0", ["observe", "review#0", "mend#0", "report"]),
        ("mend#0", ["observe", "review#0", "mend#0", "review#1", "mend#1", "report"]),
        ("review#1", ["observe", "review#0", "mend#0", "review#1", "mend#1", "report"]),
    ],
)
def test_a_rollback_takes_out_the_iterations_after_its_target(target: str, left: list[str]) -> None:
    """The next entry after the target stays, so that work continues where it was."""
    plan = grown("mend#0", "mend#1")
    pruned = plans.prune_after(plan, CodonId(target))
    assert names(pruned) == left
    assert plans.after(pruned, CodonId(target)) == plans.after(plan, CodonId(target))


def test_a_rollback_behind_a_loop_leaves_the_loop_as_it_ran() -> None:
    """Iterations before the target are history and stay in the plan."""
    plan = grown("mend#0", "mend#1")
    assert plans.prune_after(plan, CodonId("report")) == plan
    assert plans.prune_after(plan, CodonId("mend#2")) == plan


def test_work_goes_on_from_the_beginning_with_the_initial_plan() -> None:
    """Before the first codon the plan is rebuilt; after a codon it is pruned to it."""
    plan = grown("mend#0", "mend#1")
    assert plans.reentered(plan, HANK, None) == plans.initial_plan(HANK)
    assert plans.reentered(plan, HANK, CodonId("mend#0")) == grown("mend#0")


def test_a_codon_that_a_changed_hank_lost_leaves_the_plan_whole() -> None:
    """A target that is no longer in the plan prunes nothing."""
    plan = grown("mend#0")
    assert plans.reentered(plan, HANK, CodonId("gone")) == plan


def test_neighbours_are_found() -> None:
    """`after` returns the following entry, and None for the last and for an unknown entry."""
    plan = grown()
    assert plans.after(plan, CodonId("mend#0")) == entry_of(plan, "report")
    assert plans.after(plan, CodonId("report")) is None
    assert plans.after(plan, CodonId("gone")) is None
    assert plan_entry(plan, CodonId("gone")) is None


@pytest.mark.parametrize(
    ("upto", "patterns"),
    [
        ("observe", ("*.ts",)),
        ("review#0", ("*.ts", "r/**")),
        ("mend#0", ("*.ts", "r/**", "m/**", "!m/x")),
        ("mend#1", ("*.ts", "r/**", "m/**", "!m/x")),
        ("report", ("*.ts", "r/**", "m/**", "!m/x", "*.md")),
    ],
)
def test_patterns_accumulate_along_the_plan(upto: str, patterns: tuple[str, ...]) -> None:
    """Codon k tracks the patterns of 1..k, loops included (DESIGN 7); no pattern is repeated."""
    assert plans.tracked_patterns(grown("mend#0"), CodonId(upto)) == patterns


def test_of_equal_patterns_the_last_one_counts() -> None:
    """A pattern that is repeated after its negation keeps its later position."""
    hank = Hank(hank=(a_codon("a", "*.ts", "!x.ts"), a_codon("b", "*.ts")))
    plan = plans.initial_plan(hank)
    assert plans.tracked_patterns(plan, CodonId("b")) == ("!x.ts", "*.ts")


def test_a_loop_ends_at_its_limit() -> None:
    """With a limit of 3, the last codon of iteration 2 ends the loop, and no earlier one."""
    plan = grown("mend#0", "mend#1")
    finished = [
        name
        for name in names(plan)[1:-1]
        if plans.is_loop_finished(REVIEW, entry_of(plan, name), ended(name))
    ]
    assert finished == ["mend#2"]


def test_a_loop_until_the_context_is_full_ends_with_it() -> None:
    """`contextExceeded` has no limit, and ends at the codon whose context is full."""
    endless = a_loop("endless", a_codon("a"), a_codon("b"), limit=None)
    plan = plans.initial_plan(Hank(hank=(endless,)))
    for item in plan:
        assert not plans.is_loop_finished(endless, item, ended(item.codon_id))
        full = ended(item.codon_id, context_exceeded=True)
        assert plans.is_loop_finished(endless, item, full)
        assert plans.why_loop_ends(endless, full) == "context_exceeded"


def test_a_full_context_is_no_end_of_a_loop_with_a_limit() -> None:
    """An exhausted codon of such a loop is complete, and the next iteration follows."""
    plan = grown()
    full = ended("mend#0", context_exceeded=True)
    assert not plans.is_loop_finished(REVIEW, entry_of(plan, "mend#0"), full)


def test_a_spent_budget_ends_a_loop_in_mid_iteration() -> None:
    """The rest of the loop is removed from the plan; the entries after the loop stay."""
    plan = grown("mend#0")
    spent = BudgetExceeded(currency="cost", limit=1.0, used=1.5)
    over = ended("review#0", budget_exceeded=spent)
    assert plans.is_loop_finished(REVIEW, entry_of(plan, "review#0"), over)
    assert plans.why_loop_ends(REVIEW, over) == "budget_exceeded"
    shorter = plans.without_rest(plan, entry_of(plan, "review#0"))
    assert names(shorter) == ["observe", "review#0", "report"]
    assert plans.without_rest(shorter, entry_of(plan, "report")) == shorter


def test_a_loop_is_found_by_its_entries() -> None:
    """`loop_of` returns an entry's loop; `ends_iteration` is true for the loop's last codon."""
    plan = grown()
    assert plans.loop_of(HANK, entry_of(plan, "observe")) is None
    assert plans.loop_of(HANK, entry_of(plan, "mend#0")) is REVIEW
    assert [plans.ends_iteration(REVIEW, item) for item in plan] == [False, False, True, False]


def test_an_iteration_lasts_from_its_first_start_to_its_end() -> None:
    """The time between two codons of an iteration counts, that of other iterations does not."""
    plan = grown("mend#0")
    state = _state_after(plan, ["observe", "review#0", "mend#0", "review#1", "mend#1"])
    assert plans.iteration_duration_ms(state, entry_of(plan, "mend#0")) == 90_000
    assert plans.iteration_duration_ms(EMPTY_STATE, entry_of(plan, "mend#0")) == 0


@given(*[st.lists(st.sampled_from([f"review#{n}" for n in range(6)]), unique=True)] * 2)
def test_a_plan_is_recorded_as_its_difference_from_the_one_before(
    before: list[str], after: list[str]
) -> None:
    """The difference leads from the first to the second, and holds no codon of the first again."""
    first, second = a_plan(*before), a_plan(*after)
    match plans.change(first, second):
        case PlanSet(execution_plan=whole):
            assert (first, whole) == ((), second)
        case PlanChanged() as change:
            assert plans.changed(first, change) == second
            assert all(step.codon is None for step in change.added)
            assert len(change.added) <= len(second)


def test_one_more_iteration_is_recorded_without_its_prompts() -> None:
    """The record has the same size however long the plan is, and however long the prompts are."""
    plan = plans.initial_plan(HANK)
    for number in range(3):
        longer = plans.next_iteration(plan, REVIEW, entry_of(plan, f"mend#{number}"))
        change = plans.change(plan, longer)
        assert isinstance(change, PlanChanged)
        assert (change.at, change.removed) == (3 + 2 * number, 0)
        assert [step.like for step in change.added] == [f"review#{number}", f"mend#{number}"]
        plan = plans.changed(plan, change)
        assert plan == longer


def test_the_plan_of_a_file_has_each_prompt_in_memory_once() -> None:
    """Entries of one codon share it; a codon that was edited meanwhile keeps its own."""
    plan = plans.next_iteration(plans.initial_plan(HANK), REVIEW, entry_of(grown(), "mend#0"))
    edited = msgspec.structs.replace(plan[-1], codon=a_codon("review", "*.js"))
    read = codec.decode_value(tuple[PlanEntry, ...], codec.encode((*plan, edited)))
    found = plans.shared(read)
    assert found == read
    iterations = [entry for entry in found if entry.codon.id == "review"]
    assert iterations[0].codon is iterations[1].codon is not iterations[-1].codon


def test_an_edited_codon_is_recorded_whole() -> None:
    """The hank was changed: an entry of the same name has another codon now."""
    plan = plans.initial_plan(HANK)
    edited = (PlanEntry(codon=a_codon("observe", "*.js"), codon_id=CodonId("observe")), *plan[1:])
    change = plans.change(plan, edited)
    assert isinstance(change, PlanChanged)
    assert [step.codon for step in change.added] == [edited[0].codon]
    assert plans.changed(plan, change) == edited


@pytest.mark.parametrize(
    "change",
    [
        PlanChanged(at=9, removed=0),
        PlanChanged(at=0, removed=9),
        PlanChanged(at=-1, removed=0),
        PlanChanged(
            at=0, removed=0, added=(AddedStep(codon_id=CodonId("x"), like=CodonId("lost")),)
        ),
    ],
)
def test_a_difference_from_another_plan_is_refused(change: PlanChanged) -> None:
    with pytest.raises(ValueError, match="it"):
        plans.changed(plans.initial_plan(HANK), change)


@given(st.data())
def test_growing_and_pruning_never_holds_a_codon_twice(data: st.DataObject) -> None:
    """Any sequence of iterations and rollbacks keeps ids unique, ordered and without gaps."""
    hank = data.draw(_hanks())
    plan = plans.initial_plan(hank)
    for _ in range(data.draw(st.integers(0, 12))):
        item = data.draw(st.sampled_from(plan))
        loop = plans.loop_of(hank, item)
        if loop is not None and data.draw(st.booleans()):
            before = plan
            plan = plans.next_iteration(plan, loop, item)
            assert plans.next_iteration(plan, loop, item) == plan
            assert [entry for entry in plan if entry in before] == list(before)
        else:
            following = plans.after(plan, item.codon_id)
            plan = plans.prune_after(plan, item.codon_id)
            assert plans.prune_after(plan, item.codon_id) == plan
            assert plans.after(plan, item.codon_id) == following

        assert len(set(names(plan))) == len(plan)
        assert plan == _in_order(hank, plan)


@pytest.mark.parametrize(
    ("codons", "step"),
    [
        ((), 0),
        ((running("fetch"),), 1),
        ((completed("fetch"),), 1),
        ((completed("fetch"), completed("review#0")), 1),
        ((completed("fetch"), skipped("review#0"), running("review#1")), 2),
        ((completed("fetch"), completed("review#0"), completed("review#1")), 2),
        ((completed("fetch"), completed("review#0"), failed("review#1")), 2),
        ((completed("fetch"), completed("review#0"), completed("review#1"), failed("end")), 3),
    ],
)
def test_a_plan_is_as_far_as_its_step_where_a_loop_is_one(
    codons: tuple[CodonExecution, ...], step: int
) -> None:
    """The step that runs or has failed, or else the number of those that are done."""
    state = state_of(*codons, plan=("fetch", "review#0", "review#1", "end"))
    assert plans.progress(state) == (step, 3)


@st.composite
def _hanks(draw: st.DrawFn) -> Hank:
    steps: list[Codon | Loop] = []
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.integers(0, 3))
        codons = [a_codon(f"c{number}-{i}") for i in range(max(1, size))]
        steps.append(a_loop(f"l{number}", *codons) if size else codons[0])

    return Hank(hank=tuple(steps))


def _in_order(hank: Hank, plan: plans.Plan) -> plans.Plan:
    """Rebuild a plan from only the number of iterations of each loop."""
    built = plans.initial_plan(hank)
    for loop in (step for step in hank.hank if isinstance(step, Loop)):
        iterations = {e.loop_context.iteration for e in plan if plans.loop_of(hank, e) is loop}  # type: ignore[union-attr]
        for number in range(len(iterations) - 1):
            last = entry_of(built, f"{loop.codons[-1].id}#{number}")
            built = plans.next_iteration(built, loop, last)

    return built


def _state_after(plan: plans.Plan, done: list[str]) -> State:
    codons = tuple(
        ended(name, minute, loop_context=entry_of(plan, name).loop_context)
        for minute, name in enumerate(done)
    )
    run = a_run(codons=codons)
    return State(runs=(run,), current_run_id=run.run_id, execution_plan=plan)
