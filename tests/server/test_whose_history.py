"""The owner of a history: the table of all cases, as facts and a decision."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_protocol.state_directory import Identity, ProjectFolder
from hankweave_server.local.project_history import Attribution, Evidence, KeptState, decide

HERE = ProjectFolder("/workspace", device=1, inode=10, born=100)
MINE = Identity(id="a", path="/workspace", device=1, inode=10, born=100)
MOVED = Identity(id="a", path="/old", device=1, inode=10, born=100)
ELSEWHERE = Identity(id="a", path="/old", device=1, inode=77, born=700)
RESTORED = Identity(id="a", path="/workspace", device=1, inode=77, born=700)
OTHER = Identity(id="b", path="/workspace", device=1, inode=88, born=800)
REUSED = Identity(id="b", path="/workspace", device=1, inode=10, born=800)
"""Another project's folder, which had the same inode before it was removed."""
RENUMBERED = Identity(id="a", path="/workspace", device=9, inode=10, born=100)
MARK_A, MARK_X = Identity(id="a"), Identity(id="x")


def kept(
    identity: Identity | None, folder: str = "/states/1", *, is_claimed: bool = False
) -> KeptState:
    return KeptState(Path(folder), identity, is_claimed)


A, B = kept(MINE), kept(OTHER)
INSIDE = "/workspace"

CASES: dict[str, tuple[Evidence, Attribution]] = {
    "a project that was never served": (Evidence(HERE), Attribution("new")),
    "the state at its place": (Evidence(HERE, MARK_A, A), Attribution("same", A)),
    "the marker was removed, as by git clean": (
        Evidence(HERE, None, A),
        Attribution("same", A),
    ),
    "the marker was changed, as by an agent": (
        Evidence(HERE, MARK_X, A),
        Attribution("same", A),
    ),
    "restored from a backup: another inode, but the marker": (
        Evidence(HERE, MARK_A, kept(RESTORED)),
        Attribution("same", kept(RESTORED)),
    ),
    "the disk has another number after a boot": (
        Evidence(HERE, None, kept(RENUMBERED)),
        Attribution("same", kept(RENUMBERED)),
    ),
    "an older version's state, without an identity": (
        Evidence(HERE, None, kept(None)),
        Attribution("same", kept(None)),
    ),
    "an older version's state, but the marker names another": (
        Evidence(HERE, MARK_A, kept(None), others=(kept(ELSEWHERE, "/states/2"),)),
        Attribution("moved", kept(ELSEWHERE, "/states/2")),
    ),
    "another project at the same path": (
        Evidence(HERE, None, B),
        Attribution("other-project", about=(B,)),
    ),
    "another project at the same path, whose folder got the same inode": (
        Evidence(HERE, None, kept(REUSED)),
        Attribution("other-project", about=(kept(REUSED),)),
    ),
    "another project was here, and its state has made room": (
        Evidence(HERE, None, others=(B,)),
        Attribution("other-project", about=(B,)),
    ),
    "moved on the same disk": (
        Evidence(HERE, None, others=(kept(MOVED),)),
        Attribution("moved", kept(MOVED)),
    ),
    "moved to another disk, known by its marker": (
        Evidence(HERE, MARK_A, others=(kept(ELSEWHERE),)),
        Attribution("moved", kept(ELSEWHERE)),
    ),
    "moved to where another project was": (
        Evidence(HERE, MARK_A, B, others=(kept(MOVED, "/states/2"),)),
        Attribution("moved", kept(MOVED, "/states/2")),
    ),
    "moved, and an agent left a state in it": (
        Evidence(HERE, None, inside=kept(None, INSIDE), others=(kept(MOVED),)),
        Attribution("moved", kept(MOVED)),
    ),
    "moved, and two states may be its own": (
        Evidence(HERE, MARK_A, others=(kept(ELSEWHERE), kept(ELSEWHERE, "/states/2"))),
        Attribution("ambiguous", about=(kept(ELSEWHERE), kept(ELSEWHERE, "/states/2"))),
    ),
    "copied; the original is still there": (
        Evidence(HERE, MARK_A, others=(kept(ELSEWHERE, is_claimed=True),)),
        Attribution("copied", about=(kept(ELSEWHERE, is_claimed=True),)),
    ),
    "the state in the project": (
        Evidence(HERE, inside=kept(MINE, INSIDE)),
        Attribution("same", kept(MINE, INSIDE)),
    ),
    "an older version's state in the project": (
        Evidence(HERE, inside=kept(None, INSIDE)),
        Attribution("same", kept(None, INSIDE)),
    ),
    "the state in the project, where another one has a state outside": (
        Evidence(HERE, None, B, kept(MINE, INSIDE)),
        Attribution("same", kept(MINE, INSIDE)),
    ),
    "the state in the project, restored from a backup": (
        Evidence(HERE, inside=kept(RESTORED, INSIDE)),
        Attribution("same", kept(RESTORED, INSIDE)),
    ),
    "moved with the state in it": (
        Evidence(HERE, inside=kept(ELSEWHERE, INSIDE)),
        Attribution("moved", kept(ELSEWHERE, INSIDE)),
    ),
    "moved with the state in it, and a copy took its place": (
        Evidence(HERE, inside=kept(MOVED, INSIDE, is_claimed=True)),
        Attribution("moved", kept(MOVED, INSIDE, is_claimed=True)),
    ),
    "copied with the state in it": (
        Evidence(HERE, inside=kept(ELSEWHERE, INSIDE, is_claimed=True)),
        Attribution("copied", kept(ELSEWHERE, INSIDE, is_claimed=True)),
    ),
    "the state in the project was removed": (Evidence(HERE, last=MINE), Attribution("gone")),
    "the project was removed, and another one made": (
        Evidence(HERE, last=OTHER),
        Attribution("new"),
    ),
    "the state outside was lost": (Evidence(HERE, MARK_A), Attribution("gone")),
}


@pytest.mark.parametrize("case", CASES)
def test_whose_history_a_start_continues(case: str) -> None:
    """The folder counts first, then the marker unless its project still exists elsewhere."""
    seen, decision = CASES[case]
    assert decide(seen) == decision


def test_a_disk_without_creation_times_is_identified_by_its_number() -> None:
    """Device and inode are compared where the time of creation is not known."""
    here = ProjectFolder("/workspace", device=1, inode=10, born=None)
    assert decide(Evidence(here, None, A)).finding == "same"
    assert decide(Evidence(here, None, kept(RENUMBERED))).finding == "other-project"
