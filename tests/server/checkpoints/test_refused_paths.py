"""Restores that are refused one path: each step, and each error that the system may answer."""

from __future__ import annotations

import errno
import os

import pytest

from hankweave_server.checkpoints.model import Skipped
from hankweave_server.git.errors import ShadowRepositoryError
from support.refused_calls import NUMBERS, STEPS, change, lay_out_target, left_by, refused, snapshot


def test_a_broken_disk_ends_the_restore_with_the_path(lab):
    """The fault is not one of this path alone, and a repetition completes the restore."""
    lay_out_target(lab.layout.work_tree)
    target, there = lab.checkpoint(), snapshot(lab.layout.work_tree)
    change(lab.layout.work_tree)
    safety = lab.checkpoint(kind="safety", codon=None)
    with (
        refused("write", b"file", errno.EIO),
        pytest.raises(ShadowRepositoryError, match="Input/output error: 'file'"),
    ):
        lab.engine.restore(target.sha, safety.sha)

    lab.engine.restore(target.sha, safety.sha)
    assert snapshot(lab.layout.work_tree) == there


@pytest.mark.parametrize("is_undo", [False, True], ids=["rollback", "undo"])
@pytest.mark.parametrize("step", STEPS)
def test_every_error_of_every_step_is_one_of_its_path(lab, step, is_undo):
    """The path is reported with the error and left as it was; all others are as in the target.

    A second restore takes back exactly what the first one did.
    """
    call, *victims = STEPS[step]
    victim = victims[is_undo]
    named = os.fsencode(f"{victim}/inner" if call == "mkdir" else victim)
    lay_out_target(lab.layout.work_tree)
    target, there = lab.checkpoint(), snapshot(lab.layout.work_tree)
    change(lab.layout.work_tree)
    safety, now = lab.checkpoint(kind="safety", codon=None), snapshot(lab.layout.work_tree)
    if is_undo:
        lab.engine.restore(target.sha, safety.sha)
        target, safety, there, now = safety, target, now, there

    for number in NUMBERS:
        if (call, number) == ("rmdir", errno.ENOTEMPTY):
            continue  # A folder with files that no checkpoint has stays, and rightly so.

        with refused(call, os.fsencode(victim), number):
            report = lab.engine.restore(target.sha, safety.sha)

        name = errno.errorcode[number]
        assert snapshot(lab.layout.work_tree) == left_by(victim, call, now, there), name
        reason = "permissions" if call == "chmod" else "os-error"
        assert report.unrestored == (Skipped(named, reason, number),), name
        present = lab.checkpoint(kind="safety", codon=None)
        lab.engine.restore(safety.sha, present.sha)
        assert snapshot(lab.layout.work_tree) == now, name
