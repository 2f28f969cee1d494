"""The tracked files as a tree, as clients are shown it (`filetree.updated`)."""

from __future__ import annotations

import os

from hankweave_protocol.events import FileNode, FiletreeUpdated
from hankweave_server.execution.surroundings import Surroundings
from hankweave_server.workspace.names import joined
from hankweave_server.workspace.outline import Branch

MOST = 500
"""Files and folders in one picture: more would fill the journal, and nobody looks at them."""


async def picture(around: Surroundings) -> FiletreeUpdated:
    """Draws what the last look at the files has found."""
    drawn = await around.checkpointer.run(around.checkpointer.engine.outline, MOST)
    return FiletreeUpdated(tree=_nodes(drawn.top), omitted=drawn.omitted)


def _nodes(branch: Branch) -> tuple[FileNode, ...]:
    folders = (
        FileNode(
            name=os.fsdecode(folder.name),
            path=os.fsdecode(folder.path),
            is_directory=True,
            children=_nodes(folder),
        )
        for folder in branch.folders
    )
    files = (
        FileNode(
            name=os.fsdecode(name),
            path=os.fsdecode(joined(branch.path, name)),
            is_directory=False,
            children=(),
        )
        for name in branch.files
    )
    return (*folders, *files)
