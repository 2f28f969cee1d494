"""Fragmented messages: a client reassembles the same bytes, whatever the fragments are."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.ids import ClientId
from hankweave_protocol.replies import HandshakeResponse, HandshakeResponseData
from hankweave_server.clock import SystemClock
from hankweave_server.transport.frames import (
    BATCH_BYTES,
    FRAGMENT_BYTES,
    JournalPages,
    Message,
    fragments,
    handshake_response,
    history_batches,
    journal_events,
    single_batches,
    whole,
)

SIZES = st.sampled_from([0, 1, 100, FRAGMENT_BYTES - 1, FRAGMENT_BYTES, FRAGMENT_BYTES + 1, 50_000])


def lines_of(*sizes: int) -> list[bytes]:
    return [msgspec.json.encode({"seq": n, "x": "é" * size}) for n, size in enumerate(sizes, 1)]


def pages_of(lines: list[bytes]) -> JournalPages:
    return JournalPages(lambda since: lines[since : since + 5])


@given(st.lists(SIZES, max_size=8))
def test_fragments_put_together_are_the_message(sizes: list[int]) -> None:
    """No fragment exceeds the limit; only the first one starts and only the last one ends."""
    message = tuple(bytes([number]) * size for number, size in enumerate(sizes))
    cut = list(fragments(message, pages_of([])))
    assert b"".join(each.payload for each in cut) == b"".join(message)
    assert all(len(each.payload) <= FRAGMENT_BYTES for each in cut)
    assert [each.begins for each in cut] == [True] + [False] * (len(cut) - 1)
    assert [each.ends for each in cut] == [False] * (len(cut) - 1) + [True]
    assert len(cut) == max(1, -(-sum(sizes) // FRAGMENT_BYTES))


def test_a_long_line_is_read_fragment_by_fragment() -> None:
    """Each fragment is read from the line when it is needed, so no copy of the line is kept."""
    read: list[tuple[int, int]] = []

    class Long:
        size = 5 * FRAGMENT_BYTES

        def read(self, at: int, most: int) -> bytes:
            read.append((at, most))
            return b"x" * min(most, self.size - at)

    cut = fragments((1,), JournalPages(lambda since: [Long()]))
    next(cut)
    next(cut)
    assert read == [(0, FRAGMENT_BYTES), (FRAGMENT_BYTES, FRAGMENT_BYTES)]
    assert len(list(cut)) == 3


def test_each_event_is_a_message_of_its_own() -> None:
    lines = lines_of(1, 100_000, 2)
    pages = pages_of(lines)
    assert [whole(message, pages) for message in journal_events(pages, 0, 3)] == lines
    assert [whole(message, pages) for message in journal_events(pages, 2, 3)] == lines[2:]


def test_batches_hold_each_event_once_and_say_whether_more_come() -> None:
    lines = lines_of(*[10] * 12, BATCH_BYTES, *[10] * 3)
    pages = pages_of(lines)
    told = [
        msgspec.json.decode(whole(message, pages))
        for message in history_batches(pages, 0, len(lines), 5, SystemClock())
    ]
    assert [event["seq"] for each in told for event in each["data"]["events"]] == [*range(1, 17)]
    assert [len(each["data"]["events"]) for each in told] == [5, 5, 2, 1, 3]
    assert [each["data"]["hasMore"] for each in told] == [True] * 4 + [False]
    assert {each["type"] for each in told} == {"history.batch"}


def test_a_journal_without_later_events_is_one_empty_batch() -> None:
    pages = pages_of([])
    (message,) = history_batches(pages, 0, 0, 5, SystemClock())
    assert msgspec.json.decode(whole(message, pages))["data"] == {
        "events": [],
        "hasMore": False,
    }


def test_a_handshake_response_takes_the_events_that_it_is_given() -> None:
    response = HandshakeResponse(
        data=HandshakeResponseData(
            client_id=ClientId("client-1"), mode="readonly", event_history=(), total_events=3
        )
    )

    def told(message: Message) -> list[int]:
        decoded = msgspec.json.decode(whole(message, pages_of(lines_of(1, 2, 3))))
        assert decoded["data"]["clientId"] == "client-1"
        return [event["seq"] for event in decoded["data"]["eventHistory"]]

    assert told(handshake_response(response, (3, 2))) == [3, 2]
    assert told(handshake_response(response, ())) == []


def test_hankweaves_clients_get_a_batch_for_each_event_that_they_know() -> None:
    """An unknown event yields a message without parts; the last batch has `hasMore` false."""
    lines = lines_of(1, 1, 1, 1)

    def known(line: bytes) -> bytes | None:
        return line if msgspec.json.decode(line)["seq"] % 2 else None

    pages = JournalPages(lambda since: lines[since : since + 5], known)
    messages = list(single_batches(pages, 0, 4, SystemClock()))
    told = [msgspec.json.decode(whole(message, pages))["data"] for message in messages if message]
    assert [event["seq"] for each in told for event in each["events"]] == [1, 3]
    assert [each["hasMore"] for each in told] == [True, False]
    assert len(messages) == 4

    (none,) = [each for each in single_batches(pages, 3, 4, SystemClock()) if each]
    assert msgspec.json.decode(whole(none, pages))["data"] == {"events": [], "hasMore": False}
    assert [bool(each) for each in journal_events(pages, 0, 4)] == [True, False, True, False]
