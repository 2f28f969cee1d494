"""Run explorations: several attempts from one checkpoint, each an execution of its own.

    record     `ExplorationSet`: the exploration with all its attempts, before anything is made
    place      choose the directory of an attempt, and record it
    branch     make the attempt's execution there: a branch with a variant
    start      start its server, a process that outlives this one; record that it runs
    wait       until the server has ended; one that was killed is started again
    import     take its checkpoints and its run over, as a timeline of this execution
    record     the result, with that timeline, in one batch of the journal

Each step is recorded before the next one begins and can be repeated, so a start of this server goes
on from the records: an attempt that is `waiting` is made, or found in its directory; one that is
`running` has a server that can be waited for, or is started again, or has ended and is imported.

To adopt an attempt is to roll back to its checkpoint: with the plan, the conversation, a safety
checkpoint and an undo, all of which a rollback has already. Which attempt is adopted is therefore
nowhere recorded, and is always true.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.attempts import Attempt, AttemptRecord, Exploration
from hankweave_protocol.commands import ExplorationStart
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import AttemptEnded, ErrorEvent, ExplorationEnded, ExplorationStarted
from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.instants import from_text, milliseconds_between
from hankweave_protocol.state import PlanEntry, Run, State
from hankweave_protocol.transitions import ExplorationSet, RunImported
from hankweave_server import fsutil
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.checkpoints.imports import ForeignCheckpoint
from hankweave_server.domain import plan as plans
from hankweave_server.domain import targets
from hankweave_server.domain.attempts import fault_of_score
from hankweave_server.domain.budget.allowance import capped
from hankweave_server.domain.budget.spending import counted, total
from hankweave_server.domain.costs import run_cost
from hankweave_server.domain.execution_thread import next_codon, plan_entry, thread
from hankweave_server.domain.inheritance import continuation
from hankweave_server.domain.targets import RollbackTarget
from hankweave_server.errors import Stop
from hankweave_server.execution.branch.branch import Branching
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.resume import reentered_by
from hankweave_server.execution.rollback.planner import RollbackRequest
from hankweave_server.execution.rollback.rollback import Rollback
from hankweave_server.execution.runner import Runner
from hankweave_server.execution.runs import new_run
from hankweave_server.features.exploration import child, explorations
from hankweave_server.features.exploration.adoption import adoption_reason, take_present
from hankweave_server.features.exploration.explorations import (
    adopted,
    as_timeline,
    beginning_of,
    completed_in,
    dollars_of_attempts,
    has_ended,
    next_attempts,
    own_runs,
    planned_attempts,
    score_in,
    share_of_next,
    with_attempt,
)
from hankweave_server.features.exploration.judge import judged, refuse_unknown
from hankweave_server.git.errors import (
    InsufficientSpace,
    ShadowRepositoryError,
    is_out_of_space,
    refusal_of,
)
from hankweave_server.hank.attempts import VariantInvalid, attempted
from hankweave_server.logs import logger
from hankweave_server.paths import Layout
from hankweave_server.worktree.data_source import read_meta
from hankweave_server.worktree.names import shown

log = logger(__name__)

replace = msgspec.structs.replace

MOST_STARTS = 4
"""How often the server of an attempt is started until it is given up."""

CLOSE_SECONDS = 2.0
"""Time for a result that is being imported when the server ends."""

Causes = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class ExplorationSettings:
    """The settings with which the attempts of an execution are started."""

    options: tuple[str, ...]
    """Options of `hankweave run` that their servers get, such as the agent of the command line."""
    home: Callable[[], Path]
    """Returns a directory that does not exist, for an attempt's execution."""


