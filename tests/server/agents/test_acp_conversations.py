"""Conversations of ACP agents, stored in one file per session."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from hankweave_server.agents.acp.conversations import ConversationLines, Database


def add(database: Path, value: str) -> None:
    """Write as an agent does: with a write-ahead log that it leaves behind."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS said (word)")
        connection.execute("INSERT INTO said VALUES (?)", (value,))
        connection.commit()


def values(database: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return [value for (value,) in connection.execute("SELECT word FROM said")]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path, tmp_path / "work")


def test_a_session_goes_on_from_its_own_file(database: Database, tmp_path: Path) -> None:
    """A session resumes from its own file, and contains nothing of another session."""
    for session, value in (("one", "a"), ("two", "b")):
        database.begin(None)
        add(database.place, value)
        database.keep(session)
        database.end()

    database.begin("one")
    add(database.place, "c")
    database.keep("one")
    assert values(tmp_path / "one.db") == ["a", "c"]
    assert values(tmp_path / "two.db") == ["b"]
    database.end()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.db", "two.db"]


def test_a_copy_is_whole_while_the_agent_writes(database: Database, tmp_path: Path) -> None:
    """A copy has all committed rows and no uncommitted ones, and does not block the agent."""
    database.begin(None)
    add(database.place, "a")
    with contextlib.closing(sqlite3.connect(database.place)) as agent:
        agent.execute("INSERT INTO said VALUES ('half')")
        database.keep("one")
        assert values(tmp_path / "one.db") == ["a"]
        agent.commit()
        database.keep("one")
        assert values(tmp_path / "one.db") == ["a", "half"]

    database.end()


def test_what_has_not_changed_is_not_copied_again(database: Database, tmp_path: Path) -> None:
    """An unchanged conversation is not copied again; the check costs one stat."""
    database.begin(None)
    add(database.place, "a")
    database.keep("one")
    (tmp_path / "one.db").unlink()
    database.keep("one")
    assert not (tmp_path / "one.db").exists()
    add(database.place, "b")
    database.keep("one")
    assert values(tmp_path / "one.db") == ["a", "b"]
    database.end()


def test_what_is_left_of_a_crash_is_in_nobodys_way(tmp_path: Path) -> None:
    """Files that a crash left behind do not affect the next conversation."""
    crashed = Database(tmp_path, tmp_path / "work")
    crashed.begin(None)
    add(crashed.place, "a")
    crashed.keep("one")
    add(crashed.place, "lost")
    after = Database(tmp_path, tmp_path / "work")
    after.begin("one")
    assert values(after.place) == ["a"]
    after.end()
    after.begin("unknown")
    assert not after.place.exists()


def test_a_file_that_would_lie_is_removed(database: Database, tmp_path: Path) -> None:
    """A damaged database raises an error, and `forget` removes the earlier copy."""
    database.begin(None)
    add(database.place, "a")
    database.keep("one")
    database.end()
    database.place.write_bytes(b"no database at all" * 100)
    with pytest.raises(sqlite3.Error):
        database.keep("one")

    assert values(tmp_path / "one.db") == ["a"]
    database.forget("one")
    assert not (tmp_path / "one.db").exists()


SESSION = "0123abcd-9999"


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    folder = tmp_path / ".gemini" / "tmp" / "project" / "chats"
    folder.mkdir(parents=True)
    registry = {"projects": {"/w": "project"}}
    (tmp_path / ".gemini" / "projects.json").write_text(json.dumps(registry))
    return folder


def test_a_file_of_lines_is_kept_to_its_last_whole_line(tmp_path: Path, chats: Path) -> None:
    """The longest file of a session is its conversation; shorter ones are only its start."""
    (chats / "session-2026-01-01T00-00-0123abcd.jsonl").write_text("a\nb\nhal")
    (chats / "session-2026-01-01T00-01-0123abcd.jsonl").write_text("a\n")
    (chats / "session-2026-01-01T00-00-ffffffff.jsonl").write_text("another, and a long one\n")
    ConversationLines(tmp_path, Path("/w")).keep(SESSION)
    assert (tmp_path / f"{SESSION}.jsonl").read_text() == "a\nb\n"


def test_a_session_is_resumed_from_one_file(tmp_path: Path, chats: Path) -> None:
    """The name contains no valid minute: Gemini CLI empties the file of its current minute."""
    (tmp_path / f"{SESSION}.jsonl").write_text("a\n")
    (chats / "session-2026-01-01T00-00-0123abcd.jsonl").write_text("a\nb\n")
    (chats / "session-2026-01-01T00-00-ffffffff.jsonl").write_text("another\n")
    ConversationLines(tmp_path, Path("/w")).begin(SESSION)
    assert sorted(path.name for path in chats.iterdir()) == [
        "session-0000-00-00T00-00-0123abcd.jsonl",
        "session-2026-01-01T00-00-ffffffff.jsonl",
    ]
    assert (chats / "session-0000-00-00T00-00-0123abcd.jsonl").read_text() == "a\n"


@pytest.mark.parametrize("registry", ['{"projects": {}}', "broken", '{"projects": {"/old": "p"}}'])
def test_an_execution_that_was_moved_takes_its_sessions_with_it(tmp_path, registry) -> None:
    """The conversations of a moved execution are found at its new work tree."""
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "projects.json").write_text(registry)
    (tmp_path / f"{SESSION}.jsonl").write_text("a\n")
    ConversationLines(tmp_path, Path("/new")).begin(SESSION)
    known = json.loads((tmp_path / ".gemini" / "projects.json").read_text())["projects"]
    folder = tmp_path / ".gemini" / "tmp" / known["/new"]
    assert (folder / ".project_root").read_text() == "/new"
    assert len(list((folder / "chats").iterdir())) == 1


def test_without_a_file_nothing_is_put_in_place(tmp_path: Path, chats: Path) -> None:
    """Without a stored file nothing is restored; the agent itself reports the unknown session."""
    lines = ConversationLines(tmp_path, Path("/w"))
    lines.begin(SESSION)
    lines.begin(None)
    lines.keep(SESSION)
    lines.forget(SESSION)
    assert list(chats.iterdir()) == []


def test_a_session_of_another_work_tree_continues_in_this_one(tmp_path: Path) -> None:
    """A branch has a copy of the original's session; the original's file stays as it is."""
    kept = tmp_path / "ses_1.db"
    with contextlib.closing(sqlite3.connect(kept)) as made, made:
        made.execute("CREATE TABLE session (id TEXT, directory TEXT, path TEXT)")
        made.execute("INSERT INTO session VALUES ('ses_1', '/old/agentRoot', 'old/agentRoot')")

    before = kept.read_bytes()
    storage = Database(tmp_path, Path("/new/agentRoot"))
    storage.begin("ses_1")
    with contextlib.closing(sqlite3.connect(storage.place)) as found:
        rows = found.execute("SELECT directory, path FROM session").fetchall()

    assert rows == [("/new/agentRoot", "new/agentRoot")]
    assert kept.read_bytes() == before
    storage.end()


def test_a_session_that_is_no_database_cannot_be_resumed(tmp_path: Path) -> None:
    """The error names the file."""
    (tmp_path / "ses_1.db").write_text("no database")
    with pytest.raises(OSError, match=r"ses_1\.db cannot be resumed"):
        Database(tmp_path, tmp_path / "work").begin("ses_1")
