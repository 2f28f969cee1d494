"""Find agents that outlived their server by the records they left on disk, and kill them.

Such agents are never adopted. Their pipes are gone and their output is lost, and they would keep
changing the work tree that recovery is about to examine.

A process belongs to a recorded agent if its pid *and* start time were recorded in this boot, if it
carries the recorded mark in its environment, if it is a member of the recorded control group, or if
it shares a session with one of those or descends from one. A pid alone proves nothing, because the
kernel reuses it. A record needs no fsync: after a power cut none of its processes are alive.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

import anyio.to_thread
import msgspec

from hankweave_protocol.ids import CodonId, RunId
from hankweave_server import fsutil
from hankweave_server.agents.process import process_table
from hankweave_server.agents.process.environment import MARK
from hankweave_server.agents.process.process_table import ProcessFacts, ProcessTable

KILL_DEADLINE = 5.0
"""Seconds; a process that survives SIGKILL for longer hangs in the kernel."""

_POLL_INTERVAL = 0.5

ENDED = ".ended"
"""The ending of files that keepers leave; see `last_moments`."""


class AgentRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The record of a running agent, stored as `{mark}.json`."""

    mark: str
    boot_id: str
    pid: int = 0
    """0 until the agent runs: it matches no process."""

    starttime: int = 0
    """Field 22 of /proc/PID/stat."""

    pgid: int = 0
    keeper_pid: int = 0
    keeper_starttime: int = 0
    run_id: RunId = RunId("")
    codon_id: CodonId = CodonId("")
    control_group: str | None = None

    @property
    def group_folder(self) -> Path | None:
        return None if self.control_group is None else Path(self.control_group)

    def remember(self, folder: Path) -> None:
        """Put the processes on record, in a folder that exists."""
        fsutil.replace(self._path(folder), msgspec.json.encode(self))

    def forget(self, folder: Path, *, is_served: bool = False) -> None:
        """Remove the record and, if its server lives, what its keeper has left for the next one."""
        self._path(folder).unlink(missing_ok=True)
        if is_served:
            (folder / f"{self.mark}{ENDED}").unlink(missing_ok=True)

    def _path(self, folder: Path) -> Path:
        return folder / f"{self.mark}.json"


@dataclass(frozen=True, slots=True)
class KilledLeftover:
    """A process that an earlier server left behind; `survived` if SIGKILL did not end it."""

    pid: int
    command: str
    run_id: RunId
    codon_id: CodonId
    survived: bool


async def sweep(processes_dir: Path) -> tuple[KilledLeftover, ...]:
    """Kill the processes of all agents recorded in the folder and remove their records.

    Takes at most KILL_DEADLINE per record. The record of an agent with survivors stays, so that the
    next sweep tries again. Call it only while this server runs no agent: the sweep would kill it.
    """
    return await anyio.to_thread.run_sync(_sweep_now, processes_dir)


@dataclass(frozen=True, slots=True)
class LastMoments:
    """When an agent's keeper noticed the end of its server, and when its processes had ended."""

    left_alone_ns: int
    ended_ns: int


def last_moments(processes_dir: Path) -> LastMoments | None:
    """Return the last moments of the agent of a dead server, in ns since the epoch.

    None if they are not known: the agent's keeper was killed too.
    """
    left: list[LastMoments] = []
    for path in processes_dir.glob(f"*{ENDED}"):
        with contextlib.suppress(ValueError):  # The disk was full.
            left.append(LastMoments(int(path.read_text()), path.stat().st_mtime_ns))

    return max(left, key=lambda moments: moments.ended_ns, default=None)


def forget_last_moments(processes_dir: Path) -> None:
    for path in processes_dir.glob(f"*{ENDED}"):
        path.unlink(missing_ok=True)


def _sweep_now(folder: Path) -> tuple[KilledLeftover, ...]:
    for left in folder.glob("*.sock"):  # Sockets of `hook_server`; their server is gone.
        left.unlink(missing_ok=True)

    return tuple(
        killed
        for path in sorted(folder.glob("*.json"))
        for killed in _sweep_record(_read_record(path), folder)
    )


