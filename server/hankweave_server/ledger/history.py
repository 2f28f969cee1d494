"""The state at any event of the past, without folding the whole journal for each look.

The first look folds the journal up to its moment and keeps a state every few transitions; every
later one goes on from the nearest state kept. States are frozen and share what did not change, so
those kept weigh little, and because lines of the journal never change none is ever out of date.

A journal to read beside whoever writes it, in whatever form it is; nothing is changed.

What the TypeScript Hankweave left (a journal without `seq`, a compressed one, or a state alone) is
turned into a journal of ours in a file without a name, exactly as the first start on it would.
"""

from __future__ import annotations

import os
import tempfile
import threading
import uuid
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import CheckpointRollback, RollbackCompleted, StateTransition
from hankweave_protocol.ids import Sha
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.clock import SystemClock
from hankweave_server.domain.checkpoint_records import with_full_shas
from hankweave_server.domain.validation import errors_in
from hankweave_server.ledger import typescript_format
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from hankweave_server.ledger.open import KnownShas, folded, write_imported
from hankweave_server.ledger.typescript_format import ForeignJournal, decode_state
from hankweave_server.paths import Layout

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


_PAGE = 5_000
"""Lines that are read together: a few megabytes."""


def open_for_reading(layout: Layout, known_shas: KnownShas = tuple) -> Journal:
    """Open the journal of an execution, to be closed by the caller.

    Raises FileNotFoundError where there is none, JournalCorrupt, and OSError.
    """
    foreign = typescript_format.find(layout.journal)
    if foreign is None and (layout.journal.exists() or _foreign_state(layout) is None):
        return Journal.for_reading(layout.journal)

    with tempfile.TemporaryFile() as file:
        source = foreign or ForeignJournal(Path(os.devnull), is_compressed=False)
        clock = _When(_last_saved(layout))
        past = with_full_shas(_foreign_state(layout) or EMPTY_STATE, known_shas())
        write_imported(file, source, past, clock, lambda: str(uuid.uuid4()))
        file.flush()
        return Journal.reading(source.path, os.dup(file.fileno()))


def whole_lines(layout: Layout) -> Iterator[bytes]:
    """Return the lines of a journal without checking them, for what only skims over it.

    A last one without its end was never told to anybody. Raises FileNotFoundError where there is
    no journal, JournalCorrupt for a foreign one that cannot be read, and OSError.
    """
    if layout.journal.exists() and typescript_format.find(layout.journal) is None:
        with layout.journal.open("rb") as journal:
            yield from (line[:-1] for line in journal if line.endswith(b"\n"))

        return

    with closing(open_for_reading(layout)) as journal:
        for since in range(0, journal.last_seq, _PAGE):
            yield from journal.read(since, _PAGE)


def has_past(layout: Layout) -> bool:
    """Return whether an execution has events or a state that `open_for_reading` can read."""
    return (
        layout.journal.exists()
        or typescript_format.find(layout.journal) is not None
        or _foreign_state(layout) is not None
    )


def _foreign_state(layout: Layout) -> State | None:
    """Return the state that Hankweave saved, else its backup; None where neither is good."""
    for path in (layout.state, layout.state_backup):
        try:
            state = decode_state(path.read_bytes())
        except (FileNotFoundError, Refused):
            continue

        if not errors_in(state):
            return state if state.schema_version == 0 else None

    return None


def _last_saved(layout: Layout) -> datetime:
    try:
        return datetime.fromtimestamp(layout.state.stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class _When(SystemClock):
    """The moment at which what is read was written."""

    moment: datetime

    def now(self) -> datetime:
        return self.moment
