"""A person's own project as a work tree: `--workspace DIR` (DESIGN 4, "In-place mode")."""

from __future__ import annotations

import os
from pathlib import Path

from hankweave_server.errors import ExitCode, Stop
from hankweave_server.paths import Layout
from hankweave_server.worktree import data_source


def layout_in(workspace: Path) -> Layout:
    """Gives the layout of a project; raises Stop for what is none, and touches nothing."""
    root = workspace.expanduser().absolute()
    if not root.is_dir():
        raise Stop(
            f"{root} is no directory.",
            ExitCode.NO_INPUT,
            hint="Name the directory of a project that exists.",
        )

    root = root.resolve()
    _refuse_too_much(root)
    for folder in (root, *root.parents):
        meta = data_source.read_meta(Layout.of_execution(folder))
        if meta is not None and not meta.in_place:
            raise Stop(
                f"{root} belongs to the execution {folder}; it is no project.",
                ExitCode.USAGE,
                hint=f"Serve it with `hankweave run --execution {folder}`.",
            )

    return Layout.in_place(root)


def _refuse_too_much(root: Path) -> None:
    """A checkpoint of all a person has, or of the system, is never what was meant."""
    home = Path("~").expanduser().resolve()
    if root == Path(root.anchor) or root == home or root in home.parents:
        raise Stop(
            f"{root} is too much for a workspace: every file below it would be tracked.",
            ExitCode.USAGE,
            hint="Name the directory of one project.",
        )


def around(folder: Path) -> Path | None:
    """Return the execution that a folder lies in, or the project that is served in place."""
    for root in (folder, *folder.parents):
        try:
            meta = data_source.read_meta(Layout.in_place(root))
        except (OSError, Stop):
            continue

        if meta is not None:
            return root

    return None


def is_in_git(folder: Path) -> bool:
    """Return whether a directory lies in a git repository, going by names alone."""
    return any(os.path.lexists(each / ".git") for each in (folder, *folder.parents))
