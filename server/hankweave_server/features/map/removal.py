"""Remove a map with all of its executions, permanently.

The order is that of an execution: take the lock, rename the journal, delete the parts, the journal
last. The rename is the commit point. After it no command continues the map, and the next removal
recognizes the new name and finishes.

Only what a map has made is removed. Inputs and the directory of `--output` are usually elsewhere; a
map whose parts contain one of them is refused. Other files in its directory stay, and so does the
directory then.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from hankweave_protocol.executions import ListedExecution
from hankweave_server import fsutil
from hankweave_server.clock import Clock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.map.directory import (
    RESULTS,
    SUMMARY,
    MapDirectory,
    locked,
    maps_in,
    release,
)
from hankweave_server.features.map.listing import all_maps, map_row
from hankweave_server.features.map.plan import MapState
from hankweave_server.local.catalog import listed
from hankweave_server.local.living import is_served
from hankweave_server.local.register import executions_in
from hankweave_server.local.removal import Removed, remove_execution, require_execution
from hankweave_server.paths import is_map
from hankweave_server.plain_text import counted, one_line
from hankweave_server.worktree.removal import remove

_RAY = ("id", "storage", "scratch")


def output_of(state: MapState) -> Path | None:
    """Return the directory of the results, unless that is the one of the map."""
    begun = state.begun
    return None if begun is None or begun.output is None else Path(begun.output)


def _require_removable(directory: MapDirectory) -> None:
    """Raise Stop unless nothing works on a map and its parts are its own; change nothing."""
    root = directory.root
    if root.is_symlink():
        raise Stop(
            f"{root} is a link.",
            ExitCode.USAGE,
            hint=f"Name the directory that it points to: {root.resolve()}.",
        )

    pid = directory.supervisor()
    if pid is not None:
        raise Stop(
            f"`hankweave map` is working on {root} (pid {pid}).",
            ExitCode.LOCK_HELD,
            hint="Wait for it, or end it with Ctrl-C.",
        )

    state = directory.state()
    _refuse_running(directory, state)
    for place in _not_ours(state):
        for part in (*_folders(directory), directory.items):
            if _is_in(part, place):
                raise Stop(
                    f"{place}, an input or the output of the map, is in {part}.",
                    ExitCode.USAGE,
                    hint="Move it to another place first, else it would be removed.",
                )

    for path in executions_in(directory.items):
        require_execution(path, managed=False)


def _refuse_running(directory: MapDirectory, state: MapState) -> None:
    again = f"hankweave map --resume -d {shlex.quote(str(directory.root))}"
    served = [path for path in executions_in(directory.items) if is_served(path)]
    if served:
        raise Stop(
            f"{counted(len(served), 'execution')} of {directory.root} have a running server.",
            ExitCode.LOCK_HELD,
            hint=f"`{again}` waits for them; its second Ctrl-C stops them.",
        )

    running = sum(item.status == "running" for item in state.items.values())
    if running and state.begun is not None and state.begun.placement.kind != "local":
        raise Stop(
            f"{counted(running, 'item')} of {directory.root} may still run in the cluster.",
            ExitCode.LOCK_HELD,
            hint=f"`{again}` waits for them; its second Ctrl-C stops them.",
        )


def _not_ours(state: MapState) -> Iterator[Path]:
    """Yield the inputs that are not rows, and the directory of the results."""
    for item in state.items.values():
        if item.kind != "row":
            yield Path(item.path)

    if (output := output_of(state)) is not None:
        yield output


def _is_in(folder: Path, place: Path) -> bool:
    return place.resolve().is_relative_to(folder.resolve())


def _folders(directory: MapDirectory) -> list[Path]:
    """Return the folders that go as a whole."""
    ray = directory.root / "ray"
    return [directory.inputs, directory.variables, directory.logs, *(ray / name for name in _RAY)]


def remove_map(directory: MapDirectory, clock: Clock) -> Removed:
    """Remove a map permanently.

    Raises Stop while something works on it, and OSError if a disk error or the permissions of a
    file prevent it. After an error or a crash, another call continues.
    """
    _require_removable(directory)
    root = directory.root
    lock = locked(directory)
    try:
        state = directory.state()
        _refuse_running(directory, state)  # Something may have begun before the lock was taken.
        if directory.journal.exists():
            directory.journal.rename(directory.removed_journal)
            fsutil.sync_directory(root)

        freed = 0
        for path in executions_in(directory.items):
            freed += remove_execution(path, clock, managed=False).bytes

        freed += sum(remove(part) for part in _folders(directory) if part.parent.exists())
        if output_of(state) != root:
            freed += remove(root / RESULTS) + remove(root / SUMMARY)

        # A server that refused to start may have left an empty folder.
        rest = sorted(directory.items.iterdir()) if directory.items.exists() else []
        _remove_empty(*rest, directory.items, root / "ray")
        freed += remove(directory.lock) + remove(directory.removed_journal)
    finally:
        release(lock)

    _remove_empty(root)
    fsutil.sync_directory(root.parent)
    return Removed(freed, tuple(sorted(os.listdir(root))) if root.exists() else ())


def _remove_empty(*folders: Path) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


# --- for `cleanup`, by path ----------------------------------------------------------------------


def has_made(root: Path) -> bool:
    """Return whether a directory is a map."""
    return is_map(root)


def all_in(root: Path) -> list[Path]:
    """Return the maps in a folder, and those with an item in the register."""
    return all_maps(root)


def rows_in(root: Path) -> list[ListedExecution]:
    """Return a row for each map in a folder."""
    return [row_of(path) for path in maps_in(root)]


def row_of(root: Path) -> ListedExecution:
    directory = MapDirectory(root)
    return map_row(directory, [*map(listed, executions_in(directory.items))])


def require_removable(root: Path) -> None:
    """Raise Stop unless nothing works on it and its parts are its own."""
    _require_removable(MapDirectory(root))


def kept_by(root: Path) -> str:
    """Return what its removal keeps, in words."""
    output = output_of(MapDirectory(root).state())
    if output is not None:
        return f"results in {one_line(str(output))} are kept; inputs are kept"

    return f"with its {RESULTS} and {SUMMARY}; inputs are kept"


def removed(root: Path, clock: Clock) -> Removed:
    """Remove it with all of its executions, permanently; raise Stop or OSError."""
    return remove_map(MapDirectory(root), clock)
