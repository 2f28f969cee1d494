"""The commands of the protocol as methods, with the types of their replies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, TypeVar

from hankweave_protocol.commands import (
    CheckpointCreate,
    CheckpointDiff,
    CheckpointPin,
    CheckpointReadFile,
    CodonForceStop,
    CodonNext,
    CodonRedo,
    CodonSkip,
    CodonStart,
    CommandData,
    Comparison,
    EventsQuery,
    ExecutionBranch,
    GetServerStatus,
    GetState,
    HistorySync,
    ListCheckpoints,
    OnRunning,
    PermissionAnswer,
    Ping,
    PingBroadcast,
    ReplayView,
    RollbackPreview,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackToLastSuccess,
    RollbackUndo,
    ServerForceShutdown,
    ServerShutdown,
    StoreFsck,
    StoreGc,
)
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.queries import EventsPage, Moment, Order, Reduction, Where
from hankweave_protocol.records import (
    CheckpointKind,
    CheckpointRecord,
    CodonCheckpointType,
    RollbackReport,
)
from hankweave_protocol.replies import (
    BranchMade,
    CheckpointPage,
    DiffPage,
    FileRange,
    FsckReport,
    GcReport,
    PastView,
    ServerStatus,
)
from hankweave_protocol.state import State

T = TypeVar("T")


class Calls(ABC):
    """The commands of the protocol; each raises CommandRefused and ConnectionLost.

    With `expected_run_id` the server refuses the command (STALE_RUN) unless that run is current.
    """

    @abstractmethod
    async def send(self, command: CommandData) -> Any:
        """Send a command and return its reply's data, decoded."""

    @abstractmethod
    async def ask(self, command: CommandData, shape: type[T]) -> T:
        """Send a command and return its reply's data in the given shape."""

    async def start_codon(
        self,
        codon_id: CodonId,
        *,
        skip_pre_commands: bool = False,
        expected_run_id: RunId | None = None,
    ) -> None:
        await self.send(
            CodonStart(
                codon_id=codon_id,
                skip_pre_commands=skip_pre_commands,
                expected_run_id=expected_run_id,
            )
        )

    async def next_codon(self, *, expected_run_id: RunId | None = None) -> None:
        await self.send(CodonNext(expected_run_id=expected_run_id))

    async def skip_codon(self, *, expected_run_id: RunId | None = None) -> None:
        await self.send(CodonSkip(expected_run_id=expected_run_id))

    async def redo_codon(self, *, expected_run_id: RunId | None = None) -> None:
        await self.send(CodonRedo(expected_run_id=expected_run_id))

    async def force_stop_codon(
        self, reason: str | None = None, *, expected_run_id: RunId | None = None
    ) -> None:
        await self.send(CodonForceStop(reason=reason, expected_run_id=expected_run_id))

    async def answer_permission(
        self,
        request_id: str,
        decision: Literal["allow", "deny"],
        message: str | None = None,
        *,
        expected_run_id: RunId | None = None,
    ) -> None:
        """Allow or deny the call that an agent waits to make; `message` is for the agent."""
        await self.send(
            PermissionAnswer(
                request_id=request_id,
                decision=decision,
                message=message,
                expected_run_id=expected_run_id,
            )
        )

    async def create_checkpoint(
        self, label: str | None = None, *, expected_run_id: RunId | None = None
    ) -> CheckpointRecord:
        command = CheckpointCreate(label=label, expected_run_id=expected_run_id)
        return await self.ask(command, CheckpointRecord)

    async def list_checkpoints(
        self,
        *,
        run_id: RunId | None = None,
        kinds: tuple[CheckpointKind, ...] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> CheckpointPage:
        command = ListCheckpoints(run_id=run_id, kinds=kinds, limit=limit, cursor=cursor)
        return await self.ask(command, CheckpointPage)

    async def pin_checkpoint(
        self,
        checkpoint_sha: str,
        name: str | None = None,
        *,
        pinned: bool = True,
        expected_run_id: RunId | None = None,
    ) -> CheckpointRecord:
        """Keep a checkpoint permanently, or with `pinned` false stop keeping it."""
        command = CheckpointPin(
            checkpoint_sha=checkpoint_sha,
            name=name,
            pinned=pinned,
            expected_run_id=expected_run_id,
        )
        return await self.ask(command, CheckpointRecord)

    async def collect_garbage(
        self,
        *,
        dry_run: bool = False,
        max_age_seconds: int | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        kinds: tuple[CheckpointKind, ...] | None = None,
        expected_run_id: RunId | None = None,
    ) -> GcReport:
        """Prune checkpoints beyond the limits and pack the store; no limit prunes nothing."""
        command = StoreGc(
            dry_run=dry_run,
            max_age_seconds=max_age_seconds,
            max_count=max_count,
            max_bytes=max_bytes,
            kinds=kinds,
            expected_run_id=expected_run_id,
        )
        return await self.ask(command, GcReport)

    async def check_store(self, *, repair: bool = False, mirror: str | None = None) -> FsckReport:
        """Read every checkpoint down to each blob, after a repair if requested."""
        return await self.ask(StoreFsck(repair=repair, mirror=mirror), FsckReport)

    async def diff(
        self,
        from_sha: str,
        to_sha: str | None = None,
        *,
        paths: tuple[str, ...] | None = None,
        patch: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> DiffPage:
        """Compare two checkpoints, or without `to_sha` a checkpoint and the work tree."""
        command = CheckpointDiff(
            from_sha=from_sha, to_sha=to_sha, paths=paths, patch=patch, limit=limit, cursor=cursor
        )
        return await self.ask(command, DiffPage)

    async def read_file(
        self, checkpoint_sha: str, path: str, *, offset: int = 0, length: int | None = None
    ) -> FileRange:
        """Read a file of a checkpoint; more than MAX_RANGE bytes need a `length`."""
        command = CheckpointReadFile(
            checkpoint_sha=checkpoint_sha, path=path, offset=offset, length=length
        )
        return await self.ask(command, FileRange)

    async def replay(
        self,
        checkpoint_sha: str | None = None,
        *,
        seq: int | None = None,
        paths: tuple[str, ...] | None = None,
        compare: tuple[Comparison, ...] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> PastView:
        """Return the past at a checkpoint, or right after the event with a seq."""
        command = ReplayView(
            checkpoint_sha=checkpoint_sha,
            seq=seq,
            paths=paths,
            compare=compare,
            limit=limit,
            cursor=cursor,
        )
        return await self.ask(command, PastView)

    async def roll_back_to_checkpoint(
        self,
        checkpoint_sha: str,
        *,
        auto_restart: bool = False,
        on_running: OnRunning = "refuse",
        paths: tuple[str, ...] | None = None,
        keep_edits: bool = False,
        rewind_memory: bool = False,
        reason: str | None = None,
        expected_run_id: RunId | None = None,
    ) -> RollbackReport:
        command = RollbackToCheckpoint(
            checkpoint_sha=checkpoint_sha,
            auto_restart=auto_restart,
            on_running=on_running,
            paths=paths,
            keep_edits=keep_edits,
            rewind_memory=rewind_memory,
            reason=reason,
            expected_run_id=expected_run_id,
        )
        return await self.ask(command, RollbackReport)

    async def roll_back_to_codon(
        self,
        codon_id: CodonId,
        checkpoint_type: CodonCheckpointType,
        *,
        auto_restart: bool = False,
        on_running: OnRunning = "refuse",
        paths: tuple[str, ...] | None = None,
        keep_edits: bool = False,
        rewind_memory: bool = False,
        reason: str | None = None,
        expected_run_id: RunId | None = None,
    ) -> RollbackReport:
        command = RollbackToCodon(
            codon_id=codon_id,
            checkpoint_type=checkpoint_type,
            auto_restart=auto_restart,
            on_running=on_running,
            paths=paths,
            keep_edits=keep_edits,
            rewind_memory=rewind_memory,
            reason=reason,
            expected_run_id=expected_run_id,
        )
        return await self.ask(command, RollbackReport)

    async def roll_back_to_last_success(
        self,
        *,
        auto_restart: bool = False,
        on_running: OnRunning = "refuse",
        paths: tuple[str, ...] | None = None,
        keep_edits: bool = False,
        rewind_memory: bool = False,
        reason: str | None = None,
        expected_run_id: RunId | None = None,
    ) -> RollbackReport:
        command = RollbackToLastSuccess(
            auto_restart=auto_restart,
            on_running=on_running,
            paths=paths,
            keep_edits=keep_edits,
            rewind_memory=rewind_memory,
            reason=reason,
            expected_run_id=expected_run_id,
        )
        return await self.ask(command, RollbackReport)

    async def undo(
        self,
        *,
        on_running: OnRunning = "refuse",
        keep_edits: bool = False,
        reason: str | None = None,
        expected_run_id: RunId | None = None,
    ) -> RollbackReport:
        """Undo the last rollback: files, and the position in the plan."""
        command = RollbackUndo(
            on_running=on_running,
            keep_edits=keep_edits,
            reason=reason,
            expected_run_id=expected_run_id,
        )
        return await self.ask(command, RollbackReport)

    async def redo(
        self,
        *,
        on_running: OnRunning = "refuse",
        keep_edits: bool = False,
        reason: str | None = None,
        expected_run_id: RunId | None = None,
    ) -> RollbackReport:
        """Redo the rollback that was undone last."""
        command = RollbackRedo(
            on_running=on_running,
            keep_edits=keep_edits,
            reason=reason,
            expected_run_id=expected_run_id,
        )
        return await self.ask(command, RollbackReport)

    async def preview_rollback(
        self,
        *,
        checkpoint_sha: str | None = None,
        codon_id: CodonId | None = None,
        checkpoint_type: CodonCheckpointType | None = None,
        direction: Literal["undo", "redo"] | None = None,
        paths: tuple[str, ...] | None = None,
        keep_edits: bool = False,
        patch: bool = False,
    ) -> RollbackReport:
        """Return what a rollback would do; without a target, one to the last success.

        `direction` asks for what `undo` or `redo` would do, `patch` for unified diffs.
        """
        command = RollbackPreview(
            checkpoint_sha=checkpoint_sha,
            codon_id=codon_id,
            checkpoint_type=checkpoint_type,
            direction=direction,
            paths=paths,
            keep_edits=keep_edits,
            patch=patch,
        )
        return await self.ask(command, RollbackReport)

    async def branch(
        self, checkpoint_sha: str, *, path: str | None = None, expected_run_id: RunId | None = None
    ) -> BranchMade:
        """Create a new execution from a checkpoint; `path` is on the server's machine."""
        command = ExecutionBranch(
            checkpoint_sha=checkpoint_sha, path=path, expected_run_id=expected_run_id
        )
        return await self.ask(command, BranchMade)

    async def ping(self) -> None:
        """Return when the server has answered; its `pong` is among the events."""
        await self.send(Ping())

    async def ping_everybody(self) -> None:
        await self.send(PingBroadcast())

    async def sync_history(self, since_seq: int = 0) -> None:
        """Request the journal as `history.batch` events, which arrive before this returns."""
        await self.send(HistorySync(since_seq=since_seq))

    async def query_events(
        self,
        *,
        where: Where | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        caused_by: int | str | None = None,
        descendants_of: int | str | None = None,
        ancestors_of: int | None = None,
        select: tuple[str, ...] | None = None,
        order_by: Order | tuple[Order, ...] | None = None,
        reduce: Reduction | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> EventsPage:
        """Query the journal; a page with a cursor has a next one."""
        command = EventsQuery(
            where=where,
            since=since,
            until=until,
            caused_by=caused_by,
            descendants_of=descendants_of,
            ancestors_of=ancestors_of,
            select=select,
            order_by=order_by,
            reduce=reduce,
            limit=limit,
            cursor=cursor,
        )
        return await self.ask(command, EventsPage)

    async def state(self) -> State:
        return await self.ask(GetState(), State)

    async def status(self) -> ServerStatus:
        return await self.ask(GetServerStatus(), ServerStatus)

    async def shut_down(self, reason: str = "client request") -> None:
        await self.send(ServerShutdown(reason=reason))

    async def force_shut_down(self, reason: str = "client force request") -> None:
        """End the server at once; an answer may not arrive."""
        await self.send(ServerForceShutdown(reason=reason))
