"""Which checkpoints no limit lets go of, and why each of the others stays (DESIGN 7, "Retention").

Pure: the state and the known checkpoints come in. `completed` and pinned ones are kept by what
they are; the ones here by where the execution stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import KeepReason, KeptCheckpoint
from hankweave_protocol.state import Continuation, State
from hankweave_server.domain.history import beginnings, end_checkpoint, rig_checkpoint, thread
from hankweave_server.domain.targets import Checkpoints


def thread_needs(state: State, known: Checkpoints) -> frozenset[Sha]:
    """Gives the thread's checkpoints: what it began from, names, and took while it ran."""
    entries = thread(state)
    executions = {(entry.run_id, entry.codon.codon_id) for entry in entries}
    named = {
        sha
        for entry in entries
        for sha in (rig_checkpoint(entry.codon), end_checkpoint(entry.codon))
    }
    taken = {
        sha
        for sha, record in known.items()
        if (record.coordinate.run_id, record.coordinate.codon_id) in executions
    }
    origins = {
        run.starting_conditions.source.checkpoint_sha
        for run in state.runs[:1]
        if isinstance(run.starting_conditions, Continuation)
    }
    origins |= set(beginnings(state).values())
    needed = named | taken | origins | {state.initial_checkpoint}
    return frozenset(sha for sha in needed if sha is not None)


def journeys_need(state: State, known: Checkpoints) -> frozenset[Sha]:
    """Gives what the next undo and the next redo go to, and the newest safety in any case."""
    # Not by order: commits of one second come out of git in any. Nor by time first: clocks are set.
    safeties = [record for record in reversed(list(known.values())) if record.kind == "safety"]
    newest = max(safeties, key=_age, default=None)
    travels = (*state.undo[-1:], *state.redo[-1:])
    sources = (travel.source for travel in travels if travel.source is not None)
    places = (source.checkpoint_sha for source in sources)
    last = () if newest is None else (newest.sha,)
    return frozenset((*last, *(travel.safety for travel in travels), *places))


def _age(record: CheckpointRecord) -> tuple[int, str]:
    return record.coordinate.event_seq, record.timestamp


def reasons(
    *, needed: frozenset[Sha], journeys: frozenset[Sha], kinds: frozenset[str] | None
) -> Callable[[CheckpointRecord], KeepReason | None]:
    """Makes the judge of what stays by what it is; None is for those that only limits keep."""

    def reason(record: CheckpointRecord) -> KeepReason | None:
        if record.pinned:
            return "pinned"

        if record.kind == "completed":
            return "completed"

        if record.sha in needed:
            return "thread"

        if record.sha in journeys:
            return "undo"

        return None if kinds is None or record.kind in kinds else "kind"

    return reason


def kept_because(
    kept: Iterable[CheckpointRecord],
    reason: Callable[[CheckpointRecord], KeepReason | None],
    parents: Mapping[Sha, tuple[Sha, ...]],
) -> tuple[KeptCheckpoint, ...]:
    """Gives each checkpoint that stays the first reason that holds, in the order they came.

    A commit cannot go before those that descend from it; that is a reason too.
    """
    records = tuple(kept)
    own = {record.sha: reason(record) for record in records}
    above = _ancestors((sha for sha, why in own.items() if why is not None), parents)
    return tuple(
        KeptCheckpoint(
            sha=record.sha,
            kind=record.kind,
            reason=own[record.sha] or ("ancestor" if record.sha in above else "limits"),
        )
        for record in records
    )


def _ancestors(shas: Iterable[Sha], parents: Mapping[Sha, tuple[Sha, ...]]) -> set[Sha]:
    found: set[Sha] = set()
    waiting = [parent for sha in shas for parent in parents.get(sha, ())]
    while waiting:
        sha = waiting.pop()
        if sha not in found:
            found.add(sha)
            waiting += parents.get(sha, ())

    return found
