"""A journal to read beside whoever writes it, in whatever form it is; nothing is changed.

What the TypeScript Hankweave left (a journal without `seq`, a compressed one, or a state alone) is
turned into a journal of ours in a file without a name, exactly as the first start on it would.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hankweave_protocol.errors import Refused
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_server.clock import SystemClock
from hankweave_server.domain.full_shas import with_full_shas
from hankweave_server.domain.validation import errors_in
from hankweave_server.ledger import typescript_format
from hankweave_server.ledger.foreign_state import decode_state
from hankweave_server.ledger.journal import Journal
from hankweave_server.ledger.open import KnownShas, write_imported
from hankweave_server.ledger.typescript_format import ForeignJournal
from hankweave_server.paths import Layout

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
