"""The outbox over a wire that a test holds: bounds by number, by bytes, and by time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from anyio import wait_all_tasks_blocked

from hankweave_server.transport.frames import Fragment, JournalPages, fragments
from hankweave_server.transport.outbox import TURN_BYTES, ClientGone, Outbox, OutboxLimits, Step
from support.waiting import limited


@dataclass
class HeldWire:
    """A wire whose peer reads nothing until `opened`; a close waits for it as well."""

    opened: anyio.Event = field(default_factory=anyio.Event)
    out: list[bytes] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    aborted: bool = False

    def write_now(self, frame: bytes) -> bool:
        if self.opened.is_set():
            self.out.append(frame)

        return self.opened.is_set()

    async def send(self, frame: bytes) -> None:
        await self.opened.wait()
        self.out.append(frame)

    def write_fragment(self, fragment: Fragment) -> bool:
        self.out.append(fragment.payload)
        return self.opened.is_set()

    async def drained(self) -> None:
        await self.opened.wait()

    def limit_buffering(self, wanted: bool) -> None:
        pass

    async def close(self, code: int, reason: str) -> None:
        self.closed.append(code)
        await self.opened.wait()

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(
    ("limits", "fitting"),
    [
        (OutboxLimits(messages=3, close_seconds=0.05), 3),
        (OutboxLimits(bytes=40, close_seconds=0.05), 4),
    ],
)
async def test_one_more_than_fits_ends_the_connection(limits: OutboxLimits, fitting: int) -> None:
    """Up to the bound, frames wait; the next frame causes 1013, an empty queue, and an abort."""
    wire, reasons = HeldWire(), list[str]()
    outbox = Outbox(wire, limits, reasons.append)
    for _ in range(fitting):
        outbox.put(b"x" * 10)

    assert (outbox.waiting_bytes, reasons) == (fitting * 10, [])
    outbox.put(b"x" * 10)
    assert (outbox.waiting_bytes, reasons) == (0, ["its outbox is full"])
    outbox.put(b"x" * 10)
    assert outbox.waiting_bytes == 0
    with limited():
        await outbox.run()

    assert (wire.closed, wire.aborted, wire.out, len(reasons)) == ([1013], True, [], 1)
    with pytest.raises(ClientGone):
        await outbox.room()


async def test_a_frame_larger_than_the_bound_goes_alone() -> None:
    """No frame is too large for a client that keeps up."""
    wire = HeldWire()
    wire.opened.set()
    outbox = Outbox(wire, OutboxLimits(bytes=5))
    outbox.put(b"x" * 1_000)
    outbox.finish(1001, "bye")
    await outbox.run()
    assert (wire.out, wire.closed) == ([b"x" * 1_000], [1001])


async def test_what_was_sent_counts_no_more() -> None:
    """A client that has caught up has the whole bound before it again."""
    wire, reasons = HeldWire(), list[str]()
    outbox = Outbox(wire, OutboxLimits(bytes=40), reasons.append)
    async with anyio.create_task_group() as group:
        group.start_soon(outbox.run)
        for _ in range(3):
            wire.opened = anyio.Event()
            for _ in range(4):
                outbox.put(b"x" * 10)

            wire.opened.set()
            await wait_all_tasks_blocked()
            assert outbox.waiting_bytes == 0

        group.cancel_scope.cancel()

    assert (len(wire.out), reasons) == (12, [])


async def test_a_client_that_takes_no_frame_in_time_is_evicted() -> None:
    """A peer that reads nothing holds its connection for a while, however little it is sent."""
    wire, reasons = HeldWire(), list[str]()
    outbox = Outbox(wire, OutboxLimits(send_seconds=0.01, close_seconds=0.01), reasons.append)
    outbox.put(b"x")
    with limited():
        await outbox.run()

    assert (wire.closed, wire.aborted) == ([1013], True)
    assert reasons == ["it did not receive a frame in time"]


async def test_an_eviction_ends_the_send_in_progress() -> None:
    """A full queue is reason enough: nothing waits until that frame is late as well."""
    wire = HeldWire()
    outbox = Outbox(wire, OutboxLimits(messages=1))
    async with anyio.create_task_group() as group:
        group.start_soon(outbox.run)
        outbox.put(b"1")
        await wait_all_tasks_blocked()
        outbox.put(b"2")
        outbox.put(b"3")
        await wait_all_tasks_blocked()
        assert (wire.closed, wire.out, outbox.waiting_bytes) == ([1013], [], 0)
        wire.opened.set()


async def test_room_waits_until_half_is_sent() -> None:
    """A sender of many frames is suspended before the bound and resumed below half of it."""
    wire = HeldWire()
    outbox = Outbox(wire, OutboxLimits(messages=4))
    for _ in range(3):
        outbox.put(b"x")

    async with anyio.create_task_group() as group:
        has_room = anyio.Event()

        async def wait_for_room() -> None:
            await outbox.room()
            has_room.set()

        group.start_soon(wait_for_room)
        group.start_soon(outbox.run)
        await anyio.wait_all_tasks_blocked()
        assert not has_room.is_set()
        wire.opened.set()
        with limited():
            await has_room.wait()

        group.cancel_scope.cancel()

    assert wire.aborted


# --- streams --------------------------------------------------------------------------------------

HEAVY = b"h" * TURN_BYTES


async def test_no_more_of_a_stream_is_made_than_the_client_takes() -> None:
    """While the socket accepts nothing, one fragment is in memory, however long the stream is."""
    wire, made = HeldWire(), list[int]()

    def endless() -> Iterator[Fragment]:
        while True:
            made.append(len(made))
            yield Fragment(HEAVY, begins=True, ends=True)

    outbox = Outbox(wire, OutboxLimits(send_seconds=0.1, close_seconds=0.05))
    async with anyio.create_task_group() as group:
        group.start_soon(outbox.run)
        with limited(), pytest.raises(ClientGone):
            await outbox.stream(endless())

        await outbox.ended.wait()

    assert (made, wire.closed) == ([0], [1013])


async def test_frames_go_out_between_the_messages_of_a_stream() -> None:
    """A live event never falls between two fragments, and does not wait for the stream's end."""
    wire = HeldWire()
    outbox = Outbox(wire, OutboxLimits())

    def two_messages() -> Iterator[Fragment]:
        yield Fragment(b"1" + HEAVY, begins=True, ends=False)
        outbox.put(b"live")
        yield Fragment(b"2" + HEAVY, begins=False, ends=False)
        yield Fragment(b"3" + HEAVY, begins=False, ends=True)
        yield Fragment(b"4" + HEAVY, begins=True, ends=True)

    wire.opened.set()
    async with anyio.create_task_group() as group:
        group.start_soon(outbox.run)
        with limited():
            await outbox.stream(two_messages())

        group.cancel_scope.cancel()

    assert [frame[:4] for frame in wire.out] == [b"1hhh", b"2hhh", b"3hhh", b"live", b"4hhh"]