def _read_record(path: Path) -> AgentRecord:
    """Read a record; a damaged one still yields the mark, which is the file's name."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=AgentRecord)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return AgentRecord(mark=path.stem, boot_id=process_table.boot_id())


def _sweep_record(record: AgentRecord, folder: Path) -> list[KilledLeftover]:
    killed = kill_members(record)
    if not any(leftover.survived for leftover in killed):
        record.forget(folder)

    return killed


def kill_members(record: AgentRecord) -> list[KilledLeftover]:
    """Kill every process of the agent, in rounds until a scan finds none. Blocks."""
    killed: dict[int, KilledLeftover] = {}
    deadline = time.monotonic() + KILL_DEADLINE
    while members := members_of(record, process_table.scan()):
        for facts in members:
            killed.setdefault(facts.pid, _leftover(facts, record))

        if not _includes_this_process(record):
            process_table.kill(record.group_folder)

        _kill_and_wait(members, min(_POLL_INTERVAL, deadline - time.monotonic()))
        if time.monotonic() >= deadline:
            break

    process_table.remove(record.group_folder)
    surviving = {facts.pid for facts in members_of(record, process_table.scan())}
    return [replace(each, survived=each.pid in surviving) for each in killed.values()]


def members_of(record: AgentRecord, table: ProcessTable) -> list[ProcessFacts]:
    """Return the living processes of the agent, except this process and its ancestors."""
    if record.boot_id != process_table.boot_id():
        return []

    roots = _recorded(record, table) | _marked(record, table) | _grouped(record, table)
    sessions = {table[pid].session for pid in roots}
    roots |= {facts.pid for facts in table.values() if facts.session in sessions}
    # This server may itself have been started by an agent.
    spared = {os.getpid()} | process_table.ancestors(table, os.getpid())
    members = (roots | process_table.descendants(table, roots - spared)) - spared
    return [table[pid] for pid in sorted(members) if not table[pid].is_dead]


def _recorded(record: AgentRecord, table: ProcessTable) -> set[int]:
    recorded = {
        (record.pid, record.starttime),
        (record.keeper_pid, record.keeper_starttime),
    }
    return {pid for pid, ticks in recorded if pid in table and table[pid].start_ticks == ticks}


def _marked(record: AgentRecord, table: ProcessTable) -> set[int]:
    return {
        facts.pid
        for facts in table.values()
        if facts.start_ticks >= record.keeper_starttime
        and process_table.carries(facts.pid, MARK, record.mark)
    }


def _grouped(record: AgentRecord, table: ProcessTable) -> set[int]:
    return process_table.members(record.group_folder) & table.keys()


def _includes_this_process(record: AgentRecord) -> bool:
    """Return whether this process is in the agent's group, which may have started this server."""
    return os.getpid() in process_table.members(record.group_folder)


def _leftover(facts: ProcessFacts, record: AgentRecord) -> KilledLeftover:
    return KilledLeftover(
        pid=facts.pid,
        command=process_table.command_of(facts.pid),
        run_id=record.run_id,
        codon_id=record.codon_id,
        survived=True,
    )


def _kill_and_wait(members: list[ProcessFacts], seconds: float) -> None:
    """Kill each process through a pidfd, so that a reused pid is never hit, and wait for all."""
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as descriptors:
        dying = [fd for facts in members if (fd := _kill(facts, descriptors)) is not None]
        for descriptor in dying:
            death = select.poll()
            death.register(descriptor, select.POLLIN)
            death.poll(1000 * max(0.0, deadline - time.monotonic()))


def _kill(facts: ProcessFacts, descriptors: contextlib.ExitStack) -> int | None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        descriptor = os.pidfd_open(facts.pid)
        descriptors.callback(os.close, descriptor)
        now = process_table.read(facts.pid)
        if now is not None and now.start_ticks == facts.start_ticks:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            return descriptor

    return None
