"""Task groups that raise the error of their block as it is, and what lasts as long as a block.

A task group of anyio wraps every error in a group, also that of its own block, so that a caller
cannot catch it by its type. To raise it again after the group is not enough: if a task fails too,
say while it is cancelled, the group of its error replaces the error of the block.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

T = TypeVar("T")


@asynccontextmanager
async def task_group() -> AsyncIterator[TaskGroup]:
    """Provide a task group whose tasks are awaited at the end of the block.

    An exception of the block cancels the tasks and is raised unchanged, whatever they raise; their
    errors are noted in it. Otherwise, exceptions of tasks are raised as a group, together with that
    of a block that failed because they cancelled it.
    """
    failure: Exception | None = None
    was_cancelled = False
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield tasks
            except Exception as error:
                failure, was_cancelled = error, tasks.cancel_scope.cancel_called
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as others:
        if failure is None:
            raise

        if not isinstance(others, ExceptionGroup) or was_cancelled:
            raise others.derive([*others.exceptions, failure]) from None

        failure.add_note(f"Meanwhile, background tasks failed as well: {others!r}")

    if failure is not None:
        raise failure


@asynccontextmanager
async def alongside(*works: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run tasks while the block runs, and cancel them at its end; raise as `task_group` does."""
    async with task_group() as tasks:
        for work in works:
            tasks.start_soon(work)

        yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def context_in_thread(manager: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave a context in worker threads; leaving it cannot be cancelled."""
    entered = await anyio.to_thread.run_sync(manager.__enter__)
    try:
        yield entered
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(manager.__exit__, None, None, None)
