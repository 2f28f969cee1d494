"""Costs per run and in total."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hankweave_protocol.state import EMPTY_STATE, ExecutedSentinels, LoadedSentinels
from hankweave_server.domain.costs import run_cost, sentinels_of, total_cost
from support.histories import EVERY_STATE, a_run, a_sentinel, completed, failed, running

LOADED = LoadedSentinels(loaded=(a_sentinel(0.25), a_sentinel(0.5, "critic")), total_cost=0.75)
EXECUTED = ExecutedSentinels(executed=(a_sentinel(1.0),), total_cost=1.0)

STATE = replace(
    EMPTY_STATE,
    runs=(
        a_run("run-2", codons=(replace(running(), current_cost=4.0, sentinels=LOADED),)),
        a_run(
            "run-1",
            codons=(
                replace(failed(), partial_cost=1.0),
                replace(completed(), final_cost=2.0, sentinels=EXECUTED, attempt=2),
                replace(completed("review#0"), final_cost=8.0),
            ),
        ),
    ),
)


def test_costs_are_reported_by_run_and_in_all() -> None:
    """Run costs and the total include sentinels and every attempt."""
    assert [run_cost(run) for run in STATE.runs] == [4.75, 12.0]
    assert total_cost(STATE) == 16.75
    assert total_cost(EMPTY_STATE) == 0


@pytest.mark.parametrize("codon", EVERY_STATE, ids=lambda codon: type(codon).__name__)
def test_every_state_can_be_asked_for_its_sentinels(codon) -> None:
    """Loaded and executed sentinels are returned, or none before any exist."""
    assert sentinels_of(codon) == ()


def test_a_total_is_right_whatever_was_asked_before() -> None:
    """Sums are cached; a state with fewer, other or changed codons, or the same state again, gives
    the right total."""
    states = [
        STATE,
        replace(STATE, runs=STATE.runs[1:]),
        replace(STATE, runs=(replace(STATE.runs[1], codons=STATE.runs[1].codons[:1]),)),
        replace(STATE, runs=STATE.runs[::-1]),
        replace(
            STATE,
            runs=(replace(STATE.runs[1], codons=STATE.runs[1].codons[::-1]), STATE.runs[0]),
        ),
        EMPTY_STATE,
        STATE,
    ]
    assert [total_cost(state) for state in states] == [16.75, 12.0, 1.0, 16.75, 16.75, 0.0, 16.75]
