"""Open and close runs, and build the `state.snapshot` event.

The snapshot has Hankweave's payload and our additions.
"""

from __future__ import annotations

import os
from itertools import islice

import msgspec

from hankweave_protocol.events import StateSnapshot
from hankweave_protocol.ids import CodonId, RunId, Sha, branch_of
from hankweave_protocol.state import (
    Continuation,
    FreshStart,
    PlanEntry,
    Run,
    StartingConditions,
    State,
)
from hankweave_protocol.transitions import (
    CurrentRunCleared,
    PlanSet,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from hankweave_server.domain.budget.report import is_budgeted, summary
from hankweave_server.domain.costs import total_cost
from hankweave_server.domain.execution_thread import (
    active_codon,
    is_done,
    newest_run,
    next_codon,
    open_run,
    plan_entry,
    rig_checkpoint,
    run_named,
    starting_at,
    starting_conditions,
    suspended_codon,
    thread,
    waiting_run,
)
from hankweave_server.domain.lifecycle import is_terminal
from hankweave_server.domain.plan import tracked_patterns
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.resume import reentered_by
from hankweave_server.ledger.batch import Entry


class Runs:
    """The runs of one execution."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx

    async def open_for(self, codon_id: CodonId, *, is_retry: bool) -> RunId:
        """Return the current run, or open one; a codon that a person has run again gets its own."""
        state = self._ctx.state
        current = open_run(state)
        entries = thread(state)
        again = bool(entries) and entries[-1].codon.codon_id == codon_id
        if current is not None and (is_retry or not (again and current.codons)):
            return current.run_id

        if (waiting := waiting_run(state)) is not None:
            # A rollback opened it, and its server ended before any codon began.
            run = msgspec.structs.replace(
                new_run(self._ctx, waiting.starting_conditions),
                run_id=waiting.run_id,
                run_folder=waiting.run_folder,
                git_branch=waiting.git_branch,
                reuse_after=waiting.reuse_after,
            )
        else:
            conditions = starting_conditions(state, codon_id, "retry" if again else "continue")
            if current is not None:
                await self.close()

            run, former = new_run(self._ctx, conditions), newest_run(state)
            if current is None and not again and former is not None:
                # Another server goes on with what the former one has begun.
                run = msgspec.structs.replace(run, reuse_after=former.reuse_after)

        await self._ctx.ledger.record(RunStarted(run=run), run_id=run.run_id)
        return run.run_id

    async def open_at(self, codon_id: CodonId, plan: tuple[PlanEntry, ...]) -> RunId:
        """Open a run that begins with any codon of a plan, on the present files.

        Run and plan are one batch of the journal: a plan laid out by another hank, over codons that
        ran under the former one, would continue wherever it contains one of their names. A
        checkpoint of the files is taken before: a crash takes them back to that and no further.
        """
        ctx = self._ctx
        tracked = (*ctx.patterns(), *tracked_patterns(plan, plan[-1].codon_id))
        await self.close()
        run = new_run(ctx, FreshStart())
        files = await ctx.checkpointer.take(
            "safety",
            run_id=run.run_id,
            codon=None,
            codon_name="Before beginning again",
            patterns=tracked,
            label=f"before beginning at {codon_id}",
        )
        conditions = starting_at(ctx.state, plan, codon_id, files.sha)
        run = msgspec.structs.replace(run, starting_conditions=conditions)
        planned = msgspec.structs.replace(ctx.state, execution_plan=plan)
        grown = reentered_by(run, planned, ctx.recorded.hank)
        plan = plan if plan_entry(grown, codon_id) is None else grown
        changed = () if plan == ctx.state.execution_plan else (PlanSet(execution_plan=plan),)
        await ctx.ledger.record(RunStarted(run=run), *changed, run_id=run.run_id)
        return run.run_id

    async def close(self, *, failed: bool = False) -> None:
        """Close the current run: failed if its newest codon failed for good, else completed.

        One whose codon waits for the end of a limit stays open, also when the server stops.
        """
        state = self._ctx.state
        run = open_run(state)
        if run is None or suspended_codon(state) is not None:
            return

        ctx = self._ctx
        end = closing(run, ctx.now_text(), state.execution_plan)
        if failed:
            end = RunFailed(run_id=run.run_id, end_time=ctx.now_text())

        entries: list[Entry] = [end]
        if is_budgeted(ctx.hank.hank, ctx.ceilings):
            entries.insert(0, summary(ctx.hank.hank, state, ctx.ceilings))

        await ctx.ledger.record(*entries, run_id=run.run_id)

    async def clear_current(self) -> None:
        """Leave no ended run current: its server stops, or died before doing this itself."""
        current = self._ctx.state.current_run_id
        if current is not None and open_run(self._ctx.state) is None:
            await self._ctx.ledger.record(CurrentRunCleared(run_id=current), run_id=current)

    def restored_rig(self, run_id: RunId, codon_id: CodonId) -> Sha | None:
        """Return the rig checkpoint that the work tree was restored to for this codon, if any."""
        state = self._ctx.state
        run = run_named(state, run_id)
        if run is None or run.codons or not isinstance(run.starting_conditions, Continuation):
            return None

        restored = run.starting_conditions.source.checkpoint_sha
        if restored is None or run.starting_conditions.reason != "rollback":
            return None

        owners = (codon for other in state.runs for codon in other.codons)
        matches = (c for c in owners if c.codon_id == codon_id and rig_checkpoint(c) == restored)
        return restored if next(matches, None) is not None else None


def new_run(ctx: ExecutionContext, conditions: StartingConditions) -> Run:
    run_id = ctx.new_run_id()
    return Run(
        run_id=run_id,
        run_folder=str(ctx.layout.run_folder(run_id)),
        git_branch=branch_of(run_id),
        starting_conditions=conditions,
        codons=(),
        status="running",
        start_time=ctx.now_text(),
        server_pid=os.getpid(),
    )


def closing(run: Run, end_time: str, plan: tuple[PlanEntry, ...]) -> RunCompleted | RunFailed:
    newest = run.codons[-1] if run.codons else None
    if newest is not None and is_terminal(newest) and not is_done(newest, plan):
        return RunFailed(run_id=run.run_id, end_time=end_time)

    return RunCompleted(run_id=run.run_id, end_time=end_time)


NEWEST = 100
"""Ended codons in a snapshot: each codon's end journals one, and a plan may have ten thousand."""


def snapshot_of(state: State, *, uptime_ms: int, is_rolling_back: bool) -> StateSnapshot:
    ended = (entry.codon for entry in reversed(thread(state)) if is_terminal(entry.codon))
    return StateSnapshot(
        completed_codons=tuple(islice(ended, NEWEST)),
        file_tree=(),
        total_cost=total_cost(state),
        total_time=uptime_ms,
        is_rolling_back=is_rolling_back,
        current_codon=active_codon(state),
        current_run_id=state.current_run_id,
        next_codon_id=next_codon(state),
        last_event_seq=state.last_event_seq,
    )
