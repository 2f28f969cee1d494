"""Keep the conversation of an ACP agent in one file per session, whatever format the agent uses.

A checkpoint stores this file, a rollback restores it, and the session is resumed from it. It is
replaced atomically at each step; a crash loses the steps since.

- OpenCode has one SQLite database for all sessions. It cannot be copied while it is being written,
  because it then consists of two files, and it cannot be restored, because it contains other
  sessions. So every conversation uses a separate database, and the session's file is a copy that
  SQLite makes.
- Gemini CLI writes a file of lines, named after the minute in which the session began. It empties
  the file if it resumes the session within that minute. So it resumes from a file whose name is no
  valid minute.
"""

from __future__ import annotations

import contextlib
import glob
import json
import shutil
import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from hankweave_server.fsutil import sync_file

AT_WORK = "at-work.db"
_BUSY_TIMEOUT = 2.0
"""Seconds to wait for a writer that has locked the database."""

_FROM = "session-0000-00-00T00-00"


class Memory(ABC):
    """The storage of one agent's conversations."""

    suffix: ClassVar[str]
    """Of the sessions' files."""

    def __init__(self, folder: Path, work_tree: Path) -> None:
        self._folder = folder
        self._work_tree = work_tree
        self._seen: object = None
        self.place = folder
        """The path that the agent gets in an environment variable."""

    @abstractmethod
    def begin(self, session: str | None) -> None:
        """Install the session to resume, or none. Raises OSError."""

    @abstractmethod
    def end(self) -> None: ...

    @abstractmethod
    def keep(self, session: str) -> None:
        """Update the session's file; does nothing if the agent has written nothing.

        Raises sqlite3.Error and OSError; the session's file is then unchanged.
        """

    def forget(self, session: str) -> None:
        """Remove a session's file that could not be updated and would resume an outdated state."""
        self._file(session).unlink(missing_ok=True)

    def _file(self, session: str) -> Path:
        return self._folder / f"{session}{self.suffix}"

    def _draft(self, session: str) -> Path:
        return self._file(session).with_suffix(".tmp")

    def _publish(self, session: str, version: object) -> None:
        """Replace the session's file with its draft, which has this version of the storage."""
        sync_file(self._draft(session))
        self._draft(session).replace(self._file(session))
        self._seen = version


def memory_in(kind: str, folder: Path, work_tree: Path) -> Memory:
    """Return the storage of a kind ("database" or "lines") in a folder."""
    kept = Database if kind == "database" else ConversationLines
    return kept(folder, work_tree)


class Database(Memory):
    """OpenCode's storage; `folder` has the files of all sessions and the current database."""

    suffix = ".db"

    def __init__(self, folder: Path, work_tree: Path) -> None:
        super().__init__(folder, work_tree)
        self.place = folder / AT_WORK
        self._connection: sqlite3.Connection | None = None

    def begin(self, session: str | None) -> None:
        self._clear()
        kept = None if session is None else self._file(session)
        if kept is not None and kept.exists():
            shutil.copyfile(kept, self.place)
            try:
                self._move_here()
            except sqlite3.Error as error:
                raise OSError(f"{kept.name} cannot be resumed: {error}") from None

    def _move_here(self) -> None:
        """Let sessions that were begun in another work tree continue in this one.

        OpenCode works where its session was begun, and a branch has the session of its original.
        """
        here = str(self._work_tree)
        with contextlib.closing(sqlite3.connect(self.place)) as sessions, sessions:
            known = {row[1] for row in sessions.execute("PRAGMA table_info(session)")}
            if not {"directory", "path"} <= known:
                return  # An unknown version: it says itself what it cannot continue.

            # The path is that below the project, whose work tree is the root directory.
            sessions.execute(
                "UPDATE session SET path = ? WHERE path = ltrim(directory, '/')", [here.lstrip("/")]
            )
            sessions.execute("UPDATE session SET directory = ?", [here])

    def keep(self, session: str) -> None:
        if not self.place.exists():
            return

        connection = self._connected()
        version = connection.execute("PRAGMA data_version").fetchone()
        if version == self._seen:
            return  # No other connection has changed it since.

        draft = self._draft(session)
        draft.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(draft)) as copy:
            connection.backup(copy)

        self._publish(session, version)

    def end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = self._seen = None

        self._clear()

    def _clear(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self.place.with_name(AT_WORK + suffix).unlink(missing_ok=True)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(self.place, timeout=_BUSY_TIMEOUT)

        return self._connection


class ConversationLines(Memory):
    """Gemini CLI's storage; `place` is its home and also has the files of all sessions."""

    suffix = ".jsonl"

    def begin(self, session: str | None) -> None:
        if session is None or not self._file(session).exists():
            return

        chats = self._project() / "chats"
        chats.mkdir(parents=True, exist_ok=True)
        for old in self._files_of(session):
            old.unlink()

        shutil.copyfile(self._file(session), chats / f"{_FROM}-{session[:8]}.jsonl")

    def keep(self, session: str) -> None:
        """Update the session's file from the longest of Gemini's; the others have no content."""
        found = [(path.stat(), path) for path in self._files_of(session)]
        if not found:
            return

        status, path = max(found, key=lambda each: each[0].st_size)
        version = (path, status.st_size, status.st_mtime_ns)
        if version == self._seen:
            return

        content = path.read_bytes()
        self._draft(session).write_bytes(content[: content.rfind(b"\n") + 1])
        self._publish(session, version)

    def end(self) -> None:
        """Do nothing; all files are in place."""

    def _files_of(self, session: str) -> list[Path]:
        name = f"session-*-{glob.escape(session[:8])}.json*"
        return sorted((self.place / ".gemini").glob(f"tmp/*/chats/{name}"))

    def _project(self) -> Path:
        """Return Gemini CLI's folder for this work tree; register one if there is none."""
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
