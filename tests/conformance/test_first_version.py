"""Checkpoints made by version 0.1.0 are read exactly by the current version.

`data/first_version.tar.xz` is the repository that version 0.1.0 left after five checkpoints and a
rollback, with its scan cache; `first_version.json` is the content of its work tree at each of them.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.ids import Sha
from support.checkpointing import EngineAccess, witness
from support.work_tree import write

DATA = Path(__file__).parent / "data"
CHECKPOINTS: list[dict[str, Any]] = json.loads((DATA / "first_version.json").read_text())


@pytest.fixture
async def store(tmp_path):
    """Open an execution whose shadow repository is the old one with the current version."""
    root = tmp_path / "place" / "execution"
    (root / ".hankweave").mkdir(parents=True, mode=0o700)
    with tarfile.open(DATA / "first_version.tar.xz") as archive:
        # Early releases of Python 3.11 have no filters; the archive is our own and needs none.
        filtered = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
        archive.extractall(root / ".hankweave", **filtered)

    store = EngineAccess(root)
    await store.begin()
    yield store
    await store.end()


def held(store: EngineAccess) -> dict[str, list[Any]]:
    picture = store.tree.picture()
    return {os.fsdecode(p): [s.kind, s.permissions, s.content.hex()] for p, s in picture.items()}


def test_every_old_checkpoint_is_listed(store):
    """The five checkpoints and the safety checkpoint of the rollback are listed."""
    listed = list(store.engine.commits())

    assert {made["sha"] for made in CHECKPOINTS} <= {facts.sha for facts in listed}
    assert [facts.kind for facts in listed].count("safety") == 1
    assert len(listed) == len(CHECKPOINTS) + 1


def test_every_old_checkpoint_verifies(store):
    """Every old checkpoint verifies down to each blob, by the engine and by git."""
    assert store.engine.housekeeping.fsck().damages == {}
    witness(store.layout).run("fsck", "--strict")


@pytest.mark.parametrize("number", range(len(CHECKPOINTS)))
async def test_every_old_checkpoint_is_restored_exactly(store, number):
    """An empty work tree gets the content, links, permissions, odd names and empty folders."""
    made = CHECKPOINTS[number]
    await store.rollback(made["sha"])

    assert held(store) == made["tree"]


async def test_old_history_is_continued(store):
    """A new checkpoint has the last old one as its parent, and both can be rolled back to."""
    last = CHECKPOINTS[-1]
    await store.rollback(last["sha"])
    store.tree.apply(write("new", b"of today"))
    made = await store.checkpoint()

    facts = store.engine.facts(Sha(made.sha))
    assert last["sha"] in {facts.parents[0], *(f.sha for f in store.engine.commits())}
    await store.rollback(CHECKPOINTS[0]["sha"])
    assert held(store) == CHECKPOINTS[0]["tree"]
    await store.rollback(made.sha)
    assert held(store) == {**last["tree"], "new": held(store)["new"]}
