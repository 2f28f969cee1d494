"""Views of the past over a real socket: a viewer sees the real history, and nothing moves."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import connect as connect_raw

from hankweave_client.client import Client, connect
from hankweave_client.discovery import discover
from hankweave_protocol.commands import (
    MAX_RANGE,
    CheckpointDiff,
    CheckpointReadFile,
    CommandData,
    ListCheckpoints,
    ReplayView,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackUndo,
)
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import FileRange, TreeFile
from hankweave_protocol.state import State
from hankweave_server.domain.reducer import fold
from support.git_facts import GitWitness
from support.running_server import RunningServer, at_rest, journal, tree
from support.scripted_hank import codon, write_hank, writes
from support.watching import after_plan, refused

BIG = 3 * 1024 * 1024 + 17
STRANGE = "printf strange > \"$(printf 'odd-\\377.txt')\""

HANK = (
    codon("one", writes("notes/a.txt", "one\n"), writes("b.txt", "b\n")),
    codon(
        "two",
        writes("notes/a.txt", "one\ntwo\n"),
        {"run": "rm b.txt; ln -s notes/a.txt link; printf 'x\\000y' > blob; chmod 600 blob"},
        {"run": STRANGE},
        {"run": f"head -c {BIG} /dev/zero | tr '\\0' 'z' > big"},
    ),
)


@dataclass(frozen=True)
class Scene:
    """A server that has run its plan, and a viewer of it."""

    server: RunningServer
    controller: Client
    viewer: Client
    git: GitWitness

    @property
    def execution(self) -> Path:
        return self.server.execution

    async def record(self, kind: str, codon_id: str | None = None) -> CheckpointRecord:
        page = await self.viewer.send(ListCheckpoints())
        return next(
            each
            for each in page.checkpoints
            if each.kind == kind and each.coordinate.codon_id == codon_id
        )


@asynccontextmanager
async def a_scene(tmp_path: Path, *codons: dict[str, Any]) -> AsyncIterator[Scene]:
    hank = write_hank(tmp_path / "hank", *(codons or HANK))
    async with after_plan(hank, tmp_path / "execution", since_seq=0) as (server, controller):
        token = (server.execution / ".hankweave" / "server.viewer-token").read_text().strip()
        address = discover(server.execution)
        async with connect(address.url, token=token, mode="readonly") as viewer:
            assert viewer.mode == "readonly"
            yield Scene(server, controller, viewer, GitWitness(server.execution))


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.command("checkpoint.diff")
@pytest.mark.story("The difference of two checkpoints is the one that git shows.")
async def test_a_comparison_of_two_checkpoints_is_what_git_says(tmp_path: Path) -> None:
    """A comparison has status and lines of each file, and total stats.

    With `patch` it has git's own unified diff.
    """
    async with a_scene(tmp_path) as scene:
        one, two = await scene.record("completed", "one"), await scene.record("completed", "two")
        page = await scene.viewer.send(
            CheckpointDiff(from_sha=one.sha[:12], to_sha=two.sha, patch=True)
        )
        assert (page.from_sha, page.to_sha, page.cursor) == (one.sha, two.sha, None)
        found = {file.path: file for file in page.files}
        assert {path: file.status for path, file in found.items()} == {
            "b.txt": "deleted",
            "big": "created",
            "blob": "created",
            "link": "created",
            "notes/a.txt": "modified",
            "odd-\\xff.txt": "created",
        }
        changed = found["notes/a.txt"]
        assert (changed.added, changed.removed) == (1, 0)
        theirs = scene.git.run("diff", one.sha, two.sha, "--", "notes/a.txt")
        assert changed.patch.split("@@")[1:] == theirs.split("@@")[1:]
        assert page.stats.files == len(page.files) == 6
        assert page.stats.added == sum(file.added for file in page.files)
        assert (
            await scene.viewer.send(CheckpointDiff(from_sha=two.sha, to_sha=two.sha))
        ).stats.files == 0


async def test_a_comparison_with_the_work_tree_sees_what_people_did_since(tmp_path: Path) -> None:
    """Without `to` it compares the current work tree, by folders and files if requested."""
    async with a_scene(tmp_path) as scene:
        two = await scene.record("completed", "two")
        assert (await scene.viewer.send(CheckpointDiff(from_sha=two.sha))).files == ()
        root = scene.execution / "agentRoot"
        (root / "notes" / "a.txt").write_text("by hand\n")
        (root / "new.txt").write_text("new\n")
        page = await scene.viewer.send(CheckpointDiff(from_sha=two.sha, patch=True))
        assert page.to_sha is None
        assert [(file.path, file.status) for file in page.files] == [
            ("new.txt", "created"),
            ("notes/a.txt", "modified"),
        ]
        assert "+by hand" in (page.files[1].patch or "")
        below = await scene.viewer.send(CheckpointDiff(from_sha=two.sha, paths=("notes/",)))
        assert [file.path for file in below.files] == ["notes/a.txt"]
        assert (
            await scene.viewer.send(CheckpointDiff(from_sha=two.sha, paths=("blob",)))
        ).files == ()


@pytest.mark.command("checkpoint.readFile")
async def test_files_come_byte_for_byte_whatever_is_in_them(tmp_path: Path) -> None:
    """Text is returned as text, other content in base64, links as their target; with size, mode."""
    async with a_scene(tmp_path) as scene:
        two = await scene.record("completed", "two")
        text = await scene.viewer.send(
            CheckpointReadFile(checkpoint_sha=two.sha, path="notes/a.txt")
        )
        assert text == FileRange(content="one\ntwo\n", encoding="utf-8", size=8, mode=0o100644)
        blob = await scene.viewer.send(CheckpointReadFile(checkpoint_sha=two.sha, path="blob"))
        assert (blob.encoding, base64.b64decode(blob.content)) == ("base64", b"x\0y")
        assert blob.mode == 0o100600
        link = await scene.viewer.send(CheckpointReadFile(checkpoint_sha=two.sha, path="link"))
        assert (link.content, link.mode) == ("notes/a.txt", 0o120777)
        strange = await scene.viewer.send(
            CheckpointReadFile(checkpoint_sha=two.sha, path="odd-\\xff.txt")
        )
        assert strange.content == "strange"


async def test_a_large_file_comes_in_ranges_and_never_in_part_unasked(tmp_path: Path) -> None:
    """A whole read is refused with the size; ranges together are the file, in any order."""
    async with a_scene(tmp_path) as scene:
        two = await scene.record("completed", "two")
        error = await refused(scene.viewer, CheckpointReadFile(checkpoint_sha=two.sha, path="big"))
        assert error.code == "FILE_TOO_LARGE"
        assert str(BIG) in error.message
        assert error.hint

        parts: list[str] = []
        offset: int | None = 0
        while offset is not None:
            found = await scene.viewer.send(
                CheckpointReadFile(
                    checkpoint_sha=two.sha, path="big", offset=offset, length=MAX_RANGE
                )
            )
            parts.append(found.content)
            offset = found.next_offset

        assert "".join(parts) == "z" * BIG
        middle = await scene.viewer.send(
            CheckpointReadFile(checkpoint_sha=two.sha, path="big", offset=BIG - 5, length=MAX_RANGE)
        )
        assert (middle.content, middle.next_offset, middle.size) == ("zzzzz", None, BIG)
        early = await scene.viewer.send(
            CheckpointReadFile(checkpoint_sha=two.sha, path="big", offset=1, length=2)
        )
        assert (early.content, early.next_offset) == ("zz", 3)


@pytest.mark.command("replay.view")
@pytest.mark.story("A replay shows the files and the state of a past moment.")
async def test_a_view_of_a_checkpoint_is_its_files_and_the_state_then(tmp_path: Path) -> None:
    """The tree is git's list, the state is the journal's fold, and events begin with the run."""
    async with a_scene(tmp_path) as scene:
        one = await scene.record("completed", "one")
        view = await scene.viewer.send(
            ReplayView(checkpoint_sha=one.sha[:10], compare=("previous", "now"))
        )
        assert view.coordinate == one.coordinate
        assert view.tree == (
            TreeFile(path="b.txt", size=2, mode=0o100644),
            TreeFile(path="notes/a.txt", size=4, mode=0o100644),
        )
        assert (view.stats.files, view.stats.bytes) == (2, 6)
        events = journal(scene.execution)
        assert view.state == fold(events[: one.coordinate.event_seq])
        first = events[view.events.from_seq - 1]
        assert getattr(first.data, "transition_type", None) == "RunStarted"
        assert view.events.to_seq == one.coordinate.event_seq

        initial = await scene.record("initial")
        assert view.previous is not None
        parent = scene.git.run("rev-parse", f"{one.sha}~1").strip()
        assert (view.previous.from_sha, view.previous.to_sha) == (parent, one.sha)
        assert view.previous == await scene.viewer.send(
            CheckpointDiff(from_sha=parent, to_sha=one.sha)
        )
        assert view.now is not None
        assert view.now == await scene.viewer.send(CheckpointDiff(from_sha=one.sha))
        assert (
            await scene.viewer.send(ReplayView(checkpoint_sha=initial.sha, compare=("previous",)))
        ).previous is None


async def test_a_view_of_every_event_is_the_fold_and_the_newest_files(tmp_path: Path) -> None:
    """At each seq: state = fold(journal), and files are those of the newest checkpoint then."""
    async with a_scene(tmp_path) as scene:
        one = await scene.record("completed", "one")
        await scene.controller.send(RollbackToCheckpoint(checkpoint_sha=one.sha))
        events = journal(scene.execution)
        shown: list[str | None] = []
        state: State = fold(())
        for seq in range(len(events) + 1):
            state = fold(events[seq - 1 : seq], state) if seq else state
            view = await scene.viewer.send(ReplayView(seq=seq, limit=0))
            assert view.state == state, seq
            assert view.tree == ()
            shown.append(None if view.coordinate is None else view.coordinate.checkpoint_sha)

        steps = [sha for index, sha in enumerate(shown) if index == 0 or shown[index - 1] != sha]
        page = await scene.viewer.send(ListCheckpoints())
        assert steps == [None, *(each.sha for each in reversed(page.checkpoints)), one.sha]
        last = await scene.viewer.send(ReplayView(seq=len(events)))
        assert [file.path for file in last.tree] == ["b.txt", "notes/a.txt"]


async def test_after_every_journey_the_newest_moment_shows_the_files_that_are_there(
    tmp_path: Path,
) -> None:
    """After rollback, undo and redo, the view of the last event lists the work tree's files."""
    async with a_scene(tmp_path) as scene:
        one = await scene.record("completed", "one")
        for journey in (
            RollbackToCheckpoint(checkpoint_sha=one.sha),
            RollbackUndo(),
            RollbackRedo(),
        ):
            await scene.controller.send(journey)
            last = len(journal(scene.execution))
            view = await scene.viewer.send(ReplayView(seq=last, compare=("now",)))
            there = _names_in(scene.execution / "agentRoot")
            assert {file.path for file in view.tree} == there
            assert view.now.files == ()


