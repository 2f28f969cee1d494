"""Errors of a block and of the tasks beside it: none is lost, and the block's keeps its type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import pytest

from hankweave_server.background_tasks import alongside, task_group

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


async def fail_when_cancelled() -> None:
    """Run until cancelled, and fail in the cleanup."""
    try:
        await anyio.sleep_forever()
    finally:
        raise OSError("the task's cleanup")


async def fail() -> None:
    raise OSError("the task")


async def fail_in_cleanup() -> None:
    """Wait until cancelled, as a block, and fail in the cleanup."""
    try:
        await anyio.sleep_forever()
    finally:
        raise LookupError("the block's cleanup")


async def run_alongside(
    block: Callable[[], Awaitable[None]], work: Work = anyio.sleep_forever
) -> None:
    async with alongside(work):
        await block()


async def run_in_group(block: Callable[[], Awaitable[None]]) -> None:
    async with task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever)
        await block()


async def block_that_fails() -> None:
    await anyio.lowlevel.checkpoint()
    raise LookupError("the block")


@pytest.mark.parametrize("run", [run_alongside, run_in_group])
async def test_the_error_of_the_block_is_raised_as_it_is(
    run: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
) -> None:
    """Its tasks are cancelled."""
    with pytest.raises(LookupError, match="the block"):
        await run(block_that_fails)


async def test_a_cleanup_that_fails_does_not_replace_the_error_of_the_block() -> None:
    """A caller catches the block's error by its type, and a note names the task's."""
    with pytest.raises(LookupError, match="the block") as raised:
        await run_alongside(block_that_fails, fail_when_cancelled)

    (note,) = raised.value.__notes__
    assert "the task's cleanup" in note


async def test_the_error_of_a_task_is_raised_as_a_group() -> None:
    """A task that fails ends the block."""
    with pytest.raises(ExceptionGroup) as raised:
        await run_alongside(anyio.sleep_forever, fail)

    assert [str(each) for each in raised.value.exceptions] == ["the task"]


async def test_a_block_that_fails_because_a_task_did_hides_no_error() -> None:
    """The group has both: the cause, and what the cleanup of the block raised."""
    with pytest.raises(ExceptionGroup) as raised:
        await run_alongside(fail_in_cleanup, fail)

    found = [str(each) for each in raised.value.exceptions]
    assert found == ["the task", "the block's cleanup"]


async def test_tasks_of_a_group_are_awaited_and_those_alongside_are_cancelled() -> None:
    """The end of a block without an error."""
    ended: list[str] = []

    async def work(name: str) -> None:
        await anyio.lowlevel.checkpoint()
        ended.append(name)

    async with task_group() as tasks:
        tasks.start_soon(work, "awaited")

    async with alongside(anyio.sleep_forever):
        ended.append("block")

    assert ended == ["awaited", "block"]
