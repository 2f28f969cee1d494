"""States with a past of several runs, and the checkpoints of such a past."""

from __future__ import annotations

from typing import Literal

import msgspec

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import CheckpointKind, CheckpointRecord
from hankweave_protocol.state import (
    EMPTY_STATE,
    CodonExecution,
    CompletedCodon,
    Continuation,
    ContinuationSource,
    FailedCodon,
    PlanEntry,
    Run,
    SkippedCodon,
    StartingConditions,
    State,
    TerminalCodon,
)
from hankweave_protocol.transitions import Transition
from hankweave_server.domain.execution_thread import end_checkpoint, rig_checkpoint
from hankweave_server.domain.reducer import apply
from support.histories import LATER, a_checkpoint, a_plan, a_run, sha

INITIAL = sha(0xA0)


def after(*transitions: Transition, start: State = EMPTY_STATE) -> State:
    """Return the state after these transitions, numbered one after the other."""
    state = start
    for transition in transitions:
        state = apply(state, transition, state.last_event_seq + 1)

    return state


def a_state(*runs: Run, plan: tuple[PlanEntry, ...] = (), initial: Sha | None = INITIAL) -> State:
    """Return the state after these runs, oldest first; all of them have ended."""
    return State(
        runs=tuple(reversed(runs)),
        current_run_id=None,
        execution_plan=plan or a_plan("one", "two", "three"),
        initial_checkpoint=initial,
    )


def ended(name: str, *codons: CodonExecution) -> Run:
    """Return a fresh run that is over."""
    return msgspec.structs.replace(a_run(name, codons=codons), status="completed", end_time=LATER)


def continued(
    name: str,
    *codons: CodonExecution,
    of: str,
    after: str | None,
    at: Sha | None,
    reason: Literal["rollback", "retry", "continue"] = "rollback",
) -> Run:
    """Return a run that continued an earlier one, after a codon and at a checkpoint of it."""
    source = ContinuationSource(
        run_id=RunId(of), after_codon=None if after is None else CodonId(after), checkpoint_sha=at
    )
    return msgspec.structs.replace(
        ended(name, *codons), starting_conditions=Continuation(source=source, reason=reason)
    )


def going_on(state: State, conditions: StartingConditions, *codons: CodonExecution) -> State:
    """Return the state after a run that began under these conditions."""
    run = msgspec.structs.replace(ended("next", *codons), starting_conditions=conditions)
    return msgspec.structs.replace(state, runs=(run, *state.runs))


def rigged(codon: TerminalCodon, number: int) -> TerminalCodon:
    """Return the same execution, with a rig that has a checkpoint."""
    return msgspec.structs.replace(codon, rig_setup_checkpoint=sha(number))


def ignoring(plan: tuple[PlanEntry, ...], *names: str) -> tuple[PlanEntry, ...]:
    """Return the same plan, which continues after failures of these codons."""
    return tuple(
        msgspec.structs.replace(
            entry, codon=msgspec.structs.replace(entry.codon, on_failure="ignore")
        )
        if entry.codon_id in names
        else entry
        for entry in plan
    )


def in_session(codon: TerminalCodon, session: str, messages: int = 3) -> TerminalCodon:
    return msgspec.structs.replace(
        codon, claude_session_id=session, assistant_message_count=messages
    )


def checkpoints_of(state: State) -> dict[Sha, CheckpointRecord]:
    """Return the shadow repository's checkpoints for a state, oldest first."""
    found: dict[Sha, CheckpointRecord] = {}
    if state.initial_checkpoint is not None:
        first = state.runs[-1].run_id
        found[state.initial_checkpoint] = record("initial", first, None, state.initial_checkpoint)

    for run in reversed(state.runs):
        for codon in run.codons:
            rig, end = rig_checkpoint(codon), end_checkpoint(codon)
            if rig is not None and rig not in found:
                found[rig] = record("rig-setup", run.run_id, codon.codon_id, rig)

            if end is not None:
                found[end] = record(_kind_of(codon), run.run_id, codon.codon_id, end)

    return found


def with_extra(
    known: dict[Sha, CheckpointRecord],
    kind: CheckpointKind,
    run: str,
    codon: str | None,
    number: int,
    *,
    behind: Sha,
) -> dict[Sha, CheckpointRecord]:
    """Return the same checkpoints and one more, taken next after another one."""
    extra = record(kind, RunId(run), None if codon is None else CodonId(codon), sha(number))
    order: dict[Sha, CheckpointRecord] = {}
    for each in known.values():
        order[each.sha] = each
        if each.sha == behind:
            order[extra.sha] = extra

    return order


def record(
    kind: CheckpointKind, run_id: RunId, codon_id: CodonId | None, at: Sha
) -> CheckpointRecord:
    return a_checkpoint(kind, run_id, codon_id, int(at, 16))


def _kind_of(codon: CodonExecution) -> CheckpointKind:
    match codon:
        case CompletedCodon():
            return "completed"
        case FailedCodon():
            return "error"
        case SkippedCodon():
            return "skipped"
        case _:
            raise AssertionError(f"{codon.codon_id} has no end yet")