def _names_in(folder: Path) -> set[str]:
    root = os.fsencode(folder)
    return {
        os.path.relpath(os.path.join(place, name), root).decode("utf-8", "backslashreplace")
        for place, _, names in os.walk(root)
        for name in names
    }


async def test_a_view_can_be_confined_and_paged(tmp_path: Path) -> None:
    """`paths` selects files and folders; pages together are the tree; the state is sent once."""
    async with a_scene(tmp_path) as scene:
        two = await scene.record("completed", "two")
        whole = await scene.viewer.send(ReplayView(checkpoint_sha=two.sha))
        assert len(whole.tree) == 5
        files: list[TreeFile] = []
        page = await scene.viewer.send(ReplayView(checkpoint_sha=two.sha, limit=2))
        assert page.state is not None
        while True:
            files += page.tree
            assert page.stats == whole.stats
            if page.cursor is None:
                break

            page = await scene.viewer.send(
                ReplayView(checkpoint_sha=two.sha, limit=2, cursor=page.cursor)
            )
            assert (page.state, page.events) == (None, None)

        assert tuple(files) == whole.tree
        part = await scene.viewer.send(
            ReplayView(checkpoint_sha=two.sha, paths=("notes", "odd-\\xff.txt"))
        )
        assert [file.path for file in part.tree] == ["notes/a.txt", "odd-\\xff.txt"]
        assert part.stats.files == 2


