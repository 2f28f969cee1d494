"""An executor for machines that share nothing but a storage.

What an item needs goes through the storage to a worker, and its snapshots come back the same way
(`item`). Where workers run, and when they are started again, is for the *cluster* to decide.
The end of a worker is its own word only: what has happened is read from the storage, so it does not
matter which supervisor sees it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from hankweave_server import fsutil
from hankweave_server.features.map.executor import ItemExit, ItemLaunch, ItemLimits, ItemServer
from hankweave_server.features.map.remote.item import RemoteItem, fetch, send
from hankweave_server.features.map.remote.packages import Storage
from hankweave_server.features.map.results import ItemCourse


class RemoteWorker(Protocol):
    """A worker in the cluster."""

    def stop(self) -> None:
        """Ask the server to end in order; give up a worker that has no machine yet."""

    def course(self) -> ItemCourse | None:
        """Return what the server did when last heard of; do not wait."""

    async def ended(self) -> str | None:
        """Wait for its end, whichever machines it needs; return why it was lost, if it was.

        Raises Stop if no worker can run in this cluster.
        """


class Cluster(Protocol):
    """Machines that run workers, each of an item."""

    @property
    def slots(self) -> int:
        """Return how many workers have room at a time."""

    def begin(self, item: RemoteItem) -> RemoteWorker:
        """Create a worker, which outlives this process and its own machine. Raises Stop."""

    def look_up(self, item: RemoteItem) -> RemoteWorker | None:
        """Return the worker of an item, if there is one."""

    def end(self, item: RemoteItem) -> None:
        """End the worker of an item, if there is one."""


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """The server of an item on some machine of the cluster."""

    worker: RemoteWorker
    item: RemoteItem
    executor: RemoteExecutor

    def stop(self) -> None:
        self.worker.stop()

    def course(self) -> ItemCourse | None:
        return self.worker.course()

    async def result(self) -> ItemExit:
        """Wait for the worker, and put its last snapshot in its place."""
        lost = await self.worker.ended()
        return await self.executor.fetched(self.item) or ItemExit(None, lost=lost)


@dataclass(frozen=True, slots=True)
class EndedServer:
    """A server that has ended while no supervisor was there."""

    ended: ItemExit

    def stop(self) -> None:
        """Do nothing: it has ended."""

    def course(self) -> ItemCourse | None:
        """Return None: its files are in the map's directory."""
        return None

    async def result(self) -> ItemExit:
        return self.ended


class RemoteExecutor:
    """An executor of a cluster."""

    def __init__(
        self, cluster: Cluster, storage: Storage, scratch: Path, hank: str, limits: ItemLimits
    ) -> None:
        """`scratch` is on the file system of the map's directory, `hank` the hash of the hank."""
        self._cluster = cluster
        self._storage = storage
        self._scratch = scratch
        self._hank = hank
        self._limits = limits

    @property
    def slots(self) -> int:
        """Return how many items the cluster has room for."""
        return self._cluster.slots

    async def start(self, launch: ItemLaunch) -> RemoteServer:
        """Send what the item needs, and create its worker. Raises OSError and Stop."""
        return await anyio.to_thread.run_sync(self._start, self._item(launch))

    def _start(self, item: RemoteItem) -> RemoteServer:
        with self._folder() as folder:
            send(item, self._storage, Path(folder))

        return RemoteServer(self._cluster.begin(item), item, self)

    async def find(self, launch: ItemLaunch) -> ItemServer | None:
        """Return the item's server, or one that has ended unseen; see `Executor`."""
        item = self._item(launch)
        worker = await anyio.to_thread.run_sync(self._cluster.look_up, item)
        if worker is not None:
            return RemoteServer(worker, item, self)

        ended = await self.fetched(item)
        return None if ended is None else EndedServer(ended)

    async def forget(self, launch: ItemLaunch) -> None:
        """Remove the item's packages and its worker."""
        item = self._item(launch)
        await anyio.to_thread.run_sync(self._cluster.end, item)
        await anyio.to_thread.run_sync(self._storage.remove, item.folder)

    async def fetched(self, item: RemoteItem) -> ItemExit | None:
        """Put the newest snapshot of an item in its place; return how its server has ended."""
        return await anyio.to_thread.run_sync(self._fetch, item)

    def _fetch(self, item: RemoteItem) -> ItemExit | None:
        with self._folder() as folder:
            return fetch(item, self._storage, Path(folder))

    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        fsutil.make_private_directory(self._scratch)
        return tempfile.TemporaryDirectory(dir=self._scratch)

    def _item(self, launch: ItemLaunch) -> RemoteItem:
        execution = launch.layout.root.name
        return RemoteItem(
            launch, f"{execution}.{launch.number}", f"hank-{self._hank}", self._limits
        )