class Explorations:
    """The explorations of one execution."""

    def __init__(
        self,
        ctx: ExecutionContext,
        runner: Runner,
        branching: Branching,
        rollback: Rollback,
        settings: ExplorationSettings,
    ) -> None:
        self._ctx = ctx
        self._runner = runner
        self._branching = branching
        self._rollback = rollback
        self._settings = settings
        self._wake = anyio.Event()
        self._alone = anyio.Lock()
        """Held while an attempt's record changes, so that no change is lost."""
        self._removing = anyio.Lock()
        """Held while an attempt's server is started or its execution removed: one is over before
        the other begins."""
        self._keeping = anyio.Lock()
        """Held from the moment in which an exploration is kept as it was given until it is in the
        state, and while such files are removed."""
        self._servers: dict[str, int] = {}
        """The pids of the servers that this process has started and that have not ended, by
        attempt. A server that is starting does not have its lock yet."""
        self._supervised: set[str] = set()
        self._background = anyio.CancelScope()
        self._has_ended = anyio.Event()
        runner.when_explored(self.start_planned)

    # --- commands ------------------------------------------------------------------------------

    async def start(
        self, command: ExplorationStart, causes: Causes, *, planned: bool = False
    ) -> Exploration:
        """Record an exploration, to be run in the background; raise Refused."""
        if not self._ctx.has_hank:
            raise Refused(
                ErrorCode.NOTHING_TO_RUN,
                "There is no hank, so there is nothing to try.",
                hint="Serve the execution with a hank: `hankweave run HANK`.",
            )

        await self._refuse_unusable(command, planned=planned)
        most = self._budget(command.max_dollars)
        target = await self._target(command, causes)
        if command.codon_id is not None:
            target = self._beginning_with(command.codon_id, target)

        codon_id = self._first_codon(target)
        exploration_id = secrets.token_hex(3)
        attempts = planned_attempts(exploration_id, command.n, command.variants)
        exploration = Exploration(
            exploration_id=exploration_id,
            created_at=self._ctx.now_text(),
            checkpoint_sha=target.checkpoint.sha,
            codon_id=codon_id,
            attempts=attempts,
            rest=command.rest,
            score=command.score,
            judge=command.judge,
            parallel=min(command.parallel or len(attempts), len(attempts)),
            max_dollars=most,
            good_enough=command.good_enough,
            adopt=command.adopt,
            planned=planned,
        )
        self._refuse_invalid(exploration, len(command.variants))
        async with self._keeping:
            await anyio.to_thread.run_sync(self._keep_as_given, exploration)
            await self._ctx.ledger.record(
                ExplorationSet(exploration=exploration),
                ExplorationStarted(exploration=exploration),
                causes=causes,
            )

        self._wake.set()
        return exploration

    async def _refuse_unusable(self, command: ExplorationStart, *, planned: bool) -> None:
        """Refuse what would be found only when the attempts have been paid for."""
        fault = None if command.score is None else fault_of_score(command.score)
        if fault is not None:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                fault,
                path="$.data.score",
                hint="Put it into a script, and name that.",
            )

        # A plan goes on without its judge: the reason is recorded with the exploration.
        if command.judge is not None and not planned:
            await refuse_unknown(self._ctx, command.judge)

    def _budget(self, wanted: float | None) -> float | None:
        """Return the budget of an exploration: never more than the execution has left."""
        state, budget = self._ctx.state, capped(self._ctx.hank.hank, self._ctx.ceilings)
        if budget.max_dollars is None:
            return wanted

        spent = total(counted(state)).dollars + dollars_of_attempts(state)
        left = max(0.0, budget.max_dollars - spent)
        if left == 0.0:
            raise Refused(
                ErrorCode.NOTHING_TO_RUN,
                f"Nothing is left of the execution's budget of ${budget.max_dollars:g}.",
                hint="Serve it with a larger budget, or without one.",
            )

        return left if wanted is None else min(wanted, left)

    async def start_planned(self, entry: PlanEntry) -> None:
        """Explore a codon with `attempts`, or go on with that, instead of running it."""
        wanted = self._ctx.recorded.original(entry.codon).attempts
        assert wanted is not None, "the runner asks only for such codons"
        open_ones = (each for each in self._ctx.state.explorations if each.ended_at is None)
        if any(each.planned and each.codon_id == entry.codon_id for each in open_ones):
            return

        command = ExplorationStart(
            codon_id=entry.codon_id,
            n=wanted.n,
            variants=wanted.variants,
            score=wanted.score,
            judge=wanted.judge,
            parallel=wanted.parallel,
            max_dollars=wanted.max_dollars,
            good_enough=wanted.good_enough,
            adopt=wanted.adopt,
        )
        try:
            await self.start(command, (), planned=True)
        except (Refused, ShadowRepositoryError) as fault:
            await self._runner.fail(f"Codon {entry.codon_id} cannot be explored: {fault}")

    async def _target(self, command: ExplorationStart, causes: Causes) -> RollbackTarget:
        state, store = self._ctx.state, self._ctx.checkpointer
        if command.checkpoint_sha is not None:
            if command.codon_id is not None:
                raise Refused(
                    ErrorCode.INVALID_COMMAND,
                    "A codon and a checkpoint exclude each other.",
                    path="$.data.codonId",
                )

            prefix = command.checkpoint_sha
            return targets.of_prefix(state, store.known, prefix, store.missing, store.renamed)

        codon_id = command.codon_id
        if codon_id is not None and not self._comes_next(codon_id):
            sha = beginning_of(state, codon_id)
            if sha is None or sha not in store.known:
                ran = ", ".join(entry.codon.codon_id for entry in thread(state)) or "none"
                raise Refused(
                    ErrorCode.UNKNOWN_CODON,
                    f"Codon {codon_id} has not run, or its beginning was not kept.",
                    path="$.data.codonId",
                    hint=f"Codons that have run: {ran}.",
                )

            return targets.target_of(state, store.known, sha)

        return await self._present(causes)

    def _comes_next(self, codon_id: CodonId) -> bool:
        """Return whether the plan stands before a codon."""
        return not self._runner.is_busy and next_codon(self._ctx.state) == codon_id

    async def _present(self, causes: Causes) -> RollbackTarget:
        """Take a checkpoint of the present files and return it as the target."""
        self._runner.refuse_while_running()
        record = await take_present(self._ctx, "before exploring", causes)
        return targets.target_of(self._ctx.state, self._ctx.checkpointer.known, record.sha)

    def _beginning_with(self, codon_id: CodonId, target: RollbackTarget) -> RollbackTarget:
        """Return the target as one from which work continues with a codon of the plan.

        What follows a rollback to the same checkpoint may be another one: the codon before it, if
        its failure was ignored, or one of the thread on which the execution is by now.
        """
        following = self._following(target)
        if following is not None and following.codon_id == codon_id:
            return target

        names = [entry.codon_id for entry in self._ctx.state.execution_plan]
        if codon_id not in names:
            return target

        place = names.index(codon_id)
        return dataclasses.replace(target, after_codon=names[place - 1] if place else None)

    def _following(self, target: RollbackTarget) -> PlanEntry | None:
        """Return the entry of the plan with which a branch from the target continues."""
        state, hank = self._ctx.state, self._ctx.recorded.hank
        plan = reentered_by(new_run(self._ctx, continuation(target)), state, hank)
        after = target.after_codon
        return next(iter(plan), None) if after is None else plans.after(plan, after)

    def _first_codon(self, target: RollbackTarget) -> CodonId:
        """Return the codon with which a branch from the target continues; raise Refused."""
        entry = self._following(target)
        if entry is None:
            ran = ", ".join(each.codon.codon_id for each in thread(self._ctx.state)) or "none"
            raise Refused(
                ErrorCode.NOTHING_TO_RUN,
                "No codon follows that checkpoint.",
                path="$.data.checkpointSha",
                hint=f"Begin at an earlier checkpoint, or at a codon that has run: {ran}.",
            )

        return entry.codon_id

    def _refuse_invalid(self, exploration: Exploration, variants: int) -> None:
        for index, each in enumerate(exploration.attempts):
            try:
                attempted(self._ctx.hank, self._attempt(exploration, each))
            except VariantInvalid as fault:
                place = f"$.data.variants[{index % variants}]" if variants else "$.data"
                name = each.variant.name or f"{index % variants + 1}" if variants else None
                message = f"Variant {name}: {fault}" if name is not None else str(fault)
                raise Refused(ErrorCode.INVALID_COMMAND, message, path=place) from None

    # --- explorations as they were given -------------------------------------------------------

    def _keep_as_given(self, exploration: Exploration) -> None:
        """Keep, durably, an exploration of which the journal will not have everything.

        Agents get prompts, variables and commands unchanged. Attempts are made later, perhaps by
        another server, and not from the text in which markers have taken the place of secrets.
        Raises Refused if that is not possible.
        """
        if self._ctx.ledger.redactor.value(exploration) == exploration:
            return

        path = self._given_path(exploration.exploration_id)
        try:
            fsutil.make_private_directory(path.parent)
            fsutil.replace_durably(path, codec.encode(exploration))
        except OSError as error:
            is_full = error.errno in (ENOSPC, EDQUOT)
            raise Refused(
                ErrorCode.INSUFFICIENT_SPACE if is_full else ErrorCode.INVALID_PATH,
                f"{path} cannot be written: {error.strerror}.",
                hint="Nothing was started. Free some space, or make the folder writable.",
            ) from None

    def _as_given(self, exploration: Exploration, attempt_id: str) -> Attempt:
        """Return an attempt with what it was given; raise Refused, OSError or MsgspecError."""
        record = _record_in(exploration, attempt_id)
        try:
            content = self._given_path(exploration.exploration_id).read_bytes()
        except FileNotFoundError:
            return self._attempt(exploration, record)

        given = codec.decode_value(Exploration, content)
        # A name is for people, and in no way part of the work.
        variant = replace(_record_in(given, attempt_id).variant, name=record.variant.name)
        return self._attempt(given, replace(record, variant=variant))

    async def _forget_ended(self) -> None:
        """Remove what was kept of explorations of which no attempt is made any more."""
        async with self._keeping:
            running = (each for each in self._ctx.state.explorations if each.ended_at is None)
            kept = {self._given_path(each.exploration_id) for each in running}
            try:
                await anyio.to_thread.run_sync(_remove_files, self._ctx.layout.explorations, kept)
            except OSError as error:
                message = f"The texts of an ended exploration were not removed: {error}"
                await self._ctx.ledger.record(ErrorEvent(message=message, fatal=False))

    def _given_path(self, exploration_id: str) -> Path:
        return self._ctx.layout.explorations / f"{exploration_id}.json"

    def _attempt(self, exploration: Exploration, record: AttemptRecord) -> Attempt:
        share = record.max_dollars
        if share is None and exploration.max_dollars is not None:
            # It is not started yet, or an earlier version has started it.
            share = exploration.max_dollars / len(exploration.attempts)

        return Attempt(
            exploration_id=exploration.exploration_id,
            attempt_id=record.attempt_id,
            codon_id=exploration.codon_id,
            variant=record.variant,
            rest=exploration.rest,
            score=exploration.score,
            max_dollars=share,
        )

    async def discard(
        self, exploration_id: str, attempt_id: str | None, causes: Causes
    ) -> Exploration:
        """End attempts and remove their executions; raise Refused for unknown ones."""
        exploration = explorations.exploration_named(self._ctx.state, exploration_id)
        chosen = [each for each in exploration.attempts if attempt_id in (None, each.attempt_id)]
        if not chosen:
            explorations.attempt_named(self._ctx.state, attempt_id or "", "$.data.attemptId")

        for each in chosen:
            if each.status != "discarded":
                await self._change(exploration_id, each.attempt_id, causes, status="discarded")

        left: list[str] = []
        for each in chosen:
            try:
                await self._remove(exploration_id, each.attempt_id)
            except OSError as error:
                left.append(f"{each.attempt_id} ({error})")

        self._wake.set()
        if left:
            raise Refused(
                ErrorCode.INVALID_PATH,
                f"Discarded, but the execution was not removed of: {', '.join(left)}.",
                path="$.data.explorationId",
                hint="No attempt is running. Mend what is named and discard again; the next start "
                "of the server tries it, too.",
            )

        return explorations.exploration_named(self._ctx.state, exploration_id)

    async def _remove(self, exploration_id: str, attempt_id: str) -> None:
        """End the server of a discarded attempt and remove its execution, if there is one.

        Raises OSError if that is not possible; no server runs then.
        """
        async with self._removing:
            record = self._record(exploration_id, attempt_id)
            if record.execution_path is None:
                return

            attempt = self._attempt(self._exploration(exploration_id), record)
            # Opened here, because a pid leaves `_servers` in the moment in which it is free for
            # another process: in the thread, it might already be that of another one.
            started = self._servers.get(attempt_id)
            server = None if started is None else os.pidfd_open(started)
            # At the end of this server, the process that removes it goes on by itself.
            work = partial(_removed, Path(record.execution_path), attempt, server)
            await anyio.to_thread.run_sync(work, abandon_on_cancel=True)

    # --- background ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Run attempts until closed or cancelled; their servers go on by themselves then."""
        try:
            with self._background:
                await self._remove_discarded()
                await self._forget_ended()
                async with anyio.create_task_group() as tasks:
                    await self._run(tasks)
        finally:
            self._has_ended.set()

    async def _run(self, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            for exploration in self._ctx.state.explorations:
                if exploration.ended_at is None:
                    await self._advance(exploration.exploration_id, tasks)

            await self._wake.wait()
            self._wake = anyio.Event()

    async def close(self) -> None:
        """End the background work of `run`; the next start continues it.

        Nothing is recorded after that. The removal of an attempt is not waited for.
        """
        self._background.cancel()
        with anyio.move_on_after(CLOSE_SECONDS):
            await self._has_ended.wait()

    async def _remove_discarded(self) -> None:
        """Remove the executions of discarded attempts that an earlier server did not remove."""
        for exploration in self._ctx.state.explorations:
            for each in exploration.attempts:
                if each.status == "discarded":
                    try:
                        await self._remove(exploration.exploration_id, each.attempt_id)
                    except OSError as error:
                        message = f"Attempt {each.attempt_id} was not removed: {error}"
                        await self._ctx.ledger.record(ErrorEvent(message=message, fatal=False))

    async def _advance(self, exploration_id: str, tasks: anyio.abc.TaskGroup) -> None:
        """Supervise what runs, start what may, and end what has ended."""
        exploration = self._exploration(exploration_id)
        running = [each for each in exploration.attempts if each.status == "running"]
        for each in (*running, *next_attempts(exploration)):
            if each.attempt_id not in self._supervised:
                self._supervised.add(each.attempt_id)
                if each.status == "waiting":
                    share = share_of_next(self._exploration(exploration_id))
                    await self._change(
                        exploration_id, each.attempt_id, status="running", max_dollars=share
                    )

                tasks.start_soon(self._supervise, exploration_id, each.attempt_id)

        exploration = self._exploration(exploration_id)
        if has_ended(exploration):
            await self._end(exploration)

    async def _end(self, exploration: Exploration) -> None:
        if exploration.judge is not None and exploration.judgement is None:
            exploration = replace(exploration, judgement=await judged(self._ctx, exploration))
            await self._ctx.ledger.record(ExplorationSet(exploration=exploration))

        best = exploration.best
        if exploration.adopt == "best" and best is not None:
            await self._adopt(exploration, best)

        await self._record_end(exploration, best)
        if exploration.planned and self._comes_next(exploration.codon_id):
            name = exploration.codon_id
            choose = f"Codon {name} was explored: adopt one of its attempts, then continue."
            is_any_done = any(each.status == "completed" for each in exploration.attempts)
            lacks = "has a score" if is_any_done else "succeeded"
            await self._runner.fail(choose if best else f"No attempt of codon {name} {lacks}.")

    async def _record_end(self, exploration: Exploration, best: AttemptRecord | None) -> None:
        ended = replace(exploration, ended_at=self._ctx.now_text())
        await self._ctx.ledger.record(
            ExplorationSet(exploration=ended),
            ExplorationEnded(
                exploration_id=ended.exploration_id,
                best=None if best is None else best.attempt_id,
            ),
        )
        await self._forget_ended()

    async def _adopt(self, exploration: Exploration, best: AttemptRecord) -> None:
        """Adopt the best attempt, unless the execution is at work; then it waits for a person."""
        state, sha = self._ctx.state, best.checkpoint_sha
        assert sha is not None, "a completed attempt has a checkpoint"
        if adopted(state, exploration) is not None or self._runner.is_busy:
            return

        if exploration.planned and not self._comes_next(exploration.codon_id):
            return

        checkpointer = self._ctx.checkpointer
        try:
            changed = await checkpointer.call(
                lambda engine: engine.diff(exploration.checkpoint_sha, sha)
            )
            request = RollbackRequest(
                targets.target_of(state, checkpointer.known, sha),
                rewind_memory=True,
                reason=adoption_reason(best),
                auto_restart=exploration.planned and self._runner.continues,
                is_automatic=True,
                contenders=frozenset(shown(each.path) for each in changed),
            )
            await self._rollback.perform(request)
        except (Refused, CheckpointDamaged, CheckpointNotFound) as fault:
            why = fault.message if isinstance(fault, Refused) else str(fault)
            await self._report_not_adopted(best, why)
        except (OSError, InsufficientSpace, ShadowRepositoryError) as fault:
            refusal = refusal_of(fault, self._ctx.layout.root)
            await self._report_not_adopted(best, f"{refusal.message} {refusal.hint or ''}".rstrip())

    async def _report_not_adopted(self, attempt: AttemptRecord, why: str) -> None:
        done = "adopted only in part" if self._ctx.guard.is_half_restored else "not adopted"
        message = f"Attempt {attempt.attempt_id} was {done}: {why}"
        await self._ctx.ledger.record(ErrorEvent(message=message, fatal=False))

    async def _supervise(self, exploration_id: str, attempt_id: str) -> None:
        """Bring one attempt to its end, and record the result."""
        try:
            await self._conclude_attempt(exploration_id, attempt_id)
        except (Refused, OSError, msgspec.MsgspecError, ShadowRepositoryError) as error:
            log.warning("Attempt %s failed: %s", attempt_id, error)
            await self._finish(exploration_id, attempt_id, status="failed", message=str(error))
        except (CheckpointDamaged, CheckpointNotFound) as error:
            message = f"Its result cannot be read: {error}"
            await self._finish(exploration_id, attempt_id, status="failed", message=message)
        finally:
            self._supervised.discard(attempt_id)
            self._wake.set()

    async def _conclude_attempt(self, exploration_id: str, attempt_id: str) -> None:
        if self._record(exploration_id, attempt_id).status == "discarded":
            return

        if self._record(exploration_id, attempt_id).max_dollars == 0.0:
            message = "Nothing was left of the exploration's budget."
            await self._finish(
                exploration_id, attempt_id, status="failed", message=message, duration_ms=0
            )
            return

        layout = await self._made(exploration_id, attempt_id)
        for _ in range(MOST_STARTS):
            if self._record(exploration_id, attempt_id).status == "discarded":
                # It was discarded while it was made or started.
                await self._remove(exploration_id, attempt_id)
                return

            pid = await anyio.to_thread.run_sync(child.server_of, layout)
            if pid is None:
                result = await anyio.to_thread.run_sync(child.result_of, layout)
                if result.is_over:
                    break

                pid = await self._started(exploration_id, attempt_id, layout)
                if pid is None:
                    continue

            exit_code = await child.ended(pid)
            self._servers.pop(attempt_id, None)
            if child.is_refusal(exit_code):
                why = await anyio.to_thread.run_sync(_why_not_started, layout)
                await self._finish(exploration_id, attempt_id, status="failed", message=why)
                return

        result = await anyio.to_thread.run_sync(child.result_of, layout)
        if not result.is_over:
            message = f"Its server ended {MOST_STARTS} times before its codons were done."
            error = await anyio.to_thread.run_sync(child.last_error, layout)
            if error is not None:
                message = f"{message} The last time: {error}"

            runs = own_runs(result.state, self._ctx.state)
            await self._finish(
                exploration_id,
                attempt_id,
                status="failed",
                message=message,
                cost=sum(map(run_cost, runs)),
                duration_ms=_milliseconds_of(runs),
            )
        else:
            await self._import(exploration_id, attempt_id, layout, result)

    async def _started(self, exploration_id: str, attempt_id: str, layout: Layout) -> int | None:
        """Start the server of an attempt and return its pid; None if it is discarded by now."""
        async with self._removing:
            if self._record(exploration_id, attempt_id).status == "discarded":
                return None

            options = self._settings.options
            pid = await anyio.to_thread.run_sync(child.start_server, layout, options)
            self._servers[attempt_id] = pid
            return pid

    async def _made(self, exploration_id: str, attempt_id: str) -> Layout:
        """Return the execution of an attempt; make it if it does not exist."""
        exploration = self._exploration(exploration_id)
        record = self._record(exploration_id, attempt_id)
        if record.execution_path is None:
            record = await self._change(
                exploration_id, attempt_id, execution_path=str(self._settings.home())
            )

        assert record.execution_path is not None
        layout = Layout.of_execution(Path(record.execution_path))
        attempt = await anyio.to_thread.run_sync(self._as_given, exploration, attempt_id)
        if not await anyio.to_thread.run_sync(_is_made, layout, attempt):
            sha = exploration.checkpoint_sha
            if sha not in self._ctx.checkpointer.known:
                raise CheckpointNotFound(sha)

            target = targets.target_of(self._ctx.state, self._ctx.checkpointer.known, sha)
            target = self._beginning_with(exploration.codon_id, target)
            made = await self._branching.perform(target, record.execution_path, (), attempt)
            await self._change(exploration_id, attempt_id, run_id=made.run_id)

        return layout

    # --- results -------------------------------------------------------------------------------

    async def _import(
        self, exploration_id: str, attempt_id: str, layout: Layout, result: child.AttemptResult
    ) -> None:
        """Take over the runs of an attempt, and record its result with them."""
        exploration = self._exploration(exploration_id)
        shas: dict[Sha, Sha] = {sha: sha for sha in self._ctx.checkpointer.known}
        parent = exploration.checkpoint_sha
        runs = own_runs(result.state, self._ctx.state)
        for run in runs:
            for codon in completed_in(run):
                adopt = partial(
                    self._ctx.checkpointer.adopt_foreign,
                    ForeignCheckpoint(layout.shadow_repository, codon.completion_checkpoint),
                    parent,
                    run_id=run.run_id,
                    codon=codon,
                    codon_name=_name_of(result.state, codon.codon_id),
                    label=f"attempt {attempt_id}",
                )
                # What an attempt has cost is not lost because the disk is full.
                space = self._ctx.ledger.space
                record = await space.retry(adopt, is_short=is_out_of_space)
                shas[codon.completion_checkpoint] = parent = record.sha

        timelines = [as_timeline(run, shas) for run in runs]
        imported = [RunImported(run=run) for run in timelines if run.codons]
        ran = {
            # The run that has the result: one with the score command alone is not recorded.
            "run_id": imported[-1].run.run_id if imported else None,
            "earlier_runs": tuple(each.run.run_id for each in imported[:-1]),
            "cost": sum(map(run_cost, runs)),
            "duration_ms": _milliseconds_of(runs),
        }
        if result.failure is not None:
            why = result.failure
            await self._finish(
                exploration_id, attempt_id, *imported, status="failed", message=why, **ran
            )
            return

        files = await self._ctx.checkpointer.call(
            lambda engine: engine.diff(exploration.checkpoint_sha, parent)
        )
        score = None if result.score_output is None else score_in(result.score_output)
        message = result.score_error
        if exploration.score is not None and score is None and message is None:
            message = "The last line of the score command's output is not a number."

        await self._finish(
            exploration_id,
            attempt_id,
            *imported,
            status="completed",
            checkpoint_sha=parent,
            score=score,
            message=message,
            **ran,
            files=len(files),
            added=sum(each.added for each in files),
            removed=sum(each.removed for each in files),
        )

    async def _finish(
        self, exploration_id: str, attempt_id: str, *imported: RunImported, **values: object
    ) -> None:
        """Record how an attempt has ended, unless it was discarded meanwhile."""
        async with self._alone:
            former = self._record(exploration_id, attempt_id)
            if former.status == "discarded":
                return

            record = replace(former, **values)
            exploration = with_attempt(self._exploration(exploration_id), record)
            await self._ctx.ledger.record(
                *imported,
                ExplorationSet(exploration=exploration),
                AttemptEnded(exploration_id=exploration_id, attempt=record),
            )

    async def _change(
        self, exploration_id: str, attempt_id: str, causes: Causes = (), **values: object
    ) -> AttemptRecord:
        """Change the record of an attempt, durably."""
        async with self._alone:
            record = replace(self._record(exploration_id, attempt_id), **values)
            exploration = with_attempt(self._exploration(exploration_id), record)
            await self._ctx.ledger.record(ExplorationSet(exploration=exploration), causes=causes)
            return record

    def _exploration(self, exploration_id: str) -> Exploration:
        return explorations.exploration_named(self._ctx.state, exploration_id)

    def _record(self, exploration_id: str, attempt_id: str) -> AttemptRecord:
        return _record_in(self._exploration(exploration_id), attempt_id)


def _record_in(exploration: Exploration, attempt_id: str) -> AttemptRecord:
    return next(each for each in exploration.attempts if each.attempt_id == attempt_id)


def _remove_files(folder: Path, kept: Collection[Path]) -> None:
    for path in folder.glob("*.json"):
        if path not in kept:
            fsutil.remove_durably(path)


def _why_not_started(layout: Layout) -> str:
    reason = child.last_error(layout)
    ended = "." if reason is None else f": {reason}"
    return f"Its server could not start{ended} Its output is in {child.output_of(layout)}."


def _milliseconds_of(runs: Sequence[Run]) -> int:
    """Return the duration of runs that have ended, one after the other."""
    ended = ((from_text(run.start_time), run.end_time) for run in runs)
    spans = (milliseconds_between(begun, from_text(end)) for begun, end in ended if end)
    return max(0, round(sum(spans)))


def _is_made(layout: Layout, attempt: Attempt) -> bool:
    """Return whether the directory is the execution of this attempt; raise OSError for damage.

    Damage ends one attempt, and not its parent.
    """
    try:
        meta = read_meta(layout)
    except Stop as damaged:
        raise OSError(damaged.message) from None

    return (
        meta is not None
        and meta.attempt is not None
        and (meta.attempt.attempt_id == attempt.attempt_id)
    )


def _name_of(state: State, codon_id: CodonId) -> str:
    entry = plan_entry(state.execution_plan, codon_id)
    return codon_id if entry is None else entry.codon.name


def _removed(execution: Path, attempt: Attempt, server: int | None) -> None:
    """End the server of an attempt and remove its execution, as `hankweave cleanup` does.

    `server` is a pidfd of the server that this process has started, if any; it is closed here. A
    directory that is not this attempt's stays as it is, unless it is empty: a removal that was
    killed at its last step leaves it so. Raises OSError.
    """
    try:
        _remove_made(execution, attempt, server)
    finally:
        if server is not None:
            os.close(server)


def _remove_made(execution: Path, attempt: Attempt, server: int | None) -> None:
    layout = Layout.of_execution(execution)
    is_half_removed = layout.removed_state.exists()
    if not (is_half_removed or _is_made(layout, attempt)):
        with contextlib.suppress(OSError):
            execution.rmdir()

        return

    if server is not None:
        child.end_process(server)

    for is_last in (False, False, True):
        pid = child.server_of(layout)
        if pid is not None:
            child.end_server(pid)

        try:
            child.remove_execution(execution)
        except OSError:
            # A former process of this server may have started one that has its lock only now.
            if is_last or child.server_of(layout) is None:
                raise
        else:
            return
