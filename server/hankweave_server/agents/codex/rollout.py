"""Read Codex's *rollout*, the file of one thread, and complete Codex's output with it.

Codex resumes a thread from its rollout, `rollout-<local time>-<thread id>.jsonl` below `sessions/`
of its home. It finds the file by the id alone: neither the folder nor the time in the name has to
be right, and Codex's databases need not agree (tested with 0.169.0). The file only grows while
Codex works.

The output alone is not enough. Codex prints token counts only at the end of a turn, and then those
of the whole thread, including earlier processes; for a turn that fails it prints none. The rollout
has them after each answer of the model. Codex also numbers its items from the start in each
process, so `CodexListener` adds a prefix that makes their ids unique.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec

from hankweave_server.agents.base import (
    AgentSaid,
    AgentSignal,
    ContextExceeded,
    ResultReported,
    SessionStarted,
    TokenCounts,
    ToolCalled,
    ToolReturned,
    UsageReported,
    is_file_name,
)
from hankweave_server.agents.codex import stream
from hankweave_server.agents.codex.stream import tokens_in
from hankweave_server.agents.stream_json import as_object, object_in

_SESSIONS = "sessions"
_TIME_IN_NAME = "%Y-%m-%dT%H-%M-%S"
NOTHING = TokenCounts()


def rollouts_of(home: Path, session_id: str) -> tuple[Path, ...]:
    """Return the session's rollout; if there is none, the paths that Codex may give it.

    Those follow from the id, which contains the time when the thread began. The file is created a
    moment later, so there are two: one for the same second and one for the next.
    """
    if not is_file_name(session_id):
        return ()

    sessions = home / _SESSIONS
    is_open = os.path.isdir(sessions)  # Otherwise `glob` may raise.
    found = sessions.glob(f"**/rollout-*-{session_id}.jsonl") if is_open else ()
    by_name = {path.name: path for path in sorted(found)}
    return tuple(by_name.values()) or _usual_places(home, session_id)


def _usual_places(home: Path, session_id: str) -> tuple[Path, ...]:
    try:
        thread = UUID(session_id)
        begun = datetime.fromtimestamp((thread.int >> 80) / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return ()

    if thread.version != 7:  # Only version 7 begins with the time.
        return ()

    times = (begun, begun + timedelta(seconds=1))
    return tuple(
        home / _SESSIONS / f"{time:%Y/%m/%d}" / f"rollout-{time:{_TIME_IN_NAME}}-{session_id}.jsonl"
        for time in times
    )


class Rollout:
    """A growing rollout: the tokens that the thread has used, and how often it was compacted."""

    def __init__(self, home: Path, session_id: str) -> None:
        self.session_id = session_id
        self.tokens = NOTHING
        """Tokens that the thread has used since its beginning, in this and earlier processes."""
        self.compactions = 0
        self.is_found = False
        self._home = home
        self._path: Path | None = None
        self._read_until = 0

    def read_on(self) -> tuple[TokenCounts, ...]:
        """Read what was added since the last call, and return each token count in it.

        A count covers the whole thread; Codex writes one after each answer of the model, and
        occasionally without one. A file that cannot be read counts as not there yet. No error is
        raised, because the counts that Codex prints at its end are valid without this.
        """
        try:
            news = self._news()
        except OSError:
            return ()

        return tuple(filter(None, map(self._take_in, news.split(b"\n"))))

    def has_told(self, text: str) -> bool:
        """Return whether the thread contains a text verbatim."""
        written = msgspec.json.encode(text)[1:-1]
        try:
            return self._path is not None and written in self._path.read_bytes()
        except OSError:
            return False

    def _news(self) -> bytes:
        """Return new complete lines; the last line may still be incomplete."""
        if self._path is None:
            there = (each for each in rollouts_of(self._home, self.session_id) if each.exists())
            self._path = next(there, None)

        if self._path is None:
            return b""

        self.is_found = True
        with self._path.open("rb") as file:
            file.seek(self._read_until)
            news = file.read()

        whole = news[: news.rfind(b"\n") + 1]
        self._read_until += len(whole)
        return whole

    def _take_in(self, line: bytes) -> TokenCounts | None:
        if b'"token_count"' not in line and b'"compacted"' not in line:
            return None  # Skip the parser for most lines, including the long ones.

        entry = object_in(line)
        payload = as_object(entry.get("payload"))
        if entry.get("type") == "compacted":
            self.compactions += 1
        elif payload.get("type") == "token_count":
            usage = as_object(payload.get("info")).get("total_token_usage")
            self.tokens = tokens_in(usage) or self.tokens
            return self.tokens

        return None


class CodexListener:
    """The parser of the output of one Codex process; feed it the lines in order."""

    def __init__(self, home: Path, model: str, resumed: Rollout | None) -> None:
        """Start; `resumed` is the rollout of a resumed session, read before the process started."""
        self._home = home
        self._model = model
        self._rollout = resumed
        self._before = NOTHING if resumed is None else resumed.tokens
        self._reported = self._before
        """Tokens of the thread that were already reported."""
        self._answers = 0
        self._compactions = 0 if resumed is None else resumed.compactions
        self._label = f"codex-{secrets.token_hex(4)}-"
        self._called: set[str] = set()
        """Ids of calls that have not returned."""
        self._last_message = ""

    def parse(self, line: bytes) -> list[AgentSignal]:
        """Parse one line of stdout; `[PlainOutput]` if and only if it is not an event."""
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
            case AgentSaid(text=text):
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
        """Yield the new entries of the rollout: the usage of each answer, and a compaction."""
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
            yield from self._used(result.tokens)  # The last answer may be missing in the rollout.

        used = _difference(result.tokens, self._before)
        yield replace(result, text=self._last_message, tokens=used)


def _difference(later: TokenCounts, earlier: TokenCounts) -> TokenCounts:
    """Return the increase from `earlier` to `later`; 0 where a count started again."""
    return TokenCounts(
        input_tokens=max(0, later.input_tokens - earlier.input_tokens),
        output_tokens=max(0, later.output_tokens - earlier.output_tokens),
        cache_creation_tokens=max(0, later.cache_creation_tokens - earlier.cache_creation_tokens),
        cache_read_tokens=max(0, later.cache_read_tokens - earlier.cache_read_tokens),
    )
