"""Serve a Unix socket on which an agent's hook commands wait for the server's answer.

For agents whose hooks are programs (Codex): each tool call runs `hook_client`, which connects,
sends the hook's input and waits for an answer or the end of the connection. Claude Code does not
need this; it asks over its own stdin and stdout.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import msgspec

from hankweave_server.agents import hook_client
from hankweave_server.agents.base import (
    AgentSignal,
    Forbidden,
    PermissionAsked,
    Verdict,
)
from hankweave_server.agents.stream_json import as_object, as_text, hook_output, object_in
from hankweave_server.fsutil import bind_private, make_private_directory

SUFFIX = ".sock"

_CHUNK = 64 * 1024
_MOST = 16 * 1024 * 1024
_WAITING = 64
"""Backlog of connections that are not yet accepted."""

_PAUSE = 0.05
"""Seconds to wait after a failed accept."""

OnSignal = Callable[[AgentSignal], Awaitable[None]]


def hook_command(path: Path) -> str:
    """Return the shell command that connects a hook to this socket."""
    return shlex.join([sys.executable, "-I", "-S", hook_client.__file__, str(path)])


class HookServer:
    """A socket that listens from construction to `close`; `serve` must run as a task."""

    def __init__(self, path: Path) -> None:
        """Bind and listen. Raises OSError if the socket cannot be created."""
        make_private_directory(path.parent)
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._waiting: dict[str, socket.socket] = {}
        self._count = 0
        try:
            bind_private(self._listener, path)
            self._listener.listen(_WAITING)
            self._listener.setblocking(False)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Release every waiting hook and stop listening."""
        self._listener.close()
        self._path.unlink(missing_ok=True)
        for connection in self._waiting.values():
            connection.close()

        self._waiting.clear()

    async def serve(self, on_signal: OnSignal) -> None:
        """Report each hook as a `PermissionAsked`. Runs until it is cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.wait_readable(self._listener)
                try:
                    connection, _ = self._listener.accept()
                except OSError:  # The hook is gone, or this process is out of descriptors.
                    await anyio.sleep(_PAUSE)
                else:
                    connection.setblocking(False)
                    tasks.start_soon(self._handle_connection, connection, on_signal)

    def answer(self, asked: PermissionAsked, verdict: Verdict) -> bool:
        """Answer a hook; False if no such hook is waiting here."""
        connection = self._waiting.pop(asked.request_id, None)
        if connection is None:
            return False

        # A hook without output leaves the decision to the agent's own rules. A few hundred bytes
        # fit into the socket's buffer, so an error means that the hook is gone.
        with connection, contextlib.suppress(OSError):
            if isinstance(verdict, Forbidden):
                connection.sendall(msgspec.json.encode(hook_output(verdict)))

        return True

    async def _handle_connection(self, connection: socket.socket, on_signal: OnSignal) -> None:
        self._count += 1
        request_id = f"hook-{self._count}"
        self._waiting[request_id] = connection
        try:
            given = object_in(await _read_to_end(connection))
        except OSError:
            self._waiting.pop(request_id).close()
            return

        name, called = as_text(given.get("tool_name")), as_object(given.get("tool_input"))
        await on_signal(PermissionAsked(request_id, name, dict(called), by_hook=True))


async def _read_to_end(connection: socket.socket) -> bytes:
    """Read what a hook sends until its end; bytes beyond `_MOST` are dropped."""
    received = bytearray()
    while True:
        await anyio.wait_readable(connection)
        chunk = connection.recv(_CHUNK)
        if not chunk:
            return bytes(received)

        received += chunk[: _MOST - len(received)]
