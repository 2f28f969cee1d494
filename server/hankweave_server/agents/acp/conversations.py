"""Keeps the conversation of an ACP agent in one file a session, whatever the agent keeps it in.

Such a file is what a checkpoint keeps, what a rollback puts back and what the session is resumed
from. It is brought up to date at each step, whole or not at all; a crash loses the steps since.

- OpenCode has one SQLite database for all sessions. That can neither be read while it is written,
  for it is two files then, nor be taken back, for other sessions are in it. So every conversation
  works on a database of its own, and the session's file is a copy that SQLite itself makes.
- Gemini CLI writes a file of lines, but empties it when it resumes a session in the minute in which
  that began. So it resumes from a file that no minute is the name of.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Protocol

AT_WORK = "at-work.db"
_PATIENCE = 2.0
"""Seconds to wait for a writer that holds the database."""

_FROM = "session-0000-00-00T00-00"


class Memory(Protocol):
    @property
    def place(self) -> Path:
        """What the agent is told, by an environment variable, to keep its conversation in."""

    def begin(self, session: str | None) -> None:
        """Puts the session to be resumed in place, or nothing. Raises OSError."""

    def keep(self, session: str) -> None:
        """Brings the session's file up to date; nothing to do if the agent has written nothing.

        Raises sqlite3.Error and OSError; then the session's file is what it was.
        """

    def forget(self, session: str) -> None:
        """Removes a session's file that could not be brought up to date: it would resume a lie."""

    def end(self) -> None: ...


def memory_in(kind: str, folder: Path, work_tree: Path) -> Memory:
    return Database(folder) if kind == "database" else Lines(folder, work_tree)


class Database:
    """`folder` holds the files of all sessions, and the database at work."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.place = folder / AT_WORK
        self._connection: sqlite3.Connection | None = None
        self._seen: object = None

    def begin(self, session: str | None) -> None:
        self._clear()
        kept = None if session is None else self._file(session)
        if kept is not None and kept.exists():
            shutil.copyfile(kept, self.place)

    def keep(self, session: str) -> None:
        if not self.place.exists():
            return

        connection = self._connected()
        version = connection.execute("PRAGMA data_version").fetchone()
        if version == self._seen:
            return  # Nobody else has changed it since.

        draft = self._file(session).with_suffix(".tmp")
        draft.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(draft)) as copy:
            connection.backup(copy)

        _settle(draft, self._file(session))
        self._seen = version

    def forget(self, session: str) -> None:
        self._file(session).unlink(missing_ok=True)

    def end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = self._seen = None

        self._clear()

    def _file(self, session: str) -> Path:
        return self._folder / f"{session}.db"

    def _clear(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self.place.with_name(AT_WORK + suffix).unlink(missing_ok=True)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(self.place, timeout=_PATIENCE)

        return self._connection


class Lines:
    """`place` is a home for Gemini CLI; it holds the files of all sessions, too."""

    def __init__(self, place: Path, work_tree: Path) -> None:
        self.place = place
        self._work_tree = work_tree
        self._seen: object = None

    def begin(self, session: str | None) -> None:
        if session is None or not self._file(session).exists():
            return

        chats = self._project() / "chats"
        chats.mkdir(parents=True, exist_ok=True)
        for old in self._files_of(session):
            old.unlink()

        shutil.copyfile(self._file(session), chats / f"{_FROM}-{session[:8]}.jsonl")

    def keep(self, session: str) -> None:
        """Takes the longest of the session's files: the others begin it, and hold nothing."""
        found = [(path.stat(), path) for path in self._files_of(session)]
        if not found:
            return

        status, path = max(found, key=lambda each: each[0].st_size)
        look = (path, status.st_size, status.st_mtime_ns)
        if look == self._seen:
            return

        draft = self._file(session).with_suffix(".tmp")
        content = path.read_bytes()
        draft.write_bytes(content[: content.rfind(b"\n") + 1])
        _settle(draft, self._file(session))
        self._seen = look

    def forget(self, session: str) -> None:
        self._file(session).unlink(missing_ok=True)

    def end(self) -> None:
        """Everything lies where it is to lie."""

    def _file(self, session: str) -> Path:
        return self.place / f"{session}.jsonl"

    def _files_of(self, session: str) -> list[Path]:
        name = f"session-*-{glob.escape(session[:8])}.json*"
        return sorted((self.place / ".gemini").glob(f"tmp/*/chats/{name}"))

    def _project(self) -> Path:
        """The folder that Gemini CLI has, or from now on has, for this work tree."""
        below = self.place / ".gemini"
        registry, work_tree = below / "projects.json", str(self._work_tree)
        try:
            known = dict(json.loads(registry.read_text())["projects"])
        except (OSError, ValueError, KeyError, TypeError):
            known = {}

        if work_tree not in known:
            known[work_tree] = f"moved-{len(known)}"
            registry.write_text(json.dumps({"projects": known}))

        folder = below / "tmp" / str(known[work_tree])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".project_root").write_text(work_tree)
        return folder


def _settle(draft: Path, place: Path) -> None:
    """Puts a finished file in its place, durably but for its name."""
    descriptor = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

    draft.replace(place)
