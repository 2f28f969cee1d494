"""`--new --force`: an execution makes room for a new one in its directory, and nothing is lost.

State, work tree, archive and data get names that end in `.backup-<time>` (Hankweave's
`.hankweave.backup-<timestamp>`; its work tree was wiped). The intent is durable before the first
rename and leaves with the state directory, which goes last: a start that finds it goes on.
"""

from __future__ import annotations

import os

from hankweave_protocol import instants
from hankweave_server import fsutil
from hankweave_server.clock import Clock
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock import acquire
from hankweave_server.worktree import data_link

_KEEP = "keep-work-tree"


def set_aside(layout: Layout, clock: Clock, *, keep_work_tree: bool = False) -> tuple[str, ...]:
    """Rename all of an execution, but for the work tree if that is kept; return the new names.

    Raises LockHeld while a server lives.
    """
    held = acquire(layout, clock)
    try:
        if not layout.set_aside_intent.exists():
            suffix = f".backup-{instants.epoch_ms(clock.now())}"
            words = [suffix, *([_KEEP] if keep_work_tree else [])]
            fsutil.replace_durably(layout.set_aside_intent, " ".join(words).encode())

        suffix, *kept = layout.set_aside_intent.read_text().split()
        # It will inform about nobody; and a release finds it no more, once it is elsewhere.
        fsutil.remove_durably(layout.runtime_lock)
        return _renamed(layout, suffix, keep_work_tree=_KEEP in kept)
    finally:
        held.release()


def was_interrupted(layout: Layout) -> bool:
    return layout.set_aside_intent.exists()


def _renamed(layout: Layout, suffix: str, *, keep_work_tree: bool) -> tuple[str, ...]:
    ours = (layout.rig_archive, layout.data_source, layout.state_directory)
    parts = ours if keep_work_tree else (layout.work_tree, *ours)
    for part in parts:
        if os.path.lexists(part):
            # Each is durable before the next: the state directory with the intent goes last.
            part.rename(part.with_name(part.name + suffix))
            fsutil.sync_directory(layout.root)
            if part == layout.data_source:
                _point_at_renamed_data(layout, suffix)

    aside = (part.name + suffix for part in parts)
    return tuple(name for name in aside if os.path.lexists(layout.root / name))


def _point_at_renamed_data(layout: Layout, suffix: str) -> None:
    """Let the renamed work tree's link lead to its own copy of the data, not to the next one."""
    work_tree = layout.work_tree.with_name(layout.work_tree.name + suffix)
    link = work_tree / layout.data_source.name
    if link.is_symlink() and os.readlink(link) == os.path.join("..", layout.data_source.name):
        data_link.point(link, os.path.join("..", layout.data_source.name + suffix))
