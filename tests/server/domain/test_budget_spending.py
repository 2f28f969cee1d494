"""Which executions of codons count against budgets, and their spending."""

from __future__ import annotations

from msgspec.structs import replace

from hankweave_protocol.attempts import AttemptRecord, Exploration
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import (
    Continuation,
    ContinuationSource,
    Run,
    State,
    TerminalCodon,
    Tokens,
)
from hankweave_server.domain.budget.spending import (
    NOTHING,
    Costs,
    Spending,
    context_of,
    costs,
    counted,
    spent_by,
    total,
)
from hankweave_server.domain.costs import total_cost
from support.budgets import a_codon, a_hank, a_state, spent, state_of
from support.histories import MOMENT, a_run, running, sha

HANK = a_hank(a_codon("one"), a_codon("two"), a_codon("three"))


def names(state: State) -> list[str]:
    return [f"{each.run.run_id}/{each.codon.codon_id}" for each in counted(state)]


def going_on(
    name: str, source: str, after: str | None, number: int, reason: str, *codons: TerminalCodon
) -> Run:
    conditions = Continuation(
        source=ContinuationSource(
            run_id=RunId(source),
            after_codon=None if after is None else CodonId(after),
            checkpoint_sha=sha(number),
        ),
        reason=reason,  # type: ignore[arg-type]
    )
    return replace(a_run(name, codons=codons), starting_conditions=conditions)


def test_an_execution_uses_money_time_and_tokens() -> None:
    """The cost of sentinels counts too, because the same user pays it."""
    state = a_state(spent(HANK, "one", 1.5, seconds=90.25, output=70, sentinels=0.25))
    assert [each.spent for each in counted(state)] == [Spending(1.75, 90.25, 70)]
    assert total(counted(state)) == Spending(1.75, 90.25, 70)
    assert total([]) == NOTHING


def test_amounts_add_up_but_the_context_does_not() -> None:
    """Money, time and tokens add up; the context is the fullest turn's, cached tokens included."""
    turn = Tokens(
        input_tokens=10, output_tokens=5, cache_creation_tokens=100, cache_read_tokens=1000
    )
    assert context_of(turn) == 1115
    used = Spending(1.0, 2.0, 3, 1115)
    assert used + Spending(1.0, 2.0, 3, 900) == Spending(2.0, 4.0, 6, 1115)


def test_the_caller_passes_what_runs() -> None:
    """A running record has money and tokens; the caller adds time and the fullest turn."""
    codon = replace(running(), current_cost=0.5)
    assert spent_by(codon, seconds=3.0, context_tokens=7) == Spending(0.5, 3.0, 0, 7)
    assert counted(state_of(a_run(codons=(codon,)))) == ()


def test_prior_runs_count_after_a_restart() -> None:
    """Spending of earlier runs still counts after the plan resumes in a new run."""
    state = state_of(
        a_run("run-1", codons=(spent(HANK, "one", 1, number=2),)),
        going_on("run-2", "run-1", "one", 2, "continue", spent(HANK, "two", 1, number=3)),
    )
    assert names(state) == ["run-1/one", "run-2/two"]


def test_every_failed_attempt_counts() -> None:
    """Failed attempts count, in the same run or, after a redo, in a new one."""
    failed = spent(HANK, "two", 1, status="failed", number=3)
    state = state_of(
        a_run("run-1", codons=(spent(HANK, "one", 1, number=2), failed)),
        going_on("run-2", "run-1", "one", 2, "retry", failed, spent(HANK, "two", 1, number=4)),
    )
    assert names(state) == ["run-1/one", "run-1/two", "run-2/two", "run-2/two"]


def test_what_a_person_took_back_does_not_count() -> None:
    """Codons that a user rolled back do not count: they run again and need a budget."""
    first = a_run(
        "run-1", codons=(spent(HANK, "one", 1, number=2), spent(HANK, "two", 1, number=3))
    )
    state = state_of(first, going_on("run-2", "run-1", "one", 2, "rollback"))
    assert names(state) == ["run-1/one"]


def test_what_was_paid_includes_what_was_rolled_back_and_says_so() -> None:
    """A failed attempt that was replaced, and the codon that works, are not rolled back."""
    failed = spent(HANK, "one", 0.25, status="failed", number=9)
    first = a_run(
        "run-1", codons=(failed, spent(HANK, "one", 1, number=2), spent(HANK, "two", 2, number=3))
    )
    works = replace(running("two"), current_cost=0.5)
    state = state_of(
        first,
        going_on("run-2", "run-1", "one", 2, "rollback"),
    )
    assert costs(state, 5.0) == Costs(total=3.25, rolled_back=2.0, budget=5.0)
    going = replace(state, runs=(replace(state.runs[0], codons=(works,)), *state.runs[1:]))
    assert costs(going) == Costs(total=3.75, rolled_back=2.0, budget=None)
    assert costs(going).total == total_cost(going)


def test_attempts_that_were_not_adopted_are_neither_rolled_back_nor_work() -> None:
    """They have a part of their own; of an adopted one, the work is that of the execution."""
    first = a_run("run-1", codons=(spent(HANK, "one", 1, number=2),))
    tries = [
        going_on("try-1", "run-1", "one", 2, "continue", spent(HANK, "two", 0.5, number=3)),
        going_on("try-2", "run-1", "one", 2, "continue", spent(HANK, "two", 0.25, status="failed")),
    ]
    exploration = Exploration(
        exploration_id="e",
        created_at=MOMENT,
        checkpoint_sha=sha(2),
        codon_id=CodonId("two"),
        attempts=tuple(
            AttemptRecord(attempt_id=f"e-{each.run_id}", run_id=each.run_id) for each in tries
        ),
    )
    state = replace(state_of(*tries, first), explorations=(exploration,))
    assert costs(state) == Costs(total=1.75, rolled_back=0.0, budget=None, attempts=0.75)

    adopted = going_on("run-2", "try-1", "two", 3, "rollback")
    state = replace(state, runs=(adopted, *state.runs))
    assert costs(state) == Costs(total=1.75, rolled_back=0.0, budget=None, attempts=0.25)


def test_a_crash_grants_no_new_budget() -> None:
    """Spending before a crash counts, although recovery rolls the files back."""
    died = replace(spent(HANK, "one", 4, status="failed", seconds=999), error_checkpoint=None)
    crashed = replace(a_run("run-1", codons=(died,)), status="crashed")
    state = state_of(crashed, going_on("run-2", "run-1", None, 1, "rollback"))
    assert names(state) == ["run-1/one"]
    assert total(counted(state)) == Spending(dollars=4)


def test_a_clock_that_was_set_back_gives_no_time() -> None:
    """Spending is never negative, even if the clock was set back."""
    assert total(counted(a_state(spent(HANK, "one", seconds=-50)))).seconds == 0
