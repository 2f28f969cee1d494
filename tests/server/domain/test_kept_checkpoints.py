"""Checkpoints that are kept whatever the limits, and the reported reasons."""

from __future__ import annotations

import msgspec

from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointKind, CheckpointRecord, Travel
from hankweave_server.domain.retention import journeys_need, kept_because, reasons, thread_needs
from support.histories import a_plan, completed, failed, sha
from support.timelines import (
    INITIAL,
    a_state,
    checkpoints_of,
    continued,
    ended,
    rigged,
    with_extra,
)

PLAN = a_plan("one", "two", "three")
FIRST = ended("first", completed("one", 0x11), rigged(failed("two", sha(0x12)), 0x22))
SECOND = continued("second", completed("two", 0x32), of="first", after="one", at=sha(0x11))


def taken(
    known: dict[Sha, CheckpointRecord],
    kind: CheckpointKind,
    run: str,
    codon: str | None,
    number: int,
) -> dict[Sha, CheckpointRecord]:
    """Return the checkpoints with a new one added."""
    return with_extra(known, kind, run, codon, number, behind=list(known)[-1])


def test_the_thread_keeps_all_that_it_names_and_took() -> None:
    """Ends, rigs, the initial checkpoint and its codons' others are kept, not dead ends."""
    state = a_state(FIRST, SECOND, plan=PLAN)
    known = taken(checkpoints_of(state), "manual", "second", "two", 0x41)
    known = taken(known, "manual", "first", "two", 0x42)
    assert thread_needs(state, known) == {INITIAL, sha(0x11), sha(0x32), sha(0x41)}


def test_the_origin_of_a_run_without_codons_is_kept() -> None:
    """Right after a rollback only the starting conditions name the restored checkpoint."""
    back = continued("second", of="first", after="one", at=sha(0x55))
    state = a_state(FIRST, back, plan=PLAN)
    assert sha(0x55) in thread_needs(state, checkpoints_of(state))


def test_what_the_next_undo_and_redo_go_to_is_kept() -> None:
    """The safety checkpoint and source of the newest undo and redo, and the newest safety
    checkpoint, are kept."""
    state = a_state(FIRST, plan=PLAN)
    known = checkpoints_of(state)
    assert journeys_need(state, known) == frozenset()
    known = taken(known, "safety", "first", None, 0x51)
    known = taken(known, "safety", "first", None, 0x52)
    assert journeys_need(state, known) == {sha(0x52)}
    source = known[sha(0x12)].coordinate
    older = Travel(operation_id="a", safety=sha(0x50), source=None)
    newer = Travel(operation_id="b", safety=sha(0x51), source=source)
    undone = Travel(operation_id="c", safety=sha(0x53), source=None)
    state = msgspec.structs.replace(state, undo=(older, newer), redo=(undone,))
    assert journeys_need(state, known) == {sha(0x52), sha(0x51), sha(0x12), sha(0x53)}


def test_each_that_stays_has_the_first_reason_that_holds() -> None:
    """The order is pinned, completed, thread, undo, kind, ancestor, limits."""
    state = a_state(FIRST, SECOND, plan=PLAN)
    known = checkpoints_of(state)
    for number in (0x61, 0x62, 0x63, 0x64, 0x65):
        known = taken(known, "safety" if number == 0x62 else "manual", "first", "two", number)

    known[sha(0x63)] = msgspec.structs.replace(known[sha(0x63)], pinned=True)
    parents: dict[Sha, tuple[Sha, ...]] = {sha(0x63): (sha(0x61),), sha(0x65): (sha(0x64),)}
    judge = reasons(
        needed=thread_needs(state, known),
        journeys=frozenset({sha(0x62)}),
        kinds=frozenset({"manual"}),
    )
    found = {kept.sha: kept.reason for kept in kept_because(known.values(), judge, parents)}
    assert found == {
        INITIAL: "thread",
        sha(0x11): "completed",
        sha(0x12): "kind",
        sha(0x22): "kind",
        sha(0x32): "completed",
        sha(0x61): "ancestor",
        sha(0x62): "undo",
        sha(0x63): "pinned",
        sha(0x64): "limits",
        sha(0x65): "limits",
    }
