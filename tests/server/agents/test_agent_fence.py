"""The facts of an agent's fence: which programs it can run, and what their links open."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_protocol.hank import Confinement
from hankweave_protocol.records import ExecutionMeta
from hankweave_server.agents.base import AgentNeeds
from hankweave_server.agents.fence import fence_for
from hankweave_server.confinement.policy import Level
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source


def readable(root: Path, folder: Path) -> tuple[str, ...]:
    """Return what an agent named `tool` can read if this folder is on its PATH."""
    layout = Layout.of_execution(root / "execution")
    layout.work_tree.mkdir(parents=True, exist_ok=True)
    fence = fence_for(
        layout,
        Confinement(),
        AgentNeeds(programs=("tool",)),
        Level.NAMESPACE,
        {"PATH": str(folder)},
    )
    assert fence is not None
    return fence.policy.read


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("copy", [False, True])
def test_data_that_is_a_single_file_can_be_read(tmp_path: Path, *, copy: bool) -> None:
    """The data is a link in a folder, and the fence opens the file that it leads to, alone.

    A copy is in that folder; where a link in it leads is not opened.
    """
    layout = Layout.of_execution(tmp_path / "execution")
    layout.state_directory.mkdir(parents=True)
    (tmp_path / "reports").mkdir()
    report = tmp_path / "reports" / "may.txt"
    report.touch()
    data_source.link_data(layout, report, copy=copy)
    meta = ExecutionMeta(
        version="1.0.0",
        read_only_source_data_path=str(report),
        read_only_source_resolved_data_path=str(report),
        data_hash=None,
        hank_hash=None,
        hank_path=None,
        link_type="copy" if copy else "symlink",
        created_at="2026-01-01T00:00:00.000Z",
        last_used="2026-01-01T00:00:00.000Z",
    )
    data_source.write_meta(layout, meta)
    found = readable(tmp_path, tmp_path)
    assert str(layout.data_source) in found
    assert [path for path in found if "reports" in path] == ([] if copy else [str(report)])


def test_a_link_on_the_path_opens_the_program_behind_it(tmp_path: Path) -> None:
    """A program that is installed behind links can be run."""
    there = program(tmp_path / "installed" / "tool")
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "tool").symlink_to(tmp_path / "between")
    (tmp_path / "between").symlink_to("installed/tool")
    assert str(there) in readable(tmp_path, folder)


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_link_that_an_agent_can_make_opens_nothing(tmp_path: Path, *, is_direct: bool) -> None:
    """An agent that puts a link in the work tree does not let its successor read what it names."""
    secret = program(tmp_path / "home" / "secret" / "tool")
    planted = tmp_path / "execution" / "agentRoot" / "bin"
    planted.mkdir(parents=True)
    (planted / "tool").symlink_to(secret)
    folder = planted
    if not is_direct:
        folder = tmp_path / "links"
        folder.mkdir()
        (folder / "tool").symlink_to(planted / "tool")

    found = readable(tmp_path, folder)
    assert not any(path.startswith(str(secret.parent)) for path in found)