# --- refusals -------------------------------------------------------------------------------------


def bad_questions(sha: str, last_seq: int) -> list[tuple[CommandData, str, str]]:
    """Return each request with the code and the JSON path of its refusal."""
    nowhere, gone, bad_path = "CHECKPOINT_NOT_FOUND", "f" * 40, "INVALID_PATH"
    outside = ("/etc/passwd", "../a.txt", "notes/../../x", ".git/config", ".hankweave/server.token")
    return [
        (CheckpointDiff(from_sha=gone), nowhere, "$.data.from"),
        (CheckpointDiff(from_sha=sha, to_sha="no sha"), nowhere, "$.data.to"),
        (CheckpointDiff(from_sha=sha, paths=("b.txt", "nobody")), bad_path, "$.data.paths[1]"),
        (CheckpointDiff(from_sha=sha, cursor="!"), "INVALID_COMMAND", "$.data.cursor"),
        (CheckpointReadFile(checkpoint_sha=gone, path="b"), nowhere, "$.data.checkpointSha"),
        (CheckpointReadFile(checkpoint_sha=sha, path="nobody"), bad_path, "$.data.path"),
        (CheckpointReadFile(checkpoint_sha=sha, path="notes"), bad_path, "$.data.path"),
        (
            CheckpointReadFile(checkpoint_sha=sha, path="b.txt", offset=3),
            "INVALID_COMMAND",
            "$.data.offset",
        ),
        *(
            (CheckpointReadFile(checkpoint_sha=sha, path=path), bad_path, "$.data.path")
            for path in outside
        ),
        *((CheckpointDiff(from_sha=sha, paths=(p,)), bad_path, "$.data.paths[0]") for p in outside),
        *(
            (ReplayView(checkpoint_sha=sha, paths=(p,)), bad_path, "$.data.paths[0]")
            for p in (*outside, "nobody")
        ),
        (ReplayView(), "INVALID_COMMAND", "$.data"),
        (ReplayView(checkpoint_sha=sha, seq=1), "INVALID_COMMAND", "$.data"),
        (ReplayView(checkpoint_sha=gone), nowhere, "$.data.checkpointSha"),
        (ReplayView(seq=last_seq + 1), "INVALID_COMMAND", "$.data.seq"),
        (ReplayView(checkpoint_sha=sha, cursor="?"), "INVALID_COMMAND", "$.data.cursor"),
    ]


