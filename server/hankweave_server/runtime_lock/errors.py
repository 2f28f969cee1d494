"""How a lock is refused, and how it is lost."""

from __future__ import annotations

from datetime import timedelta

from hankweave_protocol.records import RuntimeLock
from hankweave_server.errors import ExitCode, Stop


class LockHeld(Stop):
    """Another server owns the execution directory; nothing in it was touched."""

    def __init__(
        self, owner: RuntimeLock | None, pid: int | None, heartbeat_age: timedelta | None
    ) -> None:
        self.owner = owner
        self.pid = pid
        self.heartbeat_age = heartbeat_age
        super().__init__(
            f"A server is already running here: {described(owner, pid)}.",
            ExitCode.LOCK_HELD,
            hint=f"{_told(heartbeat_age)} Attach to it, stop it, or use another directory.",
        )


class LockLost(Stop):
    """This server owns the execution directory no longer: it must write nothing more (DESIGN 6)."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"This server lost its execution directory: {reason}.",
            ExitCode.SOFTWARE,
            hint="Somebody moved, deleted or took over .hankweave while the server was running. If "
            "it was moved, move it back, and start again: what was acknowledged is in it.",
        )


def described(owner: RuntimeLock | None, pid: int | None) -> str:
    if owner is None:
        return "a server that is just starting or ending" if pid is None else f"pid {pid}"

    return f"pid {owner.pid}, run {owner.run_id or 'none yet'}, since {owner.start_time}"


def _told(heartbeat_age: timedelta | None) -> str:
    if heartbeat_age is None:
        return "Its heartbeat is not known."

    return f"Its last heartbeat was {round(heartbeat_age.total_seconds())} s ago."
