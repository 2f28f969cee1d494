"""Agents that misbehave, as programs of a hank's `command` agent.

Each is a Python program. A process that it starts announces itself in the work tree, by a file
`alive/NAME` that holds its pid and is never removed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from support.scripted_hank import codon, write_hank
from support.waiting import eventually

_COMMON = """
import os, signal, sys, time

def announce(name):
    os.makedirs("alive", exist_ok=True)
    with open("alive/." + name, "w") as file:
        file.write(str(os.getpid()))
    os.rename("alive/." + name, "alive/" + name)

def stay(name):
    announce(name)
    while True:
        time.sleep(600)
"""

_NO_ENVIRONMENT = (
    "os.execve(sys.executable, [sys.executable, '-I', '-S', '-c', "
    "'import os, time; os.close(0); os.close(1); os.close(2); "
    'os.makedirs("alive", exist_ok=True); open("alive/.d", "w").write(str(os.getpid())); '
    'os.rename("alive/.d", "alive/daemonized"); time.sleep(6000)\'], {})'
)

AT_ONCE = "all of them at once"
STAYING: dict[str, str] = {
    AT_ONCE: (
        "os.fork() or stay('child')\n"
        "os.fork() or (os.setsid(), stay('own-session'))\n"
        "os.fork() or (os.setsid(), os.fork() and os._exit(0), stay('double'))\n"
        f"os.fork() or (os.setsid(), os.fork() and os._exit(0), {_NO_ENVIRONMENT})\n"
        "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]\n"
        "os.fork() or stay('deaf')\n"
        "os.write(1, b'\\xff\\n'); os.close(1); os.close(2); stay('agent')"
    ),
    "a child": "os.fork() or stay('child'); stay('agent')",
    "a child with its own session": "os.fork() or (os.setsid(), stay('child')); stay('agent')",
    "a double fork": (
        "os.fork() or (os.setsid(), os.fork() and os._exit(0), stay('child')); stay('agent')"
    ),
    "a daemon without descriptors and environment": (
        f"os.fork() or (os.setsid(), os.fork() and os._exit(0), {_NO_ENVIRONMENT}); stay('agent')"
    ),
    "one that ignores INT and TERM": (
        "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]; "
        "os.fork() or stay('child'); stay('agent')"
    ),
    "one that never reads its stdin": "stay('agent')",
    "one that closes stdout and runs on": "os.close(1); os.close(2); stay('agent')",
    "one that says no line but bytes": (
        "announce('agent')\n"
        "while True: os.write(1, bytes(range(128, 256)) + b'\\n'); time.sleep(.01)"
    ),
}
"""Agents that do not end, by their behaviour."""

STDOUT_HELD = "os.fork() or stay('holder'); announce('agent'); print('done')"
"""Ends at once, and leaves a child that holds its stdout."""

ONE_LINE = "announce('agent')\nfor _ in range({mebibytes}): os.write(1, b'x' * 2**20)"
FLOOD = """
announce('agent')
line = b'y' * 1023 + b'\\n'
for _ in range({mebibytes}):
    for descriptor in (1, 2):
        for _ in range(16):
            rest = memoryview(line * 64)
            while rest:
                rest = rest[os.write(descriptor, rest):]
"""
BAD_UTF8 = "announce('agent'); os.write(1, b'\\xff\\xfe\\x80' * 99 + b'\\n\\xc3'); sys.exit(3)"
KEEPER_KILLED = f"""
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    {_NO_ENVIRONMENT}
while not os.path.exists("alive/daemonized"):
    time.sleep(.01)
announce('agent')
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(600)
"""
"""Kills its watcher, after a child has hidden: no environment, a session of its own."""

BOMB = """
[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]
with open({group!r} + "/cgroup.procs", "w") as procs:
    procs.write(str(os.getpid()))
announce('agent')
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(.05)  # Constantly, but a kernel that only forks serves nobody.
"""


def program(source: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _COMMON + source]


def hank_of(folder: Path, source: str, prompt: str = "Begin.", **fields: Any) -> Path:
    """Return a hank of one codon, `unruly`, that this agent executes."""
    agent = {"type": "command", "command": program(source)}
    return write_hank(folder, codon("unruly", agent=agent, promptText=prompt, **fields))


async def announced(execution: Path, *names: str) -> dict[str, int]:
    """Wait until these processes have announced themselves."""
    alive = execution / "agentRoot" / "alive"
    await eventually(lambda: all((alive / name).exists() for name in names))
    return {path.name: int(path.read_text()) for path in alive.iterdir()}


def names_of(source: str) -> list[str]:
    names = ("agent", "child", "own-session", "double", "deaf", "daemonized", "holder")
    return [name for name in names if f"'{name}'" in source or f"/{name}" in source]


def below(pid: int) -> dict[int, float]:
    """Return the start times of the processes below one: a pid alone is ambiguous."""
    with contextlib.suppress(psutil.NoSuchProcess):
        found = psutil.Process(pid).children(recursive=True)
        return {each.pid: each.create_time() for each in found}

    return {}


def moments(pids: dict[str, int]) -> dict[int, float]:
    return {pid: psutil.Process(pid).create_time() for pid in pids.values() if lives(pid)}


def lives(pid: int, moment: float | None = None) -> bool:
    try:
        process = psutil.Process(pid)
        if moment is not None and process.create_time() != moment:
            return False

        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


async def all_dead(processes: dict[int, float]) -> list[int]:
    """Wait until none of them lives; return those that still do after the limit."""
    with contextlib.suppress(TimeoutError):
        await eventually(lambda: not any(lives(*each) for each in processes.items()))

    return [pid for pid, moment in processes.items() if lives(pid, moment)]


def zombies_of(pid: int) -> int:
    """Count the dead processes below one that have not been reaped."""
    found = psutil.Process(pid).children(recursive=True)
    return sum(_is_zombie(each) for each in found)


def _is_zombie(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE

    return False


def memory_of(pid: int) -> int:
    """Return the bytes that only this process uses; /proc's VmHWM would include freed memory."""
    return int(psutil.Process(pid).memory_info().rss)


def descriptors_of(pid: int) -> tuple[int, int]:
    """Count a process's open descriptors: the packs of its store, and all others."""
    paths = [_target(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    packs = sum(path.endswith(".pack") for path in paths)
    return packs, sum(path != "" for path in paths) - packs


def _target(link: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return os.readlink(link)

    return ""


def processes_in(group: Path) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]

    return []


@contextlib.contextmanager
def limited_processes(most: int) -> Iterator[Path | None]:
    """Create a cgroup with at most that many processes; None where that is impossible."""
    group = Path("/sys/fs/cgroup/pids") / f"hankweave-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text(str(most))
    except OSError:
        yield None
        return

    try:
        yield group
    finally:
        for pid in processes_in(group):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

        with contextlib.suppress(OSError):
            group.rmdir()
