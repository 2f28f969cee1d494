"""Validation of a state: three errors and three warnings (seed 002)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hankweave_protocol.ids import RunId, Sha
from hankweave_protocol.state import (
    EMPTY_STATE,
    CodonExecution,
    ExecutedSentinels,
    LoopContext,
    State,
)
from hankweave_server.domain.validation import (
    CodonKey,
    checkpoints_in,
    validate,
    with_summed_sentinels,
)
from support.histories import (
    a_plan,
    a_run,
    a_sentinel,
    completed,
    failed,
    preparing,
    running,
    sha,
    skipped,
    some_tokens,
)

RUN = a_run().run_id


def state_with(*codons: CodonExecution) -> State:
    return replace(
        EMPTY_STATE,
        runs=(a_run(codons=codons),),
        current_run_id=RUN,
        execution_plan=a_plan("observe", "review#0"),
    )


def found(state: State, *, folders: tuple[str, ...] = (), shas: set[Sha] | None = None, **facts):
    validation = validate(
        state,
        run_folders=frozenset(folders),
        checkpoint_exists=lambda sha: shas is None or sha in shas,
        **facts,
    )
    assert validation.valid is (not validation.errors)
    return [item.type for item in (*validation.errors, *validation.warnings)]


def test_a_good_state_has_no_faults():
    """An empty state and one of running work have no faults."""
    assert found(EMPTY_STATE) == []
    assert found(state_with(completed(), running("review#0")), folders=(RUN,)) == []


def test_a_current_run_that_does_not_exist_is_missing():
    """`currentRunId` must name a run."""
    assert found(replace(state_with(), current_run_id=RunId("nobody"))) == ["missing_run"]


def test_two_runs_of_one_name_cannot_be_distinguished():
    """A run id that names two runs is ambiguous."""
    state = state_with()
    assert found(replace(state, runs=state.runs * 2)) == ["missing_run"]


@pytest.mark.parametrize(
    "codon",
    [
        replace(running(), current_cost=-0.01),
        replace(running(), current_cost=float("nan")),
        replace(completed(), final_cost=float("inf")),
        replace(failed(), partial_tokens=some_tokens(-1)),
        replace(preparing(), attempt=0),
        replace(completed(), sentinels=ExecutedSentinels(executed=(), total_cost=-1.0)),
        replace(preparing("review#0"), loop_context=None),
        replace(
            preparing("observe"),
            loop_context=LoopContext(loop_id="loop", iteration=1, codon_index_in_loop=0),
        ),
        replace(
            preparing("review#1"),
            loop_context=LoopContext(loop_id="loop", iteration=2, codon_index_in_loop=0),
        ),
        replace(
            preparing("review#1"),
            loop_context=LoopContext(loop_id="loop", iteration=1, codon_index_in_loop=-1),
        ),
    ],
)
def test_an_impossible_codon_is_invalid(codon: CodonExecution):
    """Costs, counts and the position in a loop must be possible."""
    assert found(state_with(codon)) == ["invalid_codon"]


def test_a_plan_that_names_a_codon_twice_is_invalid():
    """Every entry of the plan must be identified by its id."""
    assert found(replace(state_with(), execution_plan=a_plan("observe", "observe"))) == [
        "invalid_codon"
    ]


def test_a_plan_entry_must_be_made_of_its_own_codon():
    """`review#1` is an iteration of `review` and of nothing else."""
    entry = replace(a_plan("observe")[0], codon=a_plan("review")[0].codon)
    assert found(replace(state_with(), execution_plan=(entry,))) == ["invalid_codon"]


def test_a_run_folder_without_a_run_is_orphaned():
    """A log folder of a run that the state does not know is reported."""
    assert found(state_with(), folders=(RUN, "1736-lost")) == ["orphaned_folder"]


def test_a_checkpoint_that_the_repository_lacks_is_missing():
    """Every sha in the state is looked up, and each missing one is reported once."""
    state = replace(
        state_with(
            replace(completed(number=2), rig_setup_checkpoint=sha(3)),
            failed(checkpoint=sha(4)),
            skipped(checkpoint=sha(5)),
            replace(running(), rig_setup_checkpoint=sha(3)),
        ),
        initial_checkpoint=sha(1),
    )
    named = {each for each, _ in checkpoints_in(state)}
    assert named == {sha(number) for number in range(1, 6)}
    assert found(state, shas=named) == []
    for each in named:
        assert found(state, shas=named - {each}) == ["missing_checkpoint"]


def test_a_run_that_began_from_a_lost_checkpoint_is_pointed_out():
    """The checkpoint that a continuation restored must still exist."""
    state = replace(state_with(), runs=(a_run(after=RunId("before")),))
    assert found(state, shas=set()) == ["missing_checkpoint"]


def test_rounding_is_no_mismatch():
    """Sums of floats in another order differ in the last digit, which is ignored."""
    state = state_with(replace(completed(), final_cost=0.1 + 0.2))
    recomputed = {CodonKey(RUN, completed().codon_id, 0): 0.3}
    assert found(state, recomputed_costs=recomputed) == []


def test_the_sentinels_total_must_be_the_sum_of_theirs():
    """A cached sentinel total is recomputed from the individual costs."""
    sentinels = ExecutedSentinels(executed=(a_sentinel(0.25), a_sentinel(0.5)), total_cost=0.6)
    assert found(state_with(replace(completed(), sentinels=sentinels))) == ["cost_mismatch"]


def test_a_total_of_sentinels_is_corrected_by_their_sum():
    """In a state that Hankweave wrote the total is corrected; a right total stays unchanged."""
    sentinels = ExecutedSentinels(executed=(a_sentinel(0.25), a_sentinel(0.5)), total_cost=0.6)
    mended, warnings = with_summed_sentinels(
        state_with(replace(completed(), sentinels=sentinels), completed())
    )
    assert [warning.type for warning in warnings] == ["cost_mismatch"]
    assert found(mended) == []
    assert mended.runs[0].codons[0].sentinels.total_cost == 0.75
    assert with_summed_sentinels(mended) == (mended, ())


def test_all_faults_are_reported_at_once():
    """All faults are reported together."""
    state = replace(
        state_with(replace(running(), current_cost=-1.0), failed(checkpoint=sha(8))),
        current_run_id=RunId("nobody"),
    )
    assert found(state, folders=("lost",), shas=set()) == [
        "missing_run",
        "invalid_codon",
        "orphaned_folder",
        "missing_checkpoint",
    ]
