"""Discovery of an execution's server from the files it leaves."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hankweave_client.errors import NotRunning
from hankweave_protocol.codec import decode_value
from hankweave_protocol.errors import Refused
from hankweave_protocol.records import RuntimeLock
from hankweave_protocol.state_directory import state_directory_of

__all__ = ["Address", "NotRunning", "discover"]


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server, and a token for it."""

    url: str
    token: str | None = None
    socket: Path | None = None
    """An agent's own Unix socket; the connection then gets replies, but no state and no events."""


def discover(execution: Path) -> Address:
    """Read the address from runtime.lock and the best token this user may read.

    Raises NotRunning if no server is running. The lock is only a hint: it may have been left by a
    server that died, and then connecting fails.
    """
    folder = state_directory_of(execution)
    lock = _read_lock(folder / "runtime.lock")
    if not _lives(lock.pid):
        raise NotRunning(f"The server of {execution} (pid {lock.pid}) is dead.")

    if lock.port is None:
        raise NotRunning(f"The server of {execution} (pid {lock.pid}) does not listen yet.")

    token = _read_token(folder / "server.token") or _read_token(folder / "server.viewer-token")
    host = lock.host or "127.0.0.1"
    return Address(url=f"ws://{f'[{host}]' if ':' in host else host}:{lock.port}/ws", token=token)


def _read_lock(path: Path) -> RuntimeLock:
    try:
        return decode_value(RuntimeLock, path.read_bytes())
    except FileNotFoundError:
        raise NotRunning(f"No server holds {path.parent.parent}.") from None
    except Refused as fault:
        raise NotRunning(f"{path} cannot be read: {fault.message}") from None


def _read_token(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (FileNotFoundError, PermissionError):
        return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # The process of another user exists.

    return True
