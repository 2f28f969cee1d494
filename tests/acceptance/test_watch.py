"""A server that watches its work tree: what it tells of the watch, and that nothing is missed."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import anyio
import anyio.to_thread
import pytest

from hankweave_protocol.commands import CheckpointCreate, GetServerStatus, RollbackToCheckpoint
from support.git_facts import GitWitness
from support.scripted_hank import codon, write_hank, writes
from support.watching import after_plan


@pytest.mark.parametrize("mode", ["auto", "off"])
async def test_checkpoints_and_rollbacks_are_the_same_with_a_watch(
    tmp_path: Path, mode: str
) -> None:
    """Both modes capture every change; status and metrics tell which of them it is."""
    files = [writes(f"{number}.txt", "as the agent wrote it") for number in range(20)]
    hank = write_hank(tmp_path / "hank", codon("one", *files))
    async with after_plan(hank, tmp_path / "execution", "--watch", mode, since_seq=0) as (
        server,
        client,
    ):
        tree, git = server.execution / "agentRoot", GitWitness(server.execution)
        first = await client.send(CheckpointCreate())
        for number in range(3):
            await anyio.sleep(0.3)
            (tree / "1.txt").write_text(f"changed {number}")
            (tree / "folder").mkdir(exist_ok=True)
            (tree / "folder" / f"{number}.txt").write_text("new")
            made = await client.send(CheckpointCreate())
            assert git.run("show", f"{made.sha}:1.txt") == f"changed {number}"
            assert git.run("show", f"{made.sha}:folder/{number}.txt") == "new"

        await client.send(RollbackToCheckpoint(checkpoint_sha=first.sha))
        assert (tree / "1.txt").read_text() == "as the agent wrote it"
        assert not (tree / "folder").exists()
        status = await client.send(GetServerStatus())
        address = status.lock.port
        text = await anyio.to_thread.run_sync(metrics, address)

    assert status.watch is not None
    if mode == "auto":
        assert (status.watch.active, status.watch.reason) == (True, None)
        assert status.watch.watched_scans > status.watch.full_scans
        assert "hankweave_watch_active 1.0" in text
    else:
        assert (status.watch.active, status.watch.reason) == (False, "off")
        assert status.watch.watched_scans == 0
        assert "hankweave_watch_active 0.0" in text


def metrics(port: int | None) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return str(answer.read().decode())
