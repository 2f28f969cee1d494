"""Progress counters of the engine count all work and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_protocol.records import ProgressUnit
from hankweave_server.checkpoints.clone import copy_repository, fill_work_tree, plan_clone
from hankweave_server.domain.retention import RetentionPolicy
from hankweave_server.git.repack import Pace
from hankweave_server.meter import Meter, MeterReading
from hankweave_server.paths import Layout

from .conftest import EVERYTHING, START, Lab

FILES = 200  # More than are read without threads.


class RecordingMeter(Meter):
    """A meter that stores the last reading of each phase."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[MeterReading] = []

    def begin(self, phase: str, unit: ProgressUnit, total: int | None = None) -> None:
        self.end()
        super().begin(phase, unit, total)

    def end(self) -> list[MeterReading]:
        last = self.read()
        if last is not None:
            self.ended.append(last)

        return self.ended


@pytest.fixture
def filled(lab: Lab) -> Lab:
    for number in range(FILES):
        lab.write(f"folder-{number % 7}/{number}.txt", f"{number}\n")

    return lab


def test_a_capture_counts_the_files_it_reads(filled: Lab) -> None:
    """The first capture counts all files; the next one counts only changed files."""
    first, second = RecordingMeter(), RecordingMeter()
    filled.engine.checkpoint(filled.request(), first)
    assert first.end() == [
        MeterReading("scanning", "files", 0, None),
        MeterReading("reading", "files", FILES, FILES),
        MeterReading("flushing", "files", 0, None),
    ]
    filled.reopen()
    filled.write("folder-0/0.txt", "changed")
    filled.engine.checkpoint(filled.request(), second)
    (reading,) = [each for each in second.end() if each.phase == "reading"]
    assert reading.done == reading.total
    assert reading.done >= 1


def test_a_restore_counts_what_it_writes_and_removes(filled: Lab) -> None:
    """Only differing files count; the plan counts the objects of the target."""
    target = filled.checkpoint()
    for number in range(50):
        filled.delete(f"folder-{number % 7}/{number}.txt")

    for number in range(30):
        filled.write(f"new-{number}", "new")

    filled.reopen()  # Objects known to be intact are not read again.
    planned, done = RecordingMeter(), RecordingMeter()
    plan = filled.engine.plan_restore(target.sha, EVERYTHING, meter=planned)
    assert planned.end() == [
        MeterReading("checking", "objects", FILES + 8, None),
        MeterReading("scanning", "files", 0, None),
    ]
    safety = filled.engine.checkpoint(filled.request("safety", before=plan, codon=None))
    filled.engine.restore(target.sha, safety.sha, meter=done)
    assert done.end() == [
        MeterReading("writing", "files", 80, 80),
        MeterReading("flushing", "files", 0, None),
    ]


def test_fsck_counts_objects_and_reads_each_once(filled: Lab) -> None:
    """Stored objects are counted; one shared by several checkpoints counts once."""
    filled.checkpoint()
    filled.write("one-more", "one more")
    filled.checkpoint()
    meter = RecordingMeter()
    assert filled.engine.housekeeping.fsck(meter=meter).is_sound
    # Blobs, folder trees, two root trees and two commits; the remaining objects are notes.
    ours = FILES + 1 + 7 + 2 + 2
    (reading,) = meter.end()
    assert (reading.phase, reading.done) == ("checking", ours)
    assert reading.total is not None
    assert ours <= reading.total <= ours + 10


def test_a_pruning_and_a_packing_count_to_their_end(filled: Lab) -> None:
    """Pruning counts all packs, repacking counts all small packs, and both reach their totals."""
    for number in range(5):
        filled.write("counter", f"{number}")
        filled.checkpoint()

    head = filled.engine.head()
    assert head is not None
    pruning = filled.engine.housekeeping.prunable(RetentionPolicy(), START, frozenset({head}))
    meter = RecordingMeter()
    filled.engine.prune(pruning, lambda: False, meter)
    filled.engine.housekeeping.consolidate(Pace(lambda: False), meter)
    phases = {each.phase: each for each in meter.end()}
    assert phases.keys() == {"tracing", "sweeping", "packing"}
    for phase in ("sweeping", "packing"):
        assert phases[phase].done == phases[phase].total, phases[phase]

    assert phases["packing"].done >= 5


def test_a_branch_counts_bytes_and_files(filled: Lab, tmp_path: Path) -> None:
    """A branch counts the bytes of the store it copies and the files of the work tree it writes."""
    target = filled.checkpoint()
    layout = Layout.of_execution(tmp_path / "branch")
    layout.checkpoints.mkdir(parents=True)
    layout.work_tree.mkdir()
    meter = RecordingMeter()
    plan = plan_clone(filled.layout, target.sha, meter)
    copy_repository(plan, layout, lambda: False, meter)
    fill_work_tree(target.sha, layout, meter)
    size = sum((plan.source / file).stat().st_size for file in plan.files)
    assert [each for each in meter.end() if each.phase != "checking"] == [
        MeterReading("copying", "bytes", size, size),
        MeterReading("writing", "files", FILES, FILES),
    ]
