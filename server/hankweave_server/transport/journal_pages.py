"""Journal lines that clients are being sent, read once for all of them.

Clients that catch up read the same journal, often the same part of it at the same time. None of
them keeps lines of its own: each remembers a position and asks here for the line at it. Reading a
line reads the page around it, and the lines read last stay in memory up to a limit that does not
depend on the number of clients. A line that is no longer in memory is read again. Of a long one,
such as the end of a rollback of many files, only the part that is sent next is ever read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from hankweave_server.transport.server_api import LongLine

KEPT_BYTES = 4 * 1024 * 1024
LINE_BYTES = 200
"""What each line weighs beside its bytes."""


class JournalPages:
    """The lines that were read last, by seq."""

    def __init__(
        self,
        read: Callable[[int], Sequence[bytes | LongLine]],
        project: Callable[[bytes], bytes | None] | None = None,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """`read` returns one page: some lines after a seq, at least one if there is one.

        `project` makes of a line what clients are sent: other bytes, or nothing, which is an empty
        line here. It needs whole lines, long ones as well.
        """
        self._read = read
        self._project = project
        self._kept_bytes = kept_bytes
        self._lines: OrderedDict[int, bytes | LongLine] = OrderedDict()
        self._bytes = 0

    def size(self, seq: int) -> int:
        """Return the length of a line; raise LookupError if the journal has no such event."""
        line = self._line(seq)
        return len(line) if isinstance(line, bytes) else line.size

    def part(self, seq: int, at: int, most: int) -> bytes:
        """Return at most so many bytes of a line, from a position on."""
        line = self._line(seq)
        return line[at : at + most] if isinstance(line, bytes) else line.read(at, most)

    def batch(self, since: int, until: int, most: int, most_bytes: int) -> range:
        """Return the seqs of the next lines that fit together, at least one, from `since` on."""
        seq, size = since, 0
        while seq < until and seq - since < most:
            size += self.size(seq + 1)
            if size > most_bytes and seq > since:
                break

            seq += 1

        return range(since + 1, seq + 1)

    def _line(self, seq: int) -> bytes | LongLine:
        line = self._lines.get(seq)
        if line is not None:
            self._lines.move_to_end(seq)
            return line

        page = self._projected(self._read(seq - 1))
        if not page:
            raise LookupError(f"the journal has no event {seq}")

        # The last line of the page is added first, so that the next one needed is dropped last.
        for number, line in reversed(tuple(enumerate(page, seq))):
            self._keep(number, line)

        return page[0]

    def _projected(self, page: Sequence[bytes | LongLine]) -> Sequence[bytes | LongLine]:
        if self._project is None:
            return page

        whole = (line if isinstance(line, bytes) else line.read(0, line.size) for line in page)
        return [self._project(line) or b"" for line in whole]

    def _keep(self, seq: int, line: bytes | LongLine) -> None:
        if seq not in self._lines:
            self._bytes += _weight(line)

        self._lines[seq] = line
        self._lines.move_to_end(seq)
        for oldest in self._superfluous():
            self._bytes -= _weight(self._lines.pop(oldest))

    def _superfluous(self) -> Iterator[int]:
        while self._bytes > self._kept_bytes and len(self._lines) > 1:
            yield next(iter(self._lines))


def _weight(line: bytes | LongLine) -> int:
    return LINE_BYTES + (len(line) if isinstance(line, bytes) else 0)
