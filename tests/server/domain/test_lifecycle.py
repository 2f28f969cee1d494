"""The states of a codon: legal transitions, and the data that each record keeps."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec.structs import replace

from hankweave_protocol import codec
from hankweave_protocol.ids import Sha
from hankweave_protocol.state import NO_TOKENS, CodonExecution, CodonStatus, LoadedSentinels
from hankweave_server.domain import lifecycle
from hankweave_server.domain.lifecycle import MOVES, IllegalTransition, advance, status_of
from support.histories import (
    EVERY_STATE,
    LATER,
    TIMED_OUT,
    a_sentinel,
    completed,
    preparing,
    running,
    sha,
    some_tokens,
    starting,
    successors,
)


def test_the_table_has_every_state_and_names_no_other():
    """The table has all eight states of seed 002, and leads only to these."""
    statuses = set(get_args(CodonStatus))
    assert set(MOVES) == statuses
    assert set().union(*MOVES.values()) <= statuses


def test_terminal_states_lead_nowhere():
    """Exactly the three terminal states have no successor."""
    assert {status for status, targets in MOVES.items() if not targets} == {
        "completed",
        "failed",
        "skipped",
    }


@pytest.mark.parametrize("before", EVERY_STATE, ids=status_of)
@pytest.mark.parametrize("after", EVERY_STATE, ids=status_of)
def test_advance_allows_what_the_table_has_and_nothing_else(
    before: CodonExecution, after: CodonExecution
):
    """A transition is legal if and only if it is in the table."""
    if status_of(after) in MOVES[status_of(before)]:
        advance(before, after)
        return

    with pytest.raises(IllegalTransition) as caught:
        advance(before, after)

    assert caught.value.codon_id == "observe"
    assert (caught.value.from_status, caught.value.to_status) == (
        status_of(before),
        status_of(after),
    )


@pytest.mark.parametrize("codon", [each for each in EVERY_STATE if lifecycle.is_active(each)])
def test_the_constructors_make_every_move_of_the_table(codon: CodonExecution):
    """Every transition of a constructor is legal, and together they cover the table."""
    made = successors(codon)
    for each in made:
        advance(codon, each)

    assert {status_of(each) for each in made} == MOVES[status_of(codon)]


@pytest.mark.parametrize("codon", EVERY_STATE, ids=status_of)
def test_every_state_is_active_or_terminal_and_survives_the_codec(codon: CodonExecution):
    """Every record is active or terminal, has its status on the wire, and survives decoding."""
    assert lifecycle.is_active(codon) is not lifecycle.is_terminal(codon)
    encoded = codec.encode(codon)
    assert f'"status":"{status_of(codon)}"'.encode() in encoded
    assert codec.decode_value(CodonExecution, encoded) == codon  # type: ignore[arg-type]


def test_a_failed_codon_carries_on_what_it_spent():
    """Costs, tokens, messages, session, log and rig checkpoint are kept after a failure."""
    working = replace(
        running(),
        current_cost=0.0156,
        current_tokens=some_tokens(7),
        assistant_message_count=3,
        extension_count=2,
        rig_setup_checkpoint=sha(4),
    )
    failed = lifecycle.fail(
        working, end_time=LATER, exit_code=137, reason=TIMED_OUT, checkpoint=sha(5)
    )
    assert failed.failed_during == "running"
    assert failed.partial_cost == lifecycle.cost_of(failed) == 0.0156
    assert failed.partial_tokens == lifecycle.tokens_of(failed) == some_tokens(7)
    assert (failed.assistant_message_count, failed.extension_count) == (3, 2)
    assert failed.claude_session_id == "session-uuid"
    assert failed.claude_log_path == working.claude_log_path
    assert (failed.rig_setup_checkpoint, failed.error_checkpoint) == (sha(4), sha(5))


def test_a_codon_can_fail_before_there_is_an_agent():
    """A failed rig ends the codon without pid, session, costs or sentinels."""
    failed = lifecycle.fail(
        preparing(), end_time=LATER, exit_code=-1, reason=TIMED_OUT, checkpoint=None
    )
    assert failed.failed_during == "preparing"
    assert failed.claude_pid is None
    assert failed.claude_session_id is None
    assert (failed.partial_cost, failed.partial_tokens) == (0.0, NO_TOKENS)
    assert failed.sentinels.executed == ()


def test_a_skipped_codon_keeps_where_it_was_and_what_it_cost():
    """`skippedDuring` is the former status, and the cost so far is kept."""
    working = replace(running(), current_cost=0.25, assistant_message_count=3)
    skipped = lifecycle.skip(working, end_time=LATER, checkpoint=sha(6))
    assert (skipped.skipped_during, skipped.partial_cost) == ("running", 0.25)
    assert (skipped.assistant_message_count, skipped.skip_checkpoint) == (3, sha(6))


def test_sentinels_are_executed_once_their_codon_ends():
    """The key is renamed at a terminal state, and the statistics are kept (seed 002)."""
    loaded = LoadedSentinels(loaded=(a_sentinel(0.5),), total_cost=0.5)
    done = lifecycle.complete(
        replace(running(), sentinels=loaded),
        end_time=LATER,
        exit_code=0,
        result_received=True,
        checkpoint=sha(9),
    )
    assert [each.id for each in done.sentinels.executed] == ["narrator"]
    assert lifecycle.sentinel_cost_of(done) == 0.5
    assert b'"executed":[' in codec.encode(done)
    assert b'"loaded":' not in codec.encode(done)


def test_the_exit_code_of_a_completed_codon_is_the_agents_own():
    """The exit code is stored unchanged, not as 0 (a defect of Hankweave's reducer)."""
    done = lifecycle.complete(
        running(), end_time=LATER, exit_code=3, result_received=False, checkpoint=Sha("f" * 40)
    )
    assert (done.exit_code, done.result_message_received) == (3, False)


def test_a_codon_that_has_not_worked_has_cost_nothing():
    """Only a codon whose agent reported a session can have costs."""
    assert lifecycle.cost_of(starting()) == 0.0
    assert lifecycle.tokens_of(starting()) == NO_TOKENS


def test_only_an_active_codon_passes_as_active():
    """`active` narrows the type, and refuses a terminal record."""
    codon = running()
    assert lifecycle.active(codon) is codon
    with pytest.raises(lifecycle.Impossible):
        lifecycle.active(completed())
