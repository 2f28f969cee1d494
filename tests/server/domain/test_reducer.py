"""The fold: the effect of each transition on the state, and its refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import Info
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import (
    EMPTY_STATE,
    CodonExecution,
    ExecutedSentinels,
    LoadedSentinels,
    Run,
    State,
    Tokens,
)
from hankweave_protocol.transitions import (
    CheckpointCreated,
    CodonStarted,
    CodonTransitioned,
    CostsIncremented,
    CostsUpdated,
    CurrentRunCleared,
    ExtensionCountUpdated,
    InitialCheckpointSet,
    PlanSet,
    RunCompleted,
    RunCrashed,
    RunFailed,
    RunStarted,
    SentinelStatesUpdated,
    Transition,
)
from hankweave_server.domain.costs import total_cost
from hankweave_server.domain.execution_thread import thread
from hankweave_server.domain.lifecycle import IllegalTransition, Impossible
from hankweave_server.domain.reducer import (
    NoActiveCodon,
    UnknownRun,
    apply,
    fold,
    founding,
    resulting_state,
)
from hankweave_server.domain.validation import errors_in
from support.events import a_line, an_event, recorded
from support.histories import (
    LATER,
    a_checkpoint,
    a_plan,
    a_run,
    a_sentinel,
    completed,
    completing,
    failed,
    initializing,
    legal_moves,
    preparing,
    running,
    sha,
    skipped,
    some_tokens,
    starting,
)
from support.timelines import after, continued

RUN = a_run().run_id
OBSERVE = CodonId("observe")


def state_with(*codons: CodonExecution, run: Run | None = None) -> State:
    return after(RunStarted(run=run or a_run(codons=codons)))


def moved(before: CodonExecution, to: CodonExecution) -> CodonTransitioned:
    tag = before.__struct_config__.tag
    return CodonTransitioned(run_id=RUN, from_status=tag, codon=to)  # type: ignore[arg-type]


def newest(state: State) -> CodonExecution:
    return state.runs[0].codons[-1]


# --- Runs -----------------------------------------------------------------------------------------


def test_a_started_run_is_the_newest_and_the_current_one():
    """Runs are listed newest first (seed 002)."""
    state = after(RunStarted(run=a_run("one")), RunStarted(run=a_run("two")))
    assert [run.run_id for run in state.runs] == ["two", "one"]
    assert state.current_run_id == "two"


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        (RunCompleted(run_id=RUN, end_time=LATER), "completed"),
        (RunFailed(run_id=RUN, end_time=LATER), "failed"),
    ],
)
def test_a_run_that_ends_stays_current(ending: Transition, status: str):
    """An ended run stays current, for its cost and failure, until its server ends."""
    state = after(ending, start=state_with())
    assert (state.runs[0].status, state.runs[0].end_time) == (status, LATER)
    assert state.current_run_id == RUN
    assert after(CurrentRunCleared(run_id=RUN), start=state).current_run_id is None


def test_a_crashed_run_is_no_longer_current():
    """The server of a crashed run is gone (seed 002: null if the server is not running)."""
    state = after(RunCrashed(run_id=RUN, end_time=LATER, server_pid=1), start=state_with())
    assert (state.runs[0].status, state.runs[0].end_time) == ("crashed", LATER)
    assert state.current_run_id is None


def test_the_late_end_of_another_run_leaves_the_current_one_current():
    """Only the current run's end clears `currentRunId` (Hankweave clears it always)."""
    state = after(
        RunStarted(run=a_run("one")),
        RunStarted(run=a_run("two")),
        RunCrashed(run_id=RunId("one"), end_time=LATER, server_pid=1),
        CurrentRunCleared(run_id=RunId("one")),
    )
    assert state.current_run_id == "two"
    assert state.runs[1].status == "crashed"


def test_a_transition_of_an_unknown_run_is_impossible():
    """A transition of a run that was never started is refused."""
    with pytest.raises(UnknownRun):
        after(RunCompleted(run_id=RunId("nobody"), end_time=LATER), start=state_with())


