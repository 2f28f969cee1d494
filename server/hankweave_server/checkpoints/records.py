"""Checkpoints as the records that the journal and clients see, from a request or a commit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sized

import msgspec

from hankweave_protocol import instants
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import (
    CheckpointKind,
    CheckpointRecord,
    Conversation,
    Coordinate,
    MovedRef,
    SkippedFile,
)
from hankweave_server.checkpoints.detach import DetachedRef
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.model import (
    REASONS_THAT_LOSE_CONTENT,
    CheckpointMade,
    CheckpointRequest,
    Skipped,
)
from hankweave_server.domain.retention import CommitFacts
from hankweave_server.listing import first_of

STATE_OF_KIND = {
    "rig-setup": "starting",
    "completed": "completed",
    "error": "failed",
    "skipped": "skipped",
    "tool": "running",
    "turn": "running",
}
"""The state of a codon that a kind of checkpoint implies."""


def all_records(
    engine: CheckpointEngine, recorded: Iterable[Sha] = ()
) -> dict[Sha, CheckpointRecord]:
    """Return the checkpoints on our refs with their pins, oldest first; blocks.

    If a commit is lost, its ancestors are found as far as `recorded` leads to them.
    """
    commits = list(engine.commits(recorded))
    pins, skipped = engine.pins.all(), engine.skipped()
    records = (record_of(each, skipped.get(each.sha, ())) for each in reversed(commits))
    return {
        record.sha: msgspec.structs.replace(
            record, pinned=record.sha in pins, name=pins.get(record.sha)
        )
        for record in records
    }


def record_of(facts: CommitFacts, skipped: Iterable[Skipped] = ()) -> CheckpointRecord:
    """Read a checkpoint's record back from its commit, and from its note about missing content."""
    left_out = tuple(skipped)
    return CheckpointRecord(
        sha=facts.sha,
        kind=_kind(facts.kind),
        coordinate=Coordinate(
            checkpoint_sha=facts.sha,
            event_seq=facts.event_seq or 0,
            run_id=facts.run_id,
            codon_id=facts.codon_id,
            codon_state=facts.codon_state or STATE_OF_KIND.get(facts.kind),
            memory_epoch=facts.memory_epoch,
        ),
        codon_name=facts.codon_name,
        timestamp=instants.to_text(facts.timestamp),
        operation_id=facts.operation_id or "",
        label=facts.label,
        summary=facts.summary,
        partial=any(item.reason in REASONS_THAT_LOSE_CONTENT for item in left_out),
        skipped=(listed := _listed(left_out)),
        skipped_total=_total(left_out, listed),
        conversation=_conversation(facts),
    )


def record_made(request: CheckpointRequest, made: CheckpointMade) -> CheckpointRecord:
    """Return the record of a checkpoint that was just made."""
    return CheckpointRecord(
        sha=made.sha,
        kind=_kind(request.kind),
        coordinate=Coordinate(
            checkpoint_sha=made.sha,
            event_seq=request.event_seq,
            run_id=request.run_id,
            codon_id=request.codon_id,
            codon_state=request.codon_state,
            memory_epoch=request.memory_epoch,
        ),
        codon_name=request.codon_name,
        timestamp=instants.to_text(request.timestamp),
        operation_id=request.operation_id,
        label=request.label,
        summary=made.summary,
        partial=made.partial,
        skipped=(listed := _listed(made.skipped)),
        skipped_total=_total(made.skipped, listed),
        conversation=_conversation(request),
    )


def _conversation(facts: CheckpointRequest | CommitFacts) -> Conversation | None:
    if not facts.session_id:
        return None

    return Conversation(session_id=facts.session_id, message_id=facts.message_id)


def _listed(skipped: Iterable[Skipped]) -> tuple[SkippedFile, ...]:
    return first_of(
        SkippedFile(path=os.fsdecode(item.path), reason=item.reason) for item in skipped
    )


def _total(skipped: Sized, listed: Sized) -> int | None:
    return len(skipped) if len(skipped) > len(listed) else None


def _kind(kind: str) -> CheckpointKind:
    return kind  # type: ignore[return-value]  # the engine keeps the kind as the text it is in git


def moved_refs(detached: Iterable[DetachedRef]) -> tuple[MovedRef, ...]:
    """Return refs that were taken off lost checkpoints, as the journal names them."""
    return tuple(MovedRef(ref=each.ref, was=each.was, now=each.now) for each in detached)
