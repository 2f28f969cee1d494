"""`events.query`: a question to the journal, answered beside the loop and one at a time."""

from __future__ import annotations

import functools

import anyio
import anyio.from_thread
import anyio.to_thread

from hankweave_protocol.commands import EventsQuery
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.queries import EventsPage
from hankweave_server.clock import Clock
from hankweave_server.domain.query.evaluate import answer
from hankweave_server.domain.query.parse import Query, checked
from hankweave_server.ledger.writer import Ledger

PATIENCE_SECONDS = 20.0
"""How long one query may work: some millions of events. Others wait for it meanwhile."""


class Queries:
    """Answers queries in a worker thread; the ledger's writer and all clients go on meanwhile."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        # One at a time: several would take the interpreter away from the loop in turns.
        self._thread = anyio.CapacityLimiter(1)

    async def answer(self, command: EventsQuery) -> EventsPage:
        """Answers one page over what was told until now; raises Refused."""
        query = checked(command)
        work = functools.partial(self._answer, query, self._ledger.last_seq)
        return await anyio.to_thread.run_sync(work, limiter=self._thread)

    def _answer(self, query: Query, last: int) -> EventsPage:
        deadline = self._clock.monotonic() + PATIENCE_SECONDS

        def read(since: int, limit: int) -> list[bytes]:
            anyio.from_thread.check_cancelled()
            if self._clock.monotonic() > deadline:
                raise Refused(
                    ErrorCode.RESULT_TOO_LARGE,
                    f"The query took longer than {PATIENCE_SECONDS:.0f} seconds.",
                    path="$.data",
                    hint="Narrow it by since and until.",
                )

            return self._ledger.history(since, limit)

        return answer(query, read, last)
