"""Fragmented messages: a client reassembles the same bytes, whatever the fragments are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.ids import ClientId
from hankweave_protocol.replies import HandshakeResponse, HandshakeResponseData
from hankweave_server.clock import SystemClock
from hankweave_server.transport.frames import (
    BATCH_BYTES,
    BLOCK_BYTES,
    FRAGMENT_BYTES,
    JournalPages,
    Message,
    PageRead,
    fragments,
    handshake_response,
    history_batches,
    journal_events,
    settled,
    single_batches,
    whole,
)

SIZES = st.sampled_from([0, 1, 100, FRAGMENT_BYTES - 1, FRAGMENT_BYTES, FRAGMENT_BYTES + 1, 50_000])


T = TypeVar("T")


async def made(steps: Iterator[T | PageRead]) -> list[T]:
    """Return what the steps make, with the reads that they need."""
    found: list[T] = []
    for step in steps:
        if isinstance(step, PageRead):
            await step.finish()
        else:
            found.append(step)

    return found


async def in_one_piece(messages: list[Message], pages: JournalPages) -> list[bytes]:
    return [await settled(whole(message, pages)) for message in messages]


def lines_of(*sizes: int) -> list[bytes]:
    return [msgspec.json.encode({"seq": n, "x": "é" * size}) for n, size in enumerate(sizes, 1)]


def pages_of(lines: list[bytes]) -> JournalPages:
    return JournalPages(lambda since: lines[since : since + 5])


@given(st.lists(SIZES, max_size=8))
async def test_fragments_put_together_are_the_message(sizes: list[int]) -> None:
    """No fragment exceeds the limit; only the first one starts and only the last one ends."""
    message = tuple(bytes([number]) * size for number, size in enumerate(sizes))
    cut = await made(fragments(message, pages_of([])))
    assert b"".join(each.payload for each in cut) == b"".join(message)
    assert all(len(each.payload) <= FRAGMENT_BYTES for each in cut)
    assert [each.begins for each in cut] == [True] + [False] * (len(cut) - 1)
    assert [each.ends for each in cut] == [False] * (len(cut) - 1) + [True]
    assert len(cut) == max(1, -(-sum(sizes) // FRAGMENT_BYTES))


async def test_the_part_of_a_long_line_in_a_fragment_is_read_when_it_is_needed() -> None:
    """So no copy of the line is kept; the fragments put together are the line."""
    read: list[int] = []

    class Long:
        size = 2 * BLOCK_BYTES + 10

        def read(self, at: int, most: int) -> bytes:
            read.append(at)
            return bytes([at % 251]) * min(most, self.size - at)

    cut = fragments((b"head", 1), JournalPages(lambda since: [Long()]))
    taken = bytearray()
    for step in cut:
        if isinstance(step, PageRead):
            await step.finish()
            continue

        assert len(step.payload) <= FRAGMENT_BYTES
        assert len(read) == 1 + (len(taken) + len(step.payload) - 5) // BLOCK_BYTES
        taken += step.payload

    assert read == [0, BLOCK_BYTES, 2 * BLOCK_BYTES]
    assert taken == b"head" + b"".join(
        Long().read(at, BLOCK_BYTES) for at in (0, BLOCK_BYTES, 2 * BLOCK_BYTES)
    )


async def test_each_event_is_a_message_of_its_own() -> None:
    lines = lines_of(1, 100_000, 2)
    pages = pages_of(lines)
    assert await in_one_piece(await made(journal_events(pages, 0, 3)), pages) == lines
    assert await in_one_piece(await made(journal_events(pages, 2, 3)), pages) == lines[2:]


async def test_batches_hold_each_event_once_and_say_whether_more_come() -> None:
    lines = lines_of(*[10] * 12, BATCH_BYTES, *[10] * 3)
    pages = pages_of(lines)
    messages = await made(history_batches(pages, 0, len(lines), 5, SystemClock()))
    batches = [msgspec.json.decode(each) for each in await in_one_piece(messages, pages)]
    assert [event["seq"] for each in batches for event in each["data"]["events"]] == [*range(1, 17)]
    assert [len(each["data"]["events"]) for each in batches] == [5, 5, 2, 1, 3]
    assert [each["data"]["hasMore"] for each in batches] == [True] * 4 + [False]
    assert {each["type"] for each in batches} == {"history.batch"}


async def test_a_journal_without_later_events_is_one_empty_batch() -> None:
    pages = pages_of([])
    (message,) = await made(history_batches(pages, 0, 0, 5, SystemClock()))
    assert msgspec.json.decode(await settled(whole(message, pages)))["data"] == {
        "events": [],
        "hasMore": False,
    }


async def test_a_handshake_response_takes_the_events_that_it_is_given() -> None:
    response = HandshakeResponse(
        data=HandshakeResponseData(
            client_id=ClientId("client-1"), mode="readonly", event_history=(), total_events=3
        )
    )

    async def seqs(message: Message) -> list[int]:
        decoded = msgspec.json.decode(await settled(whole(message, pages_of(lines_of(1, 2, 3)))))
        assert decoded["data"]["clientId"] == "client-1"
        return [event["seq"] for event in decoded["data"]["eventHistory"]]

    assert await seqs(handshake_response(response, (3, 2))) == [3, 2]
    assert await seqs(handshake_response(response, ())) == []


async def test_hankweaves_clients_get_a_batch_for_each_event_that_they_know() -> None:
    """An unknown event yields a message without parts; the last batch has `hasMore` false."""
    lines = lines_of(1, 1, 1, 1)

    def known(line: bytes) -> bytes | None:
        return line if msgspec.json.decode(line)["seq"] % 2 else None

    pages = JournalPages(lambda since: lines[since : since + 5], known)
    messages = await made(single_batches(pages, 0, 4, SystemClock()))
    sent = await in_one_piece([message for message in messages if message], pages)
    batches = [msgspec.json.decode(each)["data"] for each in sent]
    assert [event["seq"] for each in batches for event in each["events"]] == [1, 3]
    assert [each["hasMore"] for each in batches] == [True, False]
    assert len(messages) == 4

    (none,) = filter(None, await made(single_batches(pages, 3, 4, SystemClock())))
    assert msgspec.json.decode(await settled(whole(none, pages)))["data"] == {
        "events": [],
        "hasMore": False,
    }
    assert [bool(each) for each in await made(journal_events(pages, 0, 4))] == [
        True,
        False,
        True,
        False,
    ]
