"""The file in which Codex keeps one thread, its *rollout*, and from which it resumes the thread.

It lies below `sessions/` of Codex's home, is called `rollout-<local time>-<thread id>.jsonl`, and
is found there by its id alone: neither the folder nor the time in the name has to be right, and
Codex's databases need not agree (tried with 0.169.0). It only grows while Codex works.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec

from hankweave_server.agents.base import TokenCounts, is_file_name
from hankweave_server.agents.codex.stream import tokens_in
from hankweave_server.agents.json_lines import as_object, object_in

_SESSIONS = "sessions"
_TIME_IN_NAME = "%Y-%m-%dT%H-%M-%S"
NOTHING = TokenCounts()


def rollouts_of(home: Path, session_id: str) -> tuple[Path, ...]:
    """Names the session's rollout; where there is none, the names that Codex may have given it.

    Those are told from the id, which is as old as the thread. The file is made a moment later, so
    that there are two: one for the same second, one for the next.
    """
    if not is_file_name(session_id):
        return ()

    sessions = home / _SESSIONS
    is_open = os.path.isdir(sessions)  # Else `glob` raises, for some reasons.
    found = sessions.glob(f"**/rollout-*-{session_id}.jsonl") if is_open else ()
    by_name = {path.name: path for path in sorted(found)}
    return tuple(by_name.values()) or _usual_places(home, session_id)


def _usual_places(home: Path, session_id: str) -> tuple[Path, ...]:
    try:
        thread = UUID(session_id)
        begun = datetime.fromtimestamp((thread.int >> 80) / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return ()

    if thread.version != 7:  # Only these begin with the time.
        return ()

    times = (begun, begun + timedelta(seconds=1))
    return tuple(
        home / _SESSIONS / f"{time:%Y/%m/%d}" / f"rollout-{time:{_TIME_IN_NAME}}-{session_id}.jsonl"
        for time in times
    )


class Rollout:
    """Reads a rollout as it grows: what the thread has used, and how often it was made smaller."""

    def __init__(self, home: Path, session_id: str) -> None:
        self.session_id = session_id
        self.tokens = NOTHING
        """What the thread has used since its beginning, in this process and in those before."""
        self.compactions = 0
        self.is_found = False
        self._home = home
        self._path: Path | None = None
        self._read_until = 0

    def read_on(self) -> tuple[TokenCounts, ...]:
        """Takes in what was written since the last time; gives each count that was in it.

        A count is that of the thread, once more after each answer of the model, and now and then
        without one. What cannot be read is not there yet.

        No fault is raised: what Codex prints at its end holds without this, too.
        """
        try:
            news = self._news()
        except OSError:
            return ()

        return tuple(filter(None, map(self._take_in, news.split(b"\n"))))

    def has_told(self, text: str) -> bool:
        """Tells whether the thread contains a text, word for word."""
        written = msgspec.json.encode(text)[1:-1]
        try:
            return self._path is not None and written in self._path.read_bytes()
        except OSError:
            return False

    def _news(self) -> bytes:
        """Whole lines only: the last one may still be written."""
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
            return None  # Most lines, and the long ones: they need not be understood.

        entry = object_in(line)
        payload = as_object(entry.get("payload"))
        if entry.get("type") == "compacted":
            self.compactions += 1
        elif payload.get("type") == "token_count":
            usage = as_object(payload.get("info")).get("total_token_usage")
            self.tokens = tokens_in(usage) or self.tokens
            return self.tokens

        return None
