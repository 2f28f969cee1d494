"""Inheritance: the part of an execution's past that a branch takes over.

Of the runs only the line to the branch's checkpoint is taken over, each cut where that line leaves
it; what came later, and other timelines, belong to the original alone. So the branch has every
checkpoint that its new state names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.events import ExecutionOrigin, StateTransition
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointRecord, Coordinate
from hankweave_protocol.state import (
    NO_SENTINELS,
    CodonExecution,
    Continuation,
    ContinuationSource,
    FailureReason,
    PreparingCodon,
    Run,
    StartingCodon,
    State,
)
from hankweave_protocol.transitions import (
    CheckpointCreated,
    InitialCheckpointSet,
    PlanSet,
    RunStarted,
    Transition,
)
from hankweave_server.domain import lifecycle
from hankweave_server.domain.execution_thread import end_checkpoint, line_of, rig_checkpoint, thread
from hankweave_server.domain.plan import Plan
from hankweave_server.domain.targets import Checkpoints, RollbackTarget

NO_SERVER = 0
"""The server pid of a run that waits for its first server."""

LEFT_BEHIND = FailureReason(
    type="unknown",
    retriable=True,
    message="This execution was branched off while the codon was running.",
)


@dataclass(frozen=True, slots=True)
class Inheritance:
    """The past of a branch, and the first run of its own."""

    past: tuple[Run, ...]
    """Oldest first; all have ended."""
    checkpoints: tuple[CheckpointRecord, ...]
    """Those of the line, oldest first; their coordinates are of the original's journal."""
    initial_checkpoint: Sha | None
    plan: Plan
    run: Run

    def transitions(self, after_seq: int) -> Iterator[Transition]:
        """Yield the transitions that create this state, for the events after that seq.

        The events before an inherited checkpoint are not in this journal. Its coordinate names the
        end of the past instead, where the state is the result of the whole past.
        """
        count = len(self.checkpoints) + len(self.past) + 1 + (self.initial_checkpoint is not None)
        for record in self.checkpoints:
            at = msgspec.structs.replace(record.coordinate, event_seq=after_seq + count)
            yield CheckpointCreated(checkpoint=msgspec.structs.replace(record, coordinate=at))

        yield from (RunStarted(run=run) for run in self.past)
        yield PlanSet(execution_plan=self.plan)
        if self.initial_checkpoint is not None:
            yield InitialCheckpointSet(checkpoint_sha=self.initial_checkpoint)

        yield RunStarted(run=self.run)


def inherited_coordinates(lines: Iterable[bytes]) -> Iterator[Coordinate]:
    """Read from a journal the coordinates of inherited checkpoints.

    The journal of an execution that is not a branch has none; no more of it is read than needed.
    """
    events = map(codec.decode_event, lines)
    first = next(events, None)
    if first is None or not isinstance(first.data, ExecutionOrigin):
        return

    for event in events:
        if not isinstance(event.data, StateTransition):
            return

        created = codec.decode_transition(event.data)
        if not isinstance(created, CheckpointCreated):
            return

        yield created.checkpoint.coordinate


def continuation(target: RollbackTarget) -> Continuation:
    """Return how the first run of a branch begins: as after a rollback to the target."""
    return Continuation(
        source=ContinuationSource(
            run_id=target.checkpoint.coordinate.run_id,
            after_codon=target.after_codon,
            checkpoint_sha=target.checkpoint.sha,
        ),
        reason="rollback",
    )


def inherited(
    state: State, target: RollbackTarget, known: Checkpoints, plan: Plan, run: Run
) -> Inheritance:
    """Return the past and the first run of a branch from the target.

    `known` is the target and all its ancestors; `run` is the branch's first own run, and `plan`
    the plan with which that run begins.
    """
    seen = msgspec.structs.replace(state, runs=(run, *state.runs))
    kept = [entry.codon for entry in thread(seen)]
    line = [each for each in line_of(seen) if each is not run]
    initial = state.initial_checkpoint
    return Inheritance(
        past=tuple(_cut(each, kept, target.checkpoint, known) for each in reversed(line)),
        checkpoints=tuple(known.values()),
        initial_checkpoint=initial if initial in known else None,
        plan=plan,
        run=run,
    )


def _cut(run: Run, kept: list[CodonExecution], at: CheckpointRecord, known: Checkpoints) -> Run:
    """End a run where the line to the checkpoint leaves it."""
    end = 0
    for position, codon in enumerate(run.codons, start=1):
        if any(codon is each for each in kept) or _is_in(codon, run, at.coordinate, known):
            end = position

    codons = tuple(_as_it_was(codon, at, known) for codon in run.codons[:end])
    if run.status != "running" and codons == run.codons:
        return run

    return msgspec.structs.replace(run, codons=codons, status="completed", end_time=at.timestamp)


def _is_in(codon: CodonExecution, run: Run, at: Coordinate, known: Checkpoints) -> bool:
    """Return whether the line contains a codon: one of its checkpoints, or the last one."""
    if end_checkpoint(codon) in known or rig_checkpoint(codon) in known:
        return True

    return (run.run_id, codon.codon_id) == (at.run_id, at.codon_id)


def _as_it_was(codon: CodonExecution, at: CheckpointRecord, known: Checkpoints) -> CodonExecution:
    """Return the record at the time of the checkpoint: a codon that was active then has failed."""
    end = end_checkpoint(codon)
    if lifecycle.is_terminal(codon) and (end is None or end in known):
        return codon

    return lifecycle.fail(
        _at_work(codon, known),
        end_time=at.timestamp,
        exit_code=-1,
        reason=LEFT_BEHIND,
        checkpoint=None,
    )


def _at_work(codon: CodonExecution, known: Checkpoints) -> PreparingCodon | StartingCodon:
    rig = rig_checkpoint(codon)
    if rig is None or rig not in known:
        return PreparingCodon(**lifecycle.identity_of(codon))

    return StartingCodon(
        **lifecycle.identity_of(codon),
        sentinels=NO_SENTINELS,
        rig_setup_checkpoint=rig,
    )
