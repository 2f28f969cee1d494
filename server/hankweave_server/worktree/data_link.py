"""The link `read_only_data_source` in the work tree, by which hanks reach their data.

Since Hankweave 0.2 the data is reached from inside the agents' working directory, and the prompts,
rigs and checks of public hanks say `read_only_data_source/...`. The data, or the link to it, lies
beside the work tree (seed 001), where no agent works; in the work tree there is only a link. No
checkpoint holds that link and no rollback touches it (`names.AT_THE_TOP`), so it is remade from
what lies beside: at each start, before and after each agent, after a rollback and in a new branch.

An agent can put something else in its place. A link holds nothing, so it is replaced; anything
else is moved out of the work tree and reported, because it may be the agent's work.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from hankweave_server.paths import DATA_SOURCE, Layout

_REPLACED = ".replaced-"
"""Between the name and the time, where something else was found under the name."""


@dataclass(frozen=True, slots=True)
class Displaced:
    """What stood in place of the link."""

    led_to: str | None = None
    """Where another link led, which is gone."""
    moved_to: Path | None = None
    """Where a file or folder lies now."""

    @property
    def sentence(self) -> str:
        if self.moved_to is None:
            return f"{DATA_SOURCE} in the work tree led to {self.led_to}; it is the data again."

        return (
            f"{DATA_SOURCE} in the work tree had been replaced; it is the data again. "
            f"What was there is kept as {self.moved_to}."
        )


def restore_link(layout: Layout, now_ms: int) -> Displaced | None:
    """Make the link lead to the execution's data; return what stood in its place, if anything.

    Does nothing in a person's project, and where the execution has no data. Raises OSError.
    """
    link = layout.data_link
    if link is None or not os.path.lexists(layout.data_source):
        return None

    target = _target(layout)
    found = _found(link)
    if found == target:
        return None

    # The new link first: a full disk is met before anything has moved.
    new = layout.data_source.with_name(f"{DATA_SOURCE}.partial")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    displaced = None
    if isinstance(found, str):
        displaced = Displaced(led_to=found)
    elif found is not None:
        kept = layout.root / f"{DATA_SOURCE}{_REPLACED}{now_ms}"
        _move(link, kept, found)
        displaced = Displaced(moved_to=kept)

    new.replace(link)
    return displaced


def _found(link: Path) -> str | int | None:
    """Return where a link leads, the mode of anything else, or None where there is nothing."""
    try:
        mode = os.lstat(link).st_mode
    except FileNotFoundError:
        return None

    return os.readlink(link) if stat.S_ISLNK(mode) else mode


def point(link: Path, target: str) -> None:
    """Replace a link by one that leads to `target`; a crash in between leaves none."""
    link.unlink()
    link.symlink_to(target)


def adopt(layout: Layout) -> None:
    """Move the data of a TypeScript execution out of its work tree; a link is left in its place.

    Hankweave keeps the link, or the copy, in the work tree alone. Does nothing where there is data
    beside the work tree already. Raises OSError.
    """
    link = layout.data_link
    if link is None or os.path.lexists(layout.data_source) or not os.path.lexists(link):
        return

    if link.is_symlink():
        layout.data_source.symlink_to(layout.work_tree / os.readlink(link))
    else:
        _move(link, layout.data_source, os.lstat(link).st_mode)


def _move(path: Path, to: Path, mode: int) -> None:
    """Rename into another folder, which a folder that its owner may not write would refuse."""
    is_locked = stat.S_ISDIR(mode) and not mode & stat.S_IWUSR
    if is_locked:
        path.chmod(stat.S_IMODE(mode) | stat.S_IWUSR)

    path.rename(to)
    if is_locked:
        to.chmod(stat.S_IMODE(mode))


def _target(layout: Layout) -> str:
    """Return what the link in the work tree says.

    For linked data the data's own absolute path, as in Hankweave: an agent may copy the link to
    any depth. For a copy a relative path, so that an execution can be moved with its data.
    """
    if layout.data_source.is_symlink():
        return os.readlink(layout.data_source)

    return os.path.relpath(layout.data_source, layout.work_tree)
