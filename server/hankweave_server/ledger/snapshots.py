"""Snapshots in the journal: each line has only the codons that the snapshot before it lacks.

A `state.snapshot` shows clients the newest hundred codons that have ended, about 60 KB, and every
codon's end records one. In the journal, a line whose codons continue those of an earlier snapshot
has only the new ones, and says which of the earlier ones follow:

    "data": {"sinceSnapshot": {"seq": 120, "codons": 99}, "completedCodons": [...], ...}

Nobody but the journal sees that form: `Shortening` makes it when an event is decided, and `Whole`
undoes it, byte for byte, when lines are read. A line in the middle is made whole by reading back
from snapshot to snapshot, until enough codons are found. So that this stays quick, the codons are
repeated in full after a start, after whatever shortens the thread, and once both `EVENTS_APART` and
`BYTES_APART` have passed. A line of up to `SHORT_ENOUGH` is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.events import StateSnapshot

EVENTS_APART = 1_000
BYTES_APART = 1 << 20
"""Snapshots in full are at least so many events and bytes apart."""

SHORT_ENOUGH = 4 << 10
"""Bytes of a line that is not worth a short form: that of a few codons."""

LONGEST = 16 << 10
"""Bytes of the longest short form: a line that is read in parts is always whole."""

_SINCE = "sinceSnapshot"
_CODONS = "completedCodons"
_TYPE = b'"type":"%s","data":{' % StateSnapshot.TYPE.encode()
_SHORT = _TYPE + b'"%s":' % _SINCE.encode()
_WITHIN = 400
"""The type of an event is among its first bytes."""

_Raws = dict[str, msgspec.Raw]
_decode_raws = msgspec.json.Decoder(_Raws).decode
_decode_codons = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Since(msgspec.Struct, frozen=True):
    seq: int
    """The earlier snapshot."""
    codons: int
    """How many of its codons follow the new ones."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The line of a snapshot, taken apart."""

    event: _Raws
    data: _Raws
    codons: list[bytes]
    since: _Since | None

    @classmethod
    def of(cls, line: bytes) -> _Snapshot:
        """Take a line apart; raise MsgspecError or KeyError for another line."""
        event = _decode_raws(line)
        data = _decode_raws(event["data"])
        since = data.pop(_SINCE, None)
        return cls(
            event,
            data,
            [bytes(codon) for codon in _decode_codons(data[_CODONS])],
            None if since is None else msgspec.json.decode(since, type=_Since),
        )

    def line(self, codons: Iterable[bytes], since: _Since | None = None) -> bytes:
        """Return the line with other codons."""
        data = self.data | {_CODONS: msgspec.Raw(b"[%s]" % b",".join(codons))}
        if since is not None:
            data = {_SINCE: msgspec.Raw(codec.encode(since)), **data}

        return codec.encode(self.event | {"data": msgspec.Raw(codec.encode(data))})


class Shortening:
    """The short form of the snapshots of one journal, given in its order."""

    def __init__(self, short_enough: int = SHORT_ENOUGH) -> None:
        self._short_enough = short_enough
        self._seq = 0
        """The newest snapshot, with..."""
        self._codons: list[bytes] = []
        self._whole_seq = 0
        """...the newest one in full, and the bytes since then."""
        self._bytes = 0

    def stored(self, seq: int, frame: bytes) -> bytes:
        """Return the line for the next event of the journal."""
        self._bytes += len(frame)
        if frame.find(_TYPE, 0, _WITHIN) < 0:
            return frame

        snapshot = _Snapshot.of(frame)
        line = None if len(frame) <= self._short_enough else self._shortened(snapshot)
        is_due = seq - self._whole_seq >= EVENTS_APART and self._bytes >= BYTES_APART
        if line is None or is_due or len(line) > LONGEST:
            line, self._whole_seq, self._bytes = frame, seq, 0
        else:
            self._bytes += len(line) - len(frame)

        self._seq, self._codons = seq, snapshot.codons
        return line

    def _shortened(self, snapshot: _Snapshot) -> bytes | None:
        """Return the short form; None if the codons do not continue those of the last one."""
        codons, former = snapshot.codons, self._codons
        if not former or former[0] not in codons:
            return None

        new = codons.index(former[0])
        kept = len(codons) - new
        if codons[new:] != former[:kept]:
            return None

        return snapshot.line(codons[:new], _Since(self._seq, kept))


class Whole:
    """Makes the lines of one journal whole again; may be used from any thread."""

    def __init__(self, stored: Callable[[int, int], list[bytes]]) -> None:
        """`stored` returns so many lines after a seq, as they are in the file."""
        self._stored = stored
        self._last: tuple[int, list[bytes]] = (0, [])
        """The last snapshot that was made whole: the next one to be read often continues it."""

    def line(self, seq: int, line: bytes) -> bytes:
        """Return the event of a line as it was published.

        Raises ValueError for a snapshot that continues one that is not in the journal.
        """
        if line.find(_SHORT, 0, _WITHIN) < 0:
            return line

        try:
            snapshot = _Snapshot.of(line)
            codons = self._codons_of(snapshot)
        except (msgspec.MsgspecError, LookupError) as fault:
            raise ValueError(f"the snapshot continues one that is not there: {fault}") from fault

        self._last = (seq, codons)
        return snapshot.line(codons)

    def _codons_of(self, snapshot: _Snapshot) -> list[bytes]:
        codons, since, count = list(snapshot.codons), snapshot.since, len(snapshot.codons)
        count += 0 if since is None else since.codons
        while len(codons) < count:
            if since is None:
                raise LookupError(f"codons are missing: {count - len(codons)}")

            last, former = self._last
            if since.seq != last:
                earlier = _Snapshot.of(self._stored(since.seq - 1, 1)[0])
                former, since = earlier.codons, earlier.since
            else:
                since = None

            codons += former[: count - len(codons)]

        return codons
