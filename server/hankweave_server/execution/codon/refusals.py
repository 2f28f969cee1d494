"""Whether an agent was refused every tool with which it could have done its work.

An agent that is refused a tool goes on, says that it could not do what it was asked, and ends well:
its codon is completed, and nothing was done. That is told as a warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hankweave_protocol.events import CodonWarning
from hankweave_protocol.ids import CodonId
from hankweave_server.agents.base import (
    AgentSignal,
    ResultReported,
    ToolCalled,
    ToolReturned,
)
from hankweave_server.execution.codon.event_recorder import READ_ONLY_TOOLS

NO_WORK = READ_ONLY_TOOLS | {"ToolSearch", "TaskCreate", "TaskUpdate", "TaskList", "Skill"}
"""Tools that succeed without anything being done."""


@dataclass(slots=True)
class _Call:
    name: str
    has_succeeded: bool = False
    is_refused: bool = False


class Refusals:
    """Follows the calls of one codon's agent, over all of its conversations."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._denied: Counter[str] = Counter()

    def heed(self, signal: AgentSignal) -> None:
        """Take note of a call, of its result, and of what the agent itself was refused."""
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
        """Take note that the permissions, a person or time denied a call of a tool."""
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
        """Tell the refused calls from the others, by the names of their tools.

        A denial names its tool, not its call: it is that of a call that has not succeeded.
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
    """Calls that are known to be refused use up the denials of their tool first."""
    return sorted(calls, key=lambda call: not call.is_refused)
