"""Validate a state: three errors and three warnings, as Hankweave defines them.

An error means that the state contradicts itself; it is never the base of further work, and the
backup or the journal replaces it. A warning means that the state disagrees with something outside
of it: a run folder, the shadow repository, the journal. `corrupted_data` comes from the store,
which reads the bytes; everything else is judged here, from facts that the caller collects.

For `cost_mismatch`, `CostTally` adds up the cost of each codon again. The costs in the state
are running sums; here they are added up from the journal alone, so that the two can be compared.
Only lines that contain the name of a transition are decoded, as in `checkpoints.records.on_record`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

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
from hankweave_protocol.transitions import (
    CodonStarted,
    CodonTransitioned,
    CostsIncremented,
    CostsUpdated,
    RunStarted,
    SentinelStatesUpdated,
)
from hankweave_server.domain.checkpoints.records import JournalLine, transition_in
from hankweave_server.domain.costs import dollars_of, sentinels_of
from hankweave_server.domain.lifecycle import cost_of, is_terminal, sentinel_cost_of, tokens_of
from hankweave_server.plain_text import counted

COST_TOLERANCE = 1e-6
"""Dollars: sums of floats differ in the last digits; a wrong cost differs by more."""


@dataclass(frozen=True, slots=True)
class CodonKey:
    """One execution of a codon, among all runs."""

    run_id: RunId
    codon_id: CodonId
    position: int
    """Its index in the run's list."""


def validate(
    state: State,
    *,
    run_folders: frozenset[str],
    checkpoint_exists: Callable[[Sha], bool],
    recomputed_costs: Mapping[CodonKey, float] | None = None,
    recorded_missing: Collection[Sha] = (),
) -> StateValidation:
    """Check a state against itself and its surroundings.

    `run_folders` are the names in `runs/`. `recomputed_costs` is the result of a `CostTally`
    over the whole journal; without it each cost is only compared with the sums inside the state.
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
    """Return the cost of each codon, its sentinels included, in USD."""
    return {
        CodonKey(run.run_id, codon.codon_id, position): dollars_of(codon)
        for run in state.runs
        for position, codon in enumerate(run.codons)
    }


# --- errors ---------------------------------------------------------------------------------------


def errors_in(state: State) -> tuple[ValidationError, ...]:
    """Return everything in a state that no legal history can have led to."""
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
    """Yield the faults of an execution that no history can explain."""
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
            yield f"codon {codon_id}: it appears {count} times"

    for entry in plan:
        if entry.codon_id.partition("#")[0] != entry.codon.id:
            yield f"codon {entry.codon_id}: it is based on codon {entry.codon.id}"

        for fault in _loop_faults(entry.codon_id, entry.loop_context):
            yield f"codon {entry.codon_id}: {fault}"


def _missing_runs(state: State) -> Iterator[str]:
    counts = Counter(run.run_id for run in state.runs)
    if state.current_run_id is not None and state.current_run_id not in counts:
        yield f"currentRunId is {state.current_run_id}, but there is no such run."

    for run_id, count in counts.items():
        if count > 1:
            yield f"There are {counted(count, 'run')} {run_id}; it is unclear which one is meant."


def _loop_faults(codon_id: CodonId, context: LoopContext | None) -> Iterator[str]:
    """Check that `review#1`, and only that form, is iteration 1 of a loop's body."""
    iteration = codon_id.partition("#")[2]
    if context is None:
        if iteration:
            yield "its id names an iteration, but it is not in a loop"
    elif context.iteration < 0 or context.codon_index_in_loop < 0:
        yield "its place in the loop is negative"
    elif iteration != str(context.iteration):
        yield f"its loop context says iteration {context.iteration}"


# --- warnings -------------------------------------------------------------------------------------


def _orphaned_folders(state: State, run_folders: frozenset[str]) -> Iterator[ValidationWarning]:
    known = {str(run.run_id) for run in state.runs}
    for name in sorted(run_folders - known):
        yield ValidationWarning(
            type="orphaned_folder", message=f"runs/{name} does not belong to any run in the state."
        )


def _missing_checkpoints(
    state: State, checkpoint_exists: Callable[[Sha], bool], recorded: Collection[Sha]
) -> Iterator[ValidationWarning]:
    missing: dict[Sha, str] = {}
    for sha, where in checkpoints_in(state):
        if sha not in missing and not checkpoint_exists(sha):
            missing[sha] = where

    for sha in sorted(recorded):
        missing.setdefault(sha, "A checkpoint in the journal")

    for sha, where in missing.items():
        yield ValidationWarning(
            type="missing_checkpoint",
            message=f"{where} is {sha}, which is not in the shadow repository.",
        )