async def test_streams_of_many_clients_never_share_a_turn_of_the_loop() -> None:
    """A hundred clients that catch up block the loop no longer at a time than one does."""
    turns, turn, turn_of = anyio.Lock(), 0, list[int]()

    def five() -> Iterator[Fragment]:
        for _ in range(5):
            turn_of.append(turn)
            yield Fragment(HEAVY, begins=True, ends=True)

    async def stream(group: anyio.abc.TaskGroup) -> None:
        wire = HeldWire()
        wire.opened.set()
        outbox = Outbox(wire, OutboxLimits(), turns=turns)
        group.start_soon(outbox.run)
        await outbox.stream(five())
        assert len(wire.out) == 5

    async with anyio.create_task_group() as group:
        async with anyio.create_task_group() as clients:
            for _ in range(100):
                clients.start_soon(stream, group)

            while len(turn_of) < 500:
                turn += 1
                await anyio.lowlevel.checkpoint()

        group.cancel_scope.cancel()

    assert len(set(turn_of)) == len(turn_of) == 500


async def test_a_stream_ends_when_the_server_does() -> None:
    """The rest of the stream is dropped, and the client gets a goodbye."""
    wire = HeldWire()
    wire.opened.set()
    outbox = Outbox(wire, OutboxLimits())

    def endless() -> Iterator[Fragment]:
        yield Fragment(HEAVY, begins=True, ends=False)
        outbox.finish(1001, "bye")
        while True:
            yield Fragment(HEAVY, begins=False, ends=False)

    async with anyio.create_task_group() as group:
        group.start_soon(outbox.run)
        with limited(), pytest.raises(ClientGone):
            await outbox.stream(endless())

        await outbox.ended.wait()

    assert wire.closed == [1001]


async def test_a_client_that_waits_for_the_disk_delays_no_other() -> None:
    """Streams share their turns, but a read takes none; what follows it is sent in order."""
    turns, may_read = anyio.Lock(), threading.Event()
    slow, quick = HeldWire(), HeldWire()

    def read(since: int) -> list[bytes]:
        assert may_read.wait(60)
        return [b"line"]

    pages = JournalPages(read)

    async def stream(wire: HeldWire, steps: Iterator[Step], group: anyio.abc.TaskGroup) -> None:
        wire.opened.set()
        outbox = Outbox(wire, OutboxLimits(), turns=turns)
        group.start_soon(outbox.run)
        await outbox.stream(steps)

    with limited():
        async with anyio.create_task_group() as group:
            async with anyio.create_task_group() as clients:
                clients.start_soon(stream, slow, fragments((b"a", 1, b"z"), pages), group)
                await wait_all_tasks_blocked()
                await stream(quick, fragments((b"quick",), pages), group)
                assert (quick.out, slow.out) == ([b"quick"], [])
                may_read.set()

            group.cancel_scope.cancel()

    assert slow.out == [b"alinez"]
