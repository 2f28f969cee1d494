"""The processes of this machine, as /proc tells them.

A pid alone names nobody: the kernel gives it out again. A pid with its start time does, for as long
as the machine is up. Standard library only, for the keeper imports it.

A control group for each agent, where the kernel lets us have one (cgroup v2).

A process can leave its session, erase its environment and lose its keeper, but it stays in its
group, and so do its children. Only root, or who owns the groups, can move it out.

A group is a folder: it outlives the daemon, and is removed by who has ended its processes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias


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


Containment: TypeAlias = Literal["cgroup", "subreaper"]
"""How an agent's processes are held together; the keeper, a subreaper, is there in any case."""

_PREFIX = "hankweave-"


def containment() -> Containment:
    """Tells what an agent that is started now is held by; makes a group to find out."""
    group = make(f"probe-{os.getpid()}")
    if group is None:
        return "subreaper"

    remove(group)
    return "cgroup"


def make(mark: str) -> Path | None:
    """Makes a group below our own one; None where there is no such thing or we may not."""
    own = _own_group()
    if own is None or not os.access(own / "cgroup.procs", os.W_OK):
        return None

    group = own / f"{_PREFIX}{mark}"
    try:
        group.mkdir()
    except OSError:
        return None

    if os.access(group / "cgroup.kill", os.W_OK):  # Linux >= 5.14
        return group

    remove(group)
    return None


def members(group: Path | None) -> set[int]:
    """Returns the pids in the group and in those that its members have made below it."""
    if group is None:
        return set()

    pids: set[int] = set()
    for folder in _below(group):
        with contextlib.suppress(OSError):
            pids |= {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}

    return pids


def kill(group: Path | None) -> None:
    """Kills all members at once: none can fork its way out."""
    if group is not None:
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")


def remove(group: Path | None) -> None:
    """Removes an empty group; one with living members stays."""
    if group is not None:
        for folder in reversed(list(_below(group))):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _below(group: Path) -> Iterable[Path]:
    return (Path(folder) for folder, _, _ in os.walk(group))


def _own_group() -> Path | None:
    """The folder of our own group in the unified hierarchy, if that is mounted."""
    with contextlib.suppress(OSError):
        root = _mount_point(Path("/proc/self/mountinfo").read_text().splitlines())
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if root is not None and line.startswith("0::/"):
                return root / line.removeprefix("0::/")

    return None


def _mount_point(mounts: Iterable[str]) -> Path | None:
    """Finds cgroup2 in proc(5)'s mountinfo: fields, a dash, and the type of the file system."""
    for mount in mounts:
        fields, _, source = mount.partition(" - ")
        if source.startswith("cgroup2 "):
            return Path(fields.split()[4])

    return None
