"""A journal that is searched instead of read: opening it takes the same time however long it is.

A server reads every line at its start and keeps bookmarks. A command that shows the end, or one
event, would read gigabytes for a few lines. Seqs have no gap and lines are in their order, so a
line is found by interpolation, in a few reads.

What is not read is not checked: damage is found only by who reads that line. An answer that depends
on every line calls `check` first.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

from hankweave_server.ledger.journal import JournalCorrupt, ReadableJournal, pread_all, seq_in

_NEAR = 64 << 10
"""Bytes that are read at once rather than searched."""

_PAGE = 5_000
"""Lines that are checked at a time."""

_BLOCK = 4 << 20
"""Bytes that are read at a time by a search for words."""

_NO_EVENT = re.compile(rb"\n[^{]")


def of_types(types: Iterable[str]) -> re.Pattern[bytes]:
    """Return what `backward` needs to find events of some types.

    It matches all of them, and few others: in texts, quotes are escaped.
    """
    names = b"|".join(re.escape(name.encode()) for name in sorted(types))
    return re.compile(rb'"type":"(?:' + names + rb')"')


class SearchedJournal(ReadableJournal):
    """An open journal that may belong to a running server; nothing in it is changed.

    It ends with the last whole event that was there when it was opened.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        super().__init__(path, descriptor)
        try:
            self._last_seq, self.size = self._end()
        except BaseException:
            self.close()
            raise

        self._seqs, self._offsets = [0, self.last_seq], [0, self.size]
        """Where some lines end, in order."""

    @property
    def last_seq(self) -> int:
        return self._last_seq

    def stored(self, since_seq: int, limit: int | None = None) -> list[bytes]:
        since = min(max(since_seq, 0), self.last_seq)
        count = self.last_seq - since if limit is None else min(limit, self.last_seq - since)
        if count <= 0:
            return []

        begin = self._end_of(since)
        lines = self._lines_at(begin, count)
        for seq, line in enumerate(lines, since + 1):
            if seq_in(line) != seq:
                raise JournalCorrupt(self.path, seq, "the line is not the event with that seq")

        self._note(since + count, begin + sum(len(line) + 1 for line in lines))
        return lines

    def check(self) -> None:
        """Read every line; raise JournalCorrupt at the first that is damaged."""
        for since in range(0, self.last_seq, _PAGE):
            self.stored(since, _PAGE)

    def backward(
        self, words: re.Pattern[bytes], since: int = 0, *, with_damage: bool = False
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that contain a match, newest first, with the offsets of their ends.

        With `with_damage`, lines that cannot be events are yielded as well. The search ends at the
        line that has the byte at offset `since`.
        """
        end = self.size
        while end > since:
            begin, block = self._block_before(end, min(_BLOCK, end - since))
            found = {block.rfind(b"\n", 0, each.start()) + 1 for each in words.finditer(block)}
            if with_damage:
                found |= {each.end() - 1 for each in _NO_EVENT.finditer(block)}
                found |= set() if block[:1] == b"{" else {0}

            for at in sorted(found, reverse=True):
                until = block.index(b"\n", at)
                line = block[at:until]
                yield begin + until + 1, self._published(seq_in(line) or 0, line)

            end = begin

    def lines_before(self, offset: int) -> int:
        """Return how many lines end at or before an offset."""
        blocks = range(0, offset, _BLOCK)
        return sum(
            pread_all(self._descriptor, min(_BLOCK, offset - at), at).count(b"\n") for at in blocks
        )

    # --- searching --------------------------------------------------------------------------------

    def _end(self) -> tuple[int, int]:
        """Return the seq of the last whole event, and where its line ends; zeros if none is."""
        end = os.fstat(self._descriptor).st_size
        while end > 0:
            begin, block = self._block_before(end, _NEAR)
            until = len(block)
            while (newline := block.rfind(b"\n", 0, until)) >= 0:
                seq = seq_in(block[block.rfind(b"\n", 0, newline) + 1 : newline])
                if seq:
                    return seq, begin + newline + 1

                until = newline

            end = begin

        return 0, 0

    def _end_of(self, seq: int) -> int:
        """Return the offset at which the line of a seq ends, 0 for seq 0; raise JournalCorrupt."""
        at = bisect_right(self._seqs, seq)
        low, begin = self._seqs[at - 1], self._offsets[at - 1]
        high, end = (low, begin) if low == seq else (self._seqs[at], self._offsets[at])
        halves = False
        while low < seq < high and begin < end:
            # Every other time in the middle, which lines of very different sizes cannot delay.
            share = 0.5 if halves else (seq - low) / (high - low)
            halves = not halves
            start = self._start_of_line(begin + int((end - begin - 1) * share))
            (line,) = self._lines_at(start, 1)
            found = seq_in(line)
            if found is None:
                raise self._corrupt(start, "the line is not an event")

            if found <= seq:
                low, begin = found, start + len(line) + 1
            else:
                high, end = found - 1, start

        if seq not in (low, high):
            raise self._corrupt(begin, f"seq {seq} is missing")

        return begin if low == seq else end

    def _start_of_line(self, offset: int) -> int:
        """Return where the line begins that has the byte at an offset."""
        size = _NEAR
        while True:
            begin = max(0, offset - size)
            newline = pread_all(self._descriptor, offset - begin, begin).rfind(b"\n")
            if newline >= 0 or begin == 0:
                return begin + newline + 1

            size *= 2

    def _block_before(self, end: int, size: int) -> tuple[int, bytes]:
        """Return whole lines before an offset, at least `size` bytes, and where they begin."""
        begin = self._start_of_line(max(0, end - size))
        return begin, pread_all(self._descriptor, end - begin, begin)

    def _lines_at(self, offset: int, count: int) -> list[bytes]:
        """Return the lines from an offset on; fewer, and an empty one, if the journal ends."""
        size = count * (self.size // self.last_seq + 1) + _NEAR
        while True:
            content = pread_all(self._descriptor, min(size, self.size - offset), offset)
            if content.count(b"\n") >= count or offset + size >= self.size:
                return content.split(b"\n", count)[:count]

            size *= 2

    def _note(self, seq: int, offset: int) -> None:
        at = bisect_right(self._seqs, seq)
        if self._seqs[at - 1] != seq:
            self._seqs.insert(at, seq)
            self._offsets.insert(at, offset)

    def _corrupt(self, offset: int, reason: str) -> JournalCorrupt:
        return JournalCorrupt(self.path, self.lines_before(offset) + 1, reason)
