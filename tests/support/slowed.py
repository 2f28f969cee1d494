"""A slow machine: the server is stopped most of the time, so that little work takes long."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from hankweave_server.execution.companions import alongside
from support.running_server import RunningServer

STOPPED_SECONDS = 0.19
AT_WORK_SECONDS = 0.01


@asynccontextmanager
async def slowed(server: RunningServer) -> AsyncIterator[None]:
    """Lets the server work for a twentieth of the time while the block runs.

    Its clocks go on meanwhile, as those of a busy machine do; it takes no such pause for a sleep.
    """

    async def hinder() -> None:
        while True:
            server.process.send_signal(signal.SIGSTOP)
            await anyio.sleep(STOPPED_SECONDS)
            server.process.send_signal(signal.SIGCONT)
            await anyio.sleep(AT_WORK_SECONDS)

    try:
        async with alongside(hinder):
            yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.process.send_signal(signal.SIGCONT)
