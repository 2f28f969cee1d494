"""Whether a state can be gone on from: seed 002's three errors and three warnings.

An error means that the state contradicts itself; it is never the base of further work, and the
backup or the journal takes its place. A warning means that the state and something outside of it
disagree: a run folder, the shadow repository, the journal. `corrupted_data` comes from the store,
which reads the bytes; all else is judged here, from facts that the caller brings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import StateValidation, ValidationError, ValidationWarning
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    Continuation,
    FailedCodon,
    FreshStart,
    LoopContext,
    PlanEntry,
    PreparingCodon,
    Run,
    SkippedCodon,
    State,
)
from hankweave_server.domain.costs import sentinels_of
from hankweave_server.domain.lifecycle import cost_of, sentinel_cost_of, tokens_of

COST_TOLERANCE = 1e-6
"""Dollars: sums of floats differ in the last places; a cost that is wrong differs by more."""


@dataclass(frozen=True, slots=True)
class CodonKey:
    """One execution of a codon, among all runs."""

    run_id: RunId
    codon_id: CodonId
    position: int
    """Where in its run's list it stands."""


def validate(
    state: State,
    *,
    run_folders: frozenset[str],
    checkpoint_exists: Callable[[Sha], bool],
    recomputed_costs: Mapping[CodonKey, float] | None = None,
    recorded_missing: Collection[Sha] = (),
) -> StateValidation:
    """Judges a state against itself and against what lies around it.

    `run_folders` are the names in `runs/`. `recomputed_costs` is `costs_of` the state that the
    whole journal folds to; without it each cost is held only against the sums inside the state.
    """
    errors = errors_in(state)
    warnings = (
        *_orphaned_folders(state, run_folders),
        *_missing_checkpoints(state, checkpoint_exists, recorded_missing),
        *_sentinel_mismatches(state),
        *_cost_mismatches(state, {} if recomputed_costs is None else recomputed_costs),
    )
    return StateValidation(valid=not errors, errors=errors, warnings=warnings)


def costs_of(state: State) -> dict[CodonKey, float]:
    """What each codon cost, its sentinels included, in USD."""
    return {
        CodonKey(run.run_id, codon.codon_id, position): cost_of(codon) + sentinel_cost_of(codon)
        for run in state.runs
        for position, codon in enumerate(run.codons)
    }


# --- errors ---------------------------------------------------------------------------------------


def errors_in(state: State) -> tuple[ValidationError, ...]:
    """Finds what no legal history can have led to."""
    runs = (f"Run {run.run_id}, {fault}." for run in state.runs for fault in run_faults(run))
    plan = (f"The plan, {fault}." for fault in plan_faults(state.execution_plan))
    return (
        *(ValidationError(type="missing_run", message=each) for each in _missing_runs(state)),
        *(ValidationError(type="invalid_codon", message=each) for each in (*runs, *plan)),
    )


def run_faults(run: Run) -> Iterator[str]:
    for codon in run.codons:
        yield from (f"codon {codon.codon_id}: {fault}" for fault in codon_faults(codon))


def codon_faults(codon: CodonExecution) -> Iterator[str]:
    """What no execution of a codon can be, whatever happened to it."""
    for name, cost in (("cost", cost_of(codon)), ("sentinel cost", sentinel_cost_of(codon))):
        if not math.isfinite(cost) or cost < 0:
            yield f"the {name} is {cost}"

    if min(msgspec.structs.astuple(tokens_of(codon))) < 0:
        yield "a token count is negative"

    if codon.attempt < 1:
        yield f"attempt {codon.attempt} does not exist"

    yield from _loop_faults(codon.codon_id, codon.loop_context)


def plan_faults(plan: tuple[PlanEntry, ...]) -> Iterator[str]:
    for codon_id, count in Counter(entry.codon_id for entry in plan).items():
        if count > 1:
            yield f"codon {codon_id}: it stands there {count} times"

    for entry in plan:
        if entry.codon_id.partition("#")[0] != entry.codon.id:
            yield f"codon {entry.codon_id}: it is made of codon {entry.codon.id}"

        for fault in _loop_faults(entry.codon_id, entry.loop_context):
            yield f"codon {entry.codon_id}: {fault}"


def _missing_runs(state: State) -> Iterator[str]:
    counts = Counter(run.run_id for run in state.runs)
    if state.current_run_id is not None and state.current_run_id not in counts:
        yield f"currentRunId is {state.current_run_id}, but there is no such run."

    for run_id, count in counts.items():
        if count > 1:
            yield f"There are {count} runs {run_id}; it cannot be told which one is meant."


def _loop_faults(codon_id: CodonId, context: LoopContext | None) -> Iterator[str]:
    """`review#1` is iteration 1 of a loop's body, and nothing else is (seed 002)."""
    iteration = codon_id.partition("#")[2]
    if context is None:
        if iteration:
            yield "its id names an iteration, but it stands in no loop"
    elif context.iteration < 0 or context.codon_index_in_loop < 0:
        yield "its place in the loop is negative"
    elif iteration != str(context.iteration):
        yield f"its loop context says iteration {context.iteration}"


