"""A slow machine: the server is stopped most of the time, so that little work takes long."""

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
"""Seconds at work in between, for what a server does in a moment: a twentieth of the time."""

A_LITTLE = 0.06
"""The same for what takes it a second."""


@asynccontextmanager
async def slowed(server: RunningServer, at_work: float = HARDLY) -> AsyncIterator[None]:
    """Lets the server work for so long at a time, and then rest, while the block runs.

    Its clocks go on meanwhile, as those of a busy machine do; it takes no such pause for a sleep.
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
