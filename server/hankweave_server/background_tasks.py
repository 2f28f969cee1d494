"""Background tasks that live as long as a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio


@asynccontextmanager
async def alongside(*works: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run tasks while the block runs, and cancel them at its end.

    An exception of the block is raised unchanged; an exception of a task is raised as a group.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(work)

        try:
            yield
        except Exception as error:
            failure = error  # Raised below: the task group would wrap it.
        finally:
            tasks.cancel_scope.cancel()

    if failure is not None:
        raise failure
