"""A cluster of processes, for tests of remote items: each worker is one, and can be killed.

`python machines.py FILE` is a worker: FILE has the pickled `RemoteItem`, its storage and its place.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread

from hankweave_server.clock import SystemClock
from hankweave_server.features.map.remote.item import RemoteItem, Worker
from hankweave_server.features.map.remote.packages import FolderStorage
from hankweave_server.features.map.results import ItemCourse, course_of
from hankweave_server.paths import Layout

_FAILED = 1


@dataclass(eq=False)
class MachineWorker:
    """A worker that is started again on another machine whenever it is killed."""

    folder: Path
    item: RemoteItem
    storage: Path
    machines: int = 0
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self._start()

    def _start(self) -> None:
        self.machines += 1
        order = self.folder / f"{self.machines}.order"
        place = self.folder / f"machine-{self.machines}"
        order.write_bytes(pickle.dumps((self.item, self.storage, place)))
        words = [sys.executable, __file__, str(order)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE)

    def kill(self) -> None:
        """Kill it with everything on its machine."""
        self.process.kill()

    def stop(self) -> None:
        """Ask the server to end in order."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def course(self) -> ItemCourse | None:
        place = self.folder / f"machine-{self.machines}"
        return course_of(Layout.of_execution(place / "execution"))

    async def ended(self) -> str | None:
        while True:
            code = await anyio.to_thread.run_sync(self.process.wait)
            self.stop()
            if code != -signal.SIGKILL:
                return None if code == 0 else f"It ended with {code}."

            self._start()


@dataclass(eq=False)
class Machines:
    """As many machines as are needed."""

    folder: Path
    storage: Path
    slots: int = 2
    workers: dict[str, MachineWorker] = field(default_factory=dict)

    def begin(self, item: RemoteItem) -> MachineWorker:
        found = MachineWorker(self.folder / item.folder, item, self.storage)
        self.workers[item.folder] = found
        return found

    def look_up(self, item: RemoteItem) -> MachineWorker | None:
        return self.workers.get(item.folder)

    def end(self, item: RemoteItem) -> None:
        if (worker := self.workers.pop(item.folder, None)) is not None:
            worker.kill()
            worker.process.wait()
            worker.stop()


def _work(order: Path) -> None:
    item, storage, place = pickle.loads(order.read_bytes())

    async def work() -> None:
        worker = Worker(item, FolderStorage(storage), place, SystemClock())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_at_end_of_input, worker)
            await worker.run()
            tasks.cancel_scope.cancel()

    anyio.run(work)


async def _stop_at_end_of_input(worker: Worker) -> None:
    await anyio.wait_readable(sys.stdin)
    worker.stop()


if __name__ == "__main__":
    _work(Path(sys.argv[1]))