async def test_a_bad_question_is_refused_with_code_and_path_and_nothing_moves(
    tmp_path: Path,
) -> None:
    """No file of the execution changes, no event is written, and the connection stays open."""
    async with a_scene(tmp_path) as scene:
        one = await scene.record("completed", "one")
        await at_rest(scene.execution)
        before, events = _untouched(scene.execution), len(journal(scene.execution))
        for command, code, path in bad_questions(one.sha, events):
            error = await refused(scene.viewer, command)
            assert (error.code, error.path) == (code, path), command

        for shape in (
            {"from": one.sha, "limit": 0},
            {"checkpointSha": one.sha, "path": "b.txt", "offset": -1},
        ):
            kind = "checkpoint.diff" if "from" in shape else "checkpoint.readFile"
            raw = await _raw_failure(scene, kind, shape)
            assert raw["code"] == "INVALID_COMMAND"
            assert raw["path"] in ("$.data.limit", "$.data.offset")

        assert len(journal(scene.execution)) == events
        assert _untouched(scene.execution) == before


async def test_good_questions_move_nothing_either(tmp_path: Path) -> None:
    """Reading everything leaves every byte of the execution unchanged, except for the logs."""
    async with a_scene(tmp_path) as scene:
        one = await scene.record("completed", "one")
        await at_rest(scene.execution)
        before = _untouched(scene.execution)
        await scene.viewer.send(ReplayView(checkpoint_sha=one.sha, compare=("previous", "now")))
        await scene.viewer.send(ReplayView(seq=5))
        await scene.viewer.send(CheckpointDiff(from_sha=one.sha, patch=True))
        await scene.viewer.send(CheckpointReadFile(checkpoint_sha=one.sha, path="b.txt"))
        assert _untouched(scene.execution) == before


def _untouched(execution: Path) -> dict[str, bytes]:
    """Return everything a view could damage: all but the logs and the lock's heartbeat."""
    kept = tree(execution)
    logs = (".hankweave/logs/", ".hankweave/runtime.lock")
    return {name: content for name, content in kept.items() if not name.startswith(logs)}


async def _raw_failure(scene: Scene, kind: str, data: dict[str, object]) -> Any:
    """Send what the client's types do not allow."""
    address = discover(scene.execution)
    headers = {"Authorization": f"Bearer {address.token}"}
    async with connect_raw(address.url, additional_headers=headers, proxy=None) as socket:
        hello = {"type": "handshake", "data": {"mode": "readonly", "protocolVersion": 1}}
        await socket.send(msgspec.json.encode(hello).decode())
        await socket.send(msgspec.json.encode({"id": "x", "type": kind, "data": data}).decode())
        while True:
            frame = msgspec.json.decode(await socket.recv())
            if frame["type"] == "command.failed":
                return frame["data"]


def test_names_in_this_file_are_not_utf8(tmp_path: Path) -> None:
    """The name above contains a byte that is not UTF-8."""
    os.close(os.open(os.fsencode(tmp_path) + b"/odd-\xff.txt", os.O_CREAT, 0o600))
    (name,) = os.listdir(os.fsencode(tmp_path))
    with pytest.raises(UnicodeDecodeError):
        name.decode()
