"""Commands that only read leave every file of an execution as it was, its times included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hankweave_server.local.ephemeral_server import through_server
from support.command_line import hankweave
from support.scripted_hank import codon, write_hank, writes

HANK = (codon("one", writes("a.txt", "one")), codon("two", writes("b.txt", "two")))
READING = (
    ("status",),
    ("log",),
    ("log", "--graph", "--calls"),
    ("checkpoints",),
    ("runs",),
    ("events",),
    ("show", "SHA"),
    ("diff", "SHA"),
    ("replay", "SHA", "--tree"),
    ("report",),
    ("sessions",),
    ("attempts",),
    ("rollback", "--preview"),
    ("rollback", "--before", "two", "--preview", "--patch"),
    ("rollback", "--codon", "one", "--path", "b.txt", "--preview", "--json"),
    ("preview", "--codon", "one"),
    ("redo", "--preview"),
    ("compare", "ATTEMPT"),
    ("adopt", "ATTEMPT", "--preview"),
    ("adopt", "ATTEMPT", "--path", "b.txt", "--preview", "--json"),
    ("gc", "--dry-run", "--max-count", "0", "--kinds", "safety"),
    ("fsck",),
    ("why", "one"),
)


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return size, time of change and inode of everything below a folder."""
    facts = {path: path.lstat() for path in (folder, *folder.rglob("*"))}
    return {str(path): (s.st_size, s.st_mtime_ns, s.st_ino) for path, s in facts.items()}


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an execution whose server has ended, and that somebody has edited since."""
    place = tmp_path_factory.mktemp("left")
    hank, execution = write_hank(place / "hank", *HANK), place / "execution"
    hankweave("run", str(hank), "-e", str(execution), "--headless", code=0)
    hankweave("rollback", "--codon", "one", "--yes", "-e", str(execution), code=0)
    hankweave("undo", "--yes", "-e", str(execution), code=0)
    hankweave("explore", "--codon", "two", "-n", "1", "-e", str(execution), code=0)
    (execution / "agentRoot" / "a.txt").write_text("by a person")
    return execution


def test_reading_commands_write_nothing(left: Path) -> None:
    """Neither the journal nor a lock: no server is started, and none of the caches is saved."""
    sha = hankweave("checkpoints", "-e", str(left), code=0).stdout.split()[0]
    explored = json.loads(hankweave("attempts", "--json", "-e", str(left), code=0).stdout)
    named = {"SHA": sha, "ATTEMPT": explored["attempts"][0]["attemptId"]}
    before = listing(left)
    for words in READING:
        given = (named.get(word, word) for word in words)
        done = hankweave(*given, "-e", str(left))
        assert done.returncode == 0, (words, done.stderr)
        assert listing(left) == before, words


def test_status_names_what_has_changed_since_the_last_checkpoint(left: Path) -> None:
    """The files are compared without a server."""
    shown = hankweave("status", "-e", str(left), code=0).stdout
    assert "  1 file changed since the last checkpoint: a.txt +1 −1\n" in shown


def test_a_preview_of_the_files_is_that_of_a_server(left: Path) -> None:
    """The rollback does exactly what the files have foretold."""
    here = ("-e", str(left))
    foreseen = hankweave("rollback", "--before", "two", "--preview", *here, code=0).stdout
    assert foreseen.startswith("Back to before two: ")
    assert "1 file goes away\n       b.txt  3 bytes" in foreseen
    assert "1 edit of yours is overwritten" in foreseen
    assert "1 step runs again: two" in foreseen
    done = hankweave("rollback", "--before", "two", "--yes", *here, code=0).stdout
    assert done.startswith("Back at before two: ")
    assert "1 file went away\n       b.txt  3 bytes" in done
    assert "1 edit of yours was overwritten" in done
    hankweave("undo", "--yes", *here, code=0)
    assert (left / "agentRoot" / "a.txt").read_text() == "by a person"


def test_what_gc_would_prune_is_the_same_with_a_server_and_without(left: Path) -> None:
    """The files are examined as the server examines them."""
    words = ("gc", "--dry-run", "--max-count", "0", "--json", "-e", str(left))
    without = json.loads(hankweave(*words, code=0).stdout)
    served = json.loads(through_server(left, lambda: hankweave(*words, code=0).stdout))
    sizes = ("bytesBefore", "bytesAfter")  # A start writes the index of its work tree.
    assert without["keptBecause"]
    for name in without.keys() - set(sizes):
        assert without[name] == served[name], name
