"""Where a user's executions are: in the folder for them, and wherever else a server has served one.

The latter are in the register: a folder of the user's state with symbolic links, named after the
paths that they lead to. The kernel makes or removes a link in one step, so two servers, or a kill
at any moment, leave whole entries only. What is gone leaves the register when that is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from hankweave_protocol.state_directory import private_projects
from hankweave_server import fsutil
from hankweave_server.paths import Layout
from hankweave_server.settings import DEFAULT_ROOT


def all_executions(root: Path) -> list[Path]:
    """Return the executions in a folder, and those in the register that are not there."""
    return [*executions_in(root), *executions_outside(root)]


def executions_in(root: Path) -> list[Path]:
    """Return the executions in a folder; symbolic links are not followed."""
    if not root.is_dir():
        return []

    with os.scandir(root) as entries:
        folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]

    return [path for path in folders if state_folder_of(path) is not None]


def executions_outside(root: Path) -> list[Path]:
    """Return the executions in the register that are not in a folder; remove those that are gone.

    A disk that cannot be read at the moment hides its executions, and they stay in the register.
    """
    found = []
    for entry in _entries():
        with contextlib.suppress(OSError):
            path = Path(os.readlink(entry))
            if state_folder_of(path) is None:
                _drop(entry, path)
            elif not _is_in(root, path):
                found.append(path)

    return found


def register(execution: Path) -> None:
    """Note an execution, whose state folder must exist, if it is not in the usual folder.

    Raises OSError if it cannot be noted.
    """
    if _is_in(DEFAULT_ROOT.expanduser(), execution):
        return

    entry = _place() / hashlib.sha256(os.fsencode(os.path.realpath(execution))).hexdigest()[:32]
    fsutil.make_private_directory(entry.parent)
    with contextlib.suppress(FileExistsError):
        os.symlink(execution, entry)


def state_folder_of(execution: Path) -> Path | None:
    """Return the state folder of an execution; its other name means a removal in progress."""
    layout = Layout.of_execution(execution)
    for folder in (layout.state_directory, layout.removed_state):
        if folder.is_dir() and not folder.is_symlink():
            return folder

    return None


def _place() -> Path:
    return private_projects().with_name("executions")


def _entries() -> list[Path]:
    try:
        return sorted(_place().iterdir())
    except OSError:
        return []


def _drop(entry: Path, gone: Path) -> None:
    entry.unlink(missing_ok=True)
    if state_folder_of(gone) is not None:  # A server has begun there meanwhile, and found it noted.
        os.symlink(gone, entry)


def _is_in(folder: Path, execution: Path) -> bool:
    return os.path.realpath(execution.parent) == os.path.realpath(folder)
