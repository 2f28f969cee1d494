"""A server that only owns a directory: `python -m support.lock_starter DIRECTORY`.

It reads one word per line on stdin and answers each with one JSON line: `acquire`, `verify`,
`release`, `crash` (release the guard as the kernel does for a process that dies), `beat` (start
beating every 20 ms; the answer comes when the lock is lost).
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio

from hankweave_server.clock import SystemClock
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.held import HeldLock, acquire
from hankweave_server.runtime_lock.lock_file import LockHeld, LockLost


class Starter:
    def __init__(self, root: Path) -> None:
        self._layout = Layout.of_execution(root)
        self._held: HeldLock | None = None

    def execute(self, command: str) -> dict[str, Any]:
        try:
            match command:
                case "acquire":
                    self._held = acquire(self._layout, SystemClock())
                    return {"owned": True, "previous": self._previous_pid()}
                case "verify":
                    self._lock.verify()
                case "release":
                    self._lock.release()
                case "crash":
                    crash(self._lock)
                case "beat":
                    return {"lost": str(anyio.run(self._loss))}
        except LockHeld as refusal:
            return {"owned": False, "by": refusal.pid, "exit_code": int(refusal.exit_code)}
        except LockLost as loss:
            return {"lost": str(loss)}

        return {"done": True}

    async def _loss(self) -> LockLost:
        losses: list[LockLost] = []
        await self._lock.heartbeat(timedelta(milliseconds=20), on_lost=losses.append)
        return losses[0]

    @property
    def _lock(self) -> HeldLock:
        assert self._held is not None
        return self._held

    def _previous_pid(self) -> int | None:
        return None if self._lock.previous is None else self._lock.previous.pid


def crash(lock: HeldLock) -> None:
    """Close the descriptors that the kernel closes when a process dies, and do nothing else."""
    os.close(lock._folder)
    os.close(lock._guard)


def main() -> None:
    starter = Starter(Path(sys.argv[1]))
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(starter.execute(line.strip())) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
