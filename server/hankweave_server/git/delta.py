"""Describe one content as a difference to another, in the format of git's packs.

libgit2 compares each object with ten others, which takes 10 ms for a file of 100 KB. A repack knows
which objects are versions of the same path, so one comparison is enough: a tenth of that time.

A delta is the size of the base, the size of the target, and instructions: copy a range of the base,
or insert bytes (gitformat-pack, "Deltified representation"). To find what can be copied, the base
is cut into pieces behind line ends and similar bytes, so that an insertion moves a piece and does
not change it. A window of bytes at the start of each piece is remembered. Where the target differs
from the base, its next pieces are looked up; where one is found, bytes are compared as far as they
agree. So the time is that of the pieces of the base and of what changed, and most of it is spent in
slices, comparisons and regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

WINDOW = 24
"""Bytes that must agree for a range to be copied: a copy takes up to seven bytes, and a search."""

NEAR = 16
"""Pieces of the target that are looked for at the same distance, before the base is cut up."""

SHORT = 256
"""Bytes at the end of what differs that are inserted rather than looked up."""

_PIECES = re.compile(rb".{15}(?:[^\n;}\0]{0,48}[\n;}\0]|.{49})", re.DOTALL)
"""Pieces of the base: at least sixteen bytes, so that they take less memory than the content."""

_PLACES = re.compile(rb".{3}(?:[^\n;}\0]{0,60}[\n;}\0]|.{61})", re.DOTALL)
"""Pieces of the target: shorter, because those of the base may begin at any of these places."""

_MOST_COPIED = 0xFFFF
_MOST_INSERTED = 0x7F


def applied(delta: bytes, base: bytes) -> bytes:
    """Return the target that a delta makes of its base.

    Raises IndexError or ValueError for what cannot be a delta to that base; the caller verifies the
    result by its name.
    """
    (size, at), parts = _number_at(delta, 0), list[bytes]()
    if size != len(base):
        raise ValueError("the delta is one to another base")

    wanted, at = _number_at(delta, at)
    while at < len(delta):
        order, at = delta[at], at + 1
        if not order & 0x80:
            parts.append(delta[at : at + order])
            at += order
            continue

        start = count = 0
        for bit in range(7):
            if order >> bit & 1:
                if bit < 4:
                    start |= delta[at] << 8 * bit
                else:
                    count |= delta[at] << 8 * (bit - 4)

                at += 1

        parts.append(base[start : start + (count or 0x10000)])

    target = b"".join(parts)
    if len(target) != wanted:
        raise ValueError("the delta is incomplete")

    return target


def _number_at(delta: bytes, at: int) -> tuple[int, int]:
    """Return a size in the head of a delta, and where it ends."""
    size = shift = 0
    while delta[at] & 0x80:
        size |= (delta[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7

    return size | delta[at] << shift, at + 1


class Base:
    """A content that others are compared with."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._places: dict[bytes, int] | None = None

    def delta(self, target: bytes, most: int) -> bytes | None:
        """Return the instructions that make `target`; None if they take more than `most` bytes."""
        base = self._content
        delta = _Delta(len(base), target, most)
        length = _common(base, 0, target, 0)
        delta.copy(0, length)
        tail = _common_end(base[length:], target[length:])
        end = len(target) - tail
        here = length
        shift = 0
        """Where the base agreed last, relative to the target."""
        while here < end and (found := self._next(target, here, end, shift)) is not None:
            start, source = found
            back = _common_end(base[:source], target[here:start])
            start, source = start - back, source - back
            delta.insert(here, start)
            length = min(_common(base, source, target, start), end - start)
            delta.copy(source, length)
            here, shift = start + length, source - start
            if delta.is_too_long:
                return None

        delta.insert(here, end)
        delta.copy(len(base) - tail, tail)
        return None if delta.is_too_long else delta.whole()

    def _next(self, target: bytes, here: int, end: int, shift: int) -> tuple[int, int] | None:
        """Return the next place of the target that the base has too, and where."""
        base = self._content
        for start in islice(_starts(target, here, end), NEAR):
            shifted = max(0, start + shift)
            if base.startswith(target[start : start + WINDOW], shifted):
                return start, shifted  # A line was replaced by one of the same length.

        if end - here < SHORT:
            return None

        places = self._index()
        for start in _starts(target, here, end):
            source = places.get(target[start : start + WINDOW])
            if source is not None:
                return start, source

        return None

    def _index(self) -> dict[bytes, int]:
        if self._places is None:
            base = self._content
            ends = [piece.end() for piece in _PIECES.finditer(base, 0, len(base) - WINDOW)]
            # Backwards, so that the first of equal pieces is remembered.
            self._places = {base[end : end + WINDOW]: end for end in reversed([0, *ends])}

        return self._places


def _starts(target: bytes, here: int, end: int) -> Iterator[int]:
    for piece in _PLACES.finditer(target, here, end - WINDOW):
        yield piece.end()


class _Delta:
    """The instructions as they are written."""

    def __init__(self, base_size: int, target: bytes, most: int) -> None:
        self._target = target
        self._parts = [_number(base_size), _number(len(target))]
        self._left = most

    @property
    def is_too_long(self) -> bool:
        return self._left < 0

    def whole(self) -> bytes:
        return b"".join(self._parts)

    def insert(self, start: int, end: int) -> None:
        for at in range(start, end, _MOST_INSERTED):
            part = self._target[at : min(end, at + _MOST_INSERTED)]
            self._append(bytes([len(part)]) + part)
            if self.is_too_long:
                return

    def copy(self, offset: int, length: int) -> None:
        for at in range(0, length, _MOST_COPIED):
            self._append(_copied(offset + at, min(_MOST_COPIED, length - at)))

    def _append(self, part: bytes) -> None:
        self._parts.append(part)
        self._left -= len(part)


def _copied(offset: int, length: int) -> bytes:
    """Encode a copy: a byte that says which bytes follow, and those that are not zero."""
    numbers = offset.to_bytes(4, "little") + length.to_bytes(3, "little")
    flags, present = 0x80, bytearray()
    for position, byte in enumerate(numbers):
        if byte:
            flags |= 1 << position
            present.append(byte)

    return bytes([flags]) + present


def _number(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7

    encoded.append(value)
    return bytes(encoded)


def _common(left: bytes, at: int, right: bytes, to: int) -> int:
    """Return how many bytes agree from these places on."""
    most = min(len(left) - at, len(right) - to)
    length, step = 0, 16
    while length < most and step:
        step = min(step, most - length)
        begin, other = at + length, to + length
        if left[begin : begin + step] == right[other : other + step]:
            length += step
            step *= 2
        else:
            step //= 2

    return length


def _common_end(left: bytes, right: bytes) -> int:
    """Return how many bytes agree at the ends."""
    most = min(len(left), len(right))
    length, step = 0, 16
    while length < most and step:
        step = min(step, most - length)
        end, other = len(left) - length, len(right) - length
        if left[end - step : end] == right[other - step : other]:
            length += step
            step *= 2
        else:
            step //= 2

    return length
