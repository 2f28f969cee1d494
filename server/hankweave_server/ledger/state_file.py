"""state.json and state.json.bak: the state in files that survive a crash of their writer.

A save never leaves less than it found. The new state is complete and durable under another name
before any known name changes; `.bak` then becomes a second name of the outgoing version, by rename,
so that it is never absent and never torn; and only then does `state.json` name the new one. A crash
between any two steps leaves a `state.json` that is whole, or a `.bak` that is.

A save that is not `durable` only shows the new state to readers. A power cut may leave it empty;
then `.bak` is the last durable version, and the journal has everything since.

`.bak` only takes over a version that this store wrote, or read and found good: an unverified
primary must not replace the one good copy (Hankweave's next save after a recovery did just that).

`found_ledger` writes the first journal and state of an execution that does not run yet: a branch
begins with the past of its parent.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol.errors import Refused
from hankweave_protocol.records import ValidationError
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import EMPTY_STATE, SCHEMA_VERSION, State
from hankweave_server import fsutil
from hankweave_server.clock import Clock
from hankweave_server.domain import plan as plans
from hankweave_server.domain.validation import errors_in
from hankweave_server.ledger.batch import About, Entry, NewId, compose
from hankweave_server.ledger.typescript_format import decode_state
from hankweave_server.paths import Layout

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})

Judge = Callable[[State], ValidationError | None]
"""Returns the error of a state that is valid in itself, or None."""


@dataclass(frozen=True, slots=True)
class FromPrimary:
    """state.json was good."""

    state: State


@dataclass(frozen=True, slots=True)
class FromBackup:
    """state.json was bad or missing, and its backup was good."""

    state: State
    errors: tuple[ValidationError, ...]
    kept: tuple[str, ...]
    """Names under which the bad originals were kept."""


@dataclass(frozen=True, slots=True)
class UnreadableState:
    """Neither file was good."""

    errors: tuple[ValidationError, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Absent:
    """Neither file exists."""


Loaded = FromPrimary | FromBackup | UnreadableState | Absent


class NewerState(Exception):
    """A state that a newer version wrote: saving it again would lose fields unknown to this one."""

    def __init__(self, path: Path, version: int) -> None:
        super().__init__(
            f"{path} has schemaVersion {version}; this version supports {SCHEMA_VERSION}"
        )
        self.path = path
        self.version = version


class _Seq(Value):
    last_event_seq: int = 0


class StateStore:
    """The two state files of one execution. Use it in one thread at a time."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        folder = fsutil.held_open(layout.state_directory, self)
        self._primary = folder / layout.state.name
        self._backup = folder / layout.state_backup.name
        self._temporary = folder / f"{layout.state.name}.tmp"
        self._backup_temporary = folder / f"{layout.state_backup.name}.tmp"
        self._clock = clock
        self._primary_is_good = False
        """True if the file has a version that is whole and durable."""

    def save(self, state: State, *, durable: bool = True) -> int:
        """Write the state, make it durable, and return its bytes.

        Raises OSError, with state.json unchanged.
        """
        encoded = msgspec.json.format(codec.encode(state), indent=2) + b"\n"
        fsutil.write_private(self._temporary, encoded, durable=durable)
        if self._primary_is_good:
            self._keep_outgoing()

        self._temporary.replace(self._primary)
        self._primary_is_good = False
        if durable:
            fsutil.sync_directory(self._primary.parent)
            self._primary_is_good = True

        return len(encoded)

    def load(self, judge: Judge = lambda state: None) -> Loaded:
        """Read the newest good version, and rename bad ones to keep them.

        Leftover `.tmp` files are removed: their content was never acknowledged. Raises OSError
        if a file cannot be read at all, and NewerState; both leave everything unchanged.
        """
        primary = self._examine(self._primary, judge)
        if isinstance(primary, State):
            self._remove_temporaries()
            self._primary_is_good = True
            return FromPrimary(primary)

        backup = self._examine(self._backup, judge)
        self._remove_temporaries()
        errors = tuple(fault for fault in (primary, backup) if isinstance(fault, ValidationError))
        if isinstance(backup, State):
            missing = self._missing(self._primary)
            return FromBackup(backup, errors or (missing,), self._set_aside(self._primary))

        if not errors:
            return Absent()

        kept = self._set_aside(self._primary) + self._set_aside(self._backup)
        return UnreadableState(errors, kept)

    def saved_seq(self) -> int | None:
        """Return the last event in state.json, which is therefore durable; None if unreadable."""
        try:
            return codec.decode_value(_Seq, self._primary.read_bytes()).last_event_seq
        except (FileNotFoundError, Refused):
            return None

    def _examine(self, path: Path, judge: Judge) -> State | ValidationError | None:
        content = fsutil.content_of(path)
        if content is None:
            return None

        try:
            state = decode_state(content)
        except Refused as refused:
            return _fault_of(path, refused)

        if state.schema_version > SCHEMA_VERSION:
            raise NewerState(path, state.schema_version)

        state = msgspec.structs.replace(state, execution_plan=plans.shared(state.execution_plan))
        errors = errors_in(state)
        return errors[0] if errors else judge(state) or state

    def _keep_outgoing(self) -> None:
        """Make the current primary the backup as well."""
        with contextlib.suppress(FileNotFoundError):
            self._backup_temporary.unlink()

        try:
            os.link(self._primary, self._backup_temporary)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise

            outgoing = self._primary.read_bytes()
            fsutil.write_private(self._backup_temporary, outgoing, durable=True)

        self._backup_temporary.replace(self._backup)
        # rename(2) does nothing if both names are links to one file: the backup was linked before,
        # and a crash or a disk error kept the new state from taking its place.
        self._backup_temporary.unlink(missing_ok=True)

    def _remove_temporaries(self) -> None:
        for path in (self._temporary, self._backup_temporary):
            path.unlink(missing_ok=True)

    def _set_aside(self, path: Path) -> tuple[str, ...]:
        """Rename a bad original, durably, so that the next save does not replace it."""
        stamp = instants.to_text(self._clock.now()).replace(":", "").replace("-", "")
        kept = path.with_name(f"{path.name}.corrupt-{stamp}")
        number = 1
        while kept.exists():
            number += 1
            kept = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")

        try:
            path.rename(kept)
        except FileNotFoundError:
            return ()

        fsutil.sync_directory(path.parent)
        return (kept.name,)

    @staticmethod
    def _missing(path: Path) -> ValidationError:
        return ValidationError(type="corrupted_data", message=f"{path.name} is missing.")


def _fault_of(path: Path, refused: Refused) -> ValidationError:
    """Return the error, and tell a malformed codon from a file that is not a state at all."""
    at = refused.path or "$"
    in_codon = at.startswith("$.runs") and ".codons" in at
    return ValidationError(
        type="invalid_codon" if in_codon else "corrupted_data",
        message=f"{path.name} at {at}: {refused.message}",
    )


def found_ledger(
    layout: Layout,
    entries: Iterable[Entry],
    clock: Clock,
    new_id: NewId = lambda: str(uuid.uuid4()),
) -> State:
    """Write the first events of a journal and the state they lead to; blocking, and durable.

    Raises OSError, and Impossible for entries that contradict one another.
    """
    published, state = compose(EMPTY_STATE, entries, About(), clock=clock, new_id=new_id)
    fsutil.make_private_directory(layout.journal.parent)
    fsutil.replace_durably(layout.journal, b"".join(each.frame + b"\n" for each in published))
    StateStore(layout, clock).save(state)
    return state
