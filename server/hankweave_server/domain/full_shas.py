"""Checkpoint ids in full, where Hankweave recorded what `git commit` prints: seven digits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from hankweave_protocol.ids import Sha
from hankweave_protocol.state import Continuation, FreshStart, Run, StartingConditions, State

_FULL = 40
_FIELDS = ("rig_setup_checkpoint", "completion_checkpoint", "error_checkpoint", "skip_checkpoint")

S = TypeVar("S", bound=msgspec.Struct)
replace = msgspec.structs.replace


def with_full_shas(state: State, known: Iterable[Sha]) -> State:
    """Return the state with each unique beginning of a known checkpoint's id made whole.

    What is ambiguous, or no beginning of any, stays as it is: it is a missing checkpoint.
    """
    ids = sorted(known)
    return replace(
        state,
        runs=tuple(_run(run, ids) for run in state.runs),
        initial_checkpoint=_full(state.initial_checkpoint, ids),
    )


def _run(run: Run, ids: Sequence[Sha]) -> Run:
    return replace(
        run,
        starting_conditions=_start(run.starting_conditions, ids),
        codons=tuple(_changed(codon, _FIELDS, ids) for codon in run.codons),
    )


def _start(start: StartingConditions, ids: Sequence[Sha]) -> StartingConditions:
    match start:
        case Continuation(source=source):
            return replace(start, source=_changed(source, ("checkpoint_sha",), ids))
        case FreshStart():
            return _changed(start, ("initial_checkpoint_sha",), ids)


def _changed(record: S, names: Iterable[str], ids: Sequence[Sha]) -> S:
    values = {name: getattr(record, name, None) for name in names}
    return replace(
        record, **{name: _full(value, ids) for name, value in values.items() if value is not None}
    )


def _full(sha: Sha | None, ids: Sequence[Sha]) -> Sha | None:
    if not sha or len(sha) >= _FULL:
        return sha

    first = bisect_left(ids, sha)
    fitting = [each for each in ids[first : first + 2] if each.startswith(sha)]
    return fitting[0] if len(fitting) == 1 else sha
