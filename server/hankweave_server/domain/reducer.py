"""The state as the fold of its transitions.

`apply` is the only place that knows the effect of a transition on the state. The ledger calls it
when something happens, recovery when it rebuilds, and replay when it computes a past moment. All
three get the same state, which is why `state.json` can be thrown away. It is pure and strict: a
transition that contradicts the state raises `Impossible` and changes nothing.

A transition that names a codon means the newest execution of that codon in the named run that is
not terminal: after a retry the older records of the same codon are history and do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

import msgspec

from hankweave_protocol.attempts import Exploration
from hankweave_protocol.codec import decode_transition
from hankweave_protocol.events import Event, ResultingState, StateTransition
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.state import (
    EMPTY_STATE,
    CodonExecution,
    ExecutedSentinels,
    FailedCodon,
    PreparingCodon,
    Run,
    RunStatus,
    SkippedCodon,
    State,
    TerminalCodon,
    WorkingCodon,
)
from hankweave_protocol.transitions import (
    AgentTold,
    AnyTransition,
    CheckpointCreated,
    CodonStarted,
    CodonTransitioned,
    CodonWaitChanged,
    CostsIncremented,
    CostsUpdated,
    CurrentRunCleared,
    EditsNoticed,
    EditsOvertaken,
    ExplorationSet,
    ExtensionCountUpdated,
    InitialCheckpointSet,
    PermissionRuleAdded,
    PlanChanged,
    PlanSet,
    RunCompleted,
    RunCrashed,
    RunFailed,
    RunImported,
    RunStarted,
    SentinelStatesUpdated,
    TimeTravelled,
    Transition,
    TravelsForgotten,
)
from hankweave_server.domain import plan as plans
from hankweave_server.domain import undo
from hankweave_server.domain.costs import run_cost, total_cost
from hankweave_server.domain.execution_thread import waiting_run
from hankweave_server.domain.lifecycle import (
    Impossible,
    advance,
    is_active,
    status_of,
    with_wait,
)
from hankweave_server.domain.validation import codon_faults, plan_faults, run_faults

replace = msgspec.structs.replace


class UnknownRun(Impossible):
    def __init__(self, run_id: RunId) -> None:
        super().__init__(f"There is no run {run_id}.")
        self.run_id = run_id


class NoActiveCodon(Impossible):
    def __init__(self, run_id: RunId, codon_id: CodonId) -> None:
        super().__init__(f"Codon {codon_id} is not active in run {run_id}.")
        self.run_id = run_id
        self.codon_id = codon_id


def apply(state: State, transition: Transition, seq: int) -> State:
    """Return the state after the transition of the event `seq`; raise Impossible."""
    changed = _changed(state, as_known(transition))
    return replace(changed, last_event_seq=seq)


def fold(events: Iterable[Event], start: State = EMPTY_STATE) -> State:
    """Fold events into a state, in journal order; other events than transitions only move the seq.

    Raises Impossible for a history that contradicts itself, and Refused for a transition that a
    newer version wrote.
    """
    state = start
    for event in events:
        if isinstance(event.data, StateTransition):
            state = apply(state, decode_transition(event.data), event.seq)
        else:
            state = replace(state, last_event_seq=event.seq)

    return state


def founding(state: State) -> tuple[Transition, ...]:
    """Return the transitions that create this state from an empty one: the past of a lost journal.

    Their fold is the state itself except for two things: the seq, and a current run that is not the
    newest run with status `running`.
    """
    transitions: list[Transition] = [RunStarted(run=run) for run in reversed(state.runs)]
    if state.execution_plan:
        transitions.append(PlanSet(execution_plan=state.execution_plan))

    if state.initial_checkpoint is not None:
        transitions.append(InitialCheckpointSet(checkpoint_sha=state.initial_checkpoint))

    transitions += [ExplorationSet(exploration=each) for each in state.explorations]
    transitions += [PermissionRuleAdded(rule=each) for each in state.permission_rules]
    return (*transitions, *undo.founding(state))


def resulting_state(state: State) -> ResultingState:
    """Return the summary that every `state.transition` event carries."""
    current = next((run for run in state.runs if run.run_id == state.current_run_id), None)
    return ResultingState(
        current_run_id=state.current_run_id,
        run_count=len(state.runs),
        total_cost=total_cost(state),
        current_run_cost=0.0 if current is None else run_cost(current),
    )


def as_known(transition: Transition) -> AnyTransition:
    """Narrow a transition to the closed union that `match` can exhaust."""
    assert isinstance(transition, AnyTransition), f"{transition.TYPE} is not in AnyTransition"
    return transition


def _changed(state: State, transition: AnyTransition) -> State:
    match transition:
        case RunStarted(run=run):
            return _with_new_run(state, run)
        case RunCompleted(run_id=run_id, end_time=end_time):
            return _with_run_ended(state, run_id, "completed", end_time)
        case RunFailed(run_id=run_id, end_time=end_time):
            return _with_run_ended(state, run_id, "failed", end_time)
        case RunCrashed(run_id=run_id, end_time=end_time):
            crashed = _with_run_ended(state, run_id, "crashed", end_time)
            return _without_current_run(crashed, run_id)
        case CurrentRunCleared(run_id=run_id):
            return _without_current_run(state, run_id)
        case CodonStarted(run_id=run_id, codon=codon):
            return _with_run(state, run_id, lambda run: _with_new_codon(run, codon))
        case CodonTransitioned():
            return _with_codon_moved(state, transition)
        case SentinelStatesUpdated():
            return _with_sentinels(state, transition)
        case CostsIncremented() | CostsUpdated() | ExtensionCountUpdated():
            return _with_active(
                state,
                transition.run_id,
                transition.codon_id,
                lambda codon: _counted(codon, transition),
            )
        case CodonWaitChanged():
            return _with_wait_changed(state, transition)
        case CheckpointCreated(checkpoint=checkpoint):
            return _with_checkpoint(state, checkpoint)
        case InitialCheckpointSet(checkpoint_sha=sha):
            return replace(state, initial_checkpoint=sha)
        case PlanSet(execution_plan=plan):
            _require_valid("The plan", plan_faults(plan))
            return replace(state, execution_plan=plan)
        case PlanChanged():
            return _with_plan_changed(state, transition)
        case TimeTravelled():
            return undo.after(state, transition)
        case TravelsForgotten():
            return undo.forgotten(state, transition)
        case EditsNoticed():
            return undo.with_edits(state, transition)
        case EditsOvertaken():
            return undo.without_edits(state, transition)
        case PermissionRuleAdded(rule=rule):
            others = (each for each in state.permission_rules if each.rule != rule.rule)
            return replace(state, permission_rules=(*others, rule))
        case AgentTold():
            return replace(state, notice=None)
        case ExplorationSet(exploration=exploration):
            return _with_exploration(state, exploration)
        case RunImported(run=run):
            return _with_imported_run(state, run)
        case other:
            assert_never(other)


def _with_plan_changed(state: State, transition: PlanChanged) -> State:
    try:
        plan = plans.changed(state.execution_plan, transition)
    except ValueError as fault:
        raise Impossible(f"The plan was changed, but {fault}.") from None

    _require_valid("The plan", plan_faults(plan[transition.at :][: len(transition.added)]))
    return replace(state, execution_plan=plan)


# --- runs -----------------------------------------------------------------------------------------


def _with_new_run(state: State, run: Run) -> State:
    """Add a run; a run that waits since a rollback may be replaced and begin elsewhere."""
    waiting = waiting_run(state)
    if waiting is not None and waiting.run_id == run.run_id:
        state = replace(state, runs=state.runs[1:])

    if any(each.run_id == run.run_id for each in state.runs):
        raise Impossible(f"There is a run {run.run_id} already.")

    _require_valid(f"Run {run.run_id}", run_faults(run))

    current = run.run_id if run.status == "running" else state.current_run_id
    return replace(state, runs=(run, *state.runs), current_run_id=current)


def _with_imported_run(state: State, run: Run) -> State:
    """Add a run that has ended elsewhere, behind the newest one; the thread stays as it is."""
    if not state.runs or any(each.run_id == run.run_id for each in state.runs):
        raise Impossible(f"Run {run.run_id} cannot be imported.")

    if run.status == "running":
        raise Impossible(f"Run {run.run_id} has not ended.")

    _require_valid(f"Run {run.run_id}", run_faults(run))
    return replace(state, runs=(state.runs[0], run, *state.runs[1:]))


def _with_exploration(state: State, exploration: Exploration) -> State:
    """Replace the record of an exploration, or add it as the newest."""
    name, former = exploration.exploration_id, state.explorations
    if any(each.exploration_id == name for each in former):
        kept = (exploration if each.exploration_id == name else each for each in former)
        return replace(state, explorations=tuple(kept))

    return replace(state, explorations=(*former, exploration))


def _with_run_ended(state: State, run_id: RunId, status: RunStatus, end_time: str) -> State:
    """End a run, which stays current: clients still ask why it failed and what it cost."""
    return _with_run(state, run_id, lambda run: replace(run, status=status, end_time=end_time))


def _without_current_run(state: State, run_id: RunId) -> State:
    """Clear the current run, unless another run is current by now."""
    return replace(state, current_run_id=None) if state.current_run_id == run_id else state


def _with_run(state: State, run_id: RunId, change: Callable[[Run], Run]) -> State:
    for index, run in enumerate(state.runs):
        if run.run_id == run_id:
            return replace(state, runs=(*state.runs[:index], change(run), *state.runs[index + 1 :]))

    raise UnknownRun(run_id)


# --- codons ---------------------------------------------------------------------------------------


def _with_new_codon(run: Run, codon: CodonExecution) -> Run:
    if any(each.codon_id == codon.codon_id and is_active(each) for each in run.codons):
        raise Impossible(f"Codon {codon.codon_id} is active in run {run.run_id} already.")

    _require_valid(f"Codon {codon.codon_id}", codon_faults(codon))
    return replace(run, codons=(*run.codons, codon))


def _with_codon_moved(state: State, moved: CodonTransitioned) -> State:
    def move(codon: CodonExecution) -> CodonExecution:
        if status_of(codon) != moved.from_status:
            raise Impossible(
                f"Codon {codon.codon_id} is {status_of(codon)}, not {moved.from_status}."
            )

        advance(codon, moved.codon)
        return moved.codon

    return _with_active(state, moved.run_id, moved.codon.codon_id, move)


def _with_wait_changed(state: State, changed: CodonWaitChanged) -> State:
    return _with_active(
        state,
        changed.run_id,
        changed.codon_id,
        lambda codon: with_wait(codon, changed.wait, changed.waited_ms, changed.session_id),
    )


def _with_active(
    state: State,
    run_id: RunId,
    codon_id: CodonId,
    change: Callable[[CodonExecution], CodonExecution],
) -> State:
    def in_run(run: Run) -> Run:
        index = _newest(run, codon_id, is_active)
        if index is None:
            raise NoActiveCodon(run_id, codon_id)

        return _with_codon(run, index, change(run.codons[index]))

    return _with_run(state, run_id, in_run)


def _newest(run: Run, codon_id: CodonId, fits: Callable[[CodonExecution], bool]) -> int | None:
    for index in reversed(range(len(run.codons))):
        if run.codons[index].codon_id == codon_id and fits(run.codons[index]):
            return index

    return None


def _with_codon(run: Run, index: int, codon: CodonExecution) -> Run:
    _require_valid(f"Codon {codon.codon_id}", codon_faults(codon))
    return replace(run, codons=(*run.codons[:index], codon, *run.codons[index + 1 :]))


def _require_valid(who: str, faults: Iterable[str]) -> None:
    """Reject anything that validation would refuse to load: every folded state can be read back."""
    found = list(faults)
    if found:
        raise Impossible(f"{who}: {'; '.join(found)}.")


def _with_sentinels(state: State, update: SentinelStatesUpdated) -> State:
    """Update the sentinels, even if the codon has ended: they see its end last."""

    def in_run(run: Run) -> Run:
        index = _newest(run, update.codon_id, lambda codon: True)
        codon = None if index is None else run.codons[index]
        if index is None or codon is None or isinstance(codon, PreparingCodon):
            raise NoActiveCodon(update.run_id, update.codon_id)

        if isinstance(codon, TerminalCodon):
            final = update.sentinels
            executed = ExecutedSentinels(executed=final.loaded, total_cost=final.total_cost)
            return _with_codon(run, index, replace(codon, sentinels=executed))

        return _with_codon(run, index, replace(codon, sentinels=update.sentinels))

    return _with_run(state, update.run_id, in_run)


def _counted(
    codon: CodonExecution,
    transition: CostsIncremented | CostsUpdated | ExtensionCountUpdated,
) -> CodonExecution:
    """Update what has no state of its own: costs, tokens, messages, extensions."""
    if not isinstance(codon, WorkingCodon):
        raise Impossible(
            f"Codon {codon.codon_id} is {status_of(codon)}: it has no costs or extensions yet."
        )

    match transition:
        case CostsIncremented(cost=cost, tokens=tokens, messages=messages):
            return replace(
                codon,
                current_cost=codon.current_cost + cost,
                current_tokens=codon.current_tokens + tokens,
                assistant_message_count=codon.assistant_message_count + messages,
            )
        case CostsUpdated(cost=cost, tokens=tokens):
            return replace(codon, current_cost=cost, current_tokens=tokens)
        case ExtensionCountUpdated(extension_count=count, session_id=session):
            named = session or codon.claude_session_id
            return replace(codon, extension_count=count, claude_session_id=named)
        case other:
            assert_never(other)


# --- checkpoints ----------------------------------------------------------------------------------


_NOTED = frozenset({"rig-setup", "error", "skipped"})
"""Kinds of checkpoints for which a record of a codon may have a field."""


def _with_checkpoint(state: State, checkpoint: CheckpointRecord) -> State:
    """Set a checkpoint in the record it belongs to, if that record has a field for it.

    Most kinds have none and are kept in the journal and the repository alone. A missing record is
    no contradiction either: commits found at a start may be older than the state.
    """
    at = checkpoint.coordinate
    codon_id = at.codon_id
    known = any(run.run_id == at.run_id for run in state.runs)
    if codon_id is None or not known or checkpoint.kind not in _NOTED:
        return state

    def in_run(run: Run) -> Run:
        for index in reversed(range(len(run.codons))):
            codon = run.codons[index]
            if codon.codon_id == codon_id and (noted := _noted(codon, checkpoint)) is not None:
                return _with_codon(run, index, noted)

        return run

    return _with_run(state, at.run_id, in_run)


def _noted(codon: CodonExecution, checkpoint: CheckpointRecord) -> CodonExecution | None:
    """Return the record with the checkpoint in it; None if it has no field for this one."""
    if checkpoint.kind == "rig-setup":
        if isinstance(codon, PreparingCodon):
            return None

        has_room = is_active(codon) or codon.rig_setup_checkpoint is None
        return replace(codon, rig_setup_checkpoint=checkpoint.sha) if has_room else None

    match checkpoint.kind, codon:
        case "error", FailedCodon(error_checkpoint=None):
            return replace(codon, error_checkpoint=checkpoint.sha)
        case "skipped", SkippedCodon(skip_checkpoint=None):
            return replace(codon, skip_checkpoint=checkpoint.sha)
        case _:
            # A completed record never lacks its checkpoint, and the other kinds have no field.
            return None
