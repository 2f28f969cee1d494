"""The facts that `status` shows, and how an execution stands; pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from hankweave_protocol.executions import ListedExecution
from hankweave_protocol.replies import ServerStatus
from hankweave_protocol.state import FailedCodon, State
from hankweave_server.cli.status.changes import NO_CHANGES, FileChanges
from hankweave_server.domain.execution_thread import next_codon, thread
from hankweave_server.domain.lifecycle import was_stopped

Standing = Literal[
    "running",
    "asking",
    "limited",
    "rolling back",
    "failed",
    "stopped",
    "crashed",
    "completed",
    "idle",
    "new",
]
STYLES = {
    "running": "cyan",
    "asking": "yellow",
    "limited": "yellow",
    "failed": "red",
    "crashed": "red",
    "completed": "green",
}


class StatusLine(NamedTuple):
    text: str = ""
    style: str = ""
    is_whole: bool = False
    """Whether it is copied as a whole: no terminal is too narrow for it."""


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """The known facts of an execution; `server` is what its server says, if there is one."""

    root: Path
    state: State
    listed: ListedExecution
    now: datetime
    server: ServerStatus | None = None
    page: str | None = None
    changes: FileChanges = NO_CHANGES


def standing_of(facts: StatusFacts) -> Standing:
    """Return where the execution stands, in a word."""
    server, state = facts.server, facts.state
    if server is None:
        match facts.listed.state:
            case "failed" | "stopped" | "crashed" | "completed" | "new" as seen:
                return _of_failure(state) if seen == "failed" else seen
            case "waiting":
                return "idle"
            case _:
                return "crashed" if facts.listed.state == "running" else "idle"

    if server.is_rolling_back:
        return "rolling back"

    if server.active_codon_id is not None:
        if server.waiting is not None:
            return "limited"

        return "asking" if server.pending_permissions else "running"

    if next_codon(state) is None:
        return "completed" if state.execution_plan else "idle"

    return _of_failure(state)


def _of_failure(state: State) -> Standing:
    """Return how the codon ended that is next again, if the plan stops at it."""
    newest = thread(state)[-1:]
    if newest and isinstance(newest[0].codon, FailedCodon):
        return "stopped" if was_stopped(newest[0].codon.failure_reason) else "failed"

    return "idle"
