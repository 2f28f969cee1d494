"""What /proc says about processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psutil

from hankweave_server.agents.process import process_table
from hankweave_server.agents.process.process_table import ProcessFacts, ancestors, descendants


def facts(pid: int, parent: int) -> ProcessFacts:
    return ProcessFacts(pid, "S", parent, group=pid, session=pid, start_ticks=pid)


TABLE = {pid: facts(pid, parent) for pid, parent in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 1)]}


def test_descendants_are_found_at_any_depth() -> None:
    """Children and their children, without the roots and without strangers."""
    assert descendants(TABLE, [2]) == {3, 4}
    assert descendants(TABLE, [1]) == {2, 3, 4, 5}
    assert descendants(TABLE, [3]) == set()


def test_ancestors_are_found_to_the_first() -> None:
    """Parent, its parent, and so on."""
    assert ancestors(TABLE, 4) == {2, 1, 0}


def test_a_hostile_name_does_not_confuse_the_reader(tmp_path: Path) -> None:
    """A program may be called like the fields that follow its name."""
    program = tmp_path / "x) Z 1 1 (y"
    shutil.copy(shutil.which("sleep"), program)
    with subprocess.Popen([program, "600"], start_new_session=True) as process:
        read = process_table.read(process.pid)
        process.kill()

    assert (read.parent, read.group, read.session) == (os.getpid(), process.pid, process.pid)
    assert not read.is_dead


def test_the_start_time_agrees_with_another_witness() -> None:
    """Ticks since boot are what psutil makes its creation time of."""
    own = process_table.read(os.getpid())
    seconds = own.start_ticks / os.sysconf("SC_CLK_TCK")
    assert abs(psutil.boot_time() + seconds - psutil.Process().create_time()) < 1


def test_a_process_that_is_gone_is_none() -> None:
    """No process, no facts, no mark and no command line."""
    with subprocess.Popen(["true"]) as process:
        process.wait()

    assert process_table.read(process.pid) is None
    assert not process_table.carries(process.pid, "A", "b")
    assert process_table.command_of(process.pid) == ""
