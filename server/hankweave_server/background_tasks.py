"""Tasks that live as long as a block does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio


@asynccontextmanager
async def alongside(*works: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Runs works while the block runs, and cancels them at its end.

    What the block raises comes out as it is; what a work raises comes out as a group.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(work)

        try:
            yield
        except Exception as error:
            failure = error  # Raised below: the group would wrap it for our caller.
        finally:
            tasks.cancel_scope.cancel()

    if failure is not None:
        raise failure
