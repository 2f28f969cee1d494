"""Watching what a codon uses while its agent works, and ending it when that is enough."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import anyio

from hankweave_protocol.state import Tokens
from hankweave_server.domain.budget.allowance import Allowance, Overrun, allowance
from hankweave_server.domain.budget.spending import NOTHING, Spent, context_of, spent_by
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.context import Surroundings


class BudgetWatch:
    """Compares one execution with its allowance, at each turn of its agent and when time is up."""

    def __init__(self, around: Surroundings, record: CodonRecord) -> None:
        self._around = around
        self._record = record
        self._allowance = Allowance()
        self._fullest_turn = 0
        self._turned = anyio.Event()
        self.overrun: Overrun | None = None

    def open(self) -> Overrun | None:
        """Reckons the allowance of the codon that begins; tells if there is nothing left of it."""
        around, entry = self._around, self._record.entry
        self._allowance = allowance(around.hank.hank, entry, around.state, around.ceilings)
        self.overrun = self._allowance.exceeded_by(NOTHING)
        return self.overrun

    def after_turn(self, tokens: Tokens) -> None:
        """Looks again: a message of the agent was counted."""
        self._fullest_turn = max(self._fullest_turn, context_of(tokens))
        self._turned.set()

    async def guard(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Stops the agent once a limit is reached; runs until then."""
        while self.overrun is None:
            with anyio.move_on_after(self._seconds_left()):
                await self._turned.wait()

            self._turned = anyio.Event()
            self.look()

        await stop()

    def look(self) -> Overrun | None:
        """Compares once, as when an agent has ended that told its cost only then."""
        self.overrun = self.overrun or self._allowance.exceeded_by(self._spent())
        return self.overrun

    @property
    def dollars_left(self) -> float | None:
        """What an agent that watches its cost itself is told; None where it is not limited."""
        limit = self._allowance.dollars
        return None if limit is None else max(0.0, limit.most - self._spent().dollars)

    def agent_stopped(self) -> None:
        """An agent says that its money is used up; by its own reckoning, which may not be ours."""
        limit = self._allowance.dollars
        if limit is not None and self.overrun is None:
            self.overrun = limit.overrun(max(limit.most, self._spent().dollars))

    def _seconds_left(self) -> float:
        seconds = self._allowance.seconds
        return math.inf if seconds is None else max(0.0, seconds - self._record.elapsed_ms / 1000)

    def _spent(self) -> Spent:
        return spent_by(
            self._record.current,
            seconds=self._record.elapsed_ms / 1000,
            context_tokens=self._fullest_turn,
        )
