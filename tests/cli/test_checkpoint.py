"""Claims about `hankweave checkpoint`: with a server, and without one."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from hankweave_protocol.records import CheckpointRecord
from support.command_line import aside
from support.git_facts import GitWitness
from support.running_server import run_headless
from support.scripted_hank import codon, write_hank, writes
from support.watching import after_plan


@pytest.mark.story("`checkpoint` saves the work tree as it is, under a label.")
async def test_the_work_tree_is_kept_as_it_is_and_called_what_it_is_called(tmp_path: Path) -> None:
    """The checkpoint has the user's file and is listed; files that cannot be captured are named."""
    hank, execution = write_hank(tmp_path / "hank", codon("one", writes("a", "1"))), tmp_path / "e"
    async with after_plan(hank, execution):
        (execution / "agentRoot" / "mine").write_text("by hand")
        os.mkfifo(execution / "agentRoot" / "pipe")
        done = await aside("checkpoint", "before \x1b[31m notes", "-e", str(execution), code=0)
        first, *others = done.stdout.splitlines()
        assert first.endswith("before \\x1b[31m notes")
        assert others == ["  not captured: pipe: fifo"]
        listed = (await aside("checkpoints", "-e", str(execution), code=0)).stdout
        assert listed.splitlines()[0] == first

    assert GitWitness(execution).blob(first.split()[0], "mine") == b"by hand"


async def test_without_a_server_one_is_there_for_just_as_long(tmp_path: Path) -> None:
    """With --json the output is the record, as it is on the wire."""
    hank, execution = write_hank(tmp_path / "hank", codon("one", writes("a", "1"))), tmp_path / "e"
    assert await run_headless(hank, execution) == 0

    done = await aside("checkpoint", "-e", str(execution), "--json", code=0)
    record = msgspec.json.decode(done.stdout, type=CheckpointRecord)
    assert (record.kind, record.label) == ("manual", None)
    assert GitWitness(execution).blob(record.sha, "a") == b"1"
    assert not (execution / ".hankweave" / "runtime.lock").exists()
