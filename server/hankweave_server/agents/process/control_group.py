"""A control group for each agent, where the kernel lets us have one (cgroup v2).

A process can leave its session, erase its environment and lose its keeper, but it stays in its
group, and so do its children. Only root, or who owns the groups, can move it out.

A group is a folder: it outlives the daemon, and is removed by who has ended its processes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

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
