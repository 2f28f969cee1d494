"""The control group that holds an agent, where the kernel grants one (cgroup v2)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hankweave_server.agents.process import keeper, process_table
from hankweave_server.agents.process.process_table import containment, kill, make, members, remove
from hankweave_server.confinement.own_program import own_program
from support.waiting import LIMIT

# It prints that it has started, in its own session, and sleeps.
MEMBER = "echo 0 > $0/cgroup.procs; echo; exec sleep 600"


@pytest.fixture
def group() -> Iterator[Path]:
    group = make(f"test-{os.getpid()}")
    if group is None:
        pytest.skip("no control group (cgroup v2) can be made here")

    yield group
    remove(group)


@pytest.fixture
def member(group: Path) -> Iterator[subprocess.Popen[bytes]]:
    argv = ["sh", "-c", MEMBER, str(group)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_who_is_in_a_group_is_found_without_mark_or_session(
    group: Path, member: subprocess.Popen[bytes]
) -> None:
    """A process without a mark and in its own session is still a member."""
    assert members(group) == {member.pid}


def test_a_kill_reaches_all_members_and_the_group_goes(
    group: Path, member: subprocess.Popen[bytes]
) -> None:
    """A group with a living member stays; after the kill the group is removed."""
    remove(group)
    assert group.exists()
    kill(group)
    assert member.wait(LIMIT) == -9
    remove(group)
    assert not group.exists()


def test_a_group_that_a_member_made_below_is_part_of_it(group: Path) -> None:
    """Nested groups are searched, killed and removed as well."""
    below = group / "below"
    below.mkdir()
    with subprocess.Popen(["sh", "-c", MEMBER, str(below)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert members(group) == {process.pid}
        kill(group)
        assert process.wait(LIMIT) == -9

    remove(group)
    assert not group.exists()


def test_the_probe_leaves_nothing(group: Path) -> None:
    """The probe that detects support creates a group and removes it again."""
    assert containment() == "cgroup"
    assert not list(group.parent.glob(f"hankweave-probe-{os.getpid()}"))


@pytest.mark.parametrize("command", ["sleep", "no-such-program"])
def test_the_group_goes_with_a_server_that_dies_while_its_agent_starts(
    group: Path, command: str
) -> None:
    """The keeper, which outlives the server, makes the group and removes it."""
    own = group.with_name(f"{group.name}-of-agent")
    (reports, report), (orders, server) = os.pipe(), os.pipe()
    argv = [*own_program(keeper.__name__), str(report), str(orders), str(own), "", ""]
    with subprocess.Popen([*argv, command, "600"], pass_fds=(report, orders)) as process:
        for end in (reports, report, orders, server):
            os.close(end)

        assert process.wait(LIMIT) == 0

    assert not own.exists()


def test_without_a_unified_hierarchy_the_keeper_holds_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without cgroup v2 no group is created, groups have no members, and no error is raised."""
    monkeypatch.setattr(process_table, "_mount_point", lambda mounts: None)
    assert make("m4rk") is None
    assert containment() == "subreaper"
    assert members(None) == set()
    kill(None)
    remove(None)


def test_a_group_that_is_gone_has_no_members(tmp_path: Path) -> None:
    """A recorded group directory that is gone, as after a reboot, has no members."""
    gone = tmp_path / "gone"
    assert members(gone) == set()
    kill(gone)
    remove(gone)
