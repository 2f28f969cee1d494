"""Warnings of a rollback: programs that have files open, and databases that may be damaged."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hankweave_protocol.ids import Sha
from hankweave_protocol.records import RestoreWarning
from hankweave_server.checkpoints.model import PathEntry, RestorePlan, Skipped
from hankweave_server.execution.rollback.warnings import NAMED, of_rollback


async def warned(
    work_tree: Path, *changed: bytes, databases: Any = None
) -> tuple[RestoreWarning, ...]:
    """Return the warnings of an undo that changes these files."""
    plan = RestorePlan(
        target=Sha("0" * 40),
        added=(),
        updated=tuple(PathEntry(path, 1, 0o100644) for path in changed),
        removed=(),
        unchanged_count=0,
        kept=(),
        bytes_to_write=0,
        databases=databases or {},
    )
    ctx = SimpleNamespace(layout=SimpleNamespace(work_tree=work_tree))
    return await of_rollback(cast(Any, ctx), plan, (), direction="undo", passed=(), rewinds=False)


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
