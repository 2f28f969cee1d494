"""Memory that a crowd of clients has used, given back to the system when most of them have left.

What Python frees goes back to the C library, and that keeps it: small blocks that are still in use
lie scattered among the free ones. So a server that once had a thousand clients would keep their
memory for ever, were the C library not asked to release the pages without a block in use. Before
that, the reference cycles that closed connections leave behind are collected: an idle server makes
too little garbage for the collector to run on its own.
"""

from __future__ import annotations

import ctypes
import gc

import anyio
from anyio import to_thread

CROWD = 32
"""Clients whose memory is worth releasing."""

CALM_SECONDS = 2.0
"""How long after the departure of many the rest may leave, and between two releases at least.

A release holds the interpreter for some tens of milliseconds.
"""

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl and macOS do not.


class FreedMemory:
    """Watches the number of clients and releases memory when half of a crowd has left."""

    def __init__(self) -> None:
        self._most = 0
        self._clients = 0
        self._due = anyio.Event()

    def count(self, clients: int) -> None:
        """Note how many clients there are now."""
        self._clients = clients
        self._most = max(self._most, clients)
        if self._most >= CROWD and clients <= self._most // 2:
            self._due.set()

    async def run(self) -> None:
        """Release memory whenever it is due, until cancelled."""
        while True:
            await self._due.wait()
            await anyio.sleep(CALM_SECONDS)
            self._most = self._clients
            self._due = anyio.Event()
            await to_thread.run_sync(_release)


def _release() -> None:
    gc.collect()
    if _trim is not None:
        _trim(0)
