"""Ranges of large contents, in constant memory.

Content is deflated, so that a range can only be reached by reading all that lies before it. Whoever
reads a large file asks for one range after the other: the reading of the last range is kept where
it stopped, and the next one goes on from there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from hankweave_server.checkpoints.contents import Contents


class Ranges:
    """Gives ranges of blobs; remembers one reading."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._reading: _Reading | None = None

    def read(self, digest: bytes, size: int, offset: int, length: int) -> bytes:
        """Gives a range of a blob of that size; raises KeyError for a damaged one.

        What was given of a large blob is vouched for only when its end has been read.
        """
        if offset >= size > 0:
            return b""

        reading = self._reading
        self._reading = None
        if reading is None or reading.digest != digest or reading.position > offset:
            _close(reading)
            reading = _Reading(digest, self._contents.pieces(digest))

        reading.skip(offset - reading.position)
        data = reading.take(length)
        if offset + length >= size:
            reading.finish()
        else:
            self._reading = reading

        return data

    def close(self) -> None:
        _close(self._reading)
        self._reading = None


def _close(reading: _Reading | None) -> None:
    if reading is not None:
        reading.close()


class _Reading:
    """A blob read up to a position."""

    def __init__(self, digest: bytes, pieces: Iterator[bytes]) -> None:
        self.digest = digest
        self.position = 0
        self._pieces = pieces
        self._piece = b""
        self._at = 0

    def skip(self, count: int) -> None:
        for _ in self._parts(count):
            pass

    def take(self, count: int) -> bytes:
        return b"".join(self._parts(count))

    def finish(self) -> None:
        """Reads to the end: only there it shows whether all was as its name promises."""
        for _ in self._pieces:
            pass

    def close(self) -> None:
        if isinstance(self._pieces, Generator):
            self._pieces.close()

    def _parts(self, count: int) -> Iterator[bytes]:
        while count > 0:
            if self._at == len(self._piece):
                self._piece, self._at = next(self._pieces, b""), 0
                if not self._piece:
                    return

            part = self._piece[self._at : self._at + count]
            self._at += len(part)
            self.position += len(part)
            count -= len(part)
            yield part
