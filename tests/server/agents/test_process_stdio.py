"""Splitting chunks into lines, and pipes that another process keeps open."""

from __future__ import annotations

import os

import anyio
from hypothesis import given
from hypothesis import strategies as st

from hankweave_server.agents.process.stdio import Line, LineSplitter, PipeReader, PipeWriter
from support.waiting import limited


def split(chunks: list[bytes], limit: int) -> list[Line]:
    splitter = LineSplitter(limit)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + splitter.finish()


@given(st.lists(st.binary(max_size=20)))
def test_chunks_do_not_matter(chunks: list[bytes]) -> None:
    """However the bytes are chunked, the lines are the same."""
    whole = b"".join(chunks)
    assert split(chunks, 1000) == split([whole], 1000)
    assert [line.content for line in split(chunks, 1000)] == [
        line.removesuffix(b"\r")
        for line in (whole.split(b"\n") if not whole.endswith(b"\n") else whole.split(b"\n")[:-1])
        if whole
    ]


def test_a_line_beyond_the_limit_loses_its_end_and_says_so() -> None:
    """Dropped bytes are counted, and the next line is whole again."""
    long, short = split([b"abc", b"defg", b"hi\nxy\n"], 4)
    assert long == Line(b"abcd", dropped=5)
    assert long.marked_text() == "abcd … [5 bytes dropped]"
    assert short == Line(b"xy", dropped=0)


async def test_what_was_written_to_a_pipe_counts_before_it_is_read() -> None:
    """The number is that of all bytes since the beginning, also when the reader is closed."""
    read_end, write_end = os.pipe()
    reader = PipeReader(read_end)
    os.write(write_end, b"one")
    assert reader.bytes_written() == 3
    with limited():
        assert await anext(reader.chunks()) == b"one"

    os.write(write_end, b"four")
    assert reader.bytes_written() == 7
    os.close(write_end)
    reader.close()
    assert reader.bytes_written() == 3


async def test_an_abandoned_pipe_is_read_to_its_last_byte() -> None:
    """Everything written so far is read, even if another process keeps the other end open."""
    read_end, write_end = os.pipe()
    reader = PipeReader(read_end)
    chunks: list[bytes] = []
    first = anyio.Event()

    async def collect() -> None:
        async for chunk in reader.chunks():
            chunks.append(chunk)
            first.set()

    with limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect)
            os.write(write_end, b"one")
            await first.wait()
            os.write(write_end, b"two")
            reader.abandon()

    assert b"".join(chunks) == b"onetwo"
    os.close(write_end)
    reader.close()


async def test_a_reader_that_has_gone_away_is_no_error() -> None:
    """Writing to a closed pipe raises no exception."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    writer = PipeWriter(write_end)
    await writer.write(b"hello")
    assert not writer.is_closed
    writer.close()
    writer.close()
    assert writer.is_closed
