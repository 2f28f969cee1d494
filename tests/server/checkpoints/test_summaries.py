"""Claims about the summary of a checkpoint: what the engine measures, and where it is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hankweave_server.checkpoints import diff
from hankweave_server.checkpoints.diff import COUNTED_BYTES, COUNTED_FILES
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.records import all_records, record_made
from hankweave_server.domain.checkpoints.titles import Extent, summary_of


def extent(lab) -> Extent:
    """Take a checkpoint, and return what its summary was made of."""
    found: list[Extent] = []

    def summarized(extent: Extent) -> str:
        found.append(extent)
        return summary_of("tool", extent)

    lab.engine.checkpoint(replace(lab.request("tool"), summarized=summarized))
    (measured,) = found
    return measured


def test_a_summary_is_kept_in_the_commit(lab):
    """After a crash before its journal line, and after each start, it is read from there."""
    lab.write("a", "1\n2\n")
    request = replace(lab.request(), summarized=lambda extent: f"two\nlines {extent.lines}")
    made = lab.engine.checkpoint(request)
    assert record_made(request, made).summary == "two\nlines (2, 0)"
    (record,) = all_records(lab.engine).values()
    assert record.summary == "two lines (2, 0)"
    old = lab.checkpoint()
    assert all_records(lab.engine)[old.sha].summary is None


def test_a_summary_has_the_changes_since_the_checkpoint_before(lab):
    """Lines are those that git counts; a new, a changed and a removed file, a link and a mode."""
    assert extent(lab) == Extent(0, lines=(0, 0))
    lab.write("d/a", "1\n2\n3\n4\n")
    assert extent(lab) == Extent(1, "d/a", lines=(4, 0))
    lab.write("d/a", "one\n2\n3\nfour\nfive\n")
    assert extent(lab) == Extent(1, "d/a", lines=(3, 2))
    lab.write("b", "b")
    lab.delete("d/a")
    assert extent(lab) == Extent(2, lines=(1, 5))
    lab.delete("b")
    assert extent(lab) == Extent(1, "b", is_deleted=True, lines=(0, 1))
    lab.write("binary", b"\0\1\2")
    assert extent(lab) == Extent(1, "binary", lines=(0, 0))
    lab.write(b"odd-\xff", "1\n", mode=0o755)
    assert extent(lab) == Extent(1, "odd-\\xff", lines=(1, 0))
    assert extent(lab) == Extent(0, lines=(0, 0))


def test_a_summary_compares_with_content_that_an_earlier_process_stored(lab):
    """After a start, the content before an edit comes from the repository."""
    lab.write("a", "1\n2\n")
    lab.checkpoint()
    lab.engine.close()
    lab.engine = CheckpointEngine.open(lab.layout)
    lab.write("a", "1\nzwei\ndrei\n")
    assert extent(lab) == Extent(1, "a", lines=(2, 1))


@pytest.mark.parametrize("many", [COUNTED_FILES + 1, 40])
def test_lines_of_many_or_large_files_are_not_counted(lab, many, monkeypatch):
    """Its cost is bounded: nothing is compared, and no content is read for it."""

    def compared(*_contents: bytes) -> None:
        raise AssertionError("it must not be compared")

    lab.write("large", b"x\n" * COUNTED_BYTES)
    for number in range(many):
        lab.write(f"f{number}", "1\n")

    lab.checkpoint()
    monkeypatch.setattr(diff, "line_counts", compared)
    lab.write("large", b"y\n" * COUNTED_BYTES)
    assert extent(lab) == Extent(1, "large")
    for number in range(many):
        lab.write(f"f{number}", "2\n")

    assert extent(lab) == Extent(many)


def test_what_is_noted_of_contents_is_bounded(lab, monkeypatch):
    """Old contents make room for new ones; what is not noted any more is read again."""
    monkeypatch.setattr(diff, "NOTED_BYTES", 22)
    for name in ("a", "b", "c", "d"):
        lab.write(name, f"{name * 3}\n")

    lab.checkpoint()
    lab.write("a", "aaa\nmore\n")
    assert extent(lab) == Extent(1, "a", lines=(1, 0))


def test_many_changes_are_counted_exactly_whether_they_were_reported_or_not(lab):
    """Added, changed and removed files, and a folder and a file that became each other."""
    kinds: dict[str, tuple[str, str]] = {
        f"{name}/{number}/f": (before, after)
        for name, (before, after) in {
            "new": ("", "n"),
            "old": ("o", ""),
            "same": ("s", "s"),
            "edited": ("e", "f"),
        }.items()
        for number in range(20)
    }
    for path, (before, _) in kinds.items():
        if before:
            lab.write(path, before)

    lab.write("file", "1")
    lab.write("folder/a", "1")
    lab.checkpoint()
    for path, (_, after) in kinds.items():
        lab.write(path, after) if after else lab.delete(path)

    lab.delete("file")
    lab.write("file/below", "1")
    lab.delete("folder/a")
    (lab.tree / "folder").rmdir()
    lab.write("folder", "1")
    found: list[Extent] = []
    request = replace(lab.request(), summarized=lambda extent: found.append(extent) or "many")
    captured = lab.engine.checkpoint_unless_changed(request, 0)
    lab.engine.complete(captured.capture, request)
    assert found == [Extent(64)]
    assert len(captured.changes) == 64
