"""The commands of the protocol as methods, with the types of their replies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Literal, ParamSpec

from hankweave_protocol.commands import (
    MAX_RANGE,
    AnsweredCommand,
    BisectStart,
    BisectStop,
    CheckpointCreate,
    CheckpointDiff,
    CheckpointPin,
    CheckpointReadFile,
    CodonForceStop,
    CodonNext,
    CodonReadPrompt,
    CodonReadResult,
    CodonRedo,
    CodonSkip,
    CodonStart,
    CommandData,
    Comparison,
    EventsQuery,
    ExecutionBranch,
    ExecutionsList,
    FileBlame,
    FilePickaxe,
    FileWhy,
    GetExecutionAddress,
    GetServerStatus,
    GetState,
    HistorySync,
    ListCheckpoints,
    OnRunning,
    PermissionAnswer,
    Ping,
    PingBroadcast,
    R,
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
from hankweave_protocol.records import (
    CheckpointRecord,
    CodonCheckpointType,
    RollbackReport,
)
from hankweave_protocol.replies import (
    BranchMade,
    DiffPage,
    FileRange,
    PastView,
    PromptText,
    ToolOutput,
)

P = ParamSpec("P")


def _call(
    command: Callable[P, AnsweredCommand[R]],
) -> Callable[Concatenate[Calls, P], Coroutine[Any, Any, R]]:
    """Return a method with the fields of a command as parameters, and its reply as the result."""

    async def method(calls: Calls, /, *args: P.args, **fields: P.kwargs) -> R:
        return await calls.ask(command(*args, **fields))

    method.__doc__ = command.__doc__
    return method


class Calls(ABC):
    """The commands of the protocol; each raises CommandRefused and ConnectionLost.

    With `expected_run_id` the server refuses the command (STALE_RUN) unless that run is current.
    """

    @abstractmethod
    async def send(self, command: CommandData) -> Any:
        """Send a command and return its reply's data, decoded."""

    @abstractmethod
    async def ask(self, command: AnsweredCommand[R]) -> R:
        """Send a command and return its reply's data as a value of the command's reply type."""

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

    next_codon = _call(CodonNext)

    async def skip_codon(self, *, expected_run_id: RunId | None = None) -> None:
        await self.send(CodonSkip(expected_run_id=expected_run_id))

    redo_codon = _call(CodonRedo)

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
        always: str | None = None,
        expected_run_id: RunId | None = None,
    ) -> None:
        """Allow or deny the call that an agent waits to make; `message` is for the agent.

        `always` is a rule that allows further calls, too.
        """
        await self.send(
            PermissionAnswer(
                request_id=request_id,
                decision=decision,
                message=message,
                always=always,
                expected_run_id=expected_run_id,
            )
        )

    async def create_checkpoint(
        self, label: str | None = None, *, expected_run_id: RunId | None = None
    ) -> CheckpointRecord:
        command = CheckpointCreate(label=label, expected_run_id=expected_run_id)
        return await self.ask(command)

    list_checkpoints = _call(ListCheckpoints)

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
        return await self.ask(command)

    start_bisection = _call(BisectStart)

    async def stop_bisection(self) -> None:
        """End the search for the first failure."""
        await self.send(BisectStop())

    collect_garbage = _call(StoreGc)
    check_store = _call(StoreFsck)

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
        return await self.ask(command)

    async def read_file(
        self, checkpoint_sha: str, path: str, *, offset: int = 0, length: int | None = None
    ) -> FileRange:
        """Read a file of a checkpoint; more than MAX_RANGE bytes need a `length`."""
        command = CheckpointReadFile(
            checkpoint_sha=checkpoint_sha, path=path, offset=offset, length=length
        )
        return await self.ask(command)

    blame = _call(FileBlame)
    why = _call(FileWhy)
    pickaxe = _call(FilePickaxe)

    async def read_result(
        self, seq: int, *, offset: int = 0, length: int = MAX_RANGE
    ) -> ToolOutput:
        """Read the whole result that a `tool.result` event tells of, or a range of it."""
        return await self.ask(CodonReadResult(seq=seq, offset=offset, length=length))

    async def read_prompt(self, codon_id: CodonId | str) -> PromptText:
        """Read the prompt of an entry of the plan."""
        return await self.ask(CodonReadPrompt(codon_id=CodonId(codon_id)))

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
        return await self.ask(command)

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
        return await self.ask(command)

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
        reuse: bool = False,
        reason: str | None = None,
        expected_run_id: RunId | None = None,
    ) -> RollbackReport:
        command = RollbackToCodon(
            codon_id=codon_id,
            checkpoint_type=checkpoint_type,
            reuse=reuse,
            auto_restart=auto_restart,
            on_running=on_running,
            paths=paths,
            keep_edits=keep_edits,
            rewind_memory=rewind_memory,
            reason=reason,
            expected_run_id=expected_run_id,
        )
        return await self.ask(command)

    roll_back_to_last_success = _call(RollbackToLastSuccess)
    undo = _call(RollbackUndo)

    redo = _call(RollbackRedo)
    preview_rollback = _call(RollbackPreview)

    async def branch(
        self, checkpoint_sha: str, *, path: str | None = None, expected_run_id: RunId | None = None
    ) -> BranchMade:
        """Create a new execution from a checkpoint; `path` is on the server's machine."""
        command = ExecutionBranch(
            checkpoint_sha=checkpoint_sha, path=path, expected_run_id=expected_run_id
        )
        return await self.ask(command)

    async def ping(self) -> None:
        """Return when the server has answered; its `pong` is among the events."""
        await self.send(Ping())

    async def ping_everybody(self) -> None:
        await self.send(PingBroadcast())

    async def sync_history(self, since_seq: int = 0) -> None:
        """Request the journal as `history.batch` events, which arrive before this returns."""
        await self.send(HistorySync(since_seq=since_seq))

    query_events = _call(EventsQuery)
    state = _call(GetState)

    status = _call(GetServerStatus)
    list_executions = _call(ExecutionsList)
    execution_address = _call(GetExecutionAddress)

    async def shut_down(self, reason: str = "client request") -> None:
        await self.send(ServerShutdown(reason=reason))

    async def force_shut_down(self, reason: str = "client force request") -> None:
        """End the server at once; an answer may not arrive."""
        await self.send(ServerForceShutdown(reason=reason))
