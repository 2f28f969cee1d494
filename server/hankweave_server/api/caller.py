"""The client that sends a command, what an agent may send, and the answer to a command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hankweave_protocol.commands import CommandData, RollbackToCheckpoint
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import EventData
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import ClientId, CommandId
from hankweave_protocol.replies import AgentToolsGranted, Mode


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a command, as granted by the handshake."""

    client_id: ClientId
    mode: Mode
    """With `readonly`, its requests must not add events to the journal."""
    wants_replies: bool
    """True if the client sent `protocolVersion`."""
    is_agent: bool = False
    """True for an agent's own socket: only what `agentTools` allow is done."""


@dataclass(frozen=True, slots=True)
class Request:
    """A command's id and its sender."""

    command_id: CommandId
    caller: Caller

    @property
    def causes(self) -> tuple[int | str, ...]:
        """The causes of the events that the command leads to."""
        return (self.command_id,)


def refuse_agent(command: CommandData, granted: AgentToolsGranted) -> None:
    """Raise Refused unless the hank lets its agents send this command.

    A rollback is allowed only in the form that the tool `rollback_paths` sends: of named paths,
    under a paused agent, and without touching what people changed.
    """
    is_allowed = {
        "no": False,
        "tools": granted.enabled,
        "rollback": granted.enabled and granted.rollback_paths,
        "always": True,
    }
    if not is_allowed[command.AGENTS]:
        raise Refused(
            ErrorCode.INSUFFICIENT_PERMISSIONS,
            f"The agentTools of this hank do not allow {command.TYPE}.",
            path="$.type",
            hint="Continue without it, or ask the person who runs the hank.",
        )

    if isinstance(command, RollbackToCheckpoint):
        _refuse_wide(command)


def _refuse_wide(command: RollbackToCheckpoint) -> None:
    is_narrow = command.paths is not None and command.keep_edits and not command.auto_restart
    if not is_narrow or command.on_running != "pause" or command.rewind_memory:
        raise Refused(
            ErrorCode.INSUFFICIENT_PERMISSIONS,
            "An agent may roll back named paths only, and nothing that people changed.",
            path="$.data",
            hint=Hint.AGENT_ROLLBACK,
        )


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The result of a command for its caller."""

    data: object = None
    """The reply's data, anything msgspec can encode; None if there is nothing to report."""
    events: Iterable[EventData] = ()
    """Events for the caller alone, created and encoded as they are sent, before the reply."""
    history_since: int | None = None
    """Send the journal's events after this seq, before anything else."""
