"""Connect the tools of agents to the server of an execution.

Each call opens its own session. A restarted server is thus found without further effort, and no
events are sent between calls. A session outlives its connection: an agent that is paused during its
own call may lose the connection, and still gets the answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from mcp.server.mcpserver.exceptions import ToolError

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused, ConnectionLost, NotRunning, Unauthorized
from hankweave_client.reconnect import Backoff
from hankweave_protocol.commands import GetServerStatus
from hankweave_protocol.errors import reason_of
from hankweave_protocol.replies import AgentToolsGranted

NAME = "hankweave-mcp"
LONGEST_CODON = 100
"""Maximum characters of a codon's name in logs and labels."""

_BACKOFF = Backoff(longest=1.0, attempts=10)


class OpensSession(Protocol):
    """Open a session with the server, as `connect_to` and `connect_agent` do."""

    def __call__(self, *, reconnect: Backoff, name: str) -> AbstractAsyncContextManager[Client]: ...


class DaemonProxy:
    """Connections to the server, one per call; every failure is a ToolError with a code."""

    def __init__(self, connect: OpensSession, *, codon: str | None) -> None:
        """Connect on behalf of the agent of `codon`; None for an agent outside of a hank."""
        self._connect = connect
        self._codon = None if codon is None else one_line(codon, LONGEST_CODON)
        self._name = f"{NAME}:{self._codon}" if self._codon else NAME

    @property
    def caller(self) -> str:
        """The caller, as named in labels and reasons."""
        return f"agent of {self._codon}" if self._codon else "agent"

    async def granted(self) -> AgentToolsGranted:
        """Return which tools the server's hank allows; raise ToolError."""
        async with self._session() as client:
            return (await client.send(GetServerStatus())).agent_tools

    @asynccontextmanager
    async def asked(self, *, rollback: bool = False) -> AsyncIterator[Client]:
        """Open a session for one call; raise ToolError if the hank does not allow it."""
        async with self._session() as client:
            allowed = (await client.send(GetServerStatus())).agent_tools
            if not allowed.enabled:
                raise ToolError("NOT_ALLOWED: This hank does not give agents Hankweave's tools.")

            if rollback and not allowed.rollback_paths:
                raise ToolError(
                    "NOT_ALLOWED: This hank does not let agents roll back. "
                    "Hint: checkpoint_diff shows the earlier content; rewrite the file yourself."
                )

            yield client

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Client]:
        try:
            async with self._connect(reconnect=_BACKOFF, name=self._name) as client:
                yield client
        except CommandRefused as refused:
            hint = f" Hint: {refused.hint}" if refused.hint else ""
            raise ToolError(f"{refused.code}: {refused.message}{hint}") from None
        except (NotRunning, ConnectionRefusedError) as error:
            raise ToolError(
                f"NOT_RUNNING: {error} Nothing was done. "
                "Hint: the server may be restarting: try again in a few seconds; "
                "otherwise continue without these tools."
            ) from None
        except Unauthorized as error:
            raise ToolError(
                f"UNAUTHORIZED: {error} Hint: this user cannot read the server's token."
            ) from None
        except ConnectionLost as error:
            raise ToolError(
                f"CONNECTION_LOST: {error} The call may or may not have taken effect. "
                "Hint: checkpoint_list shows the current checkpoints."
            ) from None
        except (TimeoutError, OSError) as error:
            raise ToolError(
                f"UNAVAILABLE: The server does not answer: {reason_of(error)} "
                "Hint: it may be busy: try again in a few seconds; "
                "otherwise continue without these tools."
            ) from None


def one_line(text: str, longest: int) -> str:
    """Return text without line breaks and control characters, truncated to `longest`."""
    words = " ".join(text.split())
    shown = "".join(character for character in words if character.isprintable())
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"
