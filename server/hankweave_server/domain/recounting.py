"""What each codon cost, counted again from the journal (seed 002, cost_mismatch).

The state's costs are sums that were carried along; here they are added up from what was reported,
without the state, so that the two can be held against each other. Only lines in which the name of
a transition stands are decoded, as in `on_record`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from hankweave_protocol.events import StateTransition
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import CodonExecution
from hankweave_protocol.transitions import (
    CodonStarted,
    CodonTransitioned,
    CostsIncremented,
    CostsUpdated,
    RunStarted,
    SentinelStatesUpdated,
)
from hankweave_server.domain.costs import sentinels_of
from hankweave_server.domain.lifecycle import cost_of, is_terminal
from hankweave_server.domain.validation import CodonKey

_COUNTED = (
    RunStarted,
    CodonStarted,
    CodonTransitioned,
    CostsIncremented,
    CostsUpdated,
    SentinelStatesUpdated,
)
_SHAPES = {shape.TYPE: shape for shape in _COUNTED}
_WORDS = tuple(name.encode() for name in _SHAPES)


class _Line(msgspec.Struct):
    type: str
    data: msgspec.Raw


class _Body(msgspec.Struct):
    type: str
    data: msgspec.Raw


class _Transition(msgspec.Struct):
    transition: _Body


@dataclass(slots=True)
class _Tally:
    """One execution, while it is being added up."""

    codon_id: CodonId
    dollars: float = 0.0
    sentinel_dollars: float = 0.0
    has_ended: bool = False

    @classmethod
    def of(cls, codon: CodonExecution) -> _Tally:
        """What a record says that the journal begins with: there is nothing else to count."""
        sentinels = sum(each.total_cost for each in sentinels_of(codon))
        return cls(codon.codon_id, cost_of(codon), sentinels, is_terminal(codon))


@dataclass(slots=True)
class _Tallies:
    by_run: dict[RunId, list[_Tally]] = field(default_factory=dict)

    def add(self, change: object) -> None:
        match change:
            case RunStarted(run=run):
                self.by_run[run.run_id] = [_Tally.of(codon) for codon in run.codons]
            case CodonStarted(run_id=run_id, codon=codon):
                self.by_run.setdefault(run_id, []).append(_Tally.of(codon))
            case CodonTransitioned(run_id=run_id, codon=codon):
                self._active(run_id, codon.codon_id).has_ended = is_terminal(codon)
            case CostsIncremented(run_id=run_id, codon_id=codon_id, cost=cost):
                self._active(run_id, codon_id).dollars += cost
            case CostsUpdated(run_id=run_id, codon_id=codon_id, cost=cost):
                self._active(run_id, codon_id).dollars = cost
            case SentinelStatesUpdated(run_id=run_id, codon_id=codon_id, sentinels=sentinels):
                cost = sum(each.total_cost for each in sentinels.loaded)
                self._newest(run_id, codon_id).sentinel_dollars = cost

    def _newest(self, run_id: RunId, codon_id: CodonId) -> _Tally:
        """The newest execution, ended or not: sentinels hear of a codon's end last."""
        own = (each for each in reversed(self.by_run.get(run_id, [])) if each.codon_id == codon_id)
        return next(own, _Tally(codon_id))

    def _active(self, run_id: RunId, codon_id: CodonId) -> _Tally:
        """The newest execution that has not ended; one of its own where the journal has none."""
        tallies = self.by_run.get(run_id, [])
        own = (each for each in reversed(tallies) if each.codon_id == codon_id)
        return next((each for each in own if not each.has_ended), _Tally(codon_id))


def recounted_costs(lines: Iterable[bytes]) -> dict[CodonKey, float]:
    """Adds up what whole journal lines report, oldest first, sentinels included, in USD.

    Raises msgspec's error for a line that is no event.
    """
    tallies = _Tallies()
    for line in lines:
        if any(word in line for word in _WORDS):
            tallies.add(_change_in(line))

    return {
        CodonKey(run_id, tally.codon_id, position): tally.dollars + tally.sentinel_dollars
        for run_id, executions in tallies.by_run.items()
        for position, tally in enumerate(executions)
    }


def _change_in(line: bytes) -> object:
    """The transition that an event carries, if it is one that counts."""
    event = msgspec.json.decode(line, type=_Line)
    if event.type != StateTransition.TYPE:
        return None

    body = msgspec.json.decode(event.data, type=_Transition).transition
    shape = _SHAPES.get(body.type)
    return None if shape is None else msgspec.json.decode(body.data, type=shape)