def checkpoints_in(state: State) -> Iterator[tuple[Sha, str]]:
    """Yield every checkpoint that a state names, and where it names it."""
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
    """Compare the recorded total of the sentinels with their sum."""
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
    """Correct each sentinel total that is not the sum, with a warning for each."""
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
    """Return the warning for a value that was wrong and has been corrected."""
    message = f"{warning.message} The recomputed value is used from now on."
    return msgspec.structs.replace(warning, message=message)


def _mismatch(who: str, stated: float, recomputed: float) -> ValidationWarning:
    return ValidationWarning(
        type="cost_mismatch",
        message=f"{who}: the state says ${stated:.6f}, but recomputed it is ${recomputed:.6f}.",
    )


def _differ(one: float, other: float) -> bool:
    return not math.isclose(one, other, rel_tol=1e-9, abs_tol=COST_TOLERANCE)


_COUNTED = (
    RunStarted,
    CodonStarted,
    CodonTransitioned,
    CostsIncremented,
    CostsUpdated,
    SentinelStatesUpdated,
)
_SHAPES = {shape.TYPE: shape for shape in _COUNTED}
_WORDS = tuple(name.encode() for name in _SHAPES)


@dataclass(slots=True)
class _Tally:
    """One execution while its cost is added up."""

    codon_id: CodonId
    dollars: float = 0.0
    sentinel_dollars: float = 0.0
    has_ended: bool = False

    @classmethod
    def of(cls, codon: CodonExecution) -> _Tally:
        """Start from the record that the journal begins with: there is nothing else to count."""
        sentinels = sum(each.total_cost for each in sentinels_of(codon))
        return cls(codon.codon_id, cost_of(codon), sentinels, is_terminal(codon))


@dataclass(slots=True)
class CostTally:
    """The cost of each codon in the lines so far, sentinels included."""

    by_run: dict[RunId, list[_Tally]] = field(default_factory=dict)

    def add(self, line: bytes) -> None:
        """Add the next journal line; raise msgspec's error if it is not an event."""
        if any(word in line for word in _WORDS):
            self._count(_change_in(line))

    def result(self) -> dict[CodonKey, float]:
        """Return the costs in USD."""
        return {
            CodonKey(run_id, tally.codon_id, position): tally.dollars + tally.sentinel_dollars
            for run_id, executions in self.by_run.items()
            for position, tally in enumerate(executions)
        }

    def _count(self, change: object) -> None:
        match change:
            case RunStarted(run=run):
                self.by_run[run.run_id] = [_Tally.of(codon) for codon in run.codons]
            case CodonStarted(run_id=run_id, codon=codon):
                self.by_run.setdefault(run_id, []).append(_Tally.of(codon))
            case CodonTransitioned(run_id=run_id, codon=codon):
                self._active(run_id, codon.codon_id).has_ended = is_terminal(codon)
            case CostsIncremented(run_id=run_id, codon_id=codon_id, cost=cost):
                self._active(run_id, codon_id).dollars += cost
            case CostsUpdated(run_id=run_id, codon_id=codon_id, cost=cost):
                self._active(run_id, codon_id).dollars = cost
            case SentinelStatesUpdated(run_id=run_id, codon_id=codon_id, sentinels=sentinels):
                cost = sum(each.total_cost for each in sentinels.loaded)
                self._newest(run_id, codon_id).sentinel_dollars = cost

    def _newest(self, run_id: RunId, codon_id: CodonId) -> _Tally:
        """Return the newest execution, ended or not: sentinels see a codon's end last."""
        own = (each for each in reversed(self.by_run.get(run_id, [])) if each.codon_id == codon_id)
        return next(own, _Tally(codon_id))

    def _active(self, run_id: RunId, codon_id: CodonId) -> _Tally:
        """Return the newest execution that has not ended; a new tally if there is none."""
        tallies = self.by_run.get(run_id, [])
        own = (each for each in reversed(tallies) if each.codon_id == codon_id)
        return next((each for each in own if not each.has_ended), _Tally(codon_id))


def _change_in(line: bytes) -> object:
    """Return the transition in an event, if it is one that affects costs."""
    body = transition_in(msgspec.json.decode(line, type=JournalLine))
    shape = None if body is None else _SHAPES.get(body.type)
    return None if body is None or shape is None else msgspec.json.decode(body.data, type=shape)