def test_a_run_cannot_start_twice():
    """A run id names only one run."""
    with pytest.raises(Impossible):
        after(RunStarted(run=a_run()), start=state_with())


def test_a_run_that_waits_since_a_rollback_may_begin_anew():
    """The next rollback reuses the run that waits since the last one, with a new start."""
    waiting = continued("waiting", of=RUN, after=None, at=sha(1))
    elsewhere = continued("waiting", of=RUN, after=None, at=sha(2))
    first = after(RunStarted(run=waiting), start=state_with())
    again = after(RunStarted(run=elsewhere), start=first)
    assert (again.runs[0], len(again.runs)) == (elsewhere, len(first.runs))


# --- Codons ---------------------------------------------------------------------------------------


def test_a_codon_moves_through_its_states():
    """The record is replaced by the one that the transition has."""
    state = after(
        CodonStarted(run_id=RUN, codon=preparing()),
        moved(preparing(), starting()),
        moved(starting(), initializing()),
        moved(initializing(), running()),
        moved(running(), completing()),
        moved(completing(), completed()),
        start=state_with(),
    )
    assert state.runs[0].codons == (completed(),)


def test_an_illegal_move_raises_and_changes_nothing():
    """An illegal transition raises, and the state is unchanged."""
    state = state_with(starting())
    before = codec.encode(state)
    with pytest.raises(IllegalTransition):
        after(moved(starting(), completed()), start=state)

    assert codec.encode(state) == before


def test_a_move_from_a_state_the_codon_is_not_in_is_impossible():
    """A transition decided on an older state is refused, even if the table allows it."""
    with pytest.raises(Impossible):
        after(moved(initializing(), failed()), start=state_with(running()))


def test_a_terminal_codon_never_moves():
    """A terminal codon has no active record to change."""
    with pytest.raises(NoActiveCodon):
        after(moved(completed(), failed()), start=state_with(completed()))


def test_transitions_address_the_newest_active_record():
    """After a retry, costs go to the new record (Hankweave counted them on the stale one)."""
    state = after(
        CostsIncremented(run_id=RUN, codon_id=OBSERVE, cost=0.5, tokens=some_tokens(), messages=1),
        CostsUpdated(run_id=RUN, codon_id=OBSERVE, cost=0.75, tokens=some_tokens(9)),
        start=state_with(failed(), running()),
    )
    assert state.runs[0].codons[0] == failed()
    assert newest(state) == replace(
        running(), current_cost=0.75, current_tokens=some_tokens(9), assistant_message_count=1
    )


def test_one_codon_cannot_be_active_twice():
    """A second start of an active codon is refused, as later transitions would be ambiguous."""
    with pytest.raises(Impossible):
        after(CodonStarted(run_id=RUN, codon=preparing()), start=state_with(running()))


def test_costs_add_up():
    """Every increment is counted once: dollars, messages, and each kind of token separately."""
    tokens = Tokens(input_tokens=1, output_tokens=2, cache_creation_tokens=3, cache_read_tokens=4)
    tick = CostsIncremented(run_id=RUN, codon_id=OBSERVE, cost=0.25, tokens=tokens, messages=1)
    state = after(tick, tick, tick, start=state_with(running()))
    assert newest(state) == replace(
        running(),
        current_cost=0.75,
        current_tokens=Tokens(
            input_tokens=3, output_tokens=6, cache_creation_tokens=9, cache_read_tokens=12
        ),
        assistant_message_count=3,
    )


def test_extensions_and_sentinels_are_counted_while_the_codon_works():
    """Both are stored in the active record, as they have no state of their own."""
    sentinels = LoadedSentinels(loaded=(a_sentinel(),), total_cost=0.0012)
    state = after(
        ExtensionCountUpdated(run_id=RUN, codon_id=OBSERVE, extension_count=4),
        SentinelStatesUpdated(run_id=RUN, codon_id=OBSERVE, sentinels=sentinels),
        start=state_with(running()),
    )
    assert newest(state) == replace(running(), extension_count=4, sentinels=sentinels)


