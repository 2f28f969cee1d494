"""Opening a ledger: journal and state files are brought to agree before anything new is written.

The journal decides. state.json only saves the time of folding the journal from its start, so it is
used where it is good and not newer than the journal; its backup likewise; else the whole journal
is folded. Only where there is no journal does a state, or what the shadow repository knows, become
the past: it is then written down as the first transitions of a new journal, so that state =
fold(journal) holds from there on. Nothing that was found bad is deleted, and every way but the
plain one is said in a `state.recovered`.

Each step may be interrupted and is then simply done again at the next opening.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, assert_never

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import JournalRepaired, StateRecovered, StateTransition
from hankweave_protocol.records import ValidationError
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_server import files
from hankweave_server.clock import Clock
from hankweave_server.domain.lifecycle import Impossible
from hankweave_server.domain.replay import apply, founding
from hankweave_server.layout import Layout
from hankweave_server.ledger.batch import About, NewId, compose
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from hankweave_server.ledger.store import Absent, FromBackup, FromPrimary, StateStore, Unreadable

PAGE = 5_000
"""Lines that are folded at a time: a few megabytes."""

Rebuild = Callable[[], State]
Source = Literal["primary", "backup", "journal", "repository", "fresh"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A journal and a store that agree, and what it took to get there."""

    journal: Journal
    store: StateStore
    state: State
    repair: JournalRepaired | None
    recovery: StateRecovered | None


@dataclass(frozen=True, slots=True)
class _Found:
    """Where a state came from; `is_past` where it must become the past of an empty journal."""

    state: State
    source: Source
    errors: tuple[ValidationError, ...] = ()
    kept: tuple[str, ...] = ()
    is_past: bool = False


def open_ledger(layout: Layout, clock: Clock, *, rebuild: Rebuild | None, new_id: NewId) -> Opened:
    """Opens what is there, or begins anew where there is nothing at all.

    Raises JournalCorrupt and NewerState, which a person must decide about, and OSError.
    """
    files.make_private_directory(layout.state_directory)
    store = StateStore(layout, clock)
    foreign = _set_aside_foreign(layout.journal)
    journal, cut = Journal.open(layout.journal, known_durable=store.saved_seq())
    try:
        found = _find(store, journal, rebuild)
        state = found.state
        if found.is_past:
            journal.close()
            state = _found_journal(layout.journal, state, clock, new_id)
            journal, _ = Journal.open(layout.journal)

        store.save(state)
    except BaseException:
        journal.close()
        raise

    repair = None
    if cut is not None:
        repair = JournalRepaired(quarantine=cut.quarantine.name, bytes=cut.bytes)

    return Opened(journal, store, state, repair, _told(found, foreign))


def fold_journal(journal: Journal, start: State = EMPTY_STATE, until: int | None = None) -> State:
    """Folds the lines after `start` into a state, up to a seq or to the end.

    Raises JournalCorrupt for a line that cannot be folded: a transition that contradicts what came
    before it, or that only a newer version knows.
    """
    state = start
    last = journal.last_seq if until is None else min(until, journal.last_seq)
    while state.last_event_seq < last:
        since = state.last_event_seq
        for line in journal.read(since, min(PAGE, last - since)):
            state = folded(journal, state, line)

    return state


class _Header(msgspec.Struct):
    seq: int
    type: str


_decode_header = msgspec.json.Decoder(_Header).decode


