"""The processes of this machine, as /proc tells them.

A pid alone names nobody: the kernel gives it out again. A pid with its start time does, for as long
as the machine is up. Standard library only, for the keeper imports it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias


class ProcessFacts(NamedTuple):
    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int
    """Clock ticks from boot to the start of the process: field 22 of /proc/PID/stat."""

    @property
    def is_dead(self) -> bool:
        """Tells whether it is a zombie: it runs no more, but its pid is not yet given out again."""
        return self.state in "ZX"


ProcessTable: TypeAlias = Mapping[int, ProcessFacts]


def read(pid: int) -> ProcessFacts | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None

    # The name comes second, in parentheses, and may hold any byte; all that follows is plain.
    state, parent, group, session, *others = stat[stat.rindex(b")") + 2 :].split()
    return ProcessFacts(pid, state.decode(), int(parent), int(group), int(session), int(others[15]))


def scan() -> dict[int, ProcessFacts]:
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return {pid: facts for pid in pids if (facts := read(pid)) is not None}


def descendants(table: ProcessTable, roots: Iterable[int]) -> set[int]:
    """Returns the pids of the roots' children, of theirs, and so on; not the roots themselves."""
    children: dict[int, list[int]] = {}
    for facts in table.values():
        children.setdefault(facts.parent, []).append(facts.pid)

    found: set[int] = set()
    unvisited = list(roots)
    while unvisited:
        new = [pid for pid in children.get(unvisited.pop(), ()) if pid not in found]
        found.update(new)
        unvisited.extend(new)

    return found


def ancestors(table: ProcessTable, pid: int) -> set[int]:
    found: set[int] = set()
    while (facts := table.get(pid)) is not None and facts.parent not in found:
        pid = facts.parent
        found.add(pid)

    return found


def carries(pid: int, name: str, value: str) -> bool:
    """Tells whether the process was started with this variable; False where we may not look."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return f"{name}={value}".encode() in file.read().split(b"\0")

    return False


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().replace(b"\0", b" ").decode(errors="replace").strip()

    return ""


def boot_id() -> str:
    """Returns the name of this boot; pids and start times of another one mean nothing."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
