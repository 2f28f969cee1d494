"""Process information from /proc."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from hankweave_server.agents.process import process_table
from hankweave_server.agents.process.process_table import ProcessFacts, ancestors, descendants


def facts(pid: int, parent: int) -> ProcessFacts:
    return ProcessFacts(pid, "S", parent, group=pid, session=pid, start_ticks=pid)


TABLE = {pid: facts(pid, parent) for pid, parent in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 1)]}


def test_descendants_are_found_at_any_depth() -> None:
    """Children and their children are found, without the roots and unrelated processes."""
    assert descendants(TABLE, [2]) == {3, 4}
    assert descendants(TABLE, [1]) == {2, 3, 4, 5}
    assert descendants(TABLE, [3]) == set()


FAMILY = """
import os, signal, threading

def grow(depth):
    if depth and os.fork() == 0:
        grow(depth - 1)
        os.write(1, b"%d\\n" % os.getpid())
        signal.pause()

for _ in range(2):
    thread = threading.Thread(target=grow, args=[3])
    thread.start()
    thread.join()

os.write(1, b"%d\\n" % os.getpid())
signal.pause()
"""
"""A process with two chains of three descendants; a thread that has ended began each of them."""


@pytest.mark.parametrize("has_children", [True, False])
def test_the_lists_of_children_have_all_descendants(
    monkeypatch: pytest.MonkeyPatch, has_children: bool
) -> None:
    """A kernel may have no such lists; then all processes are read."""
    monkeypatch.setattr(process_table, "_HAS_CHILDREN", has_children)
    program = [sys.executable, "-c", FAMILY]
    with subprocess.Popen(program, start_new_session=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            family = {int(process.stdout.readline()) for _ in range(7)}
            found = process_table.below(process.pid)
        finally:
            os.killpg(process.pid, signal.SIGKILL)

    assert found == family - {process.pid}
    assert process_table.below(process.pid) == set()


def test_ancestors_are_found_to_the_first() -> None:
    """Ancestors are found from the parent up to the first process."""
    assert ancestors(TABLE, 4) == {2, 1, 0}


def test_a_hostile_name_does_not_confuse_the_reader(tmp_path: Path) -> None:
    """A program name may look like the fields that follow it."""
    program = tmp_path / "x) Z 1 1 (y"
    shutil.copy(shutil.which("sleep"), program)
    with subprocess.Popen([program, "600"], start_new_session=True) as process:
        read = process_table.read(process.pid)
        process.kill()

    assert (read.parent, read.group, read.session) == (os.getpid(), process.pid, process.pid)
    assert not read.is_dead


def test_the_start_time_agrees_with_another_witness() -> None:
    """psutil computes its creation time from the same ticks since boot."""
    own = process_table.read(os.getpid())
    seconds = own.start_ticks / os.sysconf("SC_CLK_TCK")
    assert abs(psutil.boot_time() + seconds - psutil.Process().create_time()) < 1


def test_a_process_that_is_gone_is_none() -> None:
    """A process that is gone has no facts, no mark and no command line."""
    with subprocess.Popen(["true"]) as process:
        process.wait()

    assert process_table.read(process.pid) is None
    assert not process_table.carries(process.pid, "A", "b")
    assert process_table.command_of(process.pid) == ""