@pytest.mark.parametrize(
    "transition",
    [
        CostsIncremented(run_id=RUN, codon_id=OBSERVE, cost=1, tokens=some_tokens()),
        ExtensionCountUpdated(run_id=RUN, codon_id=OBSERVE, extension_count=1),
        SentinelStatesUpdated(
            run_id=RUN, codon_id=OBSERVE, sentinels=LoadedSentinels(loaded=(), total_cost=0)
        ),
    ],
    ids=lambda transition: transition.TYPE,
)
def test_a_preparing_codon_has_nothing_to_count(transition: Transition):
    """Costs before an agent exists are refused, not dropped."""
    with pytest.raises(Impossible):
        after(transition, start=state_with(preparing()))


@pytest.mark.parametrize("ended", [completed(), failed(), skipped()], ids=type)
def test_the_record_of_an_ended_codon_takes_its_sentinels_last_counts(ended: CodonExecution):
    """Sentinels process the end of their codon after it; their cost is still recorded."""
    loaded = LoadedSentinels(loaded=(a_sentinel(),), total_cost=0.0012)
    state = after(
        SentinelStatesUpdated(run_id=RUN, codon_id=OBSERVE, sentinels=loaded),
        start=state_with(ended),
    )
    final = ExecutedSentinels(executed=loaded.loaded, total_cost=loaded.total_cost)
    assert newest(state) == replace(ended, sentinels=final)


def test_a_state_that_could_not_be_loaded_is_never_made():
    """Negative costs and tokens, which validation refuses, are refused before they are written."""
    state = state_with(running())
    with pytest.raises(Impossible, match="cost is -1"):
        after(
            CostsUpdated(run_id=RUN, codon_id=OBSERVE, cost=-1.0, tokens=some_tokens()),
            start=state,
        )

    with pytest.raises(Impossible, match="token count"):
        after(
            CostsIncremented(run_id=RUN, codon_id=OBSERVE, cost=0, tokens=some_tokens(-5)),
            start=state,
        )

    with pytest.raises(Impossible, match="2 times"):
        after(PlanSet(execution_plan=a_plan("observe", "observe")), start=state)


# --- Checkpoints ----------------------------------------------------------------------------------


def with_checkpoint(kind, *codons: CodonExecution, codon_id: CodonId | None = OBSERVE) -> State:
    created = CheckpointCreated(checkpoint=a_checkpoint(kind, RUN, codon_id))
    return after(created, start=state_with(*codons))


def test_a_rig_checkpoint_stands_in_the_active_record():
    """`rigSetupCheckpoint` is set if the codon is past `preparing`."""
    state = with_checkpoint("rig-setup", completed(), starting())
    assert state.runs[0].codons == (
        completed(),
        replace(starting(), rig_setup_checkpoint=sha(7)),
    )


@pytest.mark.parametrize(
    ("kind", "codon", "noted"),
    [
        ("error", failed(), failed(checkpoint=sha(7))),
        ("skipped", skipped(), skipped(checkpoint=sha(7))),
        ("error", failed(checkpoint=sha(3)), failed(checkpoint=sha(3))),
        ("completed", completed(), completed()),
        ("error", running(), running()),
        ("tool", running(), running()),
        ("exit", failed(), failed()),
        ("rig-setup", preparing(), preparing()),
        ("rig-setup", failed(), replace(failed(), rig_setup_checkpoint=sha(7))),
    ],
)
def test_a_checkpoint_is_noted_where_its_record_has_room(kind, codon, noted):
    """A terminal record takes a missing checkpoint, and keeps an existing one."""
    assert newest(with_checkpoint(kind, codon)) == noted


def test_a_checkpoint_of_something_unknown_moves_only_the_seq():
    """Commits found at startup may be older than everything in the state."""
    created = CheckpointCreated(
        checkpoint=a_checkpoint("completed", RunId("long-gone"), OBSERVE), recovered=True
    )
    state = state_with(running())
    assert after(created, start=state) == replace(state, last_event_seq=state.last_event_seq + 1)


def test_only_its_own_transition_sets_the_initial_checkpoint():
    """A checkpoint of kind `initial` is not the initial checkpoint until a transition says so."""
    state = with_checkpoint("initial", codon_id=None)
    assert state.initial_checkpoint is None
    assert after(InitialCheckpointSet(checkpoint_sha=sha(7)), start=state).initial_checkpoint


