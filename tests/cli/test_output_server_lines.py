"""The server's lines on stdout, for readers that are fast, slow or gone."""

from __future__ import annotations

import io
import threading

from hankweave_server.cli.output.server_lines import WAITING, WAITING_CHARACTERS, LineWriter
from support.waiting import LIMIT


class SlowReader(io.StringIO):
    """A stream that blocks until it is released, and signals after a given number of lines."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.begun, self.gate, self.caught_up = (threading.Event() for _ in range(3))
        self._missing = lines

    def write(self, text: str) -> int:
        self.begun.set()
        assert self.gate.wait(LIMIT)
        self._missing -= 1
        if self._missing == 0:
            self.caught_up.set()

        return super().write(text)


def lines_of_a_slow_reader(lines: list[str], *, fitting: int) -> list[str]:
    """Return the lines that a slow reader got.

    It takes the first line, and the rest when all lines were written.
    """
    reader = SlowReader(1 + fitting)
    voice = LineWriter(reader)
    with voice.writing():
        voice.open("ready")
        assert reader.begun.wait(LIMIT)
        for line in lines:
            voice.write(line)

        reader.gate.set()
        assert reader.caught_up.wait(LIMIT)
        voice.write("after it")

    return reader.getvalue().splitlines()


def test_lines_written_before_it_is_open_follow_the_first_line() -> None:
    """`server.ready` is the first line (DESIGN 11); the order of the others is kept."""
    stream = io.StringIO()
    voice = LineWriter(stream)
    with voice.writing():
        voice.write("one")
        voice.open("ready")
        voice.write("two")

    assert stream.getvalue() == "ready\none\ntwo\n"


def test_a_reader_that_is_not_far_behind_misses_nothing() -> None:
    """A reader that is slow, but within the bounds, gets every line."""
    lines = [str(number) for number in range(1_000)]
    assert lines_of_a_slow_reader(lines, fitting=1_000) == ["ready", *lines, "after it"]


def test_long_lines_for_a_slow_reader_fill_no_memory() -> None:
    """Four million characters wait; later lines are dropped, counted, and reported."""
    size = WAITING_CHARACTERS // 8
    lines = lines_of_a_slow_reader([letter * size for letter in "abcdefghij"], fitting=8)
    assert [line[:1] for line in lines[1:9]] == [*"abcdefgh"]
    assert lines[9:] == [
        "(2 lines were skipped here because the output could not keep up. The journal has them.)",
        "after it",
    ]


def test_short_lines_for_a_slow_reader_fill_no_memory() -> None:
    """The number of waiting lines is bounded, however short they are."""
    lines = lines_of_a_slow_reader([""] * (WAITING + 7), fitting=WAITING)
    assert lines[-2].startswith("(7 lines were skipped here")
    assert len(lines) == 1 + WAITING + 2


def test_nothing_is_written_to_a_closed_pipe() -> None:
    """The writer is not blocked: later lines are discarded."""
    reader = io.StringIO()
    voice = LineWriter(reader)
    reader.close()
    with voice.writing():
        voice.open("ready")
        for number in range(1_000):
            voice.write(str(number))

    assert "stdout" not in {thread.name for thread in threading.enumerate()}
