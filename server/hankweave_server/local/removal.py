"""Remove an execution permanently.

An execution is removed in three steps: take its runtime lock, rename `.hankweave`, delete the parts
one by one. The rename is the commit point. A crash before it leaves the execution as it was. After
it, no start resumes what is left, and the next cleanup recognises the new name and finishes.

Only the parts of an execution are removed. Other files in its directory stay, and so does the
directory then. Of a project that is served in place, only `.hankweave` is removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio

from hankweave_protocol.records import ExecutionMeta
from hankweave_protocol.state_directory import STATE_DIRECTORY
from hankweave_server import fsutil
from hankweave_server.agents.process import leftovers
from hankweave_server.clock import Clock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.project_state import forget, remove_place
from hankweave_server.local.register import state_folder_of
from hankweave_server.local.short_ids import MANAGED_NAME
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.guard import GuardBusy, granted_guard
from hankweave_server.runtime_lock.held import acquire
from hankweave_server.worktree import data_source
from hankweave_server.worktree.removal import DEEP, mounted_below, remove

_PARTS = re.compile(
    r"(?:agentRoot|rigArchive|read_only_data_source|\.hankweave)\.backup-\d{13}"
    r"|agentRoot|rigArchive|read_only_data_source(?:\.partial|\.(?:backup|replaced)-\d{13})?"
    rf"|{re.escape(DEEP)}[0-9a-f]{{16}}"
)


@dataclass(frozen=True, slots=True)
class Removed:
    """The result of a removal."""

    bytes: int
    stays: tuple[str, ...] = ()
    """Names in the directory that are not part of an execution."""


def require_execution(root: Path, *, managed: bool) -> None:
    """Raise Stop unless `root` is an execution that is safe to remove; change nothing."""
    if root.is_symlink():
        raise Stop(
            f"{root} is a link.",
            ExitCode.USAGE,
            hint=f"Name the directory that it points to: {root.resolve()}.",
        )

    state = state_folder_of(root)
    if state is None:
        raise Stop(
            f"There is no execution in {root}.",
            ExitCode.NO_INPUT,
            hint="`hankweave ls` lists all executions.",
        )

    if state.name == STATE_DIRECTORY and not _is_known(root, state, managed=managed):
        raise Stop(
            f"{state} has no readable metadata, so it may not be an execution.",
            ExitCode.BAD_DATA,
            hint="If you are sure that it is one, remove it by hand.",
        )

    mounted = mounted_below(root)
    if mounted is not None:
        raise Stop(
            f"Something is mounted at {mounted}.",
            ExitCode.UNAVAILABLE,
            hint="Unmount it first; otherwise its contents would be removed.",
        )


def _is_known(root: Path, state: Path, *, managed: bool) -> bool:
    is_ours = managed and MANAGED_NAME.fullmatch(root.name) is not None
    return is_ours or _meta_in(state) is not None


def remove_execution(root: Path, clock: Clock, *, managed: bool) -> Removed:
    """Remove an execution permanently.

    Raises LockHeld while another process serves or removes it, and OSError if a disk error or the
    permissions of a file prevent it. After an error or a crash, another call continues.
    """
    require_execution(root, managed=managed)
    with _owned(root, clock):
        layout = Layout.of_execution(root)
        state = layout.removed_state
        meta = _meta_in(state)
        in_place = meta is not None and meta.in_place
        freed = 0
        if in_place:
            forget(layout)

        if not in_place and _is_known(root, state, managed=managed):
            freed += sum(remove(part) for part in _parts_of(root))

        freed += _remove_state(state)
        remove_place(layout)
        stays = tuple(sorted(os.listdir(root)))
        if in_place or stays:
            return Removed(freed, () if in_place else stays)

    with contextlib.suppress(FileNotFoundError):
        root.rmdir()

    fsutil.sync_directory(root.parent)
    return Removed(freed)


@contextlib.contextmanager
def _owned(root: Path, clock: Clock) -> Iterator[None]:
    """Hold the lock of an execution, with its state directory renamed for removal."""
    layout = Layout.of_execution(root)
    if state_folder_of(root) == layout.state_directory:
        held = acquire(layout, clock)
        try:
            _end_agents(layout)
            layout.state_directory.rename(layout.removed_state)
            fsutil.sync_directory(layout.removed_state.parent)
            yield
        finally:
            held.release()
    else:
        try:
            guard = granted_guard(layout.removed_state / layout.lock_guard.name)
        except GuardBusy:
            raise Stop(
                f"{root} is being removed by another process.",
                ExitCode.LOCK_HELD,
                hint="If it does not complete that, another `hankweave cleanup` does.",
            ) from None

        try:
            yield
        finally:
            os.close(guard)


def _end_agents(layout: Layout) -> None:
    """Kill the agents that a dead server left behind: they would keep writing to the execution."""
    killed = anyio.run(leftovers.sweep, layout.agent_processes)
    survivors = [str(each.pid) for each in killed if each.survived]
    if survivors:
        raise Stop(
            f"Agents of the previous server cannot be killed: pids {', '.join(survivors)}.",
            ExitCode.UNAVAILABLE,
            hint="Kill these processes, then try again.",
        )


def _parts_of(root: Path) -> list[Path]:
    parts = [root / name for name in sorted(os.listdir(root)) if _PARTS.fullmatch(name)]
    runs = Layout.of_execution(root).runs_link
    if runs is not None and runs.is_symlink() and os.readlink(runs) == f"{STATE_DIRECTORY}/runs":
        parts.append(runs)

    return parts


def _remove_state(state: Path) -> int:
    """Remove the state directory; the metadata goes last, since an unfinished removal needs it."""
    meta = Layout.of_execution(state.parent).meta.name
    guard = Layout.of_execution(state.parent).lock_guard.name
    last = (".gitignore", guard, meta)
    freed = sum(remove(state / name) for name in sorted(os.listdir(state)) if name not in last)
    freed += sum(remove(state / name) for name in last)
    try:
        state.rmdir()
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise

    return freed


def _meta_in(state: Path) -> ExecutionMeta | None:
    """Read the metadata in a state directory, under its usual name or renamed for removal."""
    try:
        return data_source.read_meta_in(state)
    except (OSError, Stop):
        return None