def folded(journal: Journal, state: State, line: bytes) -> State:
    """Folds one line; events that are no transition are not even decoded.

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


def _find(store: StateStore, journal: Journal, rebuild: Rebuild | None) -> _Found:
    loaded = store.load(lambda state: _quarrel(state, journal))
    match loaded:
        case FromPrimary(state=state):
            return _caught_up(_Found(state, "primary"), journal)
        case FromBackup(state=state, errors=errors, kept=kept):
            return _caught_up(_Found(state, "backup", errors, kept), journal)
        case Unreadable(errors=errors, kept=kept):
            return _without_state(journal, rebuild, errors, kept)
        case Absent():
            missing = ValidationError(type="corrupted_data", message="state.json is missing.")
            return _without_state(journal, rebuild, (missing,), ())
        case other:
            assert_never(other)


def _quarrel(state: State, journal: Journal) -> ValidationError | None:
    """A state that names events which a journal with others in it does not have."""
    if journal.last_seq == 0 or state.last_event_seq <= journal.last_seq:
        return None

    return ValidationError(
        type="corrupted_data",
        message=f"The state is at event {state.last_event_seq}, "
        f"but the journal ends at {journal.last_seq}.",
    )


def _caught_up(found: _Found, journal: Journal) -> _Found:
    """Adds to a loaded state what the journal has beyond it."""
    state = found.state
    if journal.last_seq == 0:
        return _as_past(found)

    if state.schema_version == 0:
        # Hankweave's file, whose content was made the journal's past just before a crash.
        return dataclasses.replace(found, state=fold_journal(journal))

    try:
        return dataclasses.replace(found, state=fold_journal(journal, state))
    except JournalCorrupt as tail:
        # Either the journal is bad, and this raises again, or the state was not its fold.
        whole = fold_journal(journal)
        message = f"The state does not lead on to the journal's events: {tail.reason}"
        error = ValidationError(type="corrupted_data", message=message)
        return _Found(whole, "journal", (*found.errors, error), found.kept)


def _as_past(found: _Found) -> _Found:
    """A good state without a journal: Hankweave's, or one whose journal was lost."""
    state = found.state
    errors = found.errors
    if state.last_event_seq > 0:
        message = (
            f"The journal is gone; the state at event {state.last_event_seq} was taken as it "
            "stands, and the events before it are lost."
        )
        errors = (*errors, ValidationError(type="corrupted_data", message=message))

    if not founding(state):
        return _Found(EMPTY_STATE, found.source, errors, found.kept)

    return _Found(state, found.source, errors, found.kept, is_past=True)


def _without_state(
    journal: Journal,
    rebuild: Rebuild | None,
    errors: tuple[ValidationError, ...],
    kept: tuple[str, ...],
) -> _Found:
    if journal.last_seq > 0:
        return _Found(fold_journal(journal), "journal", errors, kept)

    state = EMPTY_STATE if rebuild is None else rebuild()
    if founding(state):
        return _Found(state, "repository", errors, kept, is_past=True)

    return _Found(EMPTY_STATE, "fresh", errors if kept else (), kept)


def _found_journal(path: Path, past: State, clock: Clock, new_id: NewId) -> State:
    """Writes a past down as the first events of a new journal: all of it or nothing."""
    published, state = compose(EMPTY_STATE, founding(past), About(), clock=clock, new_id=new_id)
    files.replace_durably(path, b"".join(each.frame + b"\n" for each in published))
    return state


def _set_aside_foreign(path: Path) -> Path | None:
    """Keeps a journal that Hankweave wrote, whose events have no seq, under a name of its own."""
    try:
        with path.open("rb") as journal:
            first = journal.readline()
    except FileNotFoundError:
        return None

    try:
        header = msgspec.json.decode(first)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
        return None

    if not isinstance(header, dict) or "seq" in header or "type" not in header:
        return None

    number = 1
    while (kept := path.with_name(f"{path.stem}.hankweave-{number}{path.suffix}")).exists():
        number += 1

    path.rename(kept)
    files.sync_directory(path.parent)
    return kept


def _told(found: _Found, foreign: Path | None) -> StateRecovered | None:
    """Says how the state was come by; None where it was simply read, or all is new."""
    kept = found.kept if foreign is None else (*found.kept, foreign.name)
    is_plain = found.source in ("primary", "fresh") and not found.errors and not kept
    if is_plain and not found.is_past:
        return None

    return StateRecovered(source=found.source, errors=found.errors, warnings=(), kept=kept)
