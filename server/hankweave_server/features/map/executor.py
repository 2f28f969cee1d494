"""Where the servers of a map run: the interface of an executor, and the executor of this machine.

An executor starts `hankweave run` for an item and says when it has ended. It decides nothing: what
an item has achieved is read from its execution, which is in the map's directory when `result`
returns, wherever it ran. A server has a session of its own and may outlive its executor; `find`
takes it over.

Limits hold for a server together with everything that it starts, agents included. Where the kernel
lets this user make control groups with limits, it enforces them. Elsewhere, as in most containers,
what they use is compared with the limits once a second. That ends what grows, not what bursts; a
server beyond a limit is then asked to end, and its execution can be resumed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from hankweave_server.agents.process import process_table
from hankweave_server.confinement import kernel
from hankweave_server.features.map.results import ItemCourse
from hankweave_server.local.detached_server import start_detached
from hankweave_server.local.living import living_server
from hankweave_server.paths import Layout


@dataclass(frozen=True, slots=True)
class ItemLaunch:
    """The server of one item."""

    name: str
    number: int
    """Counts the starts of the item, from 1."""
    layout: Layout
    hank: Path
    data: Path
    variables: Path
    """The file with the item's variables."""
    log: Path
    """Gets what the server prints."""
    output: Path | None = None
    """The folder for output files."""
    prices: Path | None = None
    """The file with prices of models."""
    codon: str | None = None
    """The codon that it begins with; None for where the execution is."""
    options: tuple[str, ...] = ()
    """Other options of `run`, with their values."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the command line, from `run` on."""
        words = ["run", str(self.hank), str(self.data), "--execution", str(self.layout.root)]
        # The map compares inputs and hanks by their contents, so a changed time is no obstacle.
        words += ["--headless", "--plain", "--yes", "--force", "--no-agent-check"]
        words += ["--variables", str(self.variables)]
        if self.output is not None:
            words += ["--output", str(self.output), "--overwrite-output"]

        if self.prices is not None:
            words += ["--prices", str(self.prices)]

        if self.codon is not None:
            words += ["--from", self.codon]

        return (*words, *self.options)


@dataclass(frozen=True, slots=True)
class ItemExit:
    """How the server of an item has ended."""

    exit_code: int | None
    """Negative for a signal; None if it is unknown."""
    overrun: str | None = None
    """The limit that it has exceeded, as a sentence."""
    lost: str | None = None
    """Why its end was not seen, as a sentence."""
    moves: int = 0
    """How often it was resumed on another machine, or by another worker, after its own had died."""
    lost_ms: int = 0
    """The time from each last checkpoint that was kept to the resumption from it."""


class ItemServer(Protocol):
    """A server that works on an item."""

    def stop(self) -> None:
        """Ask it to end in order; it is killed if it does not."""

    def course(self) -> ItemCourse | None:
        """Return what it does, if the files in the map's directory do not say it; do not wait."""

    async def result(self) -> ItemExit:
        """Wait until it has ended and its files are in the map's directory; called once."""


class Executor(Protocol):
    """A place where the servers of items run."""

    @property
    def slots(self) -> int:
        """Return how many items run at a time, unless the command says otherwise."""

    async def start(self, launch: ItemLaunch) -> ItemServer:
        """Start a server, which outlives this process. Raises OSError and Stop."""

    async def find(self, launch: ItemLaunch) -> ItemServer | None:
        """Return the server that works on the item already, or has ended unseen, if there is one.

        If there is none, what an earlier one has left is in the map's directory.
        """

    async def forget(self, launch: ItemLaunch) -> None:
        """Remove what is kept of a server whose end is in the journal."""


# --- this machine ---------------------------------------------------------------------------------

_TIED = "from hankweave_server.features.map.executor import end_with; end_with({}); "

NICER = 5
"""How much lower the priority of servers is than that of this process."""

_OOM_SCORE = "300"
"""Makes the kernel end items before other programs when the machine runs out of memory."""

_LAST_PRIORITY = 19
_PR_SET_PDEATHSIG = 1
_GROUP = "item-"
_PAGE = os.sysconf("SC_PAGE_SIZE")

CHECK_INTERVAL = 1.0
"""Seconds between two comparisons with the limits."""

END_SECONDS = 15.0
"""Time for an orderly end; see `local/ephemeral_server.py`."""


@dataclass(frozen=True, slots=True)
class ItemLimits:
    """The limits of a server, together with all processes that it starts."""

    memory: int | None = None
    """Bytes."""
    processes: int | None = None

    def beyond(self, memory: int, processes: int) -> str | None:
        """Return the limit that is exceeded, as a sentence; None if none is."""
        if self.memory is not None and memory > self.memory:
            used, most = memory >> 20, self.memory >> 20
            return f"It used {used:,} MiB of memory; the limit is {most:,} MiB."

        if self.processes is not None and processes > self.processes:
            return f"It had {processes:,} processes; the limit is {self.processes:,}."

        return None

    def of_group(self) -> dict[str, str]:
        """Return the files of a control group that set these limits, and their contents."""
        values = {"memory.max": self.memory, "pids.max": self.processes}
        return {name: str(value) for name, value in values.items() if value is not None}


