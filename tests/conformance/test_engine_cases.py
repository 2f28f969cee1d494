"""Every hazard, on the engine itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import cases
from conformance.case import Case, assert_restores, skip_what_cannot_be_made
from support.checkpointing import EngineAccess

ALL = [(case, cases.EVERYTHING) for case in cases.OF_EVERYTHING] + [
    (case, cases.SOME) for case in cases.OF_SOME
]


@pytest.mark.parametrize(("case", "patterns"), ALL, ids=[case.claim for case, _ in ALL])
async def test_the_engine_restores(case: Case, patterns: tuple[str, ...], tmp_path: Path) -> None:
    """A rollback restores exactly the checkpoint's tree and leaves uncaptured paths alone."""
    skip_what_cannot_be_made(case)
    store = EngineAccess(tmp_path / "place" / "execution", patterns)
    await store.begin()
    try:
        await assert_restores(case, store)
    finally:
        await store.end()
