"""A checkpoint whose changes are reported before it: one scan, one reading of each file."""

from __future__ import annotations

import hashlib

import pytest

from hankweave_server.checkpoints import engine as engine_module
from hankweave_server.checkpoints.capture import CapturedChanges
from hankweave_server.checkpoints.file_reader import FileReader
from hankweave_server.checkpoints.model import CheckpointMade
from hankweave_server.git.errors import InsufficientSpace
from server.checkpoints.conftest import EVERYTHING, Lab
from support.calls import noted
from support.git_facts import GitWitness


def captured(lab: Lab, digests_up_to: int = 200) -> CapturedChanges:
    found = lab.engine.checkpoint_unless_changed(lab.request("manual"), digests_up_to)
    assert isinstance(found, CapturedChanges)
    return found


def test_changes_are_found_with_the_digests_of_what_was_read(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each changed file is opened once, for its event and for the commit."""
    for name in ("same", "changed", "gone"):
        lab.write(name, "before")

    lab.checkpoint()
    lab.engine.scan_changes(EVERYTHING)
    lab.write("changed", "after")
    lab.write("new/file", "new")
    lab.link("link", "changed")
    lab.delete("gone")
    reads = noted(monkeypatch, FileReader, "read")
    found = captured(lab)
    made = lab.engine.complete(found.capture, lab.request("manual"))

    assert {(each.path, each.kind) for each in found.changes} == {
        (b"changed", "modified"),
        (b"new/file", "created"),
        (b"link", "created"),
        (b"gone", "deleted"),
    }
    # What was written a moment before the last checkpoint is read again.
    assert {path: digest for path, digest in found.digests.items() if path != b"same"} == {
        b"changed": hashlib.sha256(b"after").hexdigest(),
        b"new/file": hashlib.sha256(b"new").hexdigest(),
    }
    opened = [path for _, path in reads]
    assert sorted(set(opened) - {b"same"}) == [b"changed", b"link", b"new/file"]
    assert len(opened) == len(set(opened))
    git = GitWitness(lab.layout.root)
    assert git.run("show", f"{made.sha}:changed") == "after"
    git.assert_sound()


def test_nothing_is_reported_twice(lab: Lab) -> None:
    """Neither what a scan has reported, nor what the last checkpoint holds."""
    lab.write("a", "1")
    lab.checkpoint()
    lab.write("a", "2")
    (scanned,) = lab.engine.scan_changes(EVERYTHING)
    assert scanned.path == b"a"
    made = lab.engine.checkpoint_unless_changed(lab.request("manual"), 200)
    assert isinstance(made, CheckpointMade)
    assert lab.engine.scan_changes(EVERYTHING) == ()

    lab.write("b", "3")
    lab.engine.complete(captured(lab).capture, lab.request("manual"))
    assert lab.engine.scan_changes(EVERYTHING) == ()
    again = lab.engine.checkpoint_unless_changed(lab.request("manual"), 200)
    assert isinstance(again, CheckpointMade)


def test_digests_are_left_out_if_they_are_not_requested(lab: Lab) -> None:
    """A burst is reported without them."""
    lab.checkpoint()
    for number in range(40):
        lab.write(f"{number}", f"{number}")

    found = captured(lab, digests_up_to=30)
    assert (len(found.changes), found.digests) == (40, {})


def test_an_abandoned_checkpoint_leaves_nothing(lab: Lab) -> None:
    """No file stays in the repository, and the next checkpoint has the changes."""
    lab.write("a", "1")
    first = lab.checkpoint()
    before = sorted(lab.layout.shadow_repository.rglob("*"))
    lab.write("a", "2")
    lab.write("big", bytes(5 << 20))
    lab.engine.abandon(captured(lab).capture)
    assert sorted(lab.layout.shadow_repository.rglob("*")) == before

    made = lab.checkpoint()
    git = GitWitness(lab.layout.root)
    assert git.run("show", f"{made.sha}:a") == "2"
    assert git.run("rev-parse", f"{made.sha}^").strip() == first.sha
    git.assert_sound()


def test_a_plan_reports_what_has_changed_once(lab: Lab) -> None:
    """It returns what a scan would have, which therefore returns nothing of it afterwards."""
    lab.write("changed", "before")
    target = lab.checkpoint()
    lab.engine.scan_changes(EVERYTHING)
    lab.write("changed", "after")
    lab.write("new", "new")
    plan = lab.engine.plan_restore(target.sha, EVERYTHING, reports=True)
    assert [(each.path, each.kind) for each in plan.unreported] == [
        (b"changed", "modified"),
        (b"new", "created"),
    ]
    assert plan.touched == {b"changed", b"new"}
    assert lab.engine.scan_changes(EVERYTHING) == ()


def test_a_plan_that_is_refused_leaves_the_changes_to_the_next_scan(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write("changed", "before")
    target = lab.checkpoint()
    lab.engine.scan_changes(EVERYTHING)
    lab.write("changed", "after")
    monkeypatch.setattr(engine_module, "free_bytes", lambda _path: 0)
    with pytest.raises(InsufficientSpace):
        lab.engine.plan_restore(target.sha, EVERYTHING, reports=True)

    assert [each.path for each in lab.engine.scan_changes(EVERYTHING)] == [b"changed"]
