"""Every command as a method, with the type of its answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonForceStop,
    CodonNext,
    CodonRedo,
    CodonSkip,
    CodonStart,
    CommandData,
    GetServerStatus,
    GetState,
    HistorySync,
    ListCheckpoints,
    OnRunning,
    Ping,
    PingBroadcast,
    RollbackPreview,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackToLastSuccess,
    ServerForceShutdown,
    ServerShutdown,
)
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import (
    CheckpointKind,
    CheckpointRecord,
    CodonCheckpointType,
    RollbackReport,
)
from hankweave_protocol.replies import CheckpointPage, ServerStatus
from hankweave_protocol.state import State

T = TypeVar("T")


class Calls(ABC):
    """The commands of the protocol; each raises CommandRefused and ConnectionLost.

    `expected_run_id` refuses the command (STALE_RUN) unless that run is the current one.
    """

    @abstractmethod
    async def send(self, command: CommandData) -> Any:
        """Sends a command and returns its reply's data, decoded."""

    @abstractmethod
    async def ask(self, command: CommandData, shape: type[T]) -> T:
        """Sends a command and returns its reply's data in the given shape."""

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

    async def roll_back_to_checkpoint(
        self,
        checkpoint_sha: str,
        *,
        auto_restart: bool = False,
        on_running: OnRunning = "refuse",
        expected_run_id: RunId | None = None,
    ) -> RollbackReport:
        command = RollbackToCheckpoint(
            checkpoint_sha=checkpoint_sha,
            auto_restart=auto_restart,
            on_running=on_running,
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
        expected_run_id: RunId | None = None,
    ) -> RollbackReport:
        command = RollbackToCodon(
            codon_id=codon_id,
            checkpoint_type=checkpoint_type,
            auto_restart=auto_restart,
            on_running=on_running,
            expected_run_id=expected_run_id,
        )
        return await self.ask(command, RollbackReport)

    async def roll_back_to_last_success(
        self,
        *,
        auto_restart: bool = False,
        on_running: OnRunning = "refuse",
        expected_run_id: RunId | None = None,
    ) -> RollbackReport:
        command = RollbackToLastSuccess(
            auto_restart=auto_restart, on_running=on_running, expected_run_id=expected_run_id
        )
        return await self.ask(command, RollbackReport)

    async def preview_rollback(
        self,
        *,
        checkpoint_sha: str | None = None,
        codon_id: CodonId | None = None,
        checkpoint_type: CodonCheckpointType | None = None,
    ) -> RollbackReport:
        """Says what a rollback would do; without a target, one to the last success."""
        command = RollbackPreview(
            checkpoint_sha=checkpoint_sha, codon_id=codon_id, checkpoint_type=checkpoint_type
        )
        return await self.ask(command, RollbackReport)

    async def ping(self) -> None:
        """Returns when the server has answered; its `pong` stands among the events."""
        await self.send(Ping())

    async def ping_everybody(self) -> None:
        await self.send(PingBroadcast())

    async def sync_history(self, since_seq: int = 0) -> None:
        """Has the journal sent as `history.batch` events, before this returns."""
        await self.send(HistorySync(since_seq=since_seq))

    async def state(self) -> State:
        return await self.ask(GetState(), State)

    async def status(self) -> ServerStatus:
        return await self.ask(GetServerStatus(), ServerStatus)

    async def shut_down(self, reason: str = "client request") -> None:
        await self.send(ServerShutdown(reason=reason))

    async def force_shut_down(self, reason: str = "client force request") -> None:
        """Ends the server at once; an answer is not to be counted on."""
        await self.send(ServerForceShutdown(reason=reason))
