"""How an execution is removed: owned first, out of everybody's way second, then part by part.

The rename of `.hankweave` is the one moment that counts. Before it nothing has happened; after it
no start resumes what is left, and another cleanup knows it by that name and finishes. Only what an
execution is made of goes: other files stay, with their folder, and so does all of a person's own
project but `.hankweave`.
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
from hankweave_server import fsutil
from hankweave_server.agents.process import leftovers
from hankweave_server.clock import Clock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.catalog import MANAGED_NAME, state_folder_of
from hankweave_server.paths import REMOVED_STATE, STATE_DIRECTORY, Layout
from hankweave_server.runtime_lock import acquire
from hankweave_server.runtime_lock.guard import GuardBusy, granted_guard
from hankweave_server.worktree import data_source
from hankweave_server.worktree.removal import DEEP, mounted_below, remove

_PARTS = re.compile(
    r"(?:agentRoot|rigArchive|read_only_data_source|\.hankweave)\.backup-\d{13}"
    r"|agentRoot|rigArchive|read_only_data_source(?:\.partial|\.(?:backup|replaced)-\d{13})?"
    rf"|{re.escape(DEEP)}[0-9a-f]{{16}}"
)


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal did."""

    bytes: int
    stays: tuple[str, ...] = ()
    """Names in the directory that are no part of an execution."""


def require_execution(root: Path, *, managed: bool) -> None:
    """Raises Stop for what is no execution, or none that is safe to remove; touches nothing."""
    if root.is_symlink():
        raise Stop(
            f"{root} is a link.",
            ExitCode.USAGE,
            hint=f"Name the directory that it leads to: {root.resolve()}.",
        )

    state = state_folder_of(root)
    if state is None:
        raise Stop(f"There is no execution in {root}.", ExitCode.NO_INPUT)

    if state.name == STATE_DIRECTORY and not _is_known(root, state, managed=managed):
        raise Stop(
            f"{state} has no metadata that can be read: nobody knows whose files these are.",
            ExitCode.BAD_DATA,
            hint="Remove it by hand if you know.",
        )

    mounted = mounted_below(root)
    if mounted is not None:
        raise Stop(
            f"Something is mounted at {mounted}.",
            ExitCode.UNAVAILABLE,
            hint="Unmount it first; it would be emptied.",
        )


def _is_known(root: Path, state: Path, *, managed: bool) -> bool:
    is_ours = managed and MANAGED_NAME.fullmatch(root.name) is not None
    return is_ours or _meta_in(state) is not None


def remove_execution(root: Path, clock: Clock, *, managed: bool) -> Removed:
    """Removes an execution for good; raises LockHeld while anybody serves or removes it.

    A crash leaves a directory that another call finishes. Raises OSError where the disk or a
    foreign owner of files forbids it; then too, another call goes on.
    """
    require_execution(root, managed=managed)
    with _owned(root, clock):
        state = root / REMOVED_STATE
        meta = _meta_in(state)
        in_place = meta is not None and meta.in_place
        freed = 0
        if not in_place and _is_known(root, state, managed=managed):
            freed += sum(remove(part) for part in _parts_of(root))

        freed += _remove_state(state)
        stays = tuple(sorted(os.listdir(root)))
        if in_place or stays:
            return Removed(freed, () if in_place else stays)

    with contextlib.suppress(FileNotFoundError):
        root.rmdir()

    fsutil.sync_directory(root.parent)
    return Removed(freed)


@contextlib.contextmanager
def _owned(root: Path, clock: Clock) -> Iterator[None]:
    """Owns an execution whose state stands under the name of what is being removed."""
    layout = Layout.of_execution(root)
    if state_folder_of(root) == layout.state_directory:
        held = acquire(layout, clock)
        try:
            _end_agents(layout)
            layout.state_directory.rename(root / REMOVED_STATE)
            fsutil.sync_directory(root)
            yield
        finally:
            held.release()
    else:
        try:
            guard = granted_guard(root / REMOVED_STATE / layout.lock_guard.name)
        except GuardBusy:
            raise Stop(f"{root} is being removed by somebody else.", ExitCode.LOCK_HELD) from None

        try:
            yield
        finally:
            os.close(guard)


def _end_agents(layout: Layout) -> None:
    """Ends what a dead server has left behind: it would write on into what is being removed."""
    killed = anyio.run(leftovers.sweep, layout.agent_processes)
    survivors = [str(each.pid) for each in killed if each.survived]
    if survivors:
        raise Stop(
            f"Agents of the former server cannot be killed: pids {', '.join(survivors)}.",
            ExitCode.UNAVAILABLE,
            hint="End them by hand.",
        )


def _parts_of(root: Path) -> list[Path]:
    parts = [root / name for name in sorted(os.listdir(root)) if _PARTS.fullmatch(name)]
    runs = Layout.of_execution(root).runs_link
    if runs is not None and runs.is_symlink() and os.readlink(runs) == f"{STATE_DIRECTORY}/runs":
        parts.append(runs)

    return parts


def _remove_state(state: Path) -> int:
    """Removes the state; what says whose it is goes last, for whoever has to finish this."""
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
    """Reads the metadata out of a state folder, whatever that is called now."""
    try:
        return data_source.read_meta_in(state)
    except (OSError, Stop):
        return None
