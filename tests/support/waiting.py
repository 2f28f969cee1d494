"""Wait for what another process or thread does: `eventually()`, with one limit for all tests.

A limit guards against hanging and is never the claim of a test. There is one, generous and scaled
once for the machine, so that a slow or busy machine gives the same results as a fast one. Tests
that claim something about speed belong to `scripts/bench`.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeVar, overload

import anyio

SCALE = "HANKWEAVE_TEST_SCALE"
"""The environment variable with the factor by which this machine is slower than an idle one."""

LIMIT = 120.0 * max(1.0, float(os.environ.get(SCALE, "1")))
"""Seconds after which a test that waits has failed."""

_PAUSE = 0.01
T = TypeVar("T")


def limited() -> AbstractContextManager[anyio.CancelScope]:
    """Return a context that raises TimeoutError after `LIMIT` seconds."""
    return anyio.fail_after(LIMIT)


@overload
async def eventually(condition: Callable[[], Awaitable[T]]) -> T: ...


@overload
async def eventually(condition: Callable[[], T]) -> T: ...


async def eventually(condition: Callable[[], T | Awaitable[T]]) -> T:
    """Return the first true result of `condition`; raise TimeoutError after `LIMIT` seconds."""
    with anyio.fail_after(LIMIT):
        while True:
            result = condition()
            if inspect.isawaitable(result):
                result = await result

            if result:
                return result

            await anyio.sleep(_PAUSE)


def eventually_blocking(condition: Callable[[], T]) -> T:
    """Return the first true result of `condition`, for tests without an event loop.

    Raise TimeoutError after `LIMIT` seconds.
    """
    end = time.monotonic() + LIMIT
    while not (result := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {LIMIT:.0f} s: {condition}")

        time.sleep(_PAUSE)

    return result
