"""A slow machine: the server is stopped most of the time, so that short work takes long."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from hankweave_server.background_tasks import alongside
from support.running_server import RunningServer

STOPPED_SECONDS = 0.19

HARDLY = 0.01
"""Seconds of work between pauses, for short operations: a twentieth of the time."""

A_LITTLE = 0.06
"""The same for operations that take the server a second."""


@asynccontextmanager
async def slowed(server: RunningServer, at_work: float = HARDLY) -> AsyncIterator[None]:
    """Allow the server to work for this long at a time, and then pause, while the block runs.

    Its clocks advance meanwhile, as those of a busy machine do; the server does not treat such a
    pause as a suspend.
    """

    async def hinder() -> None:
        while True:
            server.process.send_signal(signal.SIGSTOP)
            await anyio.sleep(STOPPED_SECONDS)
            server.process.send_signal(signal.SIGCONT)
            await anyio.sleep(at_work)

    try:
        async with alongside(hinder):
            yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.process.send_signal(signal.SIGCONT)
