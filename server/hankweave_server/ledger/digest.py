"""A digest of the journal, so that a start need not read a long one again.

A start has to know where the lines of the journal are, which checkpoints they name and what each
codon cost; a rollback, which events tell of effects outside the work tree. The digest follows the
journal event by event, and an orderly end saves it beside the journal, with the journal's size,
times and inode. The next start uses it if all of these are unchanged: the kernel sets the change
time (`ctime`) at every write, and no program can set it back. After a crash, or if another program
has touched or copied the journal, every line is read and accepted again, as without the file.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from hankweave_protocol.events import StateTransition
from hankweave_server import fsutil
from hankweave_server.domain.checkpoints.records import OnRecord, RecordedCheckpoints
from hankweave_server.domain.effects.recorded import RecordedEffects
from hankweave_server.domain.validation import CodonKey, CostTally
from hankweave_server.ledger.journal import Bookmarks, Journal

VERSION = 2

_TRANSITION = b'"%s"' % StateTransition.TYPE.encode()
_PRUNED = b'"checkpoint.pruned"'


class _Facts(msgspec.Struct):
    """The facts that the lines record."""

    checkpoints: RecordedCheckpoints
    costs: CostTally
    effects: RecordedEffects


class _Saved(msgspec.Struct, array_like=True):
    version: int
    stamp: tuple[int, ...]
    facts: _Facts
    lines: int
    numbers: bytes
    offsets: bytes


class JournalDigest:
    """The facts that starts and rollbacks need from the lines of a journal."""

    def __init__(self, inside: tuple[str, ...] = ("/",)) -> None:
        """`inside` are the paths that an effect elsewhere is not below (`Layout.inside`)."""
        self._inside = inside
        self._facts = _Facts(RecordedCheckpoints(), CostTally(), RecordedEffects())
        self._lines = 0
        self._fault: msgspec.MsgspecError | None = None

    def add(self, line: bytes) -> None:
        """Add the next line."""
        self._lines += 1
        self._facts.effects.add(self._lines, line, self._inside)
        if self._fault is None and (_TRANSITION in line or _PRUNED in line):
            try:
                self._facts.checkpoints.add(line)
                self._facts.costs.add(line)
            except msgspec.MsgspecError as fault:
                self._fault = fault

    def checkpoints(self) -> OnRecord:
        """Return the checkpoints on record; raise MsgspecError for a line that is no event."""
        return self._sound().checkpoints.result()

    def costs(self) -> dict[CodonKey, float]:
        """Return what each codon cost, in USD; raise MsgspecError for a line that is no event."""
        return self._sound().costs.result()

    @property
    def effects(self) -> RecordedEffects:
        """The events that tell of effects outside the work tree."""
        return self._facts.effects

    def _sound(self) -> _Facts:
        if self._fault is not None:
            raise self._fault

        return self._facts

    def save(self, path: Path, journal: Journal) -> None:
        """Save the digest of a journal to which nothing more is appended.

        Without the file a start merely takes longer, so a full disk is no error.
        """
        if self._fault is not None or self._lines != journal.last_seq:
            return

        saved = _Saved(
            VERSION, _stamp(journal.status()), self._facts, self._lines, *journal.marks.to_bytes()
        )
        with contextlib.suppress(OSError):
            fsutil.replace(path, msgspec.msgpack.encode(saved))

    def load(self, path: Path, journal: Path) -> Bookmarks | None:
        """Take over a saved digest, and return where the lines are.

        None, with nothing taken over, if there is none that describes the journal as it is.
        """
        try:
            saved = msgspec.msgpack.decode(path.read_bytes(), type=_Saved)
            stamp = _stamp(journal.stat(follow_symlinks=False))
        except (OSError, msgspec.MsgspecError):
            return None

        if (saved.version, saved.stamp) != (VERSION, stamp):
            return None

        marks = Bookmarks.from_bytes(saved.numbers, saved.offsets, (saved.lines, stamp[0]))
        if marks is not None:
            self._facts, self._lines = saved.facts, saved.lines

        return marks


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        status.st_dev,
    )
