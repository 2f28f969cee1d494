"""Which checkpoints the journal speaks of: those that were made, and those that were pruned.

Read from the journal's raw lines, so that a long journal is quick: only lines in which one of two
words stands are decoded. A word proves nothing, for agents may print it; the event's type does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from hankweave_protocol.events import CheckpointPruned, StateTransition
from hankweave_protocol.ids import Sha
from hankweave_protocol.transitions import CheckpointCreated

_MADE = CheckpointCreated.TYPE.encode()
_PRUNED = CheckpointPruned.TYPE.encode()


@dataclass(frozen=True, slots=True)
class OnRecord:
    """What the journal says of checkpoints; the last word on each of them counts."""

    standing: frozenset[Sha]
    """Made, and not pruned since: all of these must be in the shadow repository."""
    pruned: frozenset[Sha]
    lost: frozenset[Sha] = frozenset()
    """Given up by a repair; the state may still name them."""


class _Line(msgspec.Struct):
    type: str
    data: msgspec.Raw


class _Checkpoint(msgspec.Struct):
    sha: Sha


class _Created(msgspec.Struct):
    checkpoint: _Checkpoint


class _TransitionBody(msgspec.Struct):
    type: str
    data: msgspec.Raw


class _Transition(msgspec.Struct):
    transition: _TransitionBody


class _Pruned(msgspec.Struct):
    checkpoints: tuple[Sha, ...]
    lost: bool = False


def on_record(lines: Iterable[bytes]) -> OnRecord:
    """Reads whole journal lines, oldest first; raises msgspec's error for one that is no event."""
    standing: set[Sha] = set()
    pruned: set[Sha] = set()
    lost: set[Sha] = set()
    for line in lines:
        if _MADE in line or _PRUNED in line:
            made, gone, given_up = _told_by(msgspec.json.decode(line, type=_Line))
            standing |= made
            standing -= gone | given_up
            pruned |= gone
            pruned -= made
            lost |= given_up
            lost -= made

    return OnRecord(frozenset(standing), frozenset(pruned), frozenset(lost))


def _told_by(line: _Line) -> tuple[frozenset[Sha], frozenset[Sha], frozenset[Sha]]:
    """Return the checkpoints that an event says were made, were pruned, and were given up."""
    nothing: frozenset[Sha] = frozenset()
    if line.type == CheckpointPruned.TYPE:
        told = msgspec.json.decode(line.data, type=_Pruned)
        gone = frozenset(told.checkpoints)
        return (nothing, nothing, gone) if told.lost else (nothing, gone, nothing)

    if line.type == StateTransition.TYPE:
        body = msgspec.json.decode(line.data, type=_Transition).transition
        if body.type == CheckpointCreated.TYPE:
            made = msgspec.json.decode(body.data, type=_Created).checkpoint.sha
            return frozenset({made}), nothing, nothing

    return nothing, nothing, nothing