# --- Sums -----------------------------------------------------------------------------------------


def test_the_total_is_what_was_spent_by_agents_and_sentinels():
    """Every codon of every run counts, skipped ones and sentinels included."""
    sentinels = LoadedSentinels(loaded=(a_sentinel(0.5),), total_cost=0.5)
    state = after(
        RunStarted(run=a_run("one", codons=(replace(skipped(), partial_cost=1.0),))),
        RunStarted(
            run=a_run("two", codons=(replace(running(), current_cost=2.0, sentinels=sentinels),))
        ),
    )
    assert total_cost(state) == 3.5
    summary = resulting_state(state)
    assert (summary.run_count, summary.current_run_id) == (2, "two")
    assert (summary.total_cost, summary.current_run_cost) == (3.5, 2.5)


# --- Folding --------------------------------------------------------------------------------------


def test_the_seq_follows_every_event():
    """An event that changes nothing else still advances `lastEventSeq`."""
    assert (
        fold([an_event(Info(message="a"), 1), an_event(Info(message="b"), 2)]).last_event_seq == 2
    )


def test_a_transition_of_a_newer_version_is_refused():
    """An unknown transition cannot be skipped, because the fold would give another state."""
    known = recorded(PlanSet(execution_plan=()))
    body = replace(known.transition, type="TimeReversed")
    with pytest.raises(Refused):
        fold([an_event(replace(known, transition_type="TimeReversed", transition=body))])


walks = st.lists(st.integers(min_value=0, max_value=10_000), max_size=40)


def walk(choices: list[int]) -> list[tuple[Transition, State]]:
    """Apply one legal transition per choice, and return each with the state after it."""
    steps: list[tuple[Transition, State]] = []
    state = EMPTY_STATE
    for number, choice in enumerate(choices, start=1):
        moves = legal_moves(state, number)
        transition = moves[choice % len(moves)]
        state = apply(state, transition, number)
        steps.append((transition, state))

    return steps


@given(walks)
def test_the_thread_after_a_change_is_that_of_the_whole_state(choices: list[int]):
    """It is computed from the thread before where only the newest run's end has changed."""
    for _, state in walk(choices):
        found = thread(state)
        thread(EMPTY_STATE)
        anew = thread(state)
        assert found == anew
        assert all(one.codon is other.codon for one, other in zip(found, anew, strict=True))


@given(walks)
def test_the_fold_of_the_encoded_history_is_the_state_at_every_prefix(choices: list[int]):
    """After encoding and decoding, each prefix of a history folds to its state at the time."""
    steps = walk(choices)
    state = EMPTY_STATE
    for seq, (transition, expected) in enumerate(steps, start=1):
        line = a_line(recorded(transition, expected), seq)
        state = fold([codec.decode_event(line)], state)
        assert state == expected


@given(walks)
def test_no_legal_history_leads_to_a_state_that_validation_refuses(choices: list[int]):
    """A folded state can be saved, read back and continued."""
    for _, state in walk(choices)[-1:]:
        assert errors_in(state) == ()
        assert codec.decode_value(State, codec.encode(state)) == state


@given(walks)
def test_a_state_can_become_the_past_of_a_new_journal(choices: list[int]):
    """The founding transitions fold to the same runs, plan, initial checkpoint and rollbacks."""
    for _, state in walk(choices)[-1:]:
        founded = after(*founding(state))
        assert founded.runs == state.runs
        assert founded.execution_plan == state.execution_plan
        assert founded.initial_checkpoint == state.initial_checkpoint
        assert (founded.undo, founded.redo) == (state.undo, state.redo)
        assert (founded.edits, founded.notice) == (state.edits, state.notice)


@given(walks)
def test_applying_never_changes_the_state_it_is_given(choices: list[int]):
    """Earlier states of a history are not changed by later transitions."""
    steps = walk(choices)
    encoded = [codec.encode(state) for _, state in steps]
    walk(choices)
    assert [codec.encode(state) for _, state in steps] == encoded
