"""SQLite databases in the work tree: real ones, whose companion files are ignored."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys

import pytest

from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.file_reader import FileReader
from hankweave_server.checkpoints.model import Skipped

IGNORED = "*-wal\n*-shm\n*-journal\n"

LEFT_BEHIND = """
import os, sqlite3, sys
with_path, mode, *rows = sys.argv[1:]
db = sqlite3.connect(with_path, isolation_level=None)
db.execute(f"PRAGMA journal_mode={mode}")
db.execute("PRAGMA wal_autocheckpoint=0")
db.execute("CREATE TABLE IF NOT EXISTS rows (text)")
for row in rows:
    db.execute("INSERT INTO rows VALUES (?)", (row,))

if mode == "delete":
    db.execute("PRAGMA cache_size=2")
    db.execute("BEGIN")
    db.executemany("INSERT INTO rows VALUES (?)", [("never committed" * 50,)] * 500)

os._exit(0)
"""
"""A program that is killed: its rows are in the -wal, or its transaction in the -journal."""


def left_behind(lab, *rows, mode="wal", name="app.db"):
    path = str(lab.tree / name)
    subprocess.run([sys.executable, "-c", LEFT_BEHIND, path, mode, *rows], check=True)


@contextlib.contextmanager
def opened(lab, name="app.db"):
    with contextlib.closing(sqlite3.connect(lab.tree / name, isolation_level=None)) as database:
        yield database


def rows(lab, name="app.db"):
    """Return the rows of a database that is sound."""
    with opened(lab, name) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [text for (text,) in database.execute("SELECT text FROM rows ORDER BY rowid")]


def add(lab, *texts, name="app.db"):
    """Add rows, and move everything from the -wal into the database."""
    with opened(lab, name) as database:
        database.executemany("INSERT INTO rows VALUES (?)", [(text,) for text in texts])
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.mark.parametrize("watches", [False, True])
@pytest.mark.parametrize("patterns", [("**",), ("*.db", "!*-wal")])
def test_a_database_is_restored_with_its_ignored_companions(lab, patterns, watches):
    """After a rollback it is sound and has the rows of the checkpoint, those in its -wal included;
    after the undo it has the later ones."""
    lab.engine.close()
    lab.engine = CheckpointEngine.open(lab.layout, watches=watches)
    lab.write(".gitignore", IGNORED)
    lab.checkpoint(*patterns)
    left_behind(lab, "one", "two")
    made = lab.checkpoint(*patterns)
    assert {b"app.db", b"app.db-wal"} <= lab.names(made.sha)
    assert b"app.db-shm" not in lab.names(made.sha)

    add(lab, *["three" * 100] * 100)
    left_behind(lab, "four")
    later = lab.checkpoint(*patterns)
    assert lab.exists("app.db-shm")

    lab.rollback(made.sha, patterns)
    assert not lab.exists("app.db-shm"), "SQLite builds it from the restored -wal"
    assert rows(lab) == ["one", "two"]

    lab.rollback(later.sha, patterns)
    assert rows(lab) == ["one", "two", *["three" * 100] * 100, "four"]


def test_companions_that_the_target_lacks_are_removed(lab):
    """A later -wal beside an earlier database would be applied to it."""
    lab.write(".gitignore", IGNORED)
    left_behind(lab)
    add(lab, "one")
    made = lab.checkpoint()
    assert b"app.db-wal" not in lab.names(made.sha)
    left_behind(lab, "two")
    report = lab.rollback(made.sha)
    assert b"app.db-wal" in {entry.path for entry in report.removed}
    assert not lab.exists("app.db-shm")
    assert rows(lab) == ["one"]


def test_companions_of_a_database_that_is_not_tracked_now_are_saved_and_removed(lab):
    """The database has been ignored since; the safety checkpoint has both."""
    left_behind(lab)
    add(lab, "one")
    made = lab.checkpoint()
    lab.delete("app.db")
    lab.write(".gitignore", IGNORED + "*.db\n")
    lab.checkpoint()
    left_behind(lab, "other")
    plan = lab.engine.plan_restore(made.sha, ("**",))
    assert plan.databases == {b"app.db": ()}
    assert b"app.db-wal" in plan.touched
    safety = lab.engine.checkpoint(lab.request("safety", before=plan, codon=None))
    assert {b"app.db", b"app.db-wal"} <= lab.names(safety.sha)
    lab.engine.restore(made.sha, safety.sha)
    assert rows(lab) == ["one"]


def test_a_database_that_the_target_lacks_goes_with_its_companions(lab):
    """Nothing of it is left behind, although the companions are ignored."""
    lab.write(".gitignore", IGNORED)
    made = lab.checkpoint()
    left_behind(lab, "one")
    later = lab.checkpoint()
    lab.rollback(made.sha)
    assert [name for name in ("app.db", "app.db-wal", "app.db-shm") if lab.exists(name)] == []
    lab.rollback(later.sha)
    assert rows(lab) == ["one"]


def test_an_unfinished_transaction_is_taken_back_after_a_rollback(lab):
    """The -journal of a program that was killed comes back with the database that it mends."""
    lab.write(".gitignore", IGNORED)
    left_behind(lab, "one", mode="delete")
    made = lab.checkpoint()
    assert b"app.db-journal" in lab.names(made.sha)
    assert rows(lab) == ["one"]
    add(lab, "two")
    lab.rollback(made.sha)
    assert lab.exists("app.db-journal")
    assert rows(lab) == ["one"]


@pytest.mark.parametrize("chosen", [b"app.db", b"app.db-wal"])
def test_a_rollback_of_one_file_takes_the_whole_database(lab, chosen):
    """Whichever of its files is named, and nothing else."""
    lab.write(".gitignore", IGNORED)
    left_behind(lab, "one")
    lab.write("other", "1")
    made = lab.checkpoint()
    add(lab, "two")
    lab.write("other", "2")
    lab.checkpoint()
    lab.rollback(made.sha, paths=frozenset({chosen}))
    assert rows(lab) == ["one"]
    assert lab.read("other") == b"2"


def test_the_index_of_a_database_that_does_not_change_is_left_alone(lab):
    """A program that has the database open goes on sharing it with others."""
    left_behind(lab, "one")
    lab.write("other", "1")
    made = lab.checkpoint()
    with opened(lab) as database:
        assert database.execute("SELECT * FROM rows").fetchall() == [("one",)]
        before = (lab.tree / "app.db-shm").stat().st_ino
        lab.write("other", "2")
        lab.checkpoint()
        lab.rollback(made.sha)
        assert (lab.tree / "app.db-shm").stat().st_ino == before


def test_a_name_alone_does_not_make_a_companion(lab):
    """Ignored files beside a file that is no database stay ignored, and are never removed."""
    lab.write(".gitignore", IGNORED)
    for name in ("notes", "notes-journal", "app.db-wal"):
        lab.write(name, "mine")

    made = lab.checkpoint()
    assert lab.names(made.sha) == {b".gitignore", b"notes"}
    lab.write("notes", "x" * 512)
    lab.checkpoint()
    lab.rollback(made.sha)
    assert lab.read("notes-journal") == lab.read("app.db-wal") == b"mine"


def test_a_companion_that_cannot_be_captured_is_named(lab):
    """The checkpoint is partial: its event names file and reason; so does a plan to restore it."""
    lab.size_limit = 64 << 10
    lab.reopen()
    lab.write(".gitignore", IGNORED)
    left_behind(lab, *["x"] * 40)
    made = lab.checkpoint()
    lost = (Skipped(b"app.db-wal", "too-large"),)
    assert (made.partial, made.skipped) == (True, lost)
    add(lab, "more")
    lab.checkpoint()
    assert lab.engine.plan_restore(made.sha, ("**",)).databases == {b"app.db": lost}


@pytest.mark.parametrize("times", [1, 9])
def test_a_database_that_is_written_while_it_is_read_is_read_again(lab, monkeypatch, times):
    """Its files are of one moment; if they never are, the checkpoint says that it is unstable."""
    lab.write(".gitignore", IGNORED)
    left_behind(lab, "one")
    read, turns = FileReader.read, iter(range(times))
    with opened(lab) as database:

        def read_and_write(reader, path):
            seen = read(reader, path)
            if path == b"app.db" and next(turns, None) is not None:
                database.execute("INSERT INTO rows VALUES (?)", ("more" * 500,))
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                database.execute("INSERT INTO rows VALUES ('last')")

            return seen

        monkeypatch.setattr(FileReader, "read", read_and_write)
        made = lab.checkpoint()
        monkeypatch.undo()

    unstable = Skipped(b"app.db", "unstable")
    assert (unstable in made.skipped) is (times > 1)
    add(lab, "later")
    lab.checkpoint()
    plan = lab.engine.plan_restore(made.sha, ("**",))
    assert (unstable in plan.databases[b"app.db"]) is (times > 1)
    if times == 1:
        lab.rollback(made.sha)
        assert rows(lab) == ["one", "more" * 500, "last"]
