"""The state at any event of the past, without folding the whole journal for each look.

The first look folds the journal up to its moment and keeps a state every few transitions; every
later one goes on from the nearest state kept. States are frozen and share what did not change, so
those kept weigh little, and because lines of the journal never change none is ever out of date.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import CheckpointRollback, RollbackCompleted, StateTransition
from hankweave_protocol.ids import Sha
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from hankweave_server.ledger.open import folded

TRANSITIONS_APART = 64
"""Folding so many takes some two milliseconds."""

LINES_APART = 2_048
"""Passing over so many events that are no transition takes about as long."""

_TRANSITION = b'"type":"state.transition"'

MOMENTS_KEPT = 64
"""Moments that were asked for and are given again at once."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What the journal says of one moment."""

    state: State
    run_began: int
    """The seq at which the newest run began; 0 where there is none yet."""
    files: Sha | None
    """The checkpoint that the files were last captured in or brought back to."""


NOTHING = Moment(EMPTY_STATE, 0, None)


class Moments:
    """Folds one journal. Calls block, and may come from any thread."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._kept = [NOTHING]
        self._seqs = [0]
        self._asked: OrderedDict[int, Moment] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, seq: int) -> Moment | None:
        """A moment that needs no folding; None where `at` has to be asked."""
        return self._asked.get(seq)

    def at(self, seq: int) -> Moment:
        """Folds up to a seq that the journal has reached. Raises JournalCorrupt."""
        with self._lock:
            moment = self._asked.get(seq) or self._folded_to(seq)
            self._asked[seq] = moment
            self._asked.move_to_end(seq)
            if len(self._asked) > MOMENTS_KEPT:
                self._asked.popitem(last=False)

        return moment

    def _folded_to(self, seq: int) -> Moment:
        moment = self._kept[bisect_right(self._seqs, seq) - 1]
        while (since := moment.state.last_event_seq) < seq:
            lines = self._journal.read(since, min(LINES_APART, seq - since))
            moment = self._folded_over(moment, lines)
            self._keep(moment)

        return moment

    def _folded_over(self, moment: Moment, lines: list[bytes]) -> Moment:
        state, began, files = moment.state, moment.run_began, moment.files
        transitions = 0
        for line in lines:
            runs = len(state.runs)
            state = folded(self._journal, state, line)
            files = self._files_after(line, state.last_event_seq) or files
            if len(state.runs) > runs:
                began = state.last_event_seq

            transitions += _TRANSITION in line
            if transitions == TRANSITIONS_APART:
                self._keep(Moment(state, began, files))
                transitions = 0

        return Moment(state, began, files)

    def _files_after(self, line: bytes, seq: int) -> Sha | None:
        """The checkpoint whose files stand in the work tree after an event that says so."""
        if not any(word in line for word in _MOVES_FILES):
            return None

        try:
            return _checkpoint_in(line)
        except Refused as fault:
            reason = f"the event cannot be read: {fault}"
            raise JournalCorrupt(self._journal.path, seq, reason) from fault

    def _keep(self, moment: Moment) -> None:
        """Keeps a moment that lies far enough beyond those kept; where a look ends need not be."""
        seq = moment.state.last_event_seq
        if seq - self._seqs[-1] >= TRANSITIONS_APART:
            self._kept.append(moment)
            self._seqs.append(seq)


_MOVES_FILES = tuple(
    f'"type":"{kind.TYPE}"'.encode()
    for kind in (CheckpointCreated, RollbackCompleted, CheckpointRollback)
)


def _checkpoint_in(line: bytes) -> Sha | None:
    match codec.decode_event(line).data:
        case StateTransition() as event:
            made = codec.decode_transition(event)
            return made.checkpoint.sha if isinstance(made, CheckpointCreated) else None
        case RollbackCompleted(checkpoint=sha) | CheckpointRollback(checkpoint=sha, paths=None):
            return sha
        case _:
            return None  # An agent may print such words; and files went back one by one.
