"""Everybody who watches: one event in, the same bytes out to all of one audience, in journal order.

There are two audiences. A client that sent `protocolVersion` gets each event as it stands in the
journal; one that did not gets what a client of Hankweave expects (`hankweave_protocol.reference`),
and of events that Hankweave does not have, nothing. Each frame is made once per audience, and for
an audience that nobody belongs to not at all.

`publish` is called by the ledger, in journal order, with a line that is already encoded; here it
is handed to each outbox and nothing is waited for. A client goes live by `join`, which admits it
only when it lacks no event: that check and the admission happen without a pause between them, so
what was published before comes from history and what comes after comes from here.
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
        self, last_seq: Callable[[], int], record: Callable[[bytes], None], clock: Clock
    ) -> None:
        """`record` takes each broadcast frame for the traffic log, once for all clients."""
        self._last_seq = last_seq
        self._record = record
        self._clock = clock
        self._live: dict[Outbox, int] = {}
        self._of_hankweave: set[Outbox] = set()
        """The live clients that get the reference's events."""
        self._curious: set[Outbox] = set()
        """Those that want to know how far long work is."""
        self._published = 0

    @property
    def live_clients(self) -> int:
        return len(self._live)

    def join(self, outbox: Outbox, after: int) -> bool:
        """Makes a client live if it has every event up to `after` and there is no later one."""
        if after < max(self._last_seq(), self._published):
            return False

        self._live[outbox] = after
        return True

    def leave(self, outbox: Outbox) -> None:
        self._live.pop(outbox, None)
        self._of_hankweave.discard(outbox)
        self._curious.discard(outbox)

    def address(self, outbox: Outbox, *, as_reference: bool) -> None:
        """Choose the audience of a client; each of its handshakes says anew which one it is."""
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
        """Sends a journaled event to all; `frame` is its line without the newline."""
        self._published = seq
        if not self._live:
            return

        # The journal may count an event before it is published: who joined in between has it.
        self._send(frame, [outbox for outbox, after in self._live.items() if seq > after])

    def broadcast(self, data: EventData) -> None:
        """Sends an event that is not journaled to all."""
        if not self._live:
            return

        self._send(event_frame(data, self._clock), tuple(self._live))

    def tell_progress(self, data: StoreProgress) -> None:
        """Tells those who want to know how far work is, unless they are behind as it is.

        What they were not told they do not miss: the next one says more, and the last one waits.
        """
        listeners = [outbox for outbox in self._curious if outbox in self._live]
        if not data.ended:
            listeners = [outbox for outbox in listeners if not outbox.waiting_bytes]

        if not listeners:
            return

        self._send(event_frame(data, self._clock), listeners)

    def _send(self, frame: bytes, outboxes: Iterable[Outbox]) -> None:
        """Put a frame out to each audience that it has, and record what went out."""
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
