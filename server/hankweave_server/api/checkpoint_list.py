"""The list of checkpoints, one page at a time: a server's answer, and that of the files alone."""

from __future__ import annotations

from collections.abc import Iterable

from hankweave_protocol.commands import ListCheckpoints
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import CheckpointPage
from hankweave_protocol.state import State
from hankweave_server.domain.history import run_named

PAGE = 1000
"""Checkpoints in one answer, unless the command asks for fewer."""


def page_of_checkpoints(
    command: ListCheckpoints,
    state: State,
    known: Iterable[CheckpointRecord],
    current_branch: str | None,
) -> CheckpointPage:
    """Lists what the command asks for of all that are known, in their order; raises Refused."""
    if command.run_id is not None and run_named(state, command.run_id) is None:
        raise Refused(
            ErrorCode.UNKNOWN_RUN, f"There is no run {command.run_id}.", path="$.data.runId"
        )

    records = [
        record
        for record in known
        if (command.run_id is None or record.coordinate.run_id == command.run_id)
        and (command.kinds is None or record.kind in command.kinds)
    ]
    begin = _offset(records, command.cursor)
    end = begin + max(1, min(command.limit or PAGE, PAGE))
    return CheckpointPage(
        checkpoints=tuple(records[begin:end]),
        current_branch=current_branch,
        cursor=records[end - 1].sha if end < len(records) else None,
    )


def _offset(records: list[CheckpointRecord], cursor: str | None) -> int:
    """Where the page after the cursor begins; the cursor is the sha the page before ended with."""
    if cursor is None:
        return 0

    position = next((i for i, record in enumerate(records) if record.sha == cursor), None)
    if position is None:
        raise Refused(
            ErrorCode.INVALID_COMMAND, "This cursor names no checkpoint.", path="$.data.cursor"
        )

    return position + 1
