"""The tracked files as a tree, as clients are shown it (`filetree.updated`)."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from hankweave_protocol import instants
from hankweave_protocol.events import FileNode, FiletreeUpdated
from hankweave_server.execution.context import Surroundings
from hankweave_server.worktree.names import joined
from hankweave_server.worktree.tree_outline import Branch

MOST = 500
"""Files and folders in one picture: more would fill the journal, and nobody looks at them."""


async def picture(around: Surroundings) -> FiletreeUpdated:
    """Draws what the last look at the files has found."""
    drawn = await around.checkpointer.run(around.checkpointer.engine.outline, MOST)
    tree = _nodes(drawn.top, around.now_text())
    return FiletreeUpdated(tree=tree, omitted=drawn.omitted)


def _nodes(branch: Branch, now: str) -> tuple[FileNode, ...]:
    """Return the nodes of a folder; a file whose date is unknown has only just been written."""
    folders = (
        FileNode(
            name=os.fsdecode(folder.name),
            path=os.fsdecode(folder.path),
            is_directory=True,
            children=_nodes(folder, now),
        )
        for folder in branch.folders
    )
    files = (
        FileNode(
            name=os.fsdecode(name),
            path=os.fsdecode(joined(branch.path, name)),
            is_directory=False,
            children=(),
            last_modified=now if modified is None else _moment(modified),
        )
        for name, modified in branch.files.items()
    )
    return (*folders, *files)


def _moment(nanoseconds: int) -> str:
    since = timedelta(microseconds=nanoseconds // 1000)
    return instants.to_text(datetime(1970, 1, 1, tzinfo=UTC) + since)
