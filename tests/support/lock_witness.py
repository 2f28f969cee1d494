"""Processes that log when they own the lock, and a checker of that log.

    python -m support.lock_witness LOG

Each process reads one line at a time on stdin and answers with one JSON line: `acquire ROOT`,
`race ROOT FIFO` (answer, and take it when the FIFO is opened for writing), `hold` (verify the
ownership, then log it), `release`, `crash` (release the guard as the kernel does for a process that
dies), `clock SECONDS` (move its wall clock), `hasty` (skip the time for which it would watch
another program's lock), `beat` (beat every 20 ms; the answer comes when the lock is lost).

The log proves more than the answers: a line is written between taking and giving up, so two owners
at once would leave their lines mixed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

import anyio

from hankweave_server.clock import SystemClock
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.held import HeldLock, acquire
from hankweave_server.runtime_lock.lock_file import LockHeld, LockLost

IMPORTED = [Path(__file__).parents[2] / name for name in ("server", "protocol", "tests")]


class MovedClock(SystemClock):
    """The system's clock, with the wall clock set forward or back."""

    shift = timedelta()
    is_hasty = False
    _skipped = 0.0

    def now(self) -> datetime:
        return super().now() + self.shift

    def monotonic(self) -> float:
        return super().monotonic() + self._skipped

    def wait(self, seconds: float) -> None:
        """Wait, or skip the time if the clock is hasty."""
        if self.is_hasty:
            self._skipped += seconds
        else:
            time.sleep(seconds)


class Testifier:
    """The side of one starter."""

    def __init__(self, log: Path) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        self._clock = MovedClock()
        self.name = f"{os.stat('/proc/self/ns/pid').st_ino}.{os.getpid()}.{os.urandom(8).hex()}"
        self._held: HeldLock | None = None

    def execute(self, word: str, *arguments: str) -> dict[str, Any]:
        try:
            match word:
                case "acquire":
                    return self._acquire(arguments[0])
                case "race":
                    _answer({"waits": True})
                    os.close(os.open(arguments[1], os.O_RDONLY))
                    return self._acquire(arguments[0])
                case "hold":
                    self._lock.verify()
                    self._testify("still")
                case "release":
                    self._testify("leave")
                    self._lock.release()
                case "crash":
                    self._testify("leave")
                    crash(self._lock)
                case "clock":
                    self._clock.shift = timedelta(seconds=float(arguments[0]))
                case "hasty":
                    self._clock.is_hasty = True
                case "beat":
                    return {"lost": str(anyio.run(self._loss))}
        except LockHeld as refusal:
            return {"owned": False, "by": refusal.pid, "exit_code": int(refusal.exit_code)}
        except LockLost as loss:
            return {"lost": str(loss), "exit_code": int(loss.exit_code)}

        return {"done": True}

    def _acquire(self, root: str) -> dict[str, Any]:
        self._held = acquire(Layout.of_execution(Path(root)), self._clock, wait=self._clock.wait)
        self._testify("enter")
        previous = self._held.previous
        return {
            "owned": True,
            "previous": None if previous is None else previous.pid,
            "reused": previous is not None and previous.pid_reused,
        }

    def _testify(self, what: str) -> None:
        os.write(self._log, f"{what} {self.name}\n".encode())

    async def _loss(self) -> LockLost:
        losses: list[LockLost] = []
        await self._lock.heartbeat(timedelta(milliseconds=20), on_lost=losses.append)
        return losses[0]

    @property
    def _lock(self) -> HeldLock:
        assert self._held is not None
        return self._held


def crash(lock: HeldLock) -> None:
    """Close the descriptors that the kernel closes when a process dies, and do nothing else."""
    os.close(lock._folder)
    os.close(lock._guard)


def write_foreign_lock(layout: Layout, **fields: Any) -> None:
    """Write a runtime.lock as a program does that knows no guard."""
    layout.state_directory.mkdir(parents=True, exist_ok=True)
    record = {
        "pid": 2**22 + 1,  # Above the highest pid that Linux assigns.
        "runId": "1736000000000-abc123-def456",
        "startTime": "2025-01-04T11:00:00.000Z",
        "lastHeartbeat": "2025-01-04T11:59:30.000Z",
    }
    temporary = layout.root / "foreign"
    temporary.write_text(json.dumps(record | fields))
    temporary.replace(layout.runtime_lock)


# --- the test's side ------------------------------------------------------------------------------


@dataclass
class Witness:
    """The log of the owners, and of the processes that were killed."""

    log: Path

    def condemn(self, starter: Starter) -> None:
        """Record, before the kill, that this process may end without a line."""
        with self.log.open("a") as log:
            log.write(f"killed {starter.name}\n")

    def overlaps(self) -> list[str]:
        return overlaps(self.log.read_text().splitlines() if self.log.exists() else [])

    def owners(self) -> int:
        """Return how often a process became the owner."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return sum(line.startswith("enter ") for line in lines)


def overlaps(lines: Iterable[str], fenced: bool = False) -> list[str]:
    """Return each line that one process wrote while another one owned the lock.

    With `fenced`, an owner may be succeeded while it lives: if the guard was deleted it may not
    know yet, but it must never log again.
    """
    inside: str | None = None
    doomed: set[str] = set()
    gone: set[str] = set()
    found: list[str] = []
    for number, line in enumerate(lines, 1):
        what, who = line.split()
        match what:
            case "killed":
                doomed.add(who)
            case "enter":
                if inside is not None and inside not in doomed and not fenced:
                    found.append(f"line {number}: {who} entered while {inside} owned")
                if inside is not None and inside != who:
                    gone.add(inside)
                gone.discard(who)
                inside = who
            case "still" | "leave":
                if who in gone or who != inside:
                    found.append(f"line {number}: {who} said {what} while {inside} owned")
                if what == "leave" and inside == who:
                    inside = None

    return found


class Starter:
    """A process that logs its ownership; `wrapped` are the words before its command line."""

    def __init__(self, log: Path, *wrapped: str) -> None:
        self.name = ""
        self._process = subprocess.Popen(
            [*wrapped, sys.executable, "-m", "support.lock_witness", str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, IMPORTED))},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> Self:
        """Wait until it answers."""
        self.name = self.answer()["name"]
        return self

    def tell(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the starter ended without an answer"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, *words: object) -> dict[str, Any]:
        self.tell(*words)
        return self.answer()

    def kill(self) -> None:
        """Send SIGKILL; return when it is dead, a wrapped process too (its stdout ends)."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.read()

    def close(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def starters(log: Path, count: int, wrapped: Sequence[str] = ()) -> Iterator[list[Starter]]:
    """Start processes and wait for them.

    The list may be changed; every process in it is killed at the end.
    """
    pool = [Starter(log, *wrapped) for _ in range(count)]
    try:
        for starter in pool:
            starter.ready()

        yield pool
    finally:
        for starter in pool:
            starter.close()


def race(pool: Sequence[Starter], root: Path) -> list[dict[str, Any]]:
    """Let the starters acquire a directory at the same time: when all wait at one FIFO."""
    with tempfile.TemporaryDirectory() as folder:
        barrier = Path(folder, "barrier")
        os.mkfifo(barrier)
        for starter in pool:
            assert starter.ask("race", root, barrier) == {"waits": True}

        with barrier.open("wb") if pool else contextlib.nullcontext():
            return [starter.answer() for starter in pool]


def _answer(words: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main() -> None:
    testifier = Testifier(Path(sys.argv[1]))
    _answer({"name": testifier.name})
    for line in sys.stdin:
        _answer(testifier.execute(*line.split()))


if __name__ == "__main__":
    main()
