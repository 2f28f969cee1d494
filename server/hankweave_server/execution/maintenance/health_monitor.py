"""What is wrong with the server at the moment, and that everybody is told of it.

Rooms report here, and take back what is over. Clients hear at once, by a notice without a seq: the
journal may be what cannot be written. On record it comes with the next line that the disk takes,
in the order in which it happened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from hankweave_protocol import instants
from hankweave_protocol.events import EventData, ServerDegraded, ServerRecovered
from hankweave_server.clock import Clock
from hankweave_server.domain.health import Health, Problem, ProblemCode
from hankweave_server.ledger.writer import Ledger, LedgerFailed
from hankweave_server.logs import logger

log = logger(__name__)


class Bulletin:
    """The health of one server. To be used in the event loop's thread; nothing here waits."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self.health = Health()
        self.notify: Callable[[EventData], None] = lambda event: None
        """Tells all clients at once of what the journal cannot take now."""
        ledger.space.on_shortage = self._disk_is_full
        ledger.space.on_relief = lambda: self.withdraw("INSUFFICIENT_SPACE")

    def report(self, code: ProblemCode, message: str) -> None:
        """Takes down a problem, and tells of it; once, until it is withdrawn."""
        if self.health.problem(code) is not None:
            return

        problem = Problem(code=code, message=message, since=instants.to_text(self._clock.now()))
        self.health = self.health.with_problem(problem)
        log.warning("Degraded (%s): %s", code, message)
        self._tell(ServerDegraded(code=code, message=message, since=problem.since))

    def withdraw(self, code: ProblemCode) -> None:
        """Tells that a problem is over; nothing where there is none."""
        problem = self.health.problem(code)
        if problem is None:
            return

        self.health = self.health.without(code)
        log.info("Recovered (%s)", code)
        recovered = ServerRecovered(code=code, message=_AGAIN[code], since=problem.since)
        self._tell(recovered)

    def _tell(self, event: EventData) -> None:
        if self.health.problem("INSUFFICIENT_SPACE") is not None:
            self.notify(event)

        with contextlib.suppress(LedgerFailed):  # It ends, and says itself why.
            self._ledger.leave(event)

    def _disk_is_full(self, error: BaseException) -> None:
        self.report(
            "INSUFFICIENT_SPACE",
            f"The disk has no room ({_reason(error)}): nothing new is begun until it has.",
        )


def _reason(error: BaseException | None) -> str:
    """What the kernel said, without the path that it said it of: anybody may read this."""
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror

        error = error.__cause__

    return "a checkpoint does not fit"


_AGAIN: dict[ProblemCode, str] = {
    "INSUFFICIENT_SPACE": "The disk has room again.",
    "OUT_OF_DESCRIPTORS": "There are file descriptors again.",
}
