"""Commands that only look."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from hankweave_protocol.commands import ListCheckpoints
from hankweave_protocol.events import CheckpointList, ListedCheckpoint
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import CheckpointPage, ServerStatus
from hankweave_protocol.state import State
from hankweave_server.api.checkpoint_list import page_of_checkpoints
from hankweave_server.domain.history import newest_run, run_named
from hankweave_server.execution.context import Surroundings


class Inspect:
    def __init__(self, around: Surroundings, status: Callable[[], ServerStatus]) -> None:
        self._around = around
        self._status = status

    async def checkpoints(self, command: ListCheckpoints, *, tell_all: bool) -> CheckpointPage:
        """Lists checkpoints, newest first; Hankweave's clients get it as an event to all."""
        page = page_of_checkpoints(
            command,
            self._around.state,
            reversed(self._around.checkpointer.known.values()),
            self._around.checkpointer.current_branch,
        )
        if tell_all:
            await self._around.ledger.record(listed(command, page, self._around.state))

        return page

    def state(self) -> State:
        return self._around.ledger.durable_state

    async def status(self) -> ServerStatus:
        checkpointer = self._around.checkpointer
        size = await checkpointer.run(checkpointer.engine.housekeeping.size)
        return msgspec.structs.replace(
            self._status(),
            store_bytes=size.bytes_on_disk,
            store_packs=size.packs,
            store_loose_objects=size.loose_objects,
        )


def listed(command: ListCheckpoints, page: CheckpointPage, state: State) -> CheckpointList:
    """Return a page as Hankweave's event, which always names a run and its branch.

    Where the command names no run these are of the current one, as in Hankweave, and the
    checkpoints are of all.
    """
    run = run_named(state, command.run_id or state.current_run_id) or newest_run(state)
    return CheckpointList(
        run_id=None if run is None else run.run_id,
        checkpoints=tuple(_listed(record) for record in page.checkpoints),
        current_branch=None if run is None else run.git_branch,
    )


def _listed(record: CheckpointRecord) -> ListedCheckpoint:
    return ListedCheckpoint(
        codon_id=record.coordinate.codon_id,
        codon_name=record.codon_name,
        checkpoint_type=record.kind,
        sha=record.sha,
        status=record.coordinate.codon_state,
        timestamp=record.timestamp,
        label=record.label,
        partial=record.partial,
        coordinate=record.coordinate,
    )
