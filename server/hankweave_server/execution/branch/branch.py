"""Make a new execution from a checkpoint, so that a crash leaves either all of it or nothing.

    place      decide where the branch goes: refuse here
    intent     write `branch.intent` durably: what is being made, under which temporary name
    graft      copy the checkpoint and all its ancestors into a shadow repository of their own
    build      create work tree, data, history and state under the temporary name; then flush once
    publish    one rename: from here on the execution exists
    record     `execution.branched`, in the journal of the original
    forget     remove the intent

A directory under the temporary name is not an execution: its state is one level deeper than any
program looks. A start that finds an intent removes the directory, or, if the rename had happened,
records the branch (`recovered: true`). In the original only the journal and the intent are written.

Errors that keep a branch from being made become refusals for the client.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from errno import EDQUOT, EEXIST, ENOSPC, ENOTEMPTY
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol.attempts import Attempt
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import ExecutionBranched, ExecutionOrigin, Info
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import Sha, branch_of
from hankweave_protocol.records import BranchIntent, ExecutionMeta, Origin
from hankweave_protocol.replies import BranchMade
from hankweave_protocol.state import Continuation, Run
from hankweave_server import fsutil
from hankweave_server.checkpoints.clone import (
    ClonePlan,
    Interrupted,
    fill_work_tree,
)
from hankweave_server.checkpoints.errors import (
    CheckpointDamaged,
    CheckpointNotFound,
    RestoreIncomplete,
)
from hankweave_server.domain.attempts import attempt_hash, attempt_plan
from hankweave_server.domain.costs import run_cost
from hankweave_server.domain.execution_thread import newest_run
from hankweave_server.domain.inheritance import (
    NO_SERVER,
    Inheritance,
    continuation,
    inherited,
    inherited_coordinates,
)
from hankweave_server.domain.targets import RollbackTarget
from hankweave_server.execution.branch.location import (
    TEMPORARY,
    Draft,
    is_published,
    place_of,
    publish,
    remove_temporary,
)
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.resume import reentered_by
from hankweave_server.execution.rollback.unrestored import exceptions_of, in_one
from hankweave_server.git.errors import InsufficientSpace, free_bytes
from hankweave_server.hank.attempts import agent_of
from hankweave_server.ledger.batch import Entry
from hankweave_server.ledger.state_file import found_ledger
from hankweave_server.meter import Meter
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source


def refusal_of(error: BaseException, draft: Draft) -> Refused | None:
    """Return the refusal for an error that the caller or a person can do something about."""
    sha = draft.target.checkpoint.sha[:12]
    match error:
        case InsufficientSpace(need=0):
            return _no_space("The disk is full.")
        case InsufficientSpace(need=need, free=free):
            return _no_space(f"The branch needs {need} bytes, but only {free} are free.")
        case CheckpointNotFound():
            return Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                f"Checkpoint {sha} was pruned.",
                path="$.data.checkpointSha",
                hint=Hint.CHECKPOINTS,
            )
        case CheckpointDamaged(damages=damages):
            return Refused(
                ErrorCode.CHECKPOINT_DAMAGED,
                f"Checkpoint {sha} cannot be read: {error.damage}.",
                hint=f"First: {damages[0].kind} {damages[0].sha}. `hankweave fsck --repair` "
                "restores what can be found.",
            )
        case RestoreIncomplete(unrestored=unrestored):
            found = exceptions_of(unrestored)
            return _not_there(
                f"{draft.final} cannot store all files of the branch. {in_one(found, len(found))}"
            )
        case Interrupted():
            return Refused(ErrorCode.SHUTTING_DOWN, "The server is stopping.")
        case OSError(errno=number) if number in (ENOSPC, EDQUOT):
            return _no_space("The disk is full.")
        case OSError(errno=number) if number in (EEXIST, ENOTEMPTY):
            return _not_there(f"{draft.final} is no longer empty.")
        case OSError():
            return _not_there(f"{draft.final} cannot be created: {error.strerror}.")
        case _:
            return None


def _no_space(message: str) -> Refused:
    hint = "Free some space, or choose another path; the incomplete branch was removed."
    return Refused(ErrorCode.INSUFFICIENT_SPACE, message, path="$.data.path", hint=hint)


def _not_there(message: str) -> Refused:
    hint = "Choose another path; the incomplete branch was removed."
    return Refused(ErrorCode.INVALID_PATH, message, path="$.data.path", hint=hint)


PAGE = 1_000
"""Journal lines read at once."""
SPACE_RESERVE = 8 << 20


class Branching:
    """The maker of one execution's branches, one at a time."""

    def __init__(self, ctx: ExecutionContext, *, home: Callable[[], Path]) -> None:
        self._ctx = ctx
        self._home = home
        """Directory for a branch without a requested place; returns a name that does not exist."""
        self._alone = anyio.Lock()
        self._is_stopping = False

    def stop(self) -> None:
        """Make the branch in progress give up: the server ends."""
        self._is_stopping = True

    async def perform(
        self,
        target: RollbackTarget,
        path: str | None,
        causes: tuple[int | str, ...],
        attempt: Attempt | None = None,
    ) -> BranchMade:
        """Make a branch; raise Refused, and then nothing of it is left.

        With `attempt` it runs the plan as that says, whose codon must be in the branch's plan. The
        path is then one that this server has chosen, as it chooses one if there is none.
        """
        wanted, otherwise = path, self._home()
        if path is not None and attempt is not None:
            wanted, otherwise = None, Path(path)

        async with self._alone:
            await self._remove_leftovers()
            final = await anyio.to_thread.run_sync(place_of, wanted, otherwise, self._ctx.layout)
            draft = self._draft(target, final, attempt)
            try:
                with self._ctx.checkpointer.progress.watching("branch", causes) as meter:
                    await self._build(draft, meter)

                await anyio.to_thread.run_sync(publish, draft)
            except BaseException as error:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._abandon, draft.intent)

                if (refusal := refusal_of(error, draft)) is not None:
                    raise refusal from None

                raise

            await self._record_branch(draft.intent, causes, recovered=False)

        return BranchMade(execution_path=str(final), run_id=draft.run_id)

    async def finish_interrupted(self) -> bool:
        """Record or remove the branch that a crash cut short; return True if it was finished.

        Raises OSError or RecursionError, with the intent kept, if the rest cannot be removed, and
        Refused for an intent that cannot be read.
        """
        data = fsutil.content_of(self._ctx.layout.branch_intent)
        if data is None:
            return False

        intent = codec.decode_value(BranchIntent, data)
        if not await anyio.to_thread.run_sync(is_published, intent):
            await anyio.to_thread.run_sync(self._abandon, intent)
            return False

        await anyio.to_thread.run_sync(remove_temporary, intent)
        await self._record_branch(intent, (), recovered=True)
        return True

    async def recall_inheritance(self) -> None:
        """Take the coordinates of inherited checkpoints from our journal, if this is a branch.

        Their commits name events of the original's journal.
        """
        known = self._ctx.checkpointer.known
        found = await anyio.to_thread.run_sync(lambda: tuple(inherited_coordinates(self._lines())))
        for coordinate in found:
            if (record := known.get(coordinate.checkpoint_sha)) is not None:
                known[record.sha] = msgspec.structs.replace(record, coordinate=coordinate)

    async def copy_conversations(self) -> None:
        """Give this execution the conversations of the checkpoint that it was branched from.

        Done at each start until its first codon has begun, so that a crash does not matter. What
        could not be copied is recorded: such a conversation begins anew.
        """
        first = newest_run(self._ctx.state)
        if first is None or first.codons or first.server_pid != NO_SERVER:
            return

        conditions = first.starting_conditions
        assert isinstance(conditions, Continuation), "a branch continues from a checkpoint"
        begun_from = self._ctx.checkpointer.known.get(conditions.source.checkpoint_sha or Sha(""))
        if begun_from is None or begun_from.coordinate.memory_epoch == 0:
            return

        skipped = await self._ctx.checkpointer.copy_sessions(begun_from.coordinate.memory_epoch)
        for each in skipped:
            name = os.fsdecode(each.path)
            await self._ctx.ledger.record(
                Info(message=f"This branch has no copy of the conversation {name}: {each.reason}.")
            )

    def _lines(self) -> Iterator[bytes]:
        """Read the journal; only for worker threads."""
        for since in range(0, self._ctx.ledger.last_seq, PAGE):
            yield from self._ctx.ledger.read(since, PAGE)

    async def _remove_leftovers(self) -> None:
        """Remove what an earlier attempt left: the next intent would overwrite its intent."""
        try:
            await self.finish_interrupted()
        except (OSError, RecursionError) as error:
            raise Refused(
                ErrorCode.IO_ERROR,
                f"The remains of an earlier branch cannot be removed: {error}",
                hint=(
                    f"Remove the {TEMPORARY}* directory named in branch.intent, then "
                    "branch.intent itself."
                ),
            ) from None

    # --- steps ---------------------------------------------------------------------------------

    def _draft(self, target: RollbackTarget, final: Path, attempt: Attempt | None) -> Draft:
        run_id = self._ctx.new_run_id()
        intent = BranchIntent(
            temporary=str(final.parent / f"{TEMPORARY}{run_id}"),
            execution_path=str(final),
            run_id=run_id,
            coordinate=target.checkpoint.coordinate,
            started_at=self._ctx.now_text(),
        )
        return Draft(target, final, run_id, intent, attempt)

    async def _build(self, draft: Draft, meter: Meter) -> None:
        cloned = await self._ctx.checkpointer.clone(
            draft.target.checkpoint.sha,
            draft.layout,
            before_copy=partial(self._begin, draft),
            should_stop=lambda: self._is_stopping,
            meter=meter,
        )
        entries = self._inheritance(draft, cloned)
        await anyio.to_thread.run_sync(self._build_directory, draft, entries, meter)

    def _begin(self, draft: Draft, cloned: ClonePlan) -> None:
        """Check the space and write the intent, in the worker thread."""
        layout = self._ctx.layout
        need = cloned.bytes + data_source.size_of_copy(layout) + SPACE_RESERVE
        if (free := free_bytes(draft.final.parent)) < need:
            raise InsufficientSpace(need, free)

        fsutil.replace_durably(layout.branch_intent, codec.encode(draft.intent))
        fsutil.make_private_directory(draft.layout.checkpoints)

    def _inheritance(self, draft: Draft, cloned: ClonePlan) -> Inheritance:
        """Decide the branch's history and plan from the checkpoints that its commits include."""
        state, known = self._ctx.state, self._ctx.checkpointer.known
        history = {sha: record for sha, record in known.items() if sha in cloned.commits}
        run = self._first_run(draft)
        plan = reentered_by(run, state, self._ctx.recorded.hank)
        if draft.attempt is not None:
            plan = attempt_plan(plan, draft.attempt, agent_of(draft.attempt.variant))
            # The attempt is as it was given; journals and states have no secrets.
            plan = tuple(map(self._ctx.ledger.redactor.value, plan))

        return inherited(state, draft.target, history, plan, run)

    def _first_run(self, draft: Draft) -> Run:
        """Return the run with which the branch's first server continues; nothing runs it yet."""
        return Run(
            run_id=draft.run_id,
            run_folder=str(Layout.of_execution(draft.final).run_folder(draft.run_id)),
            git_branch=branch_of(draft.run_id),
            starting_conditions=continuation(draft.target),
            codons=(),
            status="running",
            start_time=draft.intent.started_at,
            server_pid=NO_SERVER,
        )

    def _build_directory(self, draft: Draft, inheritance: Inheritance, meter: Meter) -> None:
        """Build everything but the repository in a worker thread, and flush it."""
        original, layout = self._ctx.layout, draft.layout
        layout.work_tree.mkdir()
        fill_work_tree(draft.target.checkpoint.sha, layout, meter)
        data_source.inherit(original, layout)
        data_source.restore_link(layout, instants.epoch_ms(self._ctx.clock.now()))
        origin = ExecutionOrigin(
            execution_path=str(original.root),
            coordinate=draft.intent.coordinate,
            run_id=draft.run_id,
        )
        entries: list[Entry] = [origin, *inheritance.transitions(after_seq=1)]
        found_ledger(layout, entries, self._ctx.clock)
        data_source.write_meta(layout, self._meta(draft, inheritance))
        meter.begin("flushing", "files")
        fsutil.sync_filesystem(layout.root)

    def _meta(self, draft: Draft, inheritance: Inheritance) -> ExecutionMeta:
        """Return the original's metadata with the branch's own values.

        Its last use is the original's.
        """
        former = data_source.read_meta(self._ctx.layout)
        assert former is not None, "every start writes it"
        hank_hash, attempt = former.hank_hash, draft.attempt
        if attempt is not None and attempt.max_dollars is not None:
            inherited_cost = sum(map(run_cost, inheritance.past))
            most = inherited_cost + attempt.max_dollars
            attempt = msgspec.structs.replace(attempt, max_dollars=most)

        if attempt is not None and hank_hash is not None:
            hank_hash = attempt_hash(hank_hash, attempt)

        return msgspec.structs.replace(
            former,
            hank_hash=hank_hash,
            attempt=attempt,
            created_at=instants.to_text(self._ctx.clock.now()),
            in_place=False,
            origin=Origin(
                execution_path=str(self._ctx.layout.root), coordinate=draft.intent.coordinate
            ),
        )

    async def _record_branch(
        self, intent: BranchIntent, causes: tuple[int | str, ...], *, recovered: bool
    ) -> None:
        is_recorded = recovered and await anyio.to_thread.run_sync(self._is_recorded, intent)
        if not is_recorded:
            await self._ctx.ledger.record(
                ExecutionBranched(
                    execution_path=intent.execution_path,
                    run_id=intent.run_id,
                    coordinate=intent.coordinate,
                    recovered=recovered,
                ),
                run_id=intent.coordinate.run_id,
                codon_id=intent.coordinate.codon_id,
                causes=causes,
            )

        await anyio.to_thread.run_sync(fsutil.remove_durably, self._ctx.layout.branch_intent)

    def _is_recorded(self, intent: BranchIntent) -> bool:
        """Return whether the journal has the event.

        In events of this type, a run id appears only as the branch's.
        """
        marks = (f'"type":"{ExecutionBranched.TYPE}"'.encode(), intent.run_id.encode())
        return any(all(mark in line for mark in marks) for line in self._lines())

    def _abandon(self, intent: BranchIntent) -> None:
        """Remove what exists; a branch that has its final name is recorded later instead."""
        if is_published(intent):
            return

        remove_temporary(intent)
        fsutil.remove_durably(self._ctx.layout.branch_intent)
