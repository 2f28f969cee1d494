"""The index for stock git is written by a thread that ends before the server gives up its lock."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import pygit2
import pytest
from tests.server.checkpoints.conftest import Lab

from hankweave_server.execution.maintenance.git_index import MARKER, GitIndex
from hankweave_server.execution.maintenance.quiet import Quiet
from support.waiting import limited


async def test_a_cancelled_write_has_ended_and_changed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the index of an old server could replace that of the next one."""
    lab = Lab(tmp_path)
    lab.write("a.txt", "one")
    lab.checkpoint()
    lab.engine.close()
    index = lab.layout.shadow_repository / "index"
    before = index.read_bytes() if index.exists() else None
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    write = pygit2.Index.write

    def slow(self: pygit2.Index) -> None:
        begun.set()
        assert goes_on.wait(60)
        write(self)
        ended.set()

    monkeypatch.setattr(pygit2.Index, "write", slow)
    with limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(GitIndex(lab.layout, lambda: None, Quiet()).write)
            await anyio.to_thread.run_sync(begun.wait)
            tasks.cancel_scope.cancel()
            goes_on.set()

    assert ended.is_set()
    assert (index.read_bytes() if index.exists() else None) == before
    left = {each.name for each in index.parent.iterdir()}
    assert left.isdisjoint({"index.lock", "tmp_index", MARKER})
