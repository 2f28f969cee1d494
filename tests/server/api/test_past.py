"""Reads of the past on a real shadow repository, without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest

from hankweave_protocol.commands import CheckpointDiff, CheckpointReadFile, ReplayView
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import RunId, Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import DiffPage, PastView
from hankweave_protocol.state import EMPTY_STATE
from hankweave_server.api.lookup import Sources
from hankweave_server.api.past import PastReader
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.model import CheckpointRequest
from hankweave_server.checkpoints.records import record_of
from hankweave_server.execution.checkpoint_access import CheckpointAccess
from hankweave_server.ledger.moments import Moment
from hankweave_server.paths import Layout

T = TypeVar("T")

RUN = RunId("1736000000000-abc123-def456")
LAST_SEQ = 100


class CountingAccess(CheckpointAccess):
    """Access to the engine that counts the calls."""

    def __init__(self, room: Room) -> None:
        super().__init__(room.engine)
        self._room = room

    async def call(self, work: Callable[[CheckpointEngine], T]) -> T:
        self._room.calls += 1
        return await super().call(work)


@dataclass
class Room:
    """A work tree with its checkpoints, an artificial journal, and reads of both."""

    layout: Layout
    engine: CheckpointEngine
    known: dict[Sha, CheckpointRecord] = field(default_factory=dict)
    calls: int = 0
    newest: Sha | None = None

    @property
    def reader(self) -> PastReader:
        return PastReader(
            Sources(
                store=CountingAccess(self),
                known=lambda: self.known,
                state=lambda: EMPTY_STATE,
                last_seq=lambda: LAST_SEQ,
                moment_at=self._moment_at,
                patterns=lambda: ("**",),
            )
        )

    async def _moment_at(self, seq: int) -> Moment:
        return Moment(EMPTY_STATE, 1, self.newest)

    def write(self, name: str, content: str | bytes) -> None:
        path = self.layout.work_tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def checkpoint(self, seq: int = 1) -> Sha:
        made = self.engine.checkpoint(
            CheckpointRequest(
                kind="manual",
                codon_id=None,
                codon_name="By hand",
                run_id=RUN,
                timestamp=datetime(2025, 1, 4, 12, tzinfo=UTC),
                duration_ms=None,
                operation_id=f"op-{len(self.known)}",
                event_seq=seq,
                session_id=None,
                memory_epoch=0,
                label=None,
                patterns=("**",),
            )
        )
        self.known[made.sha] = record_of(self.engine.facts(made.sha))
        return made.sha


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    layout = Layout.of_execution(tmp_path)
    layout.work_tree.mkdir()
    room = Room(layout, CheckpointEngine.open(layout))
    yield room
    room.engine.close()


async def test_a_view_is_put_together_once(room: Room) -> None:
    """A repeated view of the same moment reads no object again."""
    room.write("a/b", "one\n")
    command = ReplayView(checkpoint_sha=room.checkpoint())
    reader = room.reader
    first = await reader.view(command)
    assert [entry.path for entry in first.tree] == ["a/b"]
    calls = room.calls
    assert await reader.view(command) == first
    assert room.calls == calls


async def test_two_commits_are_compared_once_and_the_work_tree_each_time(room: Room) -> None:
    """Comparisons of two commits are cached; comparisons with the work tree are not."""
    room.write("a", "one\n")
    one = room.checkpoint()
    room.write("a", "two\n")
    two = room.checkpoint()
    reader = room.reader
    first = await reader.diff(CheckpointDiff(from_sha=one, to_sha=two))
    calls = room.calls
    assert await reader.diff(CheckpointDiff(from_sha=one, to_sha=two)) == first
    assert room.calls == calls
    assert (await reader.diff(CheckpointDiff(from_sha=two))).files == ()
    room.write("a", "three\n")
    (changed,) = (await reader.diff(CheckpointDiff(from_sha=two))).files
    assert (changed.added, changed.removed) == (1, 1)


async def test_heavy_patches_make_short_pages(room: Room) -> None:
    """No page exceeds the size of a reply, and the cursors lead to every patch."""
    names = [f"file-{number}" for number in range(8)]
    for name in names:
        room.write(name, "")

    empty = room.checkpoint()
    for name in names:
        room.write(name, "\n".join(f"{name} {n:020}" for n in range(8_000)))

    full = room.checkpoint()
    pages: list[DiffPage] = []
    cursor: str | None = None
    while not pages or cursor is not None:
        page = await room.reader.diff(
            CheckpointDiff(from_sha=empty, to_sha=full, patch=True, cursor=cursor)
        )
        pages.append(page)
        cursor = page.cursor

    assert len(pages) > 1
    files = [file for page in pages for file in page.files]
    assert [file.path for file in files] == names
    assert all(file.patch and file.patch.count("\n+") >= 8_000 for file in files)
    assert {page.stats.files for page in pages} == {8}


async def test_a_patch_that_is_too_large_for_an_answer_is_left_out(room: Room) -> None:
    """A file with an omitted patch is still listed, with its line counts."""
    room.write("a", "")
    one = room.checkpoint()
    room.write("a", "\x01" * 200_000 + "\n")
    two = room.checkpoint()
    (file,) = (await room.reader.diff(CheckpointDiff(from_sha=one, to_sha=two, patch=True))).files
    assert (file.patch, file.added, file.status) == (None, 1, "modified")


async def test_before_the_first_checkpoint_there_are_no_files(room: Room) -> None:
    """A moment before the first checkpoint has an empty file list."""
    view = await room.reader.view(ReplayView(seq=0, compare=("previous", "now")))
    assert (view.coordinate, view.tree, view.previous, view.now) == (None, (), None, None)
    assert view.state == EMPTY_STATE


async def test_a_moment_whose_checkpoint_was_pruned_still_shows_its_state(room: Room) -> None:
    """A view with files is refused; the hint says how to get the state without files."""
    room.newest = Sha("f" * 40)
    with pytest.raises(Refused) as refused:
        await room.reader.view(ReplayView(seq=5))

    assert (refused.value.code, refused.value.path) == (
        ErrorCode.CHECKPOINT_NOT_FOUND,
        "$.data.seq",
    )
    view: PastView = await room.reader.view(ReplayView(seq=5, limit=0))
    assert view.state == EMPTY_STATE


async def test_a_checkpoint_beyond_the_journal_has_files_and_no_state(room: Room) -> None:
    """After a lost journal, an older checkpoint has files, and no state is made up for it."""
    room.write("a", "a")
    sha = room.checkpoint(seq=LAST_SEQ + 1)
    view = await room.reader.view(ReplayView(checkpoint_sha=sha))
    assert ([file.path for file in view.tree], view.state, view.events) == (["a"], None, None)


async def test_a_damaged_checkpoint_is_refused_with_its_first_object(room: Room) -> None:
    """The refusal names the first damaged object, instead of a partial file or internal error."""
    room.write("a", b"some content that nobody else has")
    sha = room.checkpoint()
    room.engine.close()
    for pack in (room.layout.shadow_repository / "objects" / "pack").glob("*.pack"):
        content = bytearray(pack.read_bytes())
        content[20:-20] = bytes(len(content) - 40)
        pack.chmod(0o600)
        pack.write_bytes(content)

    room.engine = CheckpointEngine.open(room.layout)
    with pytest.raises(Refused) as refused:
        await room.reader.read_file(CheckpointReadFile(checkpoint_sha=sha, path="a"))

    assert refused.value.code is ErrorCode.CHECKPOINT_DAMAGED
    assert refused.value.hint


async def test_a_name_that_two_checkpoints_share_is_refused_with_both(room: Room) -> None:
    """An ambiguous prefix is refused with both candidates and the path of the field."""
    room.write("a", "a")
    record = room.known[room.checkpoint()]
    for last in "12":
        room.known[Sha("abcd" + last * 36)] = record

    with pytest.raises(Refused) as refused:
        await room.reader.diff(CheckpointDiff(from_sha=record.sha, to_sha="abcd"))

    assert refused.value.code is ErrorCode.AMBIGUOUS_CHECKPOINT
    assert refused.value.path == "$.data.to"
