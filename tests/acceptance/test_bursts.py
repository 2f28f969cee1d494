"""Many files that change at once: what the journal and the clients receive, over a real socket."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from hankweave_client.client import Client
from hankweave_client.discovery import discover
from hankweave_protocol import codec, reference
from hankweave_protocol.commands import (
    CheckpointCreate,
    CheckpointDiff,
    CodonNext,
    RollbackPreview,
    RollbackToCheckpoint,
    RollbackUndo,
)
from hankweave_protocol.events import (
    FilesChanged,
    FileUpdated,
    RollbackCompleted,
    ServerIdle,
    WorkspaceInvalidated,
)
from hankweave_protocol.transitions import CheckpointCreated, EditsNoticed
from support.running_server import RunningServer, journal, run_headless, running_server, state, tree
from support.scripted_hank import codon, write_hank
from support.watching import after_plan, events_of, idle, listed, transitions

MANY = int(os.environ.get("HANKWEAVE_BURST", "20000"))
"""Files of the test with the marker `full`; 100,000 take minutes on a small machine."""

FEW_MANY = 450
DEADLINE = 600.0
LARGEST_EVENT = 32 * 1024
MOST_JOURNAL = 64 * 1024


def installs(files: int) -> dict[str, str]:
    """Return a step in which the agent writes files into 50 folders with a shell command."""
    program = (
        "import os\n"
        f"for at in range({files}):\n"
        "    os.makedirs(f'modules/{at % 50:02}', exist_ok=True)\n"
        "    open(f'modules/{at % 50:02}/file-{at:06}.txt', 'w').write(str(at))\n"
    )
    return {"run": f'python3 -c "{program}"'}


@asynccontextmanager
async def plain_client(
    server: RunningServer, largest: int | None = 1024 * 1024
) -> AsyncIterator[list[dict[str, Any]]]:
    """Connect a client that calls `json.loads` on each frame; fail if it is cut off.

    `largest` is the size of the largest frame that it accepts; the default is that of the library.
    """
    address = discover(server.execution)
    frames: list[dict[str, Any]] = []
    url = f"{address.url}?token={address.token}" if address.token else address.url
    async with (
        connect(url, proxy=None, max_size=largest) as socket,
        anyio.create_task_group() as tasks,
    ):
        handshake = {"mode": "readonly", "protocolVersion": 1, "sinceSeq": 0}
        await socket.send(json.dumps({"id": "h", "type": "handshake", "data": handshake}))
        tasks.start_soon(_read, socket, frames)
        yield frames
        await socket.send(json.dumps({"id": "last", "type": "ping", "data": {}}))


async def _read(socket: ClientConnection, frames: list[dict[str, Any]]) -> None:
    try:
        async for text in socket:
            frame = json.loads(text)
            frames.append(frame)
            if frame.get("inReplyTo") == "last":
                return

    except ConnectionClosed as closed:
        pytest.fail(f"the client was cut off: {closed}")


async def all_changes(client: Client, before: str, after: str) -> list[str]:
    """Return the paths of all pages of a comparison."""
    paths: list[str] = []
    cursor: str | None = None
    while True:
        page = await client.send(CheckpointDiff(from_sha=before, to_sha=after, cursor=cursor))
        paths += [file.path for file in page.files]
        cursor = page.cursor
        if cursor is None:
            return paths


async def check_burst(tmp_path: Path, files: int) -> None:
    """Let an agent write files, then roll them back, undo that, and start again."""
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", codon("one", installs(files)))
    async with running_server(hank, None, execution, "--no-autostart") as server:
        async with plain_client(server) as frames, server.client() as client:
            await client.send(CodonNext())
            await client.until(
                ServerIdle,
                lambda event: event.data.reason == "all-codons-completed",  # type: ignore[attr-defined]
                timeout=DEADLINE,
            )
            first, last = state(execution).initial_checkpoint, (await listed(client))[0].sha
            assert first is not None
            check_journal(execution, files)
            assert len(await all_changes(client, first, last)) == files
            report = await client.send(RollbackToCheckpoint(checkpoint_sha=first))
            assert report.counts.removed == files
            assert len(report.removed) <= 200 < files
            saved = report.safety.checkpoint_sha
            assert len(await all_changes(client, saved, first)) == files
            assert list((execution / "agentRoot").rglob("*.txt")) == []
            again = await client.send(RollbackUndo())
            assert again.counts.added == files

        assert any(frame.get("type") == "files.changed" for frame in frames)
        await server.stop()

    async with running_server(None, None, execution, "--no-autostart") as server:
        async with plain_client(server) as frames:
            pass

        assert len(tree(execution / "agentRoot")) == files
        seqs = [frame["seq"] for frame in frames if "seq" in frame]
        assert seqs == list(range(1, len(seqs) + 1))


def check_journal(execution: Path, files: int) -> None:
    """Check the sizes of the events about changed files, and that they count all of them."""
    bursts, single = events_of(execution, FilesChanged), events_of(execution, FileUpdated)
    assert sum(burst.total for burst in bursts) + len(single) == files
    assert sum(burst.created for burst in bursts) + len(single) == files
    for burst in bursts:
        counted = sum(folder.files for folder in burst.folders) + burst.in_other_folders
        assert counted == burst.total
        assert len(burst.folders) + burst.other_folders <= 50
        assert 0 < len(burst.paths) <= 200 < burst.total

    lines = (execution / ".hankweave" / "events" / "events.jsonl").read_bytes().splitlines()
    about = [line for line in lines if b'"type":"file' in line[:200]]
    assert all(len(line) < LARGEST_EVENT for line in about if b'"files.changed"' in line)
    assert sum(map(len, about)) <= MOST_JOURNAL * len(bursts) + len(single) * 1024


async def test_an_agents_burst_is_one_small_event(tmp_path: Path) -> None:
    """More than 200 new files are one event with counts; a plain client reads everything."""
    await check_burst(tmp_path, FEW_MANY)


@pytest.mark.full
@pytest.mark.timeout(1200)
async def test_a_plain_client_survives_a_burst_of_any_size(tmp_path: Path) -> None:
    """A client with default limits is not cut off by checkpoint, rollback, undo and start."""
    await check_burst(tmp_path, MANY)


async def test_a_persons_burst_keeps_each_edit(tmp_path: Path, execution: Path) -> None:
    """Edits of a burst are recorded one by one, so conflicts and `keepEdits` stay exact."""
    hank = write_hank(tmp_path / "hank", codon("one", installs(FEW_MANY)))
    async with after_plan(hank, execution) as (_, client):
        target = (await listed(client))[0].sha
        edited = sorted((execution / "agentRoot" / "modules").rglob("*.txt"))[:300]
        for path in edited:
            path.write_text("edited")

        seq = journal(execution)[-1].seq
        await client.send(CheckpointCreate(label="mine"))
        (burst,) = events_of(execution, FilesChanged, seq)
        assert (burst.total, burst.modified, burst.source.kind) == (300, 300, "person")
        work_tree = execution / "agentRoot"
        names = {str(path.relative_to(work_tree)) for path in edited}
        assert set(state(execution).edits) == names
        assert {
            path for each in transitions(execution, EditsNoticed) for path in each.edits
        } == names
        preview = await client.send(RollbackPreview(checkpoint_sha=target, patch=True))
        assert (preview.counts.updated, preview.counts.conflicts) == (300, 300)
        assert len(preview.conflicts) == len(preview.diffs) == len(preview.updated) == 200
        kept = await client.send(RollbackToCheckpoint(checkpoint_sha=target, keep_edits=True))
        assert (kept.counts.updated, kept.counts.kept) == (0, 300)
        assert all(path.read_text() == "edited" for path in edited)
        back = await client.send(RollbackToCheckpoint(checkpoint_sha=target))
        assert back.counts.updated == 300
        assert not any(path.read_text() == "edited" for path in edited)
        (done,) = events_of(execution, RollbackCompleted)[-1:]
        assert done.report == back
        (invalidated,) = events_of(execution, WorkspaceInvalidated)[-1:]
        assert (len(invalidated.paths), invalidated.total) == (200, 300)


@pytest.mark.full
@pytest.mark.timeout(1200)
async def test_a_plain_client_survives_a_persons_burst(tmp_path: Path, execution: Path) -> None:
    """A client that accepts frames of any size is not cut off by the entries for each edit."""
    hank = write_hank(tmp_path / "hank", codon("one", {"run": "true"}))
    async with (
        running_server(hank, None, execution) as server,
        plain_client(server, largest=None) as frames,
        server.client() as client,
    ):
        await idle(client)
        target = (await listed(client))[0].sha
        for at in range(MANY):
            folder = execution / "agentRoot" / "mine" / f"{at % 50:02}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"file-{at:06}.txt").write_text(str(at))

        await client.send(CheckpointCreate(label="mine"))
        report = await client.send(RollbackToCheckpoint(checkpoint_sha=target))
        assert (report.counts.removed, report.counts.conflicts) == (MANY, MANY)
        again = await client.send(RollbackUndo())
        assert again.counts.added == MANY
        assert len(state(execution).edits) == MANY

    assert sum(len(each.edits) for each in transitions(execution, EditsNoticed)) == MANY
    assert sum(frame.get("type") == "files.changed" for frame in frames) == 1


async def test_many_skipped_files_are_counted(tmp_path: Path, execution: Path) -> None:
    """The record of a checkpoint lists 200 of them and has the number of all."""
    hank = write_hank(tmp_path / "hank", codon("one", {"run": "true"}))
    async with after_plan(hank, execution) as (_, client):
        for at in range(300):
            os.mkfifo(execution / "agentRoot" / f"pipe-{at:03}")

        made = await client.send(CheckpointCreate(label="pipes"))
        assert (len(made.skipped), made.skipped_total) == (200, 300)
        assert (await listed(client))[0] == made

    assert transitions(execution, CheckpointCreated)[-1].checkpoint == made


async def test_clients_of_hankweave_receive_no_burst(tmp_path: Path, execution: Path) -> None:
    """They get at most 200 `file.updated` of one scan, and the file tree."""
    hank = write_hank(tmp_path / "hank", codon("one", installs(FEW_MANY)))
    assert await run_headless(hank, execution) == 0

    lines = [codec.encode(event) for event in journal(execution)]
    frames = [json.loads(frame) for frame in reference.project_all(lines)]
    kinds = [frame["type"] for frame in frames]
    assert "files.changed" not in kinds
    assert kinds.count("file.updated") <= 200
    assert "filetree.updated" in kinds
