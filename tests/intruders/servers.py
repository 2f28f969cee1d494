"""The real server in its own process, with an idle execution."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from hankweave_client.discovery import discover
from support.running_server import RunningServer, running_server
from support.scripted_hank import codon, write_hank, writes
from support.watching import idle


@dataclass(frozen=True)
class Target:
    """The server under attack."""

    server: RunningServer
    url: str
    controller: str
    viewer: str

    @property
    def state_directory(self) -> Path:
        return self.server.execution / ".hankweave"

    def log(self, name: str) -> str:
        return (self.state_directory / "logs" / name).read_text()

    def memory(self) -> int:
        """Return the resident memory of the server's process in bytes."""
        return int(psutil.Process(self.server.pid).memory_info().rss)


ONE_FILE = codon("one", writes("a.txt", "first\n"))


@asynccontextmanager
async def target(
    folder: Path, *codons: Mapping[str, Any], env: dict[str, str] | None = None
) -> AsyncIterator[Target]:
    """Run a hank to its end, then keep the server running for the test."""
    hank = write_hank(folder / "hank", *(codons or (ONE_FILE,)))
    execution = folder / "execution"
    async with running_server(hank, None, execution, env=env) as server:
        async with server.client(since_seq=0) as client:
            await idle(client)

        address = discover(execution)
        viewer = (execution / ".hankweave" / "server.viewer-token").read_text().strip()
        assert address.token is not None
        yield Target(server, address.url, address.token, viewer)
