"""The campaigns of the lease: races for it, and pushes that are killed."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from support.mirrors import WITHIN, Machine, kill_a_push, race

pytestmark = pytest.mark.timeout(3600)

RACES = 1000
KILLED = 300


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    path = tmp_path / "mirror.git"
    subprocess.run(("git", "init", "--quiet", "--bare", path), check=True)
    return path


def test_a_thousand_races_have_one_winner_each(tmp_path: Path, bare: Path) -> None:
    """Three machines take the lease over at the same time, each time from the last winner."""
    race([Machine(tmp_path / f"machine-{number}", bare) for number in range(3)], bare, RACES)


def test_pushes_that_are_killed_leave_the_old_state_or_the_new_one(
    tmp_path: Path, bare: Path
) -> None:
    """At any moment of 300 pushes; the next one succeeds."""
    chosen, machine = random.Random(1), Machine(tmp_path / "one", bare)
    lease = machine.composed()
    machine.remote.push(lease, None, WITHIN)
    for _ in range(KILLED):
        lease = kill_a_push(machine, bare, lease, chosen.random() * 0.06)
