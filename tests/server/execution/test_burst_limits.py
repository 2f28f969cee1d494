"""Limits of events about many files, whatever their paths are."""

from __future__ import annotations

import logging

import msgspec
import pytest

from hankweave_protocol import codec
from hankweave_protocol.events import FileSource
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import Coordinate, KeptFile, RollbackReport, TouchedFile
from hankweave_server.checkpoints.model import WorkTreeChange
from hankweave_server.cli.live.model import NOTHING, observe
from hankweave_server.cli.output.event_lines import EventLine, event_line
from hankweave_server.domain.reducer import EMPTY_STATE
from hankweave_server.execution.codon.file_changes import burst_of
from hankweave_server.execution.event_log import log_line
from hankweave_server.execution.rollback.events import shortened
from hankweave_server.execution.rollback.user_edits import PART_BYTES, by_agents, by_people
from hankweave_server.listing import MOST_BYTES, first_of
from support.events import an_event

LARGEST = 32 * 1024

NAMES = {
    "short": b"%d",
    "folders": b"folder-%d/file.txt",
    "long": b"a/" * 1900 + b"%d",
    "control": b"\x01" * 250 + b"/%d",
    "no text": b"\xff" * 250 + b"/%d\xfe",
    "quotes": b'"\\' * 2000 + b"%d",
    "longest control": b"/".join([b"\x01" * 255] * 15) + b"/%d",
    "wide": "\U0001f600".encode() * 60 + b"/%d",
}


@pytest.mark.parametrize("pattern", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("count", [201, 5000])
def test_a_burst_stays_small_whatever_the_paths_are(pattern: bytes, count: int) -> None:
    """Paths that do not fit are only counted."""
    kinds = ("created", "modified", "deleted")
    changes = tuple(
        WorkTreeChange(path=pattern % at, kind=kinds[at % 3], size=at) for at in range(count)
    )
    source = FileSource(kind="tool_use", tool_use_id="t" * 100)
    event = burst_of(changes, source, CodonId("one"))
    assert len(codec.encode(event)) < LARGEST - 1024, "room for the envelope of the event"
    assert event.total == event.created + event.modified + event.deleted == count
    assert sum(folder.files for folder in event.folders) + event.in_other_folders == count
    assert len(event.paths) <= 200


def test_a_burst_lists_the_largest_folders_first() -> None:
    """Folders that hold equally many files are in the order of their names."""
    sizes = {b"b": 100, b"a": 100, b"": 150}
    paths = [f"{name.decode()}/{at}".lstrip("/") for name, n in sizes.items() for at in range(n)]
    changes = tuple(WorkTreeChange(path=path.encode(), kind="created", size=1) for path in paths)
    event = burst_of(changes, FileSource(kind="rig"), None)
    assert [(folder.folder, folder.files) for folder in event.folders] == [
        ("", 150),
        ("a", 100),
        ("b", 100),
    ]
    assert (event.other_folders, event.in_other_folders) == (0, 0)
    assert event.summary == "350 files changed at once: 350 created"


def test_a_burst_is_one_line_of_the_log_and_of_terminals() -> None:
    """The line has the numbers of files, and no file names."""
    changes = tuple(
        WorkTreeChange(path=b"%d.txt" % at, kind="deleted" if at else "modified", size=0)
        for at in range(300)
    )
    data = burst_of(changes, FileSource(kind="tool_use"), CodonId("one"))
    text = "300 files changed at once: 1 modified, 299 deleted"
    event = an_event(data)
    assert log_line(event, "agentRoot/") == (logging.DEBUG, text)
    assert event_line(data) == EventLine(text, "one")
    assert observe(NOTHING, event).files == {"one": "300 files"}


def test_edits_are_divided_into_entries_that_fit_into_frames() -> None:
    """All paths are in some entry, and no entry is much larger than the limit."""
    digests = {b"folder/%06d-\x01" % at: "" for at in range(20_000)}
    noticed = by_people(digests)
    assert len(noticed) > 1
    assert max(len(codec.encode(entry)) for entry in noticed) <= PART_BYTES
    edits = {path: digest for entry in noticed for path, digest in entry.edits.items()}
    assert edits == {path.decode(): "" for path in digests}
    state = msgspec.structs.replace(EMPTY_STATE, edits=edits)
    overtaken = by_agents(state, [*digests, b"another"])
    assert {path for entry in overtaken for path in entry.paths} == set(edits)
    assert max(len(codec.encode(entry)) for entry in overtaken) <= PART_BYTES


def test_a_report_is_complete_or_has_totals() -> None:
    """Up to 200 files of short paths are all listed."""
    at = Coordinate(checkpoint_sha=Sha("a" * 40), event_seq=1, run_id=RunId("r"))

    def report(files: int) -> RollbackReport:
        touched = tuple(TouchedFile(path=f"{n}.txt", bytes=2) for n in range(files))
        kept = tuple(KeptFile(path=f"{n}.txt", reason="edited") for n in range(files + 1))
        return RollbackReport(
            target=at,
            source=None,
            safety=None,
            added=touched,
            updated=(),
            removed=(),
            kept=(),
            conflicts=kept,
            skipped=(),
            recovered=False,
        )

    assert shortened(report(199)) == report(199)
    long = shortened(report(500))
    assert len(long.added) == len(long.conflicts) == 200
    assert (long.counts.added, long.counts.conflicts, long.counts.bytes) == (500, 501, 1000)
    assert len(codec.encode(long)) < 6 * MOST_BYTES


def test_a_list_ends_where_its_encoding_would_be_too_large() -> None:
    """The limit counts encoded bytes, not characters."""
    assert len(first_of(["\x01" * 100] * 300)) < 30
    assert len(first_of(["a"] * 300)) == 200
