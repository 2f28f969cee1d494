"""Synthetic but legal runs, codons, plans and whole histories.

`legal_moves` lists the possible next changes of a state; a random walk over it is a history that a
server could have written, rollbacks and retries included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hankweave_protocol.hank import Codon, ContextExceededEnd, Hank, IterationLimit, Loop
from hankweave_protocol.ids import CodonId, RunId, Sha, iteration_id
from hankweave_protocol.records import (
    CheckpointKind,
    CheckpointRecord,
    Coordinate,
    Direction,
    ExecutionMeta,
    Notice,
    Travel,
)
from hankweave_protocol.state import (
    BudgetExceeded,
    CodonExecution,
    CompletedCodon,
    CompletingSentinelsCodon,
    Continuation,
    ContinuationSource,
    FailedCodon,
    FailureReason,
    FreshStart,
    InitializingCodon,
    LoadedSentinels,
    LoopContext,
    PlanEntry,
    PreparingCodon,
    Run,
    RunningCodon,
    SentinelState,
    SkippedCodon,
    StartingCodon,
    State,
    Tokens,
    WorkingCodon,
)
from hankweave_protocol.transitions import (
    AgentTold,
    CheckpointCreated,
    CodonStarted,
    CodonTransitioned,
    CostsIncremented,
    CostsUpdated,
    CurrentRunCleared,
    EditsNoticed,
    EditsOvertaken,
    ExtensionCountUpdated,
    InitialCheckpointSet,
    PlanSet,
    RunCompleted,
    RunCrashed,
    RunFailed,
    RunStarted,
    SentinelStatesUpdated,
    TimeTravelled,
    Transition,
)
from hankweave_server.domain import lifecycle
from hankweave_server.domain.validation import CodonKey, CostTally

MOMENT = "2025-01-04T12:00:00.000Z"
LATER = "2025-01-04T12:02:30.000Z"
TIMED_OUT = FailureReason(type="timeout", retriable=True, message="API request timed out — 30 s")
METADATA = ExecutionMeta(
    version="1.0.0",
    read_only_source_data_path=None,
    read_only_source_resolved_data_path=None,
    data_hash=None,
    hank_hash=None,
    hank_path=None,
    link_type="none",
    created_at=MOMENT,
    last_used=MOMENT,
)
"""The metadata of an execution without data."""


def recounted_costs(lines: Iterable[bytes]) -> dict[CodonKey, float]:
    """Return the cost of each codon, in USD, from whole journal lines, oldest first."""
    tally = CostTally()
    for line in lines:
        tally.add(line)

    return tally.result()


@dataclass
class SteppingClock:
    """A clock that advances by a millisecond at every query."""

    moment: datetime = datetime(2025, 1, 4, 12, tzinfo=UTC)

    def now(self) -> datetime:
        self.moment += timedelta(milliseconds=1)
        return self.moment

    def monotonic(self) -> float:
        return self.now().timestamp()

    def boottime(self) -> float:
        return self.monotonic()


def sha(number: int) -> Sha:
    return Sha(f"{number:040x}")


def some_tokens(count: int = 100) -> Tokens:
    return Tokens(
        input_tokens=count, output_tokens=count, cache_creation_tokens=0, cache_read_tokens=count
    )


def a_run(
    name: str = "1736000000000-abc123-def456",
    *,
    codons: tuple[CodonExecution, ...] = (),
    after: RunId | None = None,
) -> Run:
    """Return a running run: fresh, or continuing another one."""
    run_id = RunId(name)
    source = ContinuationSource(run_id=after or run_id, after_codon=None, checkpoint_sha=sha(1))
    return Run(
        run_id=run_id,
        run_folder=f"/executions/one/.hankweave/runs/{run_id}",
        git_branch=f"run-{run_id}",
        starting_conditions=(
            FreshStart() if after is None else Continuation(source=source, reason="rollback")
        ),
        codons=codons,
        status="running",
        start_time=MOMENT,
        server_pid=12345,
    )


def a_codon(name: str = "observe") -> Codon:
    return Codon(
        id=name,
        name=name.title(),
        model="sonnet",
        continuation_mode="fresh",
        prompt_text="Look at the data.",
        checkpointed_files=("notes/**",),
    )


def looped(limit: int | None, *names: str) -> Hank:
    """Return a hank whose only step is a loop; without a limit, it ends with a full context."""
    end = ContextExceededEnd() if limit is None else IterationLimit(limit=limit)
    codons = tuple(map(a_codon, names or ("review",)))
    return Hank(hank=(Loop(id="loop", name="Loop", terminate_on=end, codons=codons),))


def a_plan(*names: str) -> tuple[PlanEntry, ...]:
    """Return plan entries; `review#1` is iteration 1 of a loop."""
    return tuple(_plan_entry(*name.partition("#")[::2]) for name in names)


def _plan_entry(name: str, iteration: str) -> PlanEntry:
    if not iteration:
        return PlanEntry(codon=a_codon(name), codon_id=CodonId(name))

    return PlanEntry(
        codon=a_codon(name),
        codon_id=iteration_id(name, int(iteration)),
        loop_context=LoopContext(loop_id="loop", iteration=int(iteration), codon_index_in_loop=0),
    )


def preparing(name: str = "observe", attempt: int = 1) -> PreparingCodon:
    entry = a_plan(name)[0]
    return PreparingCodon(
        codon_id=entry.codon_id,
        start_time=MOMENT,
        loop_context=entry.loop_context,
        attempt=attempt,
    )


def starting(name: str = "observe") -> StartingCodon:
    return lifecycle.start_agent(preparing(name))


def initializing(name: str = "observe") -> InitializingCodon:
    return lifecycle.await_session(
        starting(name), pid=4711, log_path="runs/x/observe-claude.log", previous_session_id=None
    )


def running(name: str = "observe") -> RunningCodon:
    return lifecycle.begin(initializing(name), session_id="session-uuid")


def completing(name: str = "observe") -> CompletingSentinelsCodon:
    return lifecycle.finish_sentinels(running(name))


def completed(name: str = "observe", number: int = 2) -> CompletedCodon:
    return lifecycle.complete(
        running(name), end_time=LATER, exit_code=0, result_received=True, checkpoint=sha(number)
    )


def failed(name: str = "observe", checkpoint: Sha | None = None) -> FailedCodon:
    return lifecycle.fail(
        running(name), end_time=LATER, exit_code=1, reason=TIMED_OUT, checkpoint=checkpoint
    )


def skipped(name: str = "observe", checkpoint: Sha | None = None) -> SkippedCodon:
    return lifecycle.skip(running(name), end_time=LATER, checkpoint=checkpoint)


EVERY_STATE: tuple[CodonExecution, ...] = (
    preparing(),
    starting(),
    initializing(),
    running(),
    completing(),
    completed(),
    failed(),
    skipped(),
)


def a_sentinel(cost: float = 0.0012, name: str = "narrator") -> SentinelState:
    return SentinelState(
        id=name,
        model="sonnet",
        loaded_at=MOMENT,
        llm_call_count=12,
        failed_llm_calls=0,
        total_triggers=15,
        total_cost=cost,
        status="active",
    )


def a_checkpoint(
    kind: CheckpointKind, run_id: RunId, codon_id: CodonId | None, number: int = 7
) -> CheckpointRecord:
    return CheckpointRecord(
        sha=sha(number),
        kind=kind,
        coordinate=Coordinate(
            checkpoint_sha=sha(number), event_seq=number, run_id=run_id, codon_id=codon_id
        ),
        codon_name="Observe",
        timestamp=MOMENT,
        operation_id=f"op-{number}",
    )


# --- histories ------------------------------------------------------------------------------------


def legal_moves(state: State, step: int) -> list[Transition]:
    """Return every change that can follow this state; `step` makes shas and run ids distinct."""
    moves: list[Transition] = [
        PlanSet(execution_plan=a_plan("observe", f"review#{step}")),
        InitialCheckpointSet(checkpoint_sha=sha(step)),
        RunStarted(run=a_run(f"run-{step}", after=state.runs[0].run_id if state.runs else None)),
    ]
    for run in state.runs[:2]:
        moves += _moves_of_run(run, step)

    return [*moves, *_journeys(state, step)]


def _journeys(state: State, step: int) -> Iterable[Transition]:
    yield _journey("back", state, step)
    if state.undo:
        yield _journey("undo", state, step)

    if state.redo:
        yield _journey("redo", state, step)

    yield EditsNoticed(edits={f"notes/{step % 3}.md": "" if step % 2 else f"{step:064x}"})
    if state.edits:
        yield EditsOvertaken(paths=(next(iter(state.edits)),))

    if state.notice is not None:
        yield AgentTold(operation_id=state.notice.operation_id)


def _journey(direction: Direction, state: State, step: int) -> TimeTravelled:
    """Return a rollback that removes the first edit, and restores those of the one it undoes."""
    there = Coordinate(checkpoint_sha=sha(step), event_seq=step, run_id=RunId(f"run-{step}"))
    undone = {"back": (), "undo": state.undo, "redo": state.redo}[direction]
    return TimeTravelled(
        direction=direction,
        travel=Travel(
            operation_id=f"op-{step}",
            safety=sha(step),
            source=there if step % 2 else None,
            in_place=step % 3 == 0,
            paths=("notes",) if step % 3 == 0 else None,
            edits=dict(list(state.edits.items())[:1]),
        ),
        restored_edits=undone[-1].edits if undone else {},
        notice=Notice(
            operation_id=f"op-{step}", direction=direction, target=there, timestamp=MOMENT
        ),
    )


def _moves_of_run(run: Run, step: int) -> Iterable[Transition]:
    run_id = run.run_id
    yield CheckpointCreated(checkpoint=a_checkpoint("manual", run_id, None, step))
    if run.status == "running":
        yield RunCompleted(run_id=run_id, end_time=LATER)
        yield RunFailed(run_id=run_id, end_time=LATER)
        yield RunCrashed(run_id=run_id, end_time=LATER, server_pid=run.server_pid)
    else:
        yield CurrentRunCleared(run_id=run_id)

    newest = run.codons[-1] if run.codons else None
    if newest is None or lifecycle.is_terminal(newest):
        for name in ("observe", "review#0"):
            attempt = 1 + sum(codon.codon_id == name for codon in run.codons)
            yield CodonStarted(run_id=run_id, codon=preparing(name, attempt))

    if newest is None:
        return

    kinds: tuple[CheckpointKind, ...] = ("rig-setup", "completed", "error", "skipped", "exit")
    for kind in kinds:
        yield CheckpointCreated(checkpoint=a_checkpoint(kind, run_id, newest.codon_id, step))

    if lifecycle.is_active(newest):
        for codon in successors(newest, step):
            yield CodonTransitioned(
                run_id=run_id, from_status=lifecycle.status_of(newest), codon=codon
            )

        yield from _counts(run_id, newest, step)


def _counts(run_id: RunId, codon: CodonExecution, step: int) -> Iterable[Transition]:
    codon_id = codon.codon_id
    if not isinstance(codon, PreparingCodon):
        sentinel = a_sentinel(step / 1000)
        yield SentinelStatesUpdated(
            run_id=run_id,
            codon_id=codon_id,
            sentinels=LoadedSentinels(loaded=(sentinel,), total_cost=sentinel.total_cost),
        )

    if isinstance(codon, WorkingCodon):
        yield CostsIncremented(
            run_id=run_id, codon_id=codon_id, cost=0.1, tokens=some_tokens(step), messages=1
        )
        yield CostsUpdated(
            run_id=run_id, codon_id=codon_id, cost=step / 10, tokens=some_tokens(step)
        )
        yield ExtensionCountUpdated(run_id=run_id, codon_id=codon_id, extension_count=step)


def successors(codon: CodonExecution, step: int = 5) -> list[CodonExecution]:
    """Return every record that may follow an active one, as the constructors make it."""
    active = lifecycle.active(codon)
    following: list[CodonExecution] = [
        lifecycle.fail(
            active, end_time=LATER, exit_code=-1, reason=TIMED_OUT, checkpoint=sha(step)
        ),
        lifecycle.fail(active, end_time=LATER, exit_code=1, reason=TIMED_OUT, checkpoint=None),
        lifecycle.skip(active, end_time=LATER, checkpoint=None),
    ]
    if isinstance(active, PreparingCodon):
        following.append(lifecycle.start_agent(active))
        following.append(
            lifecycle.complete_unstarted(
                active,
                end_time=LATER,
                checkpoint=sha(step),
                budget_exceeded=BudgetExceeded(currency="cost", limit=0.0, used=0.0),
            )
        )
    elif isinstance(active, StartingCodon):
        following.append(
            lifecycle.await_session(
                active, pid=step, log_path="runs/x.log", previous_session_id="before"
            )
        )
    elif isinstance(active, InitializingCodon):
        following.append(lifecycle.begin(active, session_id=f"session-{step}"))
    else:
        following.append(
            lifecycle.complete(
                active, end_time=LATER, exit_code=0, result_received=True, checkpoint=sha(step)
            )
        )
        if isinstance(active, RunningCodon):
            following.append(lifecycle.finish_sentinels(active))

    return following
