"""Files that an agent has open for writing while they are captured."""

from __future__ import annotations

import mmap
import os
from functools import partial

import pytest

from hankweave_server.checkpoints.model import Skipped
from hankweave_server.worktree.open_files import files_open_for_writing


def open_files_of(lab):
    """Return a function that looks up this process's open files, as if it were an agent."""
    return partial(files_open_for_writing, (os.getpid(),), lab.tree)


def test_a_file_that_is_open_for_writing_is_marked_until_it_is_closed(lab):
    """An open file is captured in its current state, and marked because it may be incomplete."""
    lab.write("torn", "")
    with open(lab.tree / "torn", "w", buffering=1) as file:
        file.write("first half\n")
        made = lab.checkpoint(open_files=open_files_of(lab))
        again = lab.checkpoint(open_files=open_files_of(lab))
        file.write("second half\n")

    whole = lab.checkpoint(open_files=open_files_of(lab))
    assert made.skipped == again.skipped == (Skipped(b"torn", "unstable"),)
    assert not made.partial
    assert lab.git("show", f"{made.sha}:torn") == "first half\n"
    assert whole.skipped == ()
    assert lab.git("show", f"{whole.sha}:torn") == "first half\nsecond half\n"


def test_what_is_written_through_a_mapping_is_captured_though_no_time_moves(lab):
    """The kernel updates a mapped file's times only on the first write to a page; later writes are
    found by reading the file again while it is mapped, and once more after that."""
    path = lab.tree / "mapped"
    lab.write("mapped", "0" * mmap.PAGESIZE)
    lab.checkpoint()
    with path.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0)

    found = []
    with mapping:
        for number in b"123":
            mapping[0] = number
            made = lab.checkpoint(open_files=open_files_of(lab))
            assert made.skipped == (Skipped(b"mapped", "unstable"),)
            found.append(lab.git("show", f"{made.sha}:mapped")[0])

        mapping[0] = ord("4")

    made = lab.checkpoint(open_files=open_files_of(lab))
    assert made.skipped == ()
    assert [change.path for change in made.changed] == [b"mapped"]
    assert [*found, lab.git("show", f"{made.sha}:mapped")[0]] == ["1", "2", "3", "4"]


def test_a_file_that_is_mapped_while_it_is_read_is_marked(lab):
    """Open files are listed before and after the read, so a mapping made meanwhile is noticed."""
    path = lab.tree / "late"
    lab.write("late", "0" * mmap.PAGESIZE)
    calls, mappings = [], []

    def count_calls():
        calls.append(None)
        if len(calls) == 2:
            with path.open("r+b") as file:
                mappings.append(mmap.mmap(file.fileno(), 0))

        return open_files_of(lab)()

    made = lab.checkpoint(open_files=count_calls)
    assert made.skipped == (Skipped(b"late", "unstable"),)
    assert [change.size for change in made.changed] == [mmap.PAGESIZE]
    mappings[0][0] = ord("1")
    mappings[0].close()
    assert lab.git("show", f"{lab.checkpoint().sha}:late")[0] == "1"


def test_open_files_that_are_not_tracked_are_not_reported(lab):
    """Open files that no pattern matches are not reported."""
    lab.write("kept.txt", "x")
    with open(lab.tree / "other.log", "w"):
        made = lab.checkpoint("*.txt", open_files=open_files_of(lab))

    assert made.skipped == ()


def mapped(lab, name, size=mmap.PAGESIZE):
    """Map a file that a small checkpoint reads while its first page is dirty, long after that."""
    lab.write(name, "0" * size)
    before = lab.checkpoint()
    with (lab.tree / name).open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0)

    mapping[0] = ord("1")
    lab.checkpoint(kind="tool")
    lab.engine._memory.scan.settle()
    return before, mapping


@pytest.mark.parametrize("size", [mmap.PAGESIZE, 3 << 20])
@pytest.mark.parametrize("then", ["still mapped", "unmapped", "restarted"])
def test_a_rollback_loses_nothing_that_stat_data_does_not_show(lab, then, size):
    """Any process may map a file; what it wrote unseen comes back with the undo."""
    before, mapping = mapped(lab, "a", size)
    mapping[0] = ord("2")
    if then == "unmapped":
        mapping.close()
    elif then == "restarted":
        lab.reopen()

    lab.rollback(before.sha)

    safety = next(facts.sha for facts in lab.engine.commits() if facts.kind == "safety")
    assert lab.read("a")[:1] == b"0"
    lab.rollback(safety)
    assert lab.read("a") == b"2" + b"0" * (size - 1)


def test_all_but_the_frequent_checkpoints_read_a_mapped_file_again(lab):
    """The process need not be an agent's, and no time need move."""
    _, mapping = mapped(lab, "a")
    for number, kind in ((b"2", "completed"), (b"3", "manual"), (b"4", "error")):
        mapping[0] = number[0]
        made = lab.checkpoint(kind=kind)
        assert lab.git("show", f"{made.sha}:a")[0] == number.decode()


@pytest.mark.parametrize("is_removed", [False, True], ids=["replaced", "removed"])
def test_what_is_written_unseen_after_the_safety_checkpoint_stays(lab, is_removed):
    """The content is compared before it goes; the next safety checkpoint holds it."""
    empty = lab.checkpoint()
    before, mapping = mapped(lab, "a")
    target = empty if is_removed else before
    plan = lab.engine.plan_restore(target.sha, ("**",))
    safety = lab.checkpoint(kind="safety", codon=None, before=plan)
    mapping[0] = ord("2")

    report = lab.engine.restore(target.sha, safety.sha)

    assert report.unrestored == (Skipped(b"a", "changed"),)
    assert lab.read("a")[:1] == b"2"
    lab.rollback(target.sha)
    assert lab.exists("a") != is_removed


@pytest.mark.parametrize("has_leases", [True, False])
@pytest.mark.parametrize("is_removed", [False, True], ids=["replaced", "removed"])
def test_a_plan_names_what_was_written_unseen_since_the_last_checkpoint(
    lab, monkeypatch, is_removed, has_leases
):
    """It is in no checkpoint, and a rollback that keeps edits must know that it is one."""
    if not has_leases:
        monkeypatch.setattr("hankweave_server.checkpoints.file_reader.has_writer", lambda _: None)

    empty = lab.checkpoint()
    before, mapping = mapped(lab, "a")
    target = empty if is_removed else before
    assert lab.engine.plan_restore(target.sha, ("**",)).unsaved == frozenset()

    mapping[0] = ord("2")

    assert lab.engine.plan_restore(target.sha, ("**",)).unsaved == {b"a"}


def test_what_was_written_unseen_to_a_file_that_seems_to_be_as_wanted_is_restored(lab):
    """A plan that compared recorded content alone would not find any difference."""
    _, mapping = mapped(lab, "a")
    target = lab.checkpoint()
    mapping[0] = ord("2")

    plan = lab.engine.plan_restore(target.sha, ("**",))

    assert [entry.path for entry in plan.updated] == [b"a"]
    assert plan.unsaved == {b"a"}


def test_a_scan_reports_once_what_stat_data_does_not_show(lab):
    """One that trusts stat data may leave it to the next one that does not."""
    _, mapping = mapped(lab, "a")
    mapping[0] = ord("2")

    found = lab.engine.scan_changes(("**",), trusts_stat_data=True)
    found += lab.engine.scan_changes(("**",))

    assert [change.path for change in found] == [b"a"]
    assert lab.engine.scan_changes(("**",)) == ()
