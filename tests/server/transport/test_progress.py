"""Claims about progress on the wire: its recipients, and that it delays no client."""

from __future__ import annotations

from pathlib import Path

from hankweave_protocol.events import StoreProgress
from hankweave_server.clock import SystemClock
from hankweave_server.transport.hub import Hub
from hankweave_server.transport.outbox import Outbox, OutboxLimits
from support.small_server import small_server
from support.waiting import eventually


def progress(done: int, *, ended: bool = False) -> StoreProgress:
    return StoreProgress(
        operation="capture",
        operation_id="one",
        phase="reading",
        done=done,
        total=10,
        unit="files",
        ended=ended,
    )


async def test_progress_goes_only_to_clients_that_requested_it(tmp_path: Path) -> None:
    """The handshake requests it; a second one without `progress` ends it. Progress has no seq."""
    async with (
        small_server(tmp_path) as server,
        server.follower(mode="readonly", progress=True) as curious,
        server.follower(mode="readonly") as other,
    ):
        hub = server.listener.hub
        await eventually(lambda: hub.live_clients == 2)
        hub.send_progress(progress(1))
        server.rest.publish()
        event = await curious.receive()
        assert (event["type"], event["data"]["done"]) == ("store.progress", 1)
        assert event["data"] == {
            "operation": "capture",
            "operationId": "one",
            "phase": "reading",
            "done": 1,
            "total": 10,
            "unit": "files",
        }
        assert "seq" not in event
        assert (await curious.receive())["seq"] == 1
        assert (await other.receive())["seq"] == 1

        hello = {"mode": "readonly", "protocolVersion": 1}
        await curious.send({"type": "handshake", "data": hello})
        for kind in ("handshake.response", "server.ready", "state.snapshot"):
            assert (await curious.receive())["type"] == kind

        hub.send_progress(progress(2))
        server.rest.publish()
        assert (await curious.receive())["seq"] == 2


class HeldWire:
    """A wire whose peer reads nothing."""

    def write_now(self, frame: bytes) -> bool:
        return False

    async def send(self, frame: bytes) -> None: ...

    async def close(self, code: int, reason: str) -> None: ...

    def abort(self) -> None: ...


async def test_a_client_that_is_behind_receives_only_the_last_progress() -> None:
    """Progress never disconnects a client. It is not journaled, so it is never caught up."""
    recorded: list[bytes] = []
    reasons: list[str] = []
    hub = Hub(lambda: 0, recorded.append, SystemClock())
    outbox = Outbox(HeldWire(), OutboxLimits(messages=3), reasons.append)
    assert hub.join(outbox, 0)
    hub.show_progress(outbox, wanted=True)
    outbox.put(b"something that it has not read yet")
    waiting = outbox.waiting_bytes
    for number in range(10_000):
        hub.send_progress(progress(number))

    assert (outbox.waiting_bytes, reasons, recorded) == (waiting, [], [])
    hub.send_progress(progress(10_000, ended=True))
    assert outbox.waiting_bytes > waiting
    assert (len(recorded), reasons) == (1, [])


async def test_progress_that_no_client_requested_is_not_encoded() -> None:
    """Unrequested progress is neither encoded nor logged; a client that left gets none."""
    recorded: list[bytes] = []
    hub = Hub(lambda: 0, recorded.append, SystemClock())
    outbox, gone = (Outbox(HeldWire(), OutboxLimits()) for _ in range(2))
    assert hub.join(outbox, 0)
    assert hub.join(gone, 0)
    hub.show_progress(gone, wanted=True)
    hub.leave(gone)
    hub.send_progress(progress(1, ended=True))
    assert (recorded, outbox.waiting_bytes, gone.waiting_bytes) == ([], 0, 0)
