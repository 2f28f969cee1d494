"""Where an execution stands: the moment that a rollback leads from, and an undo back to."""

from __future__ import annotations

from hankweave_protocol.ids import Sha
from hankweave_protocol.records import Coordinate
from hankweave_protocol.state import Continuation, State
from hankweave_server.domain.history import end_checkpoint, newest_run, rig_checkpoint, thread


def restored_checkpoint(state: State) -> Sha | None:
    """Where a rollback has led to, while no codon has gone on from there: maybe to a rig."""
    run = newest_run(state)
    if run is None or run.codons or not isinstance(run.starting_conditions, Continuation):
        return None

    conditions = run.starting_conditions
    return conditions.source.checkpoint_sha if conditions.reason == "rollback" else None


def now_coordinate(state: State, last_seq: int) -> Coordinate | None:
    """Where the execution stands: the newest checkpoint of the thread, if there is one."""
    run = newest_run(state)
    for entry in reversed(thread(state)):
        sha = end_checkpoint(entry.codon) or rig_checkpoint(entry.codon)
        if sha is not None and run is not None:
            return Coordinate(
                checkpoint_sha=sha,
                event_seq=last_seq,
                run_id=entry.run_id,
                codon_id=entry.codon.codon_id,
                codon_state=str(entry.codon.__struct_config__.tag),
            )

    return None
