"""From a command to what does it: one `match` over everything a client may ask.

What a command refuses it raises as `Refused`, before anything is touched. The caller's rights, the
command's shape and its idempotence are the transport's business; the order of what is written is
the ledger's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
    Ping,
    PingBroadcast,
    RollbackPreview,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackToLastSuccess,
    ServerForceShutdown,
    ServerShutdown,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import EventData, Pong
from hankweave_protocol.ids import ClientId, CommandId, RunId
from hankweave_server.commands.control import Control
from hankweave_server.commands.inspect import Inspect
from hankweave_server.commands.rollback import Rollbacks
from hankweave_server.execution.surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class Done:
    """What a command answers to its sender."""

    data: object = None
    """The reply's data; None where there is nothing to say but that it was done."""
    events: Iterable[EventData] = ()
    """Events for the sender alone; made as they are sent."""


@dataclass(frozen=True, slots=True)
class Sender:
    """What a command needs to know of who sent it."""

    client_id: ClientId
    wants_replies: bool


class Dispatch:
    """Does commands."""

    def __init__(
        self,
        around: Surroundings,
        *,
        control: Control,
        rollbacks: Rollbacks,
        inspect: Inspect,
        is_rolling_back: Callable[[], bool],
        broadcast: Callable[[EventData], None],
    ) -> None:
        self._around = around
        self._control = control
        self._rollbacks = rollbacks
        self._inspect = inspect
        self._is_rolling_back = is_rolling_back
        self._broadcast = broadcast

    async def handle(self, command: CommandData, command_id: CommandId, sender: Sender) -> Done:
        """Does one command; raises Refused for what cannot be done."""
        if self._is_rolling_back() and not command.DURING_ROLLBACK:
            raise Refused(
                ErrorCode.ROLLBACK_IN_PROGRESS,
                f"{command.TYPE} has to wait: a rollback is in progress.",
                hint="Wait for rollback.completed.",
            )

        self._expect_run(getattr(command, "expected_run_id", None))
        return await self._do(command, command_id, sender)

    def _expect_run(self, expected: RunId | None) -> None:
        """Refuses a command that was meant for a run which is not the current one any more."""
        current = self._around.state.current_run_id
        if expected is not None and expected != current:
            raise Refused(
                ErrorCode.STALE_RUN,
                f"The current run is {current or 'none'}, not {expected}.",
                path="$.data.expectedRunId",
                hint="Look at the state again before sending the command.",
            )

    async def _do(self, command: CommandData, command_id: CommandId, sender: Sender) -> Done:
        causes = (command_id,)
        match command:
            case CodonStart():
                self._control.start(command)
            case CodonNext():
                return Done({"codonId": self._control.next()})
            case CodonSkip():
                await self._control.skip()
            case CodonRedo():
                return Done({"codonId": self._control.redo()})
            case CodonForceStop():
                await self._control.force_stop(command)
            case CheckpointCreate():
                return Done(await self._control.checkpoint(command, causes))
            case RollbackToCheckpoint() | RollbackToCodon() | RollbackToLastSuccess():
                return Done(await self._rollbacks.perform(command, causes))
            case RollbackPreview():
                return Done(await self._rollbacks.preview(command))
            case ListCheckpoints():
                tell_all = not sender.wants_replies
                return Done(await self._inspect.checkpoints(command, tell_all=tell_all))
            case GetState():
                return Done(self._inspect.state())
            case GetServerStatus():
                return Done(await self._inspect.status())
            case HistorySync():
                return Done(events=self._inspect.history(command, sender.wants_replies))
            case Ping():
                return Done(events=(self._pong(None),))
            case PingBroadcast():
                self._broadcast(self._pong(sender.client_id))
            case ServerShutdown():
                self._control.shut_down(command.reason)
            case ServerForceShutdown():
                self._control.force_shut_down(command.reason)
            case _:
                # The registry is open to mypy; tests/server/commands check that none is missing.
                raise AssertionError(f"no room does {command.TYPE}")

        return Done()

    def _pong(self, client_id: ClientId | None) -> Pong:
        return Pong(message="pong", timestamp=self._around.now_text(), client_id=client_id)
