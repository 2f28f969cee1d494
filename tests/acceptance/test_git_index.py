"""Claims about stock git on the shadow repository, with the exports of seed 000."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hankweave_protocol.commands import CheckpointCreate
from hankweave_server.execution.maintenance import git_index
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.paths import Layout
from support.command_line import hankweave
from support.damage import git
from support.running_server import running_server, served
from support.scripted_hank import codon, write_hank, writes
from support.waiting import eventually
from support.watching import after_plan, to_end_of

TWO = (
    codon("one", writes("a.txt", "one"), {"run": "chmod 600 a.txt; ln -s a.txt link; mkdir deep"}),
    codon("two", writes("a.txt", "two"), writes("deep/b.txt", "two"), {"delete": "link"}),
)


def status(execution: Path) -> str:
    done = git(execution, "status", "--porcelain")
    assert done.returncode == 0, done.stderr
    return done.stdout


async def becomes_clean(execution: Path) -> None:
    """Wait until git sees no difference: the index follows HEAD with a short delay."""

    def is_clean() -> bool:
        done = git(execution, "status", "--porcelain")
        return (done.returncode, done.stdout) == (0, "")

    await eventually(is_clean)


async def test_git_status_is_clean_after_runs_rollbacks_and_crashes(tmp_path: Path) -> None:
    """`git status` is clean, and a person's change is visible at once.

    This holds while the server is idle, after a rollback, after the server has stopped, after `kill
    -9` and a start, and after a rollback without a server.
    """
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", *TWO)
    to_one = to_end_of("one")
    async with after_plan(hank, execution) as (server, client):
        await becomes_clean(execution)
        (execution / "agentRoot" / "a.txt").write_text("by hand")
        assert status(execution) == " M a.txt\n"
        await client.send(CheckpointCreate())
        await becomes_clean(execution)
        await client.send(to_one)
        await becomes_clean(execution)
        assert git(execution, "ls-files").stdout.split() == ["a.txt", "link"]
        server.kill()
        await server.ended()

    async with served(hank, execution, "--no-autostart") as (server, client):
        await becomes_clean(execution)
        await client.send(CheckpointCreate())
        await server.stop()

    assert status(execution) == ""
    hankweave("rollback", "--codon", "two", "-e", str(execution), "-y", code=0)
    assert status(execution) == ""
    assert git(execution, "diff", "--cached", "--quiet").returncode == 0
    assert git(execution, "fsck", "--strict").returncode == 0


async def test_an_index_that_git_has_locked_is_written_when_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's git command holds `index.lock` when the index is due: the write is retried."""
    execution, hank = tmp_path / "execution", write_hank(tmp_path / "hank", *TWO)
    hankweave("run", str(hank), "--execution", str(execution), "--headless", code=0)
    layout = Layout.of_execution(execution)
    index = layout.shadow_repository / "index"
    index.unlink()
    lock = index.with_name("index.lock")
    lock.touch()

    def released_after_the_first_attempt() -> Iterator[float]:
        lock.unlink()
        yield 0.0

    monkeypatch.setattr(git_index, "RETRY_PAUSES", released_after_the_first_attempt())
    await git_index.GitIndex(layout, lambda: None, Quiet()).write()
    assert status(execution) == ""


async def test_a_lost_index_is_written_again_by_the_next_start(tmp_path: Path) -> None:
    """The server itself does not depend on the index."""
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", *TWO)
    hankweave("run", str(hank), "--execution", str(execution), "--headless", code=0)
    index = execution / ".hankweave/checkpoints/.hankweavecheckpoints/index"
    assert status(execution) == ""
    index.write_bytes(b"torn")
    (index.parent / "hankweave-index").unlink()
    async with running_server(hank, None, execution):
        await becomes_clean(execution)
