"""server.log written from the journal's events, in one place.

The ledger calls `heed` with each event, in its writer's stretch. A burst of changed files, such as
an agent that unpacks an archive, is counted after the first hundred of a second: at debug each of
them has its line.
"""

from __future__ import annotations

import logging

from hankweave_protocol.events import FileUpdated
from hankweave_server.clock import Clock
from hankweave_server.execution.log_lines import log_line
from hankweave_server.ledger.batch import Published
from hankweave_server.paths import Layout

BURST = 100
BURST_SECONDS = 1.0

_log = logging.getLogger("hankweave.events")


class EventLog:
    """Writes what the log says of each event."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        beside = layout.work_tree != layout.root
        self._work_tree = f"{layout.work_tree.relative_to(layout.root)}/" if beside else ""
        self._clock = clock
        self._began = 0.0
        self._files = 0
        """How many files changed since then."""

    def heed(self, published: Published) -> None:
        """Write the line of an event, if the level lets it through."""
        event = published.event
        if isinstance(event.data, FileUpdated) and not _log.isEnabledFor(logging.DEBUG):
            if not self._is_within_burst():
                return
        else:
            self._end_burst()

        line = log_line(event, self._work_tree)
        if _log.isEnabledFor(line.level):
            _log.log(line.level, "%s", line.text)

    def _is_within_burst(self) -> bool:
        now = self._clock.monotonic()
        if now - self._began > BURST_SECONDS:
            self._end_burst()
            self._began = now

        self._files += 1
        return self._files <= BURST

    def _end_burst(self) -> None:
        left_out, self._files = self._files - BURST, 0
        if left_out > 0:
            _log.info("File changes detected: %d more", left_out)
