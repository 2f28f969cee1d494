"""Removal of the remains of an interrupted branch."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_protocol.ids import RunId
from hankweave_protocol.records import BranchIntent, Coordinate
from hankweave_server.execution.branch.location import TEMPORARY, is_published, remove_temporary
from support.histories import sha
from support.privileges import as_ordinary_user

RUN = RunId("1736000000000-abc123-def456")


def intent_for(temporary: Path, final: Path | None = None) -> BranchIntent:
    return BranchIntent(
        temporary=str(temporary),
        execution_path=str(final or temporary.parent / "branch"),
        run_id=RUN,
        coordinate=Coordinate(checkpoint_sha=sha(1), event_seq=1, run_id=RUN),
        started_at="2025-01-04T12:00:00.000Z",
    )


def test_folders_that_forbid_it_are_removed_and_nothing_behind_a_link(tmp_path: Path) -> None:
    """A checkpoint may have folders without permissions, and links that lead outside."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    temporary = tmp_path / f"{TEMPORARY}{RUN}"
    locked = temporary / "execution" / "agentRoot" / "locked"
    (locked / "deep").mkdir(parents=True)
    (locked / "deep" / "file").write_text("x")
    (locked / "deep").chmod(0o000)
    locked.chmod(0o000)
    (temporary / "execution" / "link").symlink_to(outside)
    with as_ordinary_user():
        remove_temporary(intent_for(temporary))

    assert not temporary.exists()
    assert outside.stat().st_mode & 0o777 == 0o500


@pytest.mark.parametrize("name", ["precious", ".hankweave", f"x{TEMPORARY}"])
def test_what_has_another_name_is_left(tmp_path: Path, name: str) -> None:
    """A damaged intent must not cause another folder's removal."""
    folder = tmp_path / name
    folder.mkdir()
    remove_temporary(intent_for(folder))
    assert folder.is_dir()


def test_only_the_branch_of_the_intent_counts_as_its_branch(tmp_path: Path) -> None:
    """Nothing, an empty folder, another journal or a torn one is not a published branch."""
    final = tmp_path / "branch"
    intent = intent_for(tmp_path / f"{TEMPORARY}{RUN}", final)
    assert not is_published(intent)
    journal = final / ".hankweave" / "events" / "events.jsonl"
    journal.parent.mkdir(parents=True)
    for content in (b"", b"{", b'{"id":"1","seq":1,"timestamp":"t","type":"info","data":{}}\n'):
        journal.write_bytes(content)
        assert not is_published(intent)
