"""Where an execution keeps its state: in its own directory, or apart from it.

The state of a project that is served in place (`--workspace`) lies in the project, unless agents
could reach it there: some kernels confine a program to a folder, but not to a part of it. The state
is then below the user's `XDG_STATE_HOME`, in a folder named after the project's path. It is found
by that path alone, since whatever lies in the project, an agent could have put there.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

STATE_DIRECTORY = ".hankweave"


def private_folder_of(project: Path) -> Path:
    """Return the folder that holds a project's state outside of the project; it may not exist."""
    state_home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    name = hashlib.sha256(os.fsencode(os.path.realpath(project))).hexdigest()[:32]
    return Path(state_home).expanduser() / "hankweave" / "projects" / name


def existing_private_folder(root: Path) -> Path | None:
    """Return that folder if there is one."""
    folder = private_folder_of(root)
    return folder if folder.is_dir() else None


def state_directory_of(root: Path) -> Path:
    """Return the state directory of an execution or project; it may not exist."""
    return (existing_private_folder(root) or root) / STATE_DIRECTORY
