"""What Codex says, made whole by what it writes down.

It prints how many tokens were used only at the end of a turn, and then those of the whole thread,
earlier processes' included; of a turn that fails it prints none. Its rollout has them after each
answer of the model. And it numbers its items anew in each process.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hankweave_server.agents.base import (
    AgentSignal,
    ContextExceeded,
    ResultReported,
    Said,
    SessionStarted,
    TokenCounts,
    ToolCalled,
    ToolReturned,
    UsageReported,
)
from hankweave_server.agents.codex import stream
from hankweave_server.agents.codex.rollout import NOTHING, Rollout


class CodexListener:
    """Understands the lines of one process, in their order."""

    def __init__(self, home: Path, model: str, resumed: Rollout | None) -> None:
        """Expects the rollout of the session that is resumed as it was before the process."""
        self._home = home
        self._model = model
        self._rollout = resumed
        self._before = NOTHING if resumed is None else resumed.tokens
        self._reported = self._before
        """What the thread has used, as far as it was told."""
        self._answers = 0
        self._compactions = 0 if resumed is None else resumed.compactions
        self._label = f"codex-{secrets.token_hex(4)}-"
        self._called: set[str] = set()
        """Calls that have not returned."""
        self._last_message = ""

    def parse(self, line: bytes) -> list[AgentSignal]:
        """Reads one line of stdout; `[PlainOutput]` if and only if it is no event."""
        return [whole for signal in stream.parse(line) for whole in self._completed(signal)]

    def _completed(self, signal: AgentSignal) -> Iterator[AgentSignal]:
        match signal:
            case SessionStarted(session_id=session_id):
                self._follow(session_id)
                yield replace(signal, model=self._model)
            case ToolCalled(tool_use_id=item):
                if item not in self._called:
                    self._called.add(item)
                    yield from self._news()
                    yield replace(signal, tool_use_id=self._label + item)
            case ToolReturned(tool_use_id=item):
                self._called.discard(item)
                yield replace(signal, tool_use_id=self._label + item)
                yield from self._news()
            case Said(text=text):
                self._last_message = text
                yield from self._news()
                yield signal
            case ResultReported():
                yield from self._concluded(signal)
            case _:
                yield signal

    def _follow(self, session_id: str) -> None:
        if self._rollout is None or self._rollout.session_id != session_id:
            self._rollout = Rollout(self._home, session_id)
            self._before = self._reported = NOTHING
            self._compactions = 0

    def _news(self) -> Iterator[AgentSignal]:
        """What the rollout tells since the last look: each answer of the model by itself."""
        if self._rollout is None:
            return

        counts = self._rollout.read_on()
        if self._rollout.compactions > self._compactions:
            self._compactions = self._rollout.compactions
            yield ContextExceeded("compact_boundary")

        for tokens in counts:
            yield from self._used(tokens)

    def _used(self, tokens: TokenCounts) -> Iterator[UsageReported]:
        new = _difference(tokens, self._reported)
        if new != NOTHING:
            self._reported = tokens
            self._answers += 1
            yield UsageReported(f"{self._label}{self._answers}", self._model, new)

    def _concluded(self, result: ResultReported) -> Iterator[AgentSignal]:
        yield from self._news()
        if result.tokens is None:
            yield result
            return

        if self._rollout is not None and self._rollout.is_found:
            yield from self._used(result.tokens)  # Of the last answer, if it was not written yet.

        used = _difference(result.tokens, self._before)
        yield replace(result, text=self._last_message, tokens=used)


def _difference(later: TokenCounts, earlier: TokenCounts) -> TokenCounts:
    """What came in between; nothing where the counts began anew."""
    return TokenCounts(
        input_tokens=max(0, later.input_tokens - earlier.input_tokens),
        output_tokens=max(0, later.output_tokens - earlier.output_tokens),
        cache_creation_tokens=max(0, later.cache_creation_tokens - earlier.cache_creation_tokens),
        cache_read_tokens=max(0, later.cache_read_tokens - earlier.cache_read_tokens),
    )
