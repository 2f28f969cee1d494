"""Distribution of events to all live clients, in journal order.

There are two audiences. A client that sent `protocolVersion` gets each event as it is in the
journal. One that did not gets what a client of Hankweave expects (`hankweave_protocol.reference`),
without the events that Hankweave does not have. Each frame is encoded once per audience, and only
if the audience has members.

The ledger calls `publish` in journal order with an encoded line. The hub hands it to each outbox
and waits for nothing. A client becomes live through `join`, which admits it only when it has every
event up to now. The check and the admission happen without an await in between, so earlier events
come from history, later ones from the hub, and none is missed or sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hankweave_protocol import reference
from hankweave_protocol.events import EventData, StoreProgress
from hankweave_server.clock import Clock
from hankweave_server.transport.frames import event_frame
from hankweave_server.transport.outbox import Outbox


class Hub:
    """The live clients of one server."""

    def __init__(
        self,
        last_seq: Callable[[], int],
        record: Callable[[bytes], None],
        clock: Clock,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a hub; `record` logs each broadcast frame once for all clients.

        `on_change` is called when the number of live clients has changed.
        """
        self._on_change = on_change
        self._last_seq = last_seq
        self._record = record
        self._clock = clock
        self._live: dict[Outbox, int] = {}
        self._of_hankweave: set[Outbox] = set()
        """The live clients that get the reference's events."""
        self._curious: set[Outbox] = set()
        """The clients that asked for progress reports."""
        self._published = 0

    @property
    def live_clients(self) -> int:
        return len(self._live)

    def join(self, outbox: Outbox, after: int) -> bool:
        """Make a client live if it has every event up to `after` and no later one exists."""
        if after < max(self._last_seq(), self._published):
            return False

        self._live[outbox] = after
        self._on_change()
        return True

    def leave(self, outbox: Outbox) -> None:
        if self._live.pop(outbox, None) is not None:
            self._on_change()

        self._of_hankweave.discard(outbox)
        self._curious.discard(outbox)

    def address(self, outbox: Outbox, *, as_reference: bool) -> None:
        """Choose the audience of a client; each of its handshakes sets it anew."""
        if as_reference:
            self._of_hankweave.add(outbox)
        else:
            self._of_hankweave.discard(outbox)

    def show_progress(self, outbox: Outbox, *, wanted: bool) -> None:
        if wanted:
            self._curious.add(outbox)
        else:
            self._curious.discard(outbox)

    def publish(self, frame: bytes, seq: int) -> None:
        """Send a journaled event to all live clients; `frame` is its line without the newline."""
        self._published = seq
        if not self._live:
            return

        # The journal may count an event before it is published: a client that joined in between has
        # received it from history.
        self._send(frame, [outbox for outbox, after in self._live.items() if seq > after])

    def broadcast(self, data: EventData) -> None:
        """Send an event that is not journaled to all live clients."""
        if not self._live:
            return

        self._send(event_frame(data, self._clock), tuple(self._live))

    def send_progress(self, data: StoreProgress) -> None:
        """Send a progress report to clients that want it and have an empty queue.

        A skipped report is superseded by the next one; the last report of an operation is always
        sent.
        """
        listeners = [outbox for outbox in self._curious if outbox in self._live]
        if not data.ended:
            listeners = [outbox for outbox in listeners if not outbox.waiting_bytes]

        if not listeners:
            return

        self._send(event_frame(data, self._clock), listeners)

    def _send(self, frame: bytes, outboxes: Iterable[Outbox]) -> None:
        """Send a frame to its audiences and record what was sent."""
        audiences: dict[bool, list[Outbox]] = {False: [], True: []}
        for outbox in outboxes:
            audiences[outbox in self._of_hankweave].append(outbox)

        if audiences[False]:
            self._put(frame, audiences[False])

        if audiences[True] and (projected := reference.project(frame)) is not None:
            self._put(projected, audiences[True])

    def _put(self, frame: bytes, outboxes: Iterable[Outbox]) -> None:
        self._record(frame)
        for outbox in outboxes:
            outbox.put(frame)
