"""An execution directory with a ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout
from support.histories import SteppingClock


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.of_execution(tmp_path / "execution")


@asynccontextmanager
async def open_ledger(layout: Layout) -> AsyncIterator[Ledger]:
    """Open a ledger and run its writer."""
    ledger = await Ledger.open(layout, SteppingClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        yield ledger
        await ledger.aclose()
