"""Watch what a codon's agent uses and what it is refused.

`BudgetWatch` stops the agent once a limit of its budget is reached.

`Refusals` finds agents that were refused every tool with which they could have done their work.
Such an agent continues, says that it could not do what it was asked, and ends normally: its codon
is completed, and nothing was done. The user gets a warning.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import anyio

from hankweave_protocol.events import CodonWarning
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import Tokens
from hankweave_server.agents.base import (
    AgentSignal,
    ResultReported,
    ToolCalled,
    ToolReturned,
)
from hankweave_server.domain.budget.allowance import Allowance, Overrun, allowance
from hankweave_server.domain.budget.spending import NOTHING, Spending, context_of, spent_by
from hankweave_server.domain.effects.tools import READ_ONLY_TOOLS
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.context import ExecutionContext


class BudgetWatch:
    """A monitor that compares a codon with its allowance, per turn and when time is up."""

    def __init__(self, ctx: ExecutionContext, record: CodonRecord) -> None:
        self._ctx = ctx
        self._record = record
        self._allowance = Allowance()
        self._fullest_turn = 0
        self._turned = anyio.Event()
        self.overrun: Overrun | None = None

    def open(self) -> Overrun | None:
        """Compute the allowance of the codon that begins; return the overrun if nothing is left."""
        ctx, entry = self._ctx, self._record.entry
        self._allowance = allowance(ctx.hank.hank, entry, ctx.state, ctx.ceilings)
        self.overrun = self._allowance.exceeded_by(NOTHING)
        return self.overrun

    def after_turn(self, tokens: Tokens) -> None:
        """Compare again: a message of the agent was counted."""
        self._fullest_turn = max(self._fullest_turn, context_of(tokens))
        self._turned.set()

    async def guard(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Stop the agent once a limit is reached; runs until then."""
        while self.overrun is None:
            with anyio.move_on_after(self._seconds_left()):
                await self._turned.wait()

            self._turned = anyio.Event()
            self.check()

        await stop()

    def check(self) -> Overrun | None:
        """Compare once, for example when an agent has ended that reported its cost only then."""
        self.overrun = self.overrun or self._allowance.exceeded_by(self._spent())
        return self.overrun

    @property
    def dollars_left(self) -> float | None:
        """Return the limit for an agent that watches its cost itself; None if there is none."""
        limit = self._allowance.dollars
        return None if limit is None else max(0.0, limit.most - self._spent().dollars)

    def agent_stopped(self) -> None:
        """Note that the agent says its money is used up; its count may differ from ours."""
        limit = self._allowance.dollars
        if limit is not None and self.overrun is None:
            self.overrun = limit.overrun(max(limit.most, self._spent().dollars))

    def _seconds_left(self) -> float:
        seconds = self._allowance.seconds
        return math.inf if seconds is None else max(0.0, seconds - self._record.elapsed_ms / 1000)

    def _spent(self) -> Spending:
        return spent_by(
            self._record.current,
            seconds=self._record.elapsed_ms / 1000,
            context_tokens=self._fullest_turn,
        )


NO_WORK = READ_ONLY_TOOLS | {"ToolSearch", "TaskCreate", "TaskUpdate", "TaskList", "Skill"}
"""Tools that succeed without doing any work."""


@dataclass(slots=True)
class _Call:
    name: str
    has_succeeded: bool = False
    is_refused: bool = False


class Refusals:
    """The tool calls of one codon's agent over all of its conversations, refused or not."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._denied: Counter[str] = Counter()

    def handle(self, signal: AgentSignal) -> None:
        """Note a call, its result, or what the agent itself was refused."""
        match signal:
            case ToolCalled(tool_use_id=call, name=name):
                self._calls.setdefault(call, _Call(name))
            case ToolReturned(tool_use_id=call) as returned if call in self._calls:
                self._calls[call].has_succeeded = not returned.is_error
                self._calls[call].is_refused |= returned.is_refused
            case ResultReported(denied_calls=denied):
                for call in denied:
                    self._calls.setdefault(call, _Call("")).is_refused = True
            case _:
                pass

    def deny(self, tool: str) -> None:
        """Note that permissions, a person or a timeout denied a call of a tool."""
        self._denied[tool] += 1

    def warning(self, codon_id: CodonId) -> CodonWarning | None:
        """Return the warning, if there were refusals and no other tool has done any work."""
        refused, others = self._sorted()
        if not refused or any(name not in NO_WORK for name in others):
            return None

        tools = Counter(name for name in refused if name)
        listed = ", ".join(f"{name} ({n})" if n > 1 else name for name, n in tools.items())
        return CodonWarning(
            codon_id=codon_id,
            kind="tools-refused",
            message=f"The agent was refused every tool that it asked for: {listed}. It may have "
            "done nothing. Widen the hank's 'permissions', or the agent's own mode.",
            tools=tuple(tools),
        )

    def _sorted(self) -> tuple[list[str], list[str]]:
        """Return the names of the tools of refused calls, and those of the other calls.

        A denial names its tool, not its call: it is matched to a call that has not succeeded.
        """
        left = Counter(self._denied)
        refused: list[str] = []
        others: list[str] = []
        for call in _failed_last(self._calls.values()):
            is_denied = not call.has_succeeded and left[call.name] > 0
            if is_denied:
                left[call.name] -= 1

            (refused if is_denied or call.is_refused else others).append(call.name)

        return [*refused, *left.elements()], others


def _failed_last(calls: Iterable[_Call]) -> list[_Call]:
    """Sort calls: those known to be refused use up the denials of their tool first."""
    return sorted(calls, key=lambda call: not call.is_refused)
