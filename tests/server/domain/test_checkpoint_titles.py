"""Claims about the titles of checkpoints: one rule, in Python and in the page."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import CheckpointKind, CheckpointRecord, Coordinate
from hankweave_server.domain.checkpoints.titles import (
    KIND_WORDS,
    LONGEST_PATH,
    Extent,
    summary_of,
    title,
    title_of,
)

WEB = Path(__file__).resolve().parents[3] / "server/hankweave_server/transport/web"
KINDS = get_args(CheckpointKind)


def a_record(
    kind: CheckpointKind = "tool", codon: str | None = "review#1", **fields: str
) -> CheckpointRecord:
    return CheckpointRecord(
        sha=Sha("a" * 40),
        kind=kind,
        coordinate=Coordinate(
            checkpoint_sha=Sha("a" * 40),
            event_seq=7,
            run_id=RunId("r1"),
            codon_id=None if codon is None else CodonId(codon),
            codon_state=None,
            memory_epoch=0,
        ),
        codon_name="Review all rows",
        timestamp="2025-01-04T12:00:00.000Z",
        operation_id="op",
        **fields,
    )


def one(path: str, added: int = 0, removed: int = 0, *, is_deleted: bool = False) -> Extent:
    return Extent(1, path, is_deleted, (added, removed))


MANY = Extent(3, lines=(40, 2))


@pytest.mark.parametrize(
    ("tools", "extent", "expected"),
    [
        (["Edit"], one("src/records.py", 12, 3), "Edit src/records.py +12 −3"),
        (["Write", "Edit"], one("a.py", 12), "Write, Edit a.py +12"),
        (["Bash"], one("a.py", 1, 1), "Bash · a.py +1 −1"),
        (["Bash"], one("a.py", 0, 9, is_deleted=True), "Bash · a.py deleted"),
        (["Bash", "Bash"], MANY, "Bash · 3 files +40 −2"),
        (["Bash", "Edit", "Write"], MANY, "3 tools · 3 files +40 −2"),
        ([], MANY, "3 files +40 −2"),
        ([], Extent(12_000), "12,000 files"),
        (["Write"], one("photo.png"), "Write photo.png"),
        (["Bash"], Extent(0), "no change"),
    ],
)
def test_a_summary_lists_which_tools_changed_which_files(
    tools: list[str], extent: Extent, expected: str
) -> None:
    """The file or the number of files, the lines, and before them the tools of the calls."""
    assert summary_of("tool", extent, tools=tools) == expected


@pytest.mark.parametrize(
    ("kind", "label", "expected"),
    [
        ("initial", None, "the beginning · 3 files +40 −2"),
        ("rig-setup", None, "rig set up · 3 files +40 −2"),
        ("completed", "my label", "codon completed · 3 files +40 −2"),
        ("skipped", None, "codon skipped · 3 files +40 −2"),
        ("exit", None, "server stopped · 3 files +40 −2"),
        ("manual", "mine", "3 files +40 −2"),
        ("safety", "before rollback to 6dc2; holds 1 edits", "before rollback to 6dc2 · 3 files"),
        ("turn", None, "Edit · 3 files +40 −2"),
        ("turn", "architect:checkpoint:step-3", "step-3 · Edit · 3 files +40 −2"),
        ("turn", "waiting: rate limit", "waiting: rate limit · Edit · 3 files +40 −2"),
    ],
)
def test_a_summary_says_why_where_no_tool_does(
    kind: CheckpointKind, label: str | None, expected: str
) -> None:
    """A rig, the end of a codon, a stop and a safety checkpoint begin with what they are."""
    assert summary_of(kind, MANY, label=label, tools=["Edit"]).startswith(expected)


def test_a_checkpoint_with_nothing_new_says_why_it_was_taken() -> None:
    """Where not even that is known, it says that nothing has changed."""
    nothing = Extent(0)
    assert summary_of("skipped", nothing) == "codon skipped"
    assert summary_of("safety", nothing, label="before attempt 2") == "before attempt 2"
    assert summary_of("manual", nothing, label="mine") == "no change"
    assert summary_of("turn", nothing, tools=["Edit"]) == "no change"


def test_the_label_of_a_step_is_its_name() -> None:
    """The mark by which Architect finds its own checkpoints is not for people."""
    for kind in ("manual", "completed"):
        assert title(kind, None, label="architect:checkpoint:implement") == "implement"


def test_nothing_in_a_summary_can_move_a_cursor_or_turn_the_text() -> None:
    """Control characters and marks of direction in names of files and tools are escaped."""
    evil = "\x1b[2J\u202egnp.exe\n\udcff"
    made = summary_of("tool", one(evil, 1), tools=[f"mcp\x07{evil}"], label=None)
    assert made.isprintable()
    assert "\\u202egnp.exe\\n" in made
    assert summary_of("safety", MANY, label=evil).isprintable()
    assert summary_of("tool", one("עברית.txt", 1), tools=["Edit"]) == "Edit עברית.txt +1"


@pytest.mark.parametrize(
    "path", ["a/" * 100 + "records.py", "x" * 300, f"{'d' * 60}/f.py", f"d/{'f' * 60}"]
)
def test_a_long_path_is_shortened_at_its_beginning(path: str) -> None:
    """The name of the file stays, with as many whole folders as there is room for."""
    summary = summary_of("tool", one(path, 1), tools=["t" * 100])
    shown = summary.removesuffix(" +1").partition(" · ")[2]
    assert len(shown) <= LONGEST_PATH
    assert shown.startswith("…")
    assert path.endswith(shown[1:])
    assert len(summary) < 100


RECORDS = [
    (a_record(name="good", label="mine", summary="no change", kind="manual"), "good"),
    (a_record(label="mine", summary="no change", kind="manual"), "mine"),
    (a_record(label="architect:checkpoint:x", kind="completed"), "x"),
    (a_record(label="before attempt 2", summary="s", kind="safety"), "s"),
    (a_record(label="architect:checkpoint:step-1", summary="s", kind="turn"), "s"),
    (a_record(summary="", label=""), "after a tool call · review#1"),
    (a_record(label="before Write"), "after a tool call · review#1"),
    (a_record(label="before attempt 2; more", kind="safety"), "before attempt 2 · review#1"),
    (a_record(label="architect:checkpoint:step-1", kind="turn"), "step-1 · review#1"),
    (a_record("initial", None), "the beginning"),
    *((a_record(kind), f"{KIND_WORDS[kind]} · review#1") for kind in KINDS),
]


@pytest.mark.parametrize(("record", "expected"), RECORDS)
def test_the_title_is_the_name_the_label_the_summary_or_the_kind(
    record: CheckpointRecord, expected: str
) -> None:
    """A person's words come first; records of older versions have neither summary nor surprise."""
    assert title_of(record) == expected


def test_every_kind_has_a_text() -> None:
    """A kind that is added must be named, too."""
    assert set(KIND_WORDS) == set(KINDS)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_the_page_has_the_same_rule() -> None:
    """`titleOf` of the page returns the same titles for the records as they come on the wire."""
    wire = msgspec.json.encode([record for record, _ in RECORDS]).decode()
    script = (
        f"import {{ titleOf }} from {json.dumps(str(WEB / 'kinds.js'))};"
        f"console.log(JSON.stringify({wire}.map(titleOf)))"
    )
    words = ("node", "--input-type=module", "-e", script)
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [title for _, title in RECORDS]