@dataclass(eq=False, slots=True)
class LocalServer:
    """A server on this machine."""

    pid: int
    pidfd: int
    limits: ItemLimits
    group: Path | None = None
    """The control group that enforces the limits."""
    is_own: bool = True
    """True if it is a child of this process."""
    _overrun: str | None = None
    _is_asked: anyio.Event = field(default_factory=anyio.Event)

    def stop(self) -> None:
        """Ask it to end in order; `result` kills it if it does not."""
        self._is_asked.set()
        self._send(signal.SIGTERM)

    def course(self) -> ItemCourse | None:
        """Return None: its files are in the map's directory."""
        return None

    async def result(self) -> ItemExit:
        """Wait until it has ended; its exit code is known only if it is a child."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._kill_late)
                if self.group is None and self.limits.of_group():
                    tasks.start_soon(self._keep_limits)

                await anyio.wait_readable(self.pidfd)
                tasks.cancel_scope.cancel()

            return ItemExit(self._reap(), self._overrun or self._overrun_of_group())
        finally:
            os.close(self.pidfd)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    async def _kill_late(self) -> None:
        await self._is_asked.wait()
        await anyio.sleep(END_SECONDS)
        self._send(signal.SIGKILL)

    async def _keep_limits(self) -> None:
        while self._overrun is None:
            await anyio.sleep(CHECK_INTERVAL)
            memory, processes = await anyio.to_thread.run_sync(usage_of, self.pid)
            self._overrun = self.limits.beyond(memory, processes)

        self.stop()

    def _reap(self) -> int | None:
        if not self.is_own:
            return None

        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def _overrun_of_group(self) -> str | None:
        """Return whether the kernel has enforced the limit of memory; remove the group."""
        if self.group is None:
            return None

        with contextlib.suppress(OSError):
            events = dict(map(str.split, (self.group / "memory.events").read_text().splitlines()))
            process_table.remove(self.group)
            if self.limits.memory is not None and int(events["oom_kill"]):
                return f"It reached its limit of memory, {self.limits.memory >> 20:,} MiB."

        return None


class LocalPool:
    """An executor of this machine."""

    def __init__(self, limits: ItemLimits) -> None:
        self._limits = limits

    @property
    def slots(self) -> int:
        """Return the number of cores."""
        return os.cpu_count() or 1

    async def start(self, launch: ItemLaunch) -> LocalServer:
        """Start a server, which outlives this process. Raises OSError."""
        return await anyio.to_thread.run_sync(self.started, launch)

    def started(self, launch: ItemLaunch, *, is_tied: bool = False) -> LocalServer:
        """Start a server, in this thread; one that `is_tied` is killed when the thread ends."""
        prelude = _TIED.format(os.getpid()) if is_tied else ""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        log = os.open(launch.log, flags, 0o600)
        try:
            pid = start_detached(launch.arguments, log, prelude=prelude)  # `result` reaps it.
        finally:
            os.close(log)

        if not is_tied:  # In a cluster, the worker has the priority that the cluster gives it.
            priority = min(_LAST_PRIORITY, os.getpriority(os.PRIO_PROCESS, 0) + NICER)
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, pid, priority)

        with contextlib.suppress(OSError):  # A process of another user may not.
            Path(f"/proc/{pid}/oom_score_adj").write_text(_OOM_SCORE)

        group = self._group_for(launch, pid)
        return LocalServer(pid, os.pidfd_open(pid), self._limits, group)

    async def find(self, launch: ItemLaunch) -> LocalServer | None:
        """Return the server that works on the item already, if there is one."""
        pid = living_server(launch.layout)
        if pid is None:
            return None

        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return None

        group = process_table.group_of(pid)
        if group is not None and group.name != process_table.group_name(_group_mark(launch)):
            group = None

        return LocalServer(pid, pidfd, self._limits, group, is_own=False)

    async def forget(self, launch: ItemLaunch) -> None:
        """Do nothing: files and processes of a server that has ended are in place, or gone."""

    def _group_for(self, launch: ItemLaunch, pid: int) -> Path | None:
        """Move a server that has just begun to a group with limits; None if that is impossible."""
        files = self._limits.of_group()
        group = process_table.make_limited(_group_mark(launch), files) if files else None
        if group is None:
            return None

        try:
            (group / "cgroup.procs").write_text(str(pid))
        except OSError:
            process_table.remove(group)
            return None

        return group


def end_with(parent: int) -> None:
    """Let the kernel kill this process when the thread ends that has started it."""
    kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # It had ended before.
        os._exit(1)


def _group_mark(launch: ItemLaunch) -> str:
    return _GROUP + hashlib.sha256(os.fsencode(launch.layout.root)).hexdigest()[:16]


def usage_of(root: int) -> tuple[int, int]:
    """Return the bytes of memory and the number of processes of a process and all below it.

    Memory that processes share counts for each of them.
    """
    pids = {root} | process_table.descendants(process_table.scan(), [root])
    memory = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE

    return memory, len(pids)
