"""Read the machine's processes from /proc, and manage one control group for each agent.

A pid alone does not identify a process, because the kernel reuses it. A pid together with its start
time does, for as long as the machine is up.

Where the kernel allows it (cgroup v2, Linux 5.14 or newer), each agent gets a control group. A
process can leave its session, erase its environment and lose its keeper, but it stays in its group,
and so do its children; only root or the owner of the groups can move it out. A group is a folder.
It outlives the server, and the code that has ended its processes removes it.

Standard library only, because the keeper imports this module.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias


class ProcessFacts(NamedTuple):
    """The fields of /proc/PID/stat that identify a process and its relatives."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int
    """Clock ticks from boot to the start of the process: field 22 of /proc/PID/stat."""

    @property
    def is_dead(self) -> bool:
        """True for a zombie: it no longer runs, but its pid is not yet free."""
        return self.state in "ZX"


_HAS_CHILDREN = os.path.exists("/proc/thread-self/children")
"""False for a kernel without CONFIG_PROC_CHILDREN."""
_MOST_READINGS = 8
"""Of the lists of children, before the processes of the whole machine are read instead."""

ProcessTable: TypeAlias = Mapping[int, ProcessFacts]


def ticks_now() -> int:
    """Return the time since boot in the unit of `ProcessFacts.start_ticks`."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def has_older(pids: Iterable[int], ticks: int) -> bool:
    """Return whether one of the processes lives and was started before a moment, or in its tick."""
    found = map(read, pids)
    return any(each and not each.is_dead and each.start_ticks <= ticks for each in found)


def read(pid: int) -> ProcessFacts | None:
    """Return the facts about one process, or None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None

    # The second field is the name in parentheses and may hold any byte; the rest is plain text.
    state, parent, group, session, *others = stat[stat.rindex(b")") + 2 :].split()
    return ProcessFacts(pid, state.decode(), int(parent), int(group), int(session), int(others[15]))


def scan() -> dict[int, ProcessFacts]:
    """Return all processes by pid."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return {pid: facts for pid in pids if (facts := read(pid)) is not None}


def descendants(table: ProcessTable, roots: Iterable[int]) -> set[int]:
    """Return the pids of all descendants of the roots, without the roots themselves."""
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


def below(root: int) -> set[int]:
    """Return the pids of all descendants of a process, from the lists of children in /proc.

    A process whose parent ends becomes a child of the next subreaper above, which may have been
    read already. So the lists are read again until they are the same twice, as they are soon
    unless processes start and end all the time.
    """
    if not _HAS_CHILDREN:
        return descendants(scan(), [root])

    found = _children_below(root)
    for _ in range(_MOST_READINGS):
        before, found = found, _children_below(root)
        if found == before:
            return found

    return found | descendants(scan(), [root])


def _children_below(root: int) -> set[int]:
    found: set[int] = set()
    unvisited = [root]
    while unvisited:
        new = children(unvisited.pop()) - found
        found |= new
        unvisited.extend(new)

    return found


def children(pid: int) -> set[int]:
    """Return the children of all threads of a process; none if it is gone."""
    found: set[int] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with (
                contextlib.suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/{pid}/task/{thread}/children", "rb") as file,
            ):
                found.update(map(int, file.read().split()))

    return found


def ancestors(table: ProcessTable, pid: int) -> set[int]:
    """Return the pids of the parent of a process, of its parent, and so on."""
    found: set[int] = set()
    while (facts := table.get(pid)) is not None and facts.parent not in found:
        pid = facts.parent
        found.add(pid)

    return found


def carries(pid: int, name: str, value: str) -> bool:
    """Return whether the process was started with this variable; False if it cannot be read."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return f"{name}={value}".encode() in file.read().split(b"\0")

    return False


def command_of(pid: int) -> str:
    """Return the command line of a process; empty if it cannot be read."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().replace(b"\0", b" ").decode(errors="replace").strip()

    return ""


def boot_id() -> str:
    """Return the id of this boot; pids and start times are only valid within one boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


Containment: TypeAlias = Literal["cgroup", "subreaper"]
"""How an agent's processes are held together; the keeper (a subreaper) is used in any case."""