# --- warnings -------------------------------------------------------------------------------------


def _orphaned_folders(state: State, run_folders: frozenset[str]) -> Iterator[ValidationWarning]:
    known = {str(run.run_id) for run in state.runs}
    for name in sorted(run_folders - known):
        yield ValidationWarning(
            type="orphaned_folder", message=f"runs/{name} belongs to no run in the state."
        )


def _missing_checkpoints(
    state: State, checkpoint_exists: Callable[[Sha], bool], recorded: Collection[Sha]
) -> Iterator[ValidationWarning]:
    missing: dict[Sha, str] = {}
    for sha, where in checkpoints_in(state):
        if sha not in missing and not checkpoint_exists(sha):
            missing[sha] = where

    for sha in sorted(recorded):
        missing.setdefault(sha, "A checkpoint that the journal names")

    for sha, where in missing.items():
        yield ValidationWarning(
            type="missing_checkpoint",
            message=f"{where} is {sha}, which the shadow repository does not have.",
        )


def checkpoints_in(state: State) -> Iterator[tuple[Sha, str]]:
    """Every checkpoint that a state names, and where it names it."""
    if state.initial_checkpoint is not None:
        yield state.initial_checkpoint, "initialCheckpoint"

    for run in state.runs:
        match run.starting_conditions:
            case FreshStart(initial_checkpoint_sha=sha):
                origin = sha
            case Continuation(source=source):
                origin = source.checkpoint_sha

        if origin:
            yield origin, f"The checkpoint that run {run.run_id} began with"

        for codon in run.codons:
            for sha, name in _checkpoints_of(codon):
                yield sha, f"{name} of codon {codon.codon_id} in run {run.run_id}"


def _checkpoints_of(codon: CodonExecution) -> Iterable[tuple[Sha, str]]:
    named: list[tuple[Sha | None, str]] = []
    if not isinstance(codon, PreparingCodon):
        named.append((codon.rig_setup_checkpoint, "rigSetupCheckpoint"))

    match codon:
        case CompletedCodon(completion_checkpoint=sha):
            named.append((sha, "completionCheckpoint"))
        case FailedCodon(error_checkpoint=error):
            named.append((error, "errorCheckpoint"))
        case SkippedCodon(skip_checkpoint=skipped):
            named.append((skipped, "skipCheckpoint"))
        case _:
            pass

    return [(sha, field) for sha, field in named if sha is not None]


def _sentinel_mismatches(state: State) -> Iterator[ValidationWarning]:
    """The sentinels' cached total against the sum of theirs."""
    for run in state.runs:
        for codon in run.codons:
            each = sentinels_of(codon)
            total = sum(sentinel.total_cost for sentinel in each)
            stated = sentinel_cost_of(codon)
            if each and _differ(total, stated):
                yield _mismatch(
                    f"The sentinels of codon {codon.codon_id} in run {run.run_id}",
                    stated,
                    total,
                )


def with_summed_sentinels(state: State) -> tuple[State, tuple[ValidationWarning, ...]]:
    """Correct each total of sentinels that is not their sum; say which ones."""
    warnings = tuple(_sentinel_mismatches(state))
    if not warnings:
        return state, ()

    runs = tuple(
        msgspec.structs.replace(run, codons=tuple(map(_with_summed, run.codons)))
        for run in state.runs
    )
    return msgspec.structs.replace(state, runs=runs), warnings


def _with_summed(codon: CodonExecution) -> CodonExecution:
    each = sentinels_of(codon)
    if not each or isinstance(codon, PreparingCodon):
        return codon

    total = sum(sentinel.total_cost for sentinel in each)
    summed = msgspec.structs.replace(codon.sentinels, total_cost=total)
    return msgspec.structs.replace(codon, sentinels=summed)


def _cost_mismatches(
    state: State, recomputed: Mapping[CodonKey, float]
) -> Iterator[ValidationWarning]:
    for key, cost in costs_of(state).items():
        if key in recomputed and _differ(cost, recomputed[key]):
            who = f"Codon {key.codon_id} in run {key.run_id}"
            yield _mismatch(who, cost, recomputed[key])


def corrected(warning: ValidationWarning) -> ValidationWarning:
    """Return the warning of what was wrong and is put right."""
    message = f"{warning.message} The recomputed value counts from now on."
    return msgspec.structs.replace(warning, message=message)


def _mismatch(who: str, stated: float, recomputed: float) -> ValidationWarning:
    return ValidationWarning(
        type="cost_mismatch",
        message=f"{who}: the state says ${stated:.6f}, recomputed it is ${recomputed:.6f}.",
    )


def _differ(one: float, other: float) -> bool:
    return not math.isclose(one, other, rel_tol=1e-9, abs_tol=COST_TOLERANCE)
