"""Short lines in the journal: what repeats in snapshots and inputs of codons is written once.

A `state.snapshot` shows clients the newest hundred codons that have ended, about 60 KB, and every
codon's end records one. In the journal, a line whose codons continue those of an earlier snapshot
has only the new ones, and says which of the earlier ones follow:

    "data": {"sinceSnapshot": {"seq": 120, "codons": 99}, "completedCodons": [...], ...}

Nobody but the journal sees that form: `Shortening` makes it when an event is decided, and `Whole`
undoes it, byte for byte, when lines are read. A line in the middle is made whole by reading back
from snapshot to snapshot, until enough codons are found. So that this stays quick, the codons are
repeated in full after a start, after whatever shortens the thread, and once both `EVENTS_APART` and
`BYTES_APART` have passed. A line of up to `SHORT_ENOUGH` is never changed.

A `codon.keyed` has some sixty hashes, of which few differ between the codons of a loop. Its line
has those that differ from an earlier one that is in full, and the names that only that one has:

    "data": {"sinceInputs": 120, "without": [], "inputs": {"loop.iteration": "6b86b273ff34"}, ...}

It is in full after a start, and if more than half of the inputs differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.events import CodonKeyed, StateSnapshot

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
_SINCE_INPUTS = "sinceInputs"
_WITHOUT = "without"
_INPUTS = "inputs"
_KEYED = b'"type":"%s","data":{' % CodonKeyed.TYPE.encode()
_SHORT_KEYED = _KEYED + b'"%s":' % _SINCE_INPUTS.encode()
_WITHIN = 400
"""The type of an event is among its first bytes."""

_Raws = dict[str, msgspec.Raw]
_decode_raws = msgspec.json.Decoder(_Raws).decode
_decode_codons = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_inputs = msgspec.json.Decoder(dict[str, str]).decode
_decode_names = msgspec.json.Decoder(list[str]).decode


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


@dataclass(frozen=True, slots=True)
class _Keyed:
    """The line of a `codon.keyed`, taken apart."""

    event: _Raws
    data: _Raws
    inputs: dict[str, str]
    since: int | None
    without: list[str]
    """Inputs of that event that this one lacks."""

    @classmethod
    def of(cls, line: bytes) -> _Keyed:
        """Take a line apart; raise MsgspecError or KeyError for another line."""
        event = _decode_raws(line)
        data = _decode_raws(event["data"])
        since = data.pop(_SINCE_INPUTS, None)
        inputs = _decode_inputs(data[_INPUTS]) if _INPUTS in data else {}
        without = _decode_names(data.pop(_WITHOUT, b"[]"))
        return cls(
            event, data, inputs, None if since is None else msgspec.json.decode(since), without
        )

    def line(
        self, inputs: Mapping[str, str], since: int | None = None, without: Sequence[str] = ()
    ) -> bytes:
        """Return the line with other inputs."""
        data = self.data | {_INPUTS: msgspec.Raw(codec.encode(inputs))}
        if since is not None:
            short = {_SINCE_INPUTS: since, _WITHOUT: without}
            data = {name: msgspec.Raw(codec.encode(each)) for name, each in short.items()} | data

        return codec.encode(self.event | {"data": msgspec.Raw(codec.encode(data))})


class Shortening:
    """The short form of the lines of one journal, given in its order."""

    def __init__(self, short_enough: int = SHORT_ENOUGH) -> None:
        self._short_enough = short_enough
        self._seq = 0
        """The newest snapshot, with..."""
        self._codons: list[bytes] = []
        self._whole_seq = 0
        """...the newest one in full, and the bytes since then."""
        self._bytes = 0
        self._keyed: tuple[int, dict[str, str]] = (0, {})
        """The newest `codon.keyed` in full, and its inputs."""

    def stored(self, seq: int, frame: bytes) -> bytes:
        """Return the line for the next event of the journal."""
        self._bytes += len(frame)
        if frame.find(_KEYED, 0, _WITHIN) >= 0:
            return self._stored_inputs(seq, frame)

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

    def _stored_inputs(self, seq: int, frame: bytes) -> bytes:
        keyed, (since, former) = _Keyed.of(frame), self._keyed
        inputs = keyed.inputs
        new = {name: each for name, each in inputs.items() if former.get(name) != each}
        without = sorted(former.keys() - inputs.keys())
        if list(inputs) != sorted(inputs) or len(new) + len(without) > len(inputs) / 2:
            self._keyed = seq, inputs
            return frame

        return keyed.line(new, since, without) if inputs else frame


class Whole:
    """The whole form of the lines of one journal; it may be used from any thread."""

    def __init__(self, stored: Callable[[int, int], list[bytes]]) -> None:
        """Read with `stored`, which returns so many lines after a seq, as they are in the file."""
        self._stored = stored
        self._last: tuple[int, list[bytes]] = (0, [])
        """The last snapshot that was made whole: the next one to be read often continues it."""
        self._keyed: tuple[int, dict[str, str]] = (0, {})
        """The same for inputs of codons."""

    def line(self, seq: int, line: bytes) -> bytes:
        """Return the event of a line as it was published.

        Raises ValueError for an event that continues one that is not in the journal.
        """
        is_keyed = line.find(_SHORT_KEYED, 0, _WITHIN) >= 0
        if not is_keyed and line.find(_SHORT, 0, _WITHIN) < 0:
            return line

        try:
            if is_keyed:
                return self._with_inputs(_Keyed.of(line))

            snapshot = _Snapshot.of(line)
            codons = self._codons_of(snapshot)
        except (msgspec.MsgspecError, LookupError) as fault:
            raise ValueError(f"the event continues one that is not there: {fault}") from fault

        self._last = (seq, codons)
        return snapshot.line(codons)

    def _with_inputs(self, keyed: _Keyed) -> bytes:
        since, former = self._keyed
        if keyed.since is not None and keyed.since != since:
            since = keyed.since
            former = _Keyed.of(self._stored(since - 1, 1)[0]).inputs
            if not former:
                raise LookupError(f"event {since} has no inputs")

            self._keyed = since, former

        found = {**former, **keyed.inputs}
        return keyed.line({name: found[name] for name in sorted(found.keys() - keyed.without)})

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
