"""Commands that only read leave every file of an execution as it was, its times included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hankweave_protocol import codec
from hankweave_protocol.commands import ExplorationAdopt, GetServerStatus
from hankweave_server.cli.app import PLACES
from hankweave_server.local.ephemeral_server import through_server
from hankweave_server.local.server_session import at_server
from hankweave_server.paths import Layout
from support.command_line import hankweave
from support.scripted_hank import codon, write_hank, writes

HANK = (codon("one", writes("a.txt", "one")), codon("two", writes("b.txt", "two")))
READING = (
    ("status",),
    ("status", "-v"),
    ("ls", "--size", "--json"),
    ("log",),
    ("log", "--all"),
    ("log", "--graph", "--calls"),
    ("checkpoints",),
    ("runs",),
    ("events",),
    ("events", "--json", "--type", "state.transition"),
    ("permissions",),
    ("config",),
    ("validate", "HANK"),
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
    ("adopt", "ATTEMPT", "--merge", "--preview"),
    ("gc", "--dry-run", "--max-count", "0", "--kinds", "safety"),
    ("fsck",),
    ("why", "one"),
    ("why", "b.txt:1"),
    ("blame", "b.txt"),
    ("pickaxe", "two"),
    ("changes", "b.txt"),
    ("history",),
)


WITHOUT_EXECUTION = {"ls", "config", "validate"}
REFUSED = {"permissions": 69}
"""The exit codes of those that need a server; they start none."""

PREVIEWED = {"undo"}
"""Commands of which only the preview reads; here, there is nothing to undo."""

OTHERS = {
    *("run", "demo", "init", "map", "resume", "pipeline", "explore", "branch", "bisect"),
    *("next", "skip", "stop", "retry", "allow", "deny", "checkpoint", "pin", "redact"),
    *("discard", "cleanup", "notify", "mcp", "attach", "open", "completion", "agents", "help"),
    "mirror",
}
"""Commands that change something, need a server, or read no execution."""


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


@pytest.fixture(scope="module")
def named(left: Path) -> dict[str, str]:
    """Return what the words in capitals stand for."""
    sha = hankweave("checkpoints", "-e", str(left), code=0).stdout.split()[0]
    explored = json.loads(hankweave("attempts", "--json", "-e", str(left), code=0).stdout)
    return {
        "SHA": sha,
        "ATTEMPT": explored["attempts"][0]["attemptId"],
        "HANK": str(left.parent / "hank"),
    }


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_reading_command_writes_nothing(
    left: Path, named: dict[str, str], words: tuple[str, ...]
) -> None:
    """Neither the journal nor a lock: no server is started, and none of the caches is saved."""
    before = listing(left)
    aim = () if words[0] in WITHOUT_EXECUTION else ("-e", str(left))
    done = hankweave(*(named.get(word, word) for word in words), *aim)
    assert done.returncode == REFUSED.get(words[0], 0), done.stderr
    assert listing(left) == before


def test_every_command_that_reads_an_execution_is_in_the_table() -> None:
    """A new command is either in the table, or among those that change something or need more."""
    assert {words[0] for words in READING}.isdisjoint(OTHERS)
    assert {words[0] for words in READING} | OTHERS | PREVIEWED == PLACES.keys()


def test_status_names_what_has_changed_since_the_last_checkpoint(left: Path) -> None:
    """The files are compared without a server."""
    shown = hankweave("status", "-e", str(left), code=0).stdout
    assert "  1 file changed since the last checkpoint: a.txt +1 −1\n" in shown


def test_a_preview_of_the_files_is_that_of_a_server(left: Path) -> None:
    """The rollback does exactly what the files have foretold."""
    here = ("-e", str(left))
    previewed = hankweave("rollback", "--before", "two", "--preview", *here, code=0).stdout
    assert previewed.startswith("Back to before two: ")
    assert "1 file goes away\n       b.txt  3 bytes" in previewed
    assert "1 edit of yours is overwritten" in previewed
    assert "1 step runs again: two" in previewed
    done = hankweave("rollback", "--before", "two", "--yes", *here, code=0).stdout
    assert done.startswith("Back at before two: ")
    assert "1 file went away\n       b.txt  3 bytes" in done
    assert "1 edit of yours was overwritten" in done
    hankweave("undo", "--yes", *here, code=0)
    assert (left / "agentRoot" / "a.txt").read_text() == "by a person"


def test_a_preview_of_a_merge_is_that_of_a_server(
    left: Path, named: dict[str, str], tmp_path: Path
) -> None:
    """It says what the merge does, edits of a person included, or which files conflict."""
    words = ("adopt", named["ATTEMPT"], "--merge", "-e", str(left))
    mine = left / "agentRoot" / "b.txt"
    mine.unlink()
    try:
        previewed = hankweave(*words, "--preview", code=0).stdout
        assert "  +  1 file comes back\n       b.txt  3 bytes\n" in previewed
        assert "  !  1 edit of yours is overwritten" in previewed
        mine.write_text("mine")
        refused = hankweave(*words, "--preview", "--conflicts", str(tmp_path / "both"), code=1)
        assert "1 file was changed on both sides: b.txt (both-added)" in refused.stderr
        assert (tmp_path / "both" / "ours" / "b.txt").read_text() == "mine"
        previewed = hankweave(*words, "--theirs", "--preview", "--json", code=0).stdout
        sent = ExplorationAdopt(
            attempt_id=named["ATTEMPT"], merge=True, on_conflict="theirs", preview=True
        )
        served = codec.encode(
            through_server(left, lambda: at_server(left, lambda client: client.send(sent)))
        )
        for name in ("added", "updated", "removed", "kept", "conflicts", "targetTitle"):
            assert json.loads(previewed).get(name) == json.loads(served).get(name), name
    finally:
        mine.write_text("two")


def test_a_preview_of_a_merge_leaves_no_trace_beside_a_server(
    left: Path, named: dict[str, str]
) -> None:
    """Neither the command nor a client that asks the server: it merges in a copy of the store."""
    layout, mine = Layout.of_execution(left), left / "agentRoot" / "b.txt"
    mine.unlink()

    def run_preview() -> None:
        at_server(left, lambda client: client.send(GetServerStatus()))
        before = listing(layout.checkpoints), layout.journal.read_bytes()
        previewed = hankweave("adopt", named["ATTEMPT"], "--merge", "--preview", "-e", str(left))
        assert (previewed.returncode, "1 file comes back" in previewed.stdout) == (0, True)
        sent = ExplorationAdopt(attempt_id=named["ATTEMPT"], merge=True, preview=True)
        report = at_server(left, lambda client: client.send(sent))
        assert [file.path for file in report.added] == ["b.txt"]
        assert (listing(layout.checkpoints), layout.journal.read_bytes()) == before

    try:
        through_server(left, run_preview)
    finally:
        mine.write_text("two")


def test_what_gc_would_prune_is_the_same_with_a_server_and_without(left: Path) -> None:
    """The files are examined as the server examines them."""
    words = ("gc", "--dry-run", "--max-count", "0", "--json", "-e", str(left))
    without = json.loads(hankweave(*words, code=0).stdout)

    def asked() -> str:
        at_server(left, lambda client: client.send(GetServerStatus()))
        return hankweave(*words, code=0).stdout

    served = json.loads(through_server(left, asked))
    sizes = ("bytesBefore", "bytesAfter")  # A start writes the index of its work tree.
    assert without["keptBecause"]
    for name in without.keys() - set(sizes):
        assert without[name] == served[name], name
