"""Warnings of a rollback: programs that have files open, and databases that may be damaged."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import Movement, RestoreWarning
from hankweave_server.checkpoints.model import Skipped
from hankweave_server.execution.rollback.warnings import NAMED, of_rollback
from support.checkpointing import a_restore_plan
from support.histories import completed
from support.timelines import a_state, ended

STATE = a_state(ended("first", completed("one", 1)))


async def warned(
    work_tree: Path,
    *changed: bytes,
    databases: Any = None,
    keep: tuple[bytes, ...] = (),
    direction: Movement = "undo",
    passed: tuple[str, ...] = (),
    rewinds: bool = False,
) -> tuple[RestoreWarning, ...]:
    """Return the warnings of a rollback, by default an undo, that changes these files."""
    plan = a_restore_plan(*changed, databases=databases or {})
    return await of_rollback(
        STATE,
        work_tree,
        plan,
        keep,
        direction=direction,
        passed=tuple(map(CodonId, passed)),
        rewinds=rewinds,
    )


async def test_only_so_many_writers_are_named(tmp_path: Path) -> None:
    """Of the others, their number is said."""
    names = [b"%d" % number for number in range(NAMED + 5)]
    with ExitStack() as files:
        for name in names:
            files.enter_context((tmp_path / os.fsdecode(name)).open("w"))

        found = await warned(tmp_path, *names)

    assert [each.kind for each in found] == ["open-writer"] * (NAMED + 1)
    assert found[-1].path is None
    assert found[-1].sentence.startswith("5 more")
    assert await warned(tmp_path, *names) == ()


async def test_a_database_without_all_of_its_files_is_named(tmp_path: Path) -> None:
    """The sentence says which file is missing or torn, why, and what to do before a checkpoint."""
    lost = (Skipped(b"d/a.db-wal", "too-large"), Skipped(b"d/a.db", "unstable"))
    missing, torn = await warned(tmp_path, databases={b"d/a.db": lost})
    assert (missing.kind, missing.path) == (torn.kind, torn.path) == ("database", "d/a.db")
    assert "d/a.db-wal is not restored with this database (too-large)" in missing.sentence
    assert "d/a.db was being written when it was captured" in torn.sentence
    assert "sqlite3 d/a.db 'PRAGMA wal_checkpoint(TRUNCATE)'" in torn.sentence


async def test_what_is_kept_needs_no_warning(tmp_path: Path) -> None:
    """A program goes on writing to a kept file, and a kept database stays as it is."""
    lost = {b"a.db": (Skipped(b"a.db-wal", "too-large"),)}
    with (tmp_path / "log").open("w"):
        found = await warned(tmp_path, b"log", databases=lost, keep=(b"log", b"a.db-wal"))

    assert found == ()


@pytest.mark.parametrize(
    ("direction", "passed", "rewinds", "has_warning"),
    [
        ("back", ("one",), False, True),
        ("back", ("one",), True, False),
        ("back", ("another",), False, False),
        ("undo", ("one",), False, False),
    ],
)
async def test_conversations_that_stay_ahead_of_the_files_are_reported(
    tmp_path: Path, direction: Movement, passed: tuple[str, ...], rewinds: bool, has_warning: bool
) -> None:
    """They do unless the rollback rewinds them, or goes back through no codon that had one."""
    found = await warned(tmp_path, direction=direction, passed=passed, rewinds=rewinds)
    assert [each.kind for each in found] == ["conversation"] * has_warning
