"""The state at any past event, without folding the whole journal each time.

The first lookup folds the journal up to its event and keeps a state every few transitions; later
ones start from the nearest state kept. States are frozen and share their unchanged parts, so the
kept ones weigh little, and because lines of the journal never change, none is ever out of date.

`open_for_reading` and `open_for_search` open a journal next to its writer, whatever its format,
and change nothing: the first reads every line, the second only what is asked for.
The files of the TypeScript Hankweave (a journal without `seq`, a compressed one, or a state alone)
are converted to a journal in an unnamed file, exactly as the first start on them would do it.
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
from datetime import datetime
from pathlib import Path

from hankweave_protocol import codec, instants
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import CheckpointRollback, RollbackCompleted, StateTransition
from hankweave_protocol.ids import Sha
from hankweave_protocol.state import EMPTY_STATE, SCHEMA_VERSION, State
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.clock import SystemClock
from hankweave_server.domain.checkpoints.records import with_full_shas
from hankweave_server.domain.validation import errors_in
from hankweave_server.fsutil import temporary_folder
from hankweave_server.ledger import typescript_format
from hankweave_server.ledger.journal import Journal, JournalCorrupt, ReadableJournal
from hankweave_server.ledger.open import KnownShas, fold_journal, folded, write_imported
from hankweave_server.ledger.searched_journal import SearchedJournal
from hankweave_server.ledger.typescript_format import ForeignJournal, decode_state
from hankweave_server.paths import Layout

TRANSITIONS_APART = 64
"""Folding this many takes about two milliseconds."""

LINES_APART = 2_048
"""Skipping this many events other than transitions takes about as long."""

_TRANSITION = b'"type":"state.transition"'

MOMENTS_KEPT = 64
"""Recently requested moments that are cached."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The content of the journal at one moment."""

    state: State
    run_began: int
    """The seq at which the newest run began; 0 if there is none yet."""
    files: Sha | None
    """The checkpoint that the files were last captured in or restored to."""


NOTHING = Moment(EMPTY_STATE, 0, None)


class Moments:
    """Folds one journal. Calls block, and may come from any thread."""

    def __init__(self, journal: ReadableJournal) -> None:
        self._journal = journal
        self._kept = [NOTHING]
        self._seqs = [0]
        self._asked: OrderedDict[int, Moment] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, seq: int) -> Moment | None:
        """Return a moment that is cached; None if `at` has to fold it."""
        return self._asked.get(seq)

    def at(self, seq: int) -> Moment:
        """Return the moment at a seq that the journal has reached. Raises JournalCorrupt."""
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
            lines = self._journal.stored(since, min(LINES_APART, seq - since))
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
        """Return the checkpoint of the work tree's files, if the event captures or moves them."""
        if not any(word in line for word in _MOVES_FILES):
            return None

        try:
            return _checkpoint_in(line)
        except Refused as fault:
            reason = f"the event cannot be read: {fault}"
            raise JournalCorrupt(self._journal.path, seq, reason) from fault

    def _keep(self, moment: Moment) -> None:
        """Keep a moment that is far enough beyond the last one kept."""
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
            return None  # An agent may print such words; or only some paths were restored.


_LONGEST_STATE = 64 << 20
"""Bytes of a state.json that is still decoded."""

_PAGE = 5_000
"""Lines that are read at a time: a few megabytes."""


def open_for_reading(layout: Layout, known_shas: KnownShas = tuple) -> Journal:
    """Open the journal of an execution, to be closed by the caller.

    Raises FileNotFoundError if there is none, JournalCorrupt, and OSError.
    """
    return Journal.reading(*_opened(layout, known_shas))


def open_for_search(layout: Layout, known_shas: KnownShas = tuple) -> SearchedJournal:
    """Do the same, in the same time however long the journal is; its lines are checked when read.

    Raises JournalCorrupt only for a foreign journal.
    """
    return SearchedJournal(*_opened(layout, known_shas))


def _opened(layout: Layout, known_shas: KnownShas) -> tuple[Path, int]:
    """Return the path of a journal in our format and a descriptor; a foreign one is converted."""
    foreign = typescript_format.find(layout.journal)
    if foreign is None and (layout.journal.exists() or _foreign_state(layout) is None):
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        return layout.journal, os.open(layout.journal, flags)

    with tempfile.TemporaryFile(dir=temporary_folder()) as file:
        source = foreign or ForeignJournal(Path(os.devnull), is_compressed=False)
        clock = _When(_last_saved(layout))
        past = with_full_shas(_foreign_state(layout) or EMPTY_STATE, known_shas())
        write_imported(file, source, past, clock, lambda: str(uuid.uuid4()))
        file.flush()
        return source.path, os.dup(file.fileno())


def saved_state(layout: Layout) -> State | None:
    """Return state.json if it can be used; it may be behind the journal."""
    try:
        if layout.state.stat().st_size > _LONGEST_STATE:
            return None

        state = decode_state(layout.state.read_bytes())
    except (OSError, Refused):
        return None

    is_ours = state.schema_version == SCHEMA_VERSION
    return state if is_ours and not errors_in(state) else None


def state_at_end(journal: ReadableJournal, saved: State | None) -> State:
    """Fold the rest of the journal on top of the saved state; fold all of it if that is no use.

    Raises JournalCorrupt.
    """
    if saved is None or saved.last_event_seq > journal.last_seq:
        return fold_journal(journal)

    try:
        return fold_journal(journal, saved)
    except JournalCorrupt:
        return fold_journal(journal)


def whole_lines(layout: Layout) -> Iterator[bytes]:
    """Return the lines of a journal without checking them, for a quick search.

    A last line without a newline was never published. Raises FileNotFoundError if there is no
    journal, JournalCorrupt for a foreign one that cannot be read, and OSError.
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
    """Return the state that Hankweave saved, else its backup; None if neither is good."""
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
        return instants.from_epoch(layout.state.stat().st_mtime)
    except FileNotFoundError:
        return instants.from_epoch(0)


@dataclass(frozen=True, slots=True)
class _When(SystemClock):
    """A clock that shows the moment at which the state was last saved."""

    moment: datetime

    def now(self) -> datetime:
        return self.moment
