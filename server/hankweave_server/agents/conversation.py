"""What an agent's lines amount to: whose session it is, and what its silence or exit means.

A *plain* program never names its session. It gets a made-up name, so that the runner meets the same
order from every agent, and its exit code is its verdict. A program that does speak the protocol and
ends without a result gets none made up: that is a failure (facts of Hankweave, "Completion").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import assert_never

from hankweave_server.agents.base import (
    AgentOutcome,
    AgentSignal,
    Exited,
    Killed,
    ResultReported,
    SessionStarted,
    Stderr,
    TimedOut,
    ToolCalled,
    ToolReturned,
)

CALLS_REMEMBERED = 10_000
"""Calls whose results are awaited; an agent that never returns any cannot fill our memory."""


class Conversation:
    """Follows one agent from its first line to its end; pure, it reads no clock and no file."""

    def __init__(self, *, made_up_session: SessionStarted | None) -> None:
        """Expects a program that may be plain if it is given a session to presume."""
        self._made_up_session = made_up_session
        self._session: SessionStarted | None = None
        self._tool_names: dict[str, str] = {}
        self._has_result = False
        self._last_words = ""

    @property
    def has_begun(self) -> bool:
        return self._session is not None

    def hear(self, signals: Iterable[AgentSignal]) -> Iterator[AgentSignal]:
        """Adds what the signals lack: the session of a plain program, the names of tools."""
        for signal in signals:
            match signal:
                case SessionStarted():
                    if signal == self._session:
                        continue

                    self._session = signal
                case Stderr():
                    # Warnings precede the first message of many agents: no sign of a plain one.
                    self._last_words = signal.line or self._last_words
                case _:
                    yield from self.presume_session()

            yield self._completed(signal)

    def presume_session(self) -> Iterator[SessionStarted]:
        """Begins the made-up session of a program that has not begun one itself."""
        if self._session is None and self._made_up_session is not None:
            self._session = self._made_up_session
            yield self._session

    def conclude(self, outcome: AgentOutcome) -> Iterator[AgentSignal]:
        """Ends the conversation; a plain program that reported no result is judged by its end."""
        yield from self.presume_session()
        if self._session is self._made_up_session is not None and not self._has_result:
            yield ResultReported(
                success=outcome == Exited(0),
                text=self._verdict(outcome),
                cost_usd=None,
                tokens=None,
                session_id=self._made_up_session.session_id,
                model_usage={},
            )

    def _completed(self, signal: AgentSignal) -> AgentSignal:
        match signal:
            case ToolCalled():
                self._remember(signal)
            case ToolReturned():
                return replace(signal, name=self._tool_names.pop(signal.tool_use_id, ""))
            case ResultReported():
                self._has_result = True

        return signal

    def _remember(self, call: ToolCalled) -> None:
        self._tool_names[call.tool_use_id] = call.name
        if len(self._tool_names) > CALLS_REMEMBERED:
            del self._tool_names[next(iter(self._tool_names))]

    def _verdict(self, outcome: AgentOutcome) -> str:
        match outcome:
            case Exited(0):
                return ""
            case Exited(code):
                return self._last_words or f"The program ended with exit code {code}."
            case Killed(number):
                return f"The program was ended by signal {number}."
            case TimedOut(which):
                return f"The program exceeded its {which} time limit."
            case _:
                assert_never(outcome)
