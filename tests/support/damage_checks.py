"""Invariants of an execution that has lost one object, checked through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.command_line import Done, hankweave
from support.damage import StoredObject, checkpoints, git

DONE, FAILED = 0, 1


def works_around_damage(
    execution: Path, lost: StoredObject, before: dict[str, str], targets: list[str]
) -> None:
    """Check that every command works or names the lost object, and that a repair completes."""
    at = ("-e", str(execution))
    report = json.loads(hankweave("fsck", *at, "--json").stdout)
    broken = {each["checkpoint"] for each in report["damages"]} | set(report["missing"])
    if lost.kind == "commit" and lost.sha in before:
        assert lost.sha in broken

    run = hankweave("run", "--execution", str(execution), "--headless", "--no-agent-check")
    assert run.returncode == DONE, run.stdout + run.stderr
    listed = checkpoints(execution)
    assert set(before) - set(listed) <= broken, "only what is lost is not listed"
    for words in (("events",), ("log", "--graph"), ("gc",)):
        done = hankweave(*words, *at)
        assert done.returncode == DONE, (words, done.stdout, done.stderr)

    for sha in targets:
        _may_refuse(hankweave("diff", sha, *at), broken)
        _may_refuse(hankweave("show", sha, *at), broken)
        back = _may_refuse(hankweave("rollback", "--to", sha, *at, "-y"), broken)
        if back:
            _may_refuse(hankweave("undo", *at, "-y"), broken | {"the safety checkpoint"})

        place = execution.parent / f"branch-{sha[:8]}"
        if _may_refuse(hankweave("branch", sha, *at, "--path", str(place)), broken):
            hankweave("fsck", "-e", str(place))

    _repaired(execution, broken, before, targets)


def _may_refuse(done: Done, broken: set[str]) -> bool:
    """Return True if it worked; a refusal is allowed where something is broken, and is complete."""
    if done.returncode == DONE:
        return True

    output = done.stdout + done.stderr
    assert broken, output
    assert "fsck --repair" in output, output
    return False


def _repaired(
    execution: Path, broken: set[str], before: dict[str, str], targets: list[str]
) -> None:
    """Check that after `fsck --repair` no tool finds a fault, and the rest is usable."""
    at = ("-e", str(execution))
    repaired: dict[str, Any] = json.loads(
        hankweave("fsck", "--repair", *at, "--json", code=DONE).stdout
    )
    assert (repaired["damages"], repaired["missing"]) == ([], [])
    lost = set(repaired["repair"].get("lost", ()))
    assert lost <= broken
    hankweave("fsck", *at, code=DONE)
    checked = git(execution, "fsck", "--full", "--strict")
    faults = [line for line in checked.stderr.splitlines() if not line.startswith("notice")]
    assert (checked.returncode, faults) == (0, []), checked
    listed = checkpoints(execution)
    assert set(before) - set(listed) <= lost
    for sha in targets:
        done = hankweave("rollback", "--to", sha, *at, "-y")
        assert done.returncode == (FAILED if sha in lost else DONE), done.stdout + done.stderr
        assert git(execution, "log", "--all", "--format=%H").returncode == 0
        if sha in lost:
            assert "fsck" not in done.stderr, "a repair has been done"

    hankweave("gc", *at, code=DONE)
    hankweave("run", "--execution", str(execution), "--headless", "--no-agent-check", code=DONE)
    hankweave("fsck", *at, code=DONE)
