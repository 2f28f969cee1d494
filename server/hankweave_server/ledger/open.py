"""Opening a ledger: make journal and state files agree before anything new is written.

The journal decides. state.json only saves the time of folding the journal from its start, so it is
used if it is good and not newer than the journal; else its backup; else the whole journal is
folded. Only without a journal does a state, or the content of the shadow repository, become the
past: it is written as the first transitions of a new journal, so that the state is the fold of the
journal from there on. A journal of the TypeScript Hankweave becomes the beginning of the new one
(`typescript_format`), and its files are kept. Nothing that was found bad is deleted, and every way
but the plain one is reported in a `state.recovered` event.

Each step may be interrupted, and is then repeated at the next opening.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, assert_never

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import JournalRepaired, StateRecovered, StateTransition
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import ValidationError, ValidationWarning
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_server import fsutil
from hankweave_server.clock import Clock
from hankweave_server.domain.checkpoints.records import with_full_shas
from hankweave_server.domain.lifecycle import Impossible
from hankweave_server.domain.reducer import apply, founding
from hankweave_server.domain.validation import corrected, with_summed_sentinels
from hankweave_server.ledger import typescript_format
from hankweave_server.ledger.batch import About, NewId, compose
from hankweave_server.ledger.digest import JournalDigest
from hankweave_server.ledger.journal import (
    Journal,
    JournalCorrupt,
    JournalRepair,
    ReadableJournal,
)
from hankweave_server.ledger.state_file import (
    Absent,
    FromBackup,
    FromPrimary,
    StateStore,
    UnreadableState,
)
from hankweave_server.ledger.typescript_format import ForeignJournal, Importing
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted

PAGE = 5_000
"""Lines that are folded at a time: a few megabytes."""

Rebuild = Callable[[], State]
KnownShas = Callable[[], Iterable[Sha]]
"""Returns the checkpoints of the shadow repository."""
Source = Literal["primary", "backup", "journal", "repository", "fresh"]


@dataclass(frozen=True, slots=True)
class OpenedLedger:
    """A journal and a store that agree, and a report of the recovery."""

    journal: Journal
    store: StateStore
    state: State
    repair: JournalRepaired | None
    recovery: StateRecovered | None
    digest: JournalDigest


@dataclass(frozen=True, slots=True)
class _Found:
    """A state and its source; `is_past` if it must become the past of an empty journal."""

    state: State
    source: Source
    errors: tuple[ValidationError, ...] = ()
    kept: tuple[str, ...] = ()
    is_past: bool = False
    warnings: tuple[ValidationWarning, ...] = ()
    is_foreign: bool = False
    """True if Hankweave wrote state.json, and its content becomes the past."""


def open_ledger(
    layout: Layout,
    clock: Clock,
    *,
    rebuild: Rebuild | None,
    new_id: NewId,
    known_shas: KnownShas = tuple,
) -> OpenedLedger:
    """Open the existing ledger, or create one if there is nothing at all.

    Raises OSError, and JournalCorrupt and NewerState, which a person must resolve.
    """
    fsutil.make_private_directory(layout.state_directory)
    store = StateStore(layout, clock)
    foreign = typescript_format.find(layout.journal)
    if foreign is not None:
        found = _foreign_taken(layout, _find(store, None, rebuild), known_shas)
        return _taken_over(layout, store, foreign, found, clock, new_id)

    journal, cut, digest = _opened(layout, known_durable=store.saved_seq())
    try:
        found = _find(store, journal, rebuild)
        found = _foreign_taken(layout, found, known_shas)
        state = found.state
        if found.is_past:
            journal.close()
            state = _found_journal(layout.journal, state, clock, new_id)
            journal, _, digest = _opened(layout)

        store.save(state)
    except BaseException:
        journal.close()
        raise

    repair = None
    if cut is not None:
        repair = JournalRepaired(quarantine=cut.quarantine.name, bytes=cut.bytes)

    return OpenedLedger(journal, store, state, repair, _recovery_event(found), digest)


def _opened(
    layout: Layout, known_durable: int | None = None
) -> tuple[Journal, JournalRepair | None, JournalDigest]:
    digest = JournalDigest(layout.inside)
    marks = digest.load(layout.journal_digest, layout.journal)
    journal, cut = Journal.open(
        layout.journal, known_durable=known_durable, marks=marks, on_line=digest.add
    )
    return journal, cut, digest


def _taken_over(
    layout: Layout,
    store: StateStore,
    foreign: ForeignJournal,
    found: _Found,
    clock: Clock,
    new_id: NewId,
) -> OpenedLedger:
    """Create a journal from another program's events and state; keep its files.

    The new journal replaces the foreign one by one rename, when it is whole and durable.
    """
    kept = foreign.path if foreign.is_compressed else fsutil.keep_original(foreign.path)
    new = layout.journal.with_name(layout.journal.name + ".tmp")
    past = found.state if found.is_past else EMPTY_STATE
    try:
        with os.fdopen(_new_file(new), "wb") as file:
            state, importing = write_imported(file, foreign, past, clock, new_id)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        new.unlink(missing_ok=True)
        raise

    new.replace(layout.journal)
    fsutil.sync_directory(layout.journal.parent)
    journal, _, digest = _opened(layout)
    try:
        store.save(state)
    except BaseException:
        journal.close()
        raise

    found = dataclasses.replace(
        found,
        kept=(kept.name, *found.kept),
        errors=(*found.errors, *_losses(importing, kept)),
        is_past=True,
    )
    return OpenedLedger(journal, store, state, None, _recovery_event(found), digest)


def write_imported(
    file: BinaryIO, foreign: ForeignJournal, past: State, clock: Clock, new_id: NewId
) -> tuple[State, Importing]:
    """Write another program's events in this format, followed by the transitions to its state.

    Raises OSError, and JournalCorrupt for a foreign journal that is not what it should be.
    """
    importing = Importing()
    for line in importing.lines(foreign.lines()):
        file.write(line + b"\n")

    start = msgspec.structs.replace(EMPTY_STATE, last_event_seq=importing.seq)
    published, state = compose(start, founding(past), About(), clock=clock, new_id=new_id)
    for each in published:
        file.write(each.frame + b"\n")

    return state, importing


def _new_file(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, fsutil.PRIVATE_FILE)


def _losses(importing: Importing, kept: Path) -> tuple[ValidationError, ...]:
    losses: list[str] = []
    if importing.skipped:
        lines = counted(importing.skipped, "line")
        losses.append(f"Left out of {kept.name}: {lines} without an event.")

    if importing.without_body:
        which = counted(importing.without_body, "event refers", "events refer")
        losses.append(f"In {kept.name}, {which} to content that is not in cas/.")

    return tuple(ValidationError(type="corrupted_data", message=message) for message in losses)


def _foreign_taken(layout: Layout, found: _Found, known_shas: KnownShas) -> _Found:
    """Complete a state that Hankweave wrote, and keep its file: the next save replaces it."""
    if not found.is_foreign:
        return found

    kept = () if found.source != "primary" else (fsutil.keep_original(layout.state).name,)
    state, warnings = with_summed_sentinels(with_full_shas(found.state, known_shas()))
    return dataclasses.replace(
        found, state=state, kept=(*found.kept, *kept), warnings=tuple(map(corrected, warnings))
    )


def fold_journal(
    journal: ReadableJournal, start: State = EMPTY_STATE, until: int | None = None
) -> State:
    """Fold the lines after `start` into a state, up to a seq or to the end.

    Raises JournalCorrupt for a line that cannot be folded: a transition that contradicts the ones
    before it, or that only a newer version knows.
    """
    state = start
    last = journal.last_seq if until is None else min(until, journal.last_seq)
    while state.last_event_seq < last:
        since = state.last_event_seq
        for line in journal.stored(since, min(PAGE, last - since)):
            state = folded(journal, state, line)

    return state


class _Header(msgspec.Struct):
    seq: int
    type: str


_decode_header = msgspec.json.Decoder(_Header).decode


def folded(journal: ReadableJournal, state: State, line: bytes) -> State:
    """Fold one line; events other than transitions are not even decoded.

    Raises JournalCorrupt as `fold_journal`.
    """
    header = _decode_header(line)
    if header.type != StateTransition.TYPE:
        return msgspec.structs.replace(state, last_event_seq=header.seq)

    try:
        data = codec.decode_event(line).data
        assert isinstance(data, StateTransition)
        return apply(state, codec.decode_transition(data), header.seq)
    except (Refused, Impossible) as error:
        reason = f"the transition cannot be folded: {error}"
        raise JournalCorrupt(journal.path, header.seq, reason) from error


def _find(store: StateStore, journal: Journal | None, rebuild: Rebuild | None) -> _Found:
    """Return the state; without a journal, from the state files or the repository."""
    loaded = store.load(lambda state: _contradiction(state, journal))
    match loaded:
        case FromPrimary(state=state):
            return _caught_up(_Found(state, "primary"), journal)
        case FromBackup(state=state, errors=errors, kept=kept):
            return _caught_up(_Found(state, "backup", errors, kept), journal)
        case UnreadableState(errors=errors, kept=kept):
            return _without_state(journal, rebuild, errors, kept)
        case Absent():
            missing = ValidationError(type="corrupted_data", message="state.json is missing.")
            return _without_state(journal, rebuild, (missing,), ())
        case other:
            assert_never(other)


def _contradiction(state: State, journal: Journal | None) -> ValidationError | None:
    """Return an error for a state that is ahead of a journal with events in it."""
    if journal is None or journal.last_seq == 0 or state.last_event_seq <= journal.last_seq:
        return None

    return ValidationError(
        type="corrupted_data",
        message=f"The state is at event {state.last_event_seq}, "
        f"but the journal ends at {journal.last_seq}.",
    )


def _caught_up(found: _Found, journal: Journal | None) -> _Found:
    """Fold the rest of the journal on top of a loaded state."""
    state = found.state
    if journal is None or journal.last_seq == 0:
        return _as_past(found)

    if state.schema_version == 0:
        # Hankweave's file, whose content became the journal's past just before a crash.
        return dataclasses.replace(found, state=fold_journal(journal))

    try:
        return dataclasses.replace(found, state=fold_journal(journal, state))
    except JournalCorrupt as tail:
        # Either the journal is bad, and this raises again, or the state was not its fold.
        whole = fold_journal(journal)
        message = f"The state does not match the journal's events: {tail.reason}"
        error = ValidationError(type="corrupted_data", message=message)
        return _Found(whole, "journal", (*found.errors, error), found.kept)


def _as_past(found: _Found) -> _Found:
    """Return a good state without a journal: Hankweave's, or one whose journal was lost."""
    state = found.state
    errors = found.errors
    if state.last_event_seq > 0:
        message = (
            f"The journal is missing; the state at event {state.last_event_seq} was used as "
            "it is, and the events before it are lost."
        )
        errors = (*errors, ValidationError(type="corrupted_data", message=message))

    if not founding(state):
        return _Found(EMPTY_STATE, found.source, errors, found.kept)

    return _Found(
        state,
        found.source,
        errors,
        found.kept,
        is_past=True,
        is_foreign=state.schema_version == 0,
    )


def _without_state(
    journal: Journal | None,
    rebuild: Rebuild | None,
    errors: tuple[ValidationError, ...],
    kept: tuple[str, ...],
) -> _Found:
    if journal is not None and journal.last_seq > 0:
        return _Found(fold_journal(journal), "journal", errors, kept)

    state = EMPTY_STATE if rebuild is None else rebuild()
    if founding(state):
        return _Found(state, "repository", errors, kept, is_past=True)

    return _Found(EMPTY_STATE, "fresh", errors if kept else (), kept)


def _found_journal(path: Path, past: State, clock: Clock, new_id: NewId) -> State:
    """Write a past as the first events of a new journal: all of it or nothing."""
    published, state = compose(EMPTY_STATE, founding(past), About(), clock=clock, new_id=new_id)
    fsutil.replace_durably(path, b"".join(each.frame + b"\n" for each in published))
    return state


def _recovery_event(found: _Found) -> StateRecovered | None:
    """Return how the state was recovered; None if it was simply read, or is new."""
    is_plain = found.source in ("primary", "fresh") and not found.errors and not found.kept
    if is_plain and not found.is_past:
        return None

    return StateRecovered(
        source=found.source, errors=found.errors, warnings=found.warnings, kept=found.kept
    )