_PREFIX = "hankweave-"
_CONFINED = "confined-"


def containment() -> Containment:
    """Return the containment that an agent started now would get; creates a group to find out."""
    group = make(f"probe-{os.getpid()}")
    if group is None:
        return "subreaper"

    remove(group)
    return "cgroup"


def place(mark: str, *, is_confined: bool = False) -> Path | None:
    """Return the path of a group that its keeper is to create; None where `make` returns it.

    `is_confined`: `confined_groups` includes it.
    """
    own = group_of("self")
    return _place_in(own, mark, is_confined=is_confined) if _can_make_in(own) else None


@functools.cache
def _can_make_in(own: Path | None) -> bool:
    return containment() == "cgroup"


def _place_in(own: Path | None, mark: str, *, is_confined: bool) -> Path | None:
    if own is None or not os.access(own / "cgroup.procs", os.W_OK):
        return None

    return own / f"{_PREFIX}{_CONFINED if is_confined else ''}{mark}"


def make(mark: str, *, is_confined: bool = False) -> Path | None:
    """Create a group below this process's own; None if there is none or it is not permitted."""
    group = _place_in(group_of("self"), mark, is_confined=is_confined)
    if group is None:
        return None

    try:
        group.mkdir()
    except OSError:
        return None

    if os.access(group / "cgroup.kill", os.W_OK):  # Linux >= 5.14
        return group

    remove(group)
    return None


def group_name(mark: str) -> str:
    """Return the name of the group that `make_limited` creates."""
    return f"{_PREFIX}{mark}"


def make_limited(mark: str, limits: Mapping[str, str]) -> Path | None:
    """Create a group with limits, files of it and their contents; None if it is not permitted.

    The kernel grants limits only to groups beside processes, not below a group that has some
    itself. So the new one is a sibling of this process's own group, which the owner of both may
    create, or a child of the root.
    """
    own = group_of("self")
    for parent in () if own is None else (own, own.parent):
        group = parent / group_name(mark)
        with contextlib.suppress(OSError):
            controllers = (parent / "cgroup.subtree_control").read_text().split()
            wanted = {name.partition(".")[0] for name in limits}
            if wanted <= set(controllers) and os.access(parent / "cgroup.procs", os.W_OK):
                group.mkdir(exist_ok=True)
                for name, value in limits.items():
                    (group / name).write_text(value)

                return group

    return None


def confined_groups() -> set[int]:
    """Return the inodes of the groups of confined programs below this process's own group."""
    own = group_of("self")
    groups = () if own is None else own.glob(f"{_PREFIX}{_CONFINED}*")
    found = set()
    for group in groups:
        for folder in _below(group):
            with contextlib.suppress(FileNotFoundError):  # Its program has just ended.
                found.add(folder.stat().st_ino)

    return found


def members(group: Path | None) -> set[int]:
    """Return the pids in the group and in the groups that its members created below it."""
    if group is None:
        return set()

    pids: set[int] = set()
    for folder in _below(group):
        with contextlib.suppress(OSError):
            pids |= {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}

    return pids


def kill(group: Path | None) -> None:
    """Kill all members atomically; none can escape by forking."""
    if group is not None:
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")


def remove(group: Path | None) -> None:
    """Remove the group if it is empty; a group with living members stays."""
    if group is not None:
        for folder in reversed(list(_below(group))):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _below(group: Path) -> Iterable[Path]:
    return (Path(folder) for folder, _, _ in os.walk(group))


def group_of(pid: int | Literal["self"]) -> Path | None:
    """Return the folder of a process's group in the unified hierarchy, if that is mounted."""
    with contextlib.suppress(OSError):
        root = _mount_point(Path("/proc/self/mountinfo").read_text().splitlines())
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            if root is not None and line.startswith("0::/"):
                return root / line.removeprefix("0::/")

    return None


def _mount_point(mounts: Iterable[str]) -> Path | None:
    """Find cgroup2 in mountinfo (see proc(5)): fields, a dash, and the file system type."""
    for mount in mounts:
        fields, _, source = mount.partition(" - ")
        if source.startswith("cgroup2 "):
            return Path(fields.split()[4])

    return None
