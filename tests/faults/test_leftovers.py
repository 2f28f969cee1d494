"""Files that a kill or a fault leaves, each created by hand, as the campaigns found them."""

from __future__ import annotations

import os
from pathlib import Path

from hankweave_protocol.state import EMPTY_STATE
from hankweave_server.clock import SystemClock
from hankweave_server.ledger.state_file import StateStore
from hankweave_server.paths import Layout
from support.invariants import leftovers
from support.running_server import running_server
from support.scripted_hank import codon, write_hank, writes


def test_a_backup_that_is_linked_already_leaves_no_second_name(tmp_path: Path) -> None:
    """The temporary name is removed, although rename(2) between two names of one file does nothing.

    A kill between the two renames of a save leaves this: the backup is the state file itself.
    """
    layout = Layout.of_execution(tmp_path)
    layout.state_directory.mkdir()
    store = StateStore(layout, SystemClock())
    store.save(EMPTY_STATE)
    os.link(layout.state, layout.state_backup)
    store.save(EMPTY_STATE)
    assert leftovers(tmp_path) == []
    assert layout.state_backup.read_bytes() == layout.state.read_bytes()


LEFT = (
    "state.json.tmp",
    "state.json.bak.tmp",
    "runtime.lock.tmp",
    "execution-meta.json.tmp",
    "rollback.intent.tmp",
    "events/events.jsonl.tmp",
    "checkpoints/scan-cache.tmp",
    "checkpoints/.gitconfig.tmp",
    "agents/4711.tmp",
)


async def test_a_start_clears_temporary_files_away(tmp_path: Path) -> None:
    """A start removes the temporary files of a killed server."""
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "one")))
    execution = tmp_path / "execution"
    async with running_server(hank, None, execution, "--no-autostart") as server:
        assert await server.stop() == 0

    for name in LEFT:
        path = execution / ".hankweave" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half of wha")

    async with running_server(hank, None, execution, "--no-autostart") as server:
        assert await server.stop() == 0

    assert leftovers(execution) == []
