"""The outbox over a wire that a test holds shut: bounds by number, by bytes, and by time."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
import pytest

from hankweave_server.transport.outbox import ClientGone, Outbox, OutboxLimits


@dataclass
class HeldWire:
    """A wire whose peer reads nothing until `opened`; a close waits for it as well."""

    opened: anyio.Event = field(default_factory=anyio.Event)
    out: list[bytes] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    aborted: bool = False

    def write_now(self, frame: bytes) -> bool:
        return False

    async def send(self, frame: bytes) -> None:
        await self.opened.wait()
        self.out.append(frame)

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
    """Up to the bound all waits; the next frame means 1013, an empty queue, and an abort."""
    wire, reasons = HeldWire(), list[str]()
    outbox = Outbox(wire, limits, reasons.append)
    for _ in range(fitting):
        outbox.put(b"x" * 10)

    assert (outbox.waiting_bytes, reasons) == (fitting * 10, [])
    outbox.put(b"x" * 10)
    assert (outbox.waiting_bytes, reasons) == (0, ["its outbox is full"])
    outbox.put(b"x" * 10)
    assert outbox.waiting_bytes == 0
    with anyio.fail_after(30):
        await outbox.run()

    assert (wire.closed, wire.aborted, wire.out, len(reasons)) == ([1013], True, [], 1)
    with pytest.raises(ClientGone):
        await outbox.room()


async def test_a_frame_larger_than_the_bound_goes_alone() -> None:
    """Nothing is too large to be sent to a client that keeps up."""
    wire = HeldWire()
    wire.opened.set()
    outbox = Outbox(wire, OutboxLimits(bytes=5))
    outbox.put(b"x" * 1_000)
    outbox.finish(1001, "bye")
    await outbox.run()
    assert (wire.out, wire.closed) == ([b"x" * 1_000], [1001])


async def test_room_waits_until_half_is_sent() -> None:
    """Whoever has much to say is held up before the bound, and let go below half of it."""
    wire = HeldWire()
    outbox = Outbox(wire, OutboxLimits(messages=4))
    for _ in range(3):
        outbox.put(b"x")

    async with anyio.create_task_group() as group:
        group.start_soon(outbox.run)
        with anyio.move_on_after(0.05) as waited:
            await outbox.room()

        assert waited.cancelled_caught
        wire.opened.set()
        with anyio.fail_after(30):
            await outbox.room()

        group.cancel_scope.cancel()

    assert wire.aborted
