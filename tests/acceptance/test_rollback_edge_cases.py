"""Edge cases of rollback and undo: rigs, frozen agents, odd names, authorship of edits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hankweave_client.client import Client
from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonNext,
    RollbackPreview,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackUndo,
)
from hankweave_protocol.ids import CodonId
from hankweave_server.domain.reducer import fold
from support.running_server import journal, served, state, tree
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.watching import after_plan, idle, started, taken, to_end_of

ONE = codon("one", writes("a.txt", "one"))
TWO = codon("two", writes("a.txt", "two"), writes("d/b.txt", "two"))
RIGGED = codon(
    "rigged",
    {"append": {"path": "rigged.txt", "text": "a\n"}},
    rigSetup=[{"type": "command", "command": {"run": "echo r >> rigged.txt"}}],
)


# --- rigs and failures ----------------------------------------------------------------------------


async def to_rig_and_redo(client: Client) -> None:
    await client.send(RollbackToCodon(codon_id=CodonId("rigged"), checkpoint_type="rig-setup"))
    await client.send(RollbackUndo())
    await client.send(RollbackRedo())


async def to_rig_and_back_to_it(client: Client) -> None:
    await client.send(RollbackToCodon(codon_id=CodonId("rigged"), checkpoint_type="rig-setup"))
    await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="start"))
    await client.send(RollbackUndo())


@pytest.mark.parametrize("journey", [to_rig_and_redo, to_rig_and_back_to_it])
async def test_a_rig_that_was_restored_is_not_set_up_again(journey: Any, tmp_path: Path) -> None:
    """An undo or redo to a restored rig leads to the rig, not to the codon before."""
    execution = tmp_path / "execution"
    rigged = execution / "agentRoot" / "rigged.txt"
    hank = write_hank(tmp_path / "hank", ONE, RIGGED)
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        await journey(client)
        assert rigged.read_text() == "r\n"
        await client.send(CodonNext())
        await idle(client)
        assert rigged.read_text() == "r\na\n"


# --- authorship of edits --------------------------------------------------------------------------


async def test_what_a_rollback_of_paths_restored_is_nobodys_edit(tmp_path: Path) -> None:
    """`keepEdits` keeps none of it, at a checkpoint, for its undo, or after a restart."""
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", ONE, TWO)
    async with after_plan(hank, execution, since_seq=0) as (server, client):
        before = tree(execution / "agentRoot")
        await client.send(to_end_of("one", paths=("a.txt", "d")))
        assert (await client.send(RollbackPreview(direction="undo"))).conflicts == ()
        await client.send(RollbackUndo(keep_edits=True))
        assert tree(execution / "agentRoot") == before
        await client.send(RollbackRedo())
        await client.send(CheckpointCreate())
        assert state(execution).edits == {}
        await client.send(RollbackUndo())
        server.kill()
        await server.ended()

    async with served(hank, execution, "--no-autostart") as (_, client):
        await client.send(CheckpointCreate())
        assert state(execution).edits == {}


async def test_names_that_are_no_text_go_back_and_forth(tmp_path: Path, execution: Path) -> None:
    r"""A byte that is not UTF-8 is `\xff` on the wire, in the state and in the journal."""
    path = os.fsencode(execution / "agentRoot") + b"/\xff.txt"
    hank = write_hank(tmp_path / "hank", ONE)
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        _write(path, b"mine")
        record = await client.send(CheckpointCreate())
        _write(path, b"mine, again")
        await client.send(CheckpointCreate())
        previewed = await client.send(RollbackPreview(checkpoint_sha=record.sha))
        assert [file.path for file in previewed.conflicts] == ["\\xff.txt"]
        assert fold(journal(execution)).edits == state(execution).edits

        await client.send(RollbackToCheckpoint(checkpoint_sha=record.sha, paths=("\\xff.txt",)))
        assert _read(path) == b"mine"
        await client.send(RollbackUndo())
        assert _read(path) == b"mine, again"
        await client.send(RollbackRedo())
        assert _read(path) == b"mine"


def _write(path: bytes, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def _read(path: bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# --- a frozen agent -------------------------------------------------------------------------------


async def test_under_a_frozen_agent_a_rollback_is_undone_and_redone(tmp_path: Path) -> None:
    """While the same codon works, its files are restored both ways, and it never ends."""
    middle, gate = tmp_path / "middle", tmp_path / "gate"
    execution = tmp_path / "execution"
    work = codon(
        "work",
        writes("a.txt", "first"),
        waits_for(middle),
        writes("a.txt", "second"),
        waits_for(gate),
    )
    file = execution / "agentRoot" / "a.txt"
    hank = write_hank(tmp_path / "hank", ONE, work)
    async with served(hank, execution, since_seq=0) as (_, client):
        await started(client, "work")
        first = (await taken(client, "tool")).sha
        middle.touch()
        await taken(client, "tool")
        await client.send(RollbackToCheckpoint(checkpoint_sha=first, on_running="pause"))
        assert file.read_text() == "first"
        await client.send(RollbackUndo(on_running="pause"))
        assert file.read_text() == "second"
        await client.send(RollbackRedo(on_running="pause"))
        assert file.read_text() == "first"
        gate.touch()
        await idle(client)
        assert len(state(execution).undo) == 1
        assert len(state(execution).runs) == 1
