"""Costs are recomputed from the journal, so that cost_mismatch can be detected."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from hankweave_protocol.events import AgentOutput
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import EMPTY_STATE
from hankweave_protocol.transitions import (
    CodonStarted,
    CodonTransitioned,
    CostsIncremented,
    CostsUpdated,
    RunStarted,
    Transition,
)
from hankweave_server.domain import lifecycle
from hankweave_server.domain.lifecycle import Impossible
from hankweave_server.domain.reducer import apply
from hankweave_server.domain.validation import CodonKey, costs_of, validate
from support.events import a_line, recorded
from support.histories import (
    a_run,
    initializing,
    legal_moves,
    preparing,
    recounted_costs,
    running,
    some_tokens,
    starting,
    successors,
)
from support.timelines import after

RUN = a_run().run_id
OBSERVE = CodonId("observe")


def line_of(transition: Transition) -> bytes:
    return a_line(recorded(transition))


def moved(codon, to) -> CodonTransitioned:
    return CodonTransitioned(run_id=RUN, from_status=lifecycle.status_of(codon), codon=to)


def ticked(cost: float) -> CostsIncremented:
    return CostsIncremented(run_id=RUN, codon_id=OBSERVE, cost=cost, tokens=some_tokens(1))


BEGUN: tuple[Transition, ...] = (
    RunStarted(run=a_run()),
    CodonStarted(run_id=RUN, codon=preparing()),
    moved(preparing(), starting()),
    moved(starting(), initializing()),
    moved(initializing(), running()),
)


def test_what_was_reported_is_added_up() -> None:
    """Increments are added; an agent's own total at its end replaces them."""
    ticks = (*BEGUN, ticked(0.25), ticked(0.5))
    key = CodonKey(RUN, OBSERVE, 0)
    assert recounted_costs(map(line_of, ticks)) == {key: 0.75}
    final = CostsUpdated(run_id=RUN, codon_id=OBSERVE, cost=0.7, tokens=some_tokens(2))
    assert recounted_costs(map(line_of, (*ticks, final))) == {key: 0.7}


def test_a_wrong_cost_in_the_state_is_a_mismatch() -> None:
    """Seed 002: cached costs that differ from recomputed ones are reported, even below a cent."""
    history = (*BEGUN, ticked(0.25))
    state, recounted = after(*history), recounted_costs(map(line_of, history))
    assert recounted == costs_of(state)
    facts = {"run_folders": frozenset({RUN}), "checkpoint_exists": lambda _: True}
    assert validate(state, recomputed_costs=recounted, **facts).warnings == ()
    wrong = replace(running(), current_cost=0.26)
    forged = replace(state, runs=(replace(state.runs[0], codons=(wrong,)),))
    found = validate(forged, recomputed_costs=recounted, **facts)
    assert [warning.type for warning in found.warnings] == ["cost_mismatch"]
    assert "$0.260000" in found.warnings[0].message
    assert found.valid


def test_an_attempt_counts_for_itself() -> None:
    """Costs after a retry are not added to the previous attempt."""
    failed = successors(running())[0]
    again = replace(preparing(), attempt=2)
    later = tuple(replace(each, attempt=2) for each in (starting(), initializing(), running()))
    moves = [moved(one, two) for one, two in zip((again, *later), later, strict=False)]
    history = (
        *BEGUN,
        ticked(1.0),
        moved(running(), replace(failed, partial_cost=1.0)),
        CodonStarted(run_id=RUN, codon=again),
        *moves,
        ticked(0.25),
    )
    counted = recounted_costs(map(line_of, history))
    assert counted == {CodonKey(RUN, OBSERVE, 0): 1.0, CodonKey(RUN, OBSERVE, 1): 0.25}
    assert counted == costs_of(after(*history))


@pytest.mark.parametrize("seed", range(40))
def test_the_recount_is_the_fold(seed: int) -> None:
    """For any legal history, the recount and the fold have equal costs."""
    chance, state, lines = random.Random(seed), EMPTY_STATE, []
    for step in range(1, 60):
        transition = chance.choice(legal_moves(state, step))
        try:
            state = apply(state, transition, step)
        except Impossible:
            continue

        lines.append(line_of(transition))

    recounted = recounted_costs(lines)
    expected = costs_of(state)
    assert recounted.keys() == expected.keys()
    for key, cost in expected.items():
        assert recounted[key] == pytest.approx(cost), key


def test_text_of_an_agent_is_no_cost() -> None:
    """Names of transitions in an agent's output change no costs."""
    output = AgentOutput(codon_id=OBSERVE, stream="stdout", line=str(line_of(ticked(9.0))))
    assert recounted_costs([*map(line_of, BEGUN), a_line(output)]) == {
        CodonKey(RUN, OBSERVE, 0): 0.0
    }


def test_costs_of_nothing_that_runs_are_nobodys() -> None:
    """In a journal that starts in the middle, costs without a running codon are ignored."""
    assert recounted_costs([line_of(ticked(9.0))]) == {}
