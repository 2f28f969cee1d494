"""Copies of executions, which may have been left by a server that was killed."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path


def copy_execution(source: Path, target: Path) -> Path:
    """Copy a folder with its links; return the copy.

    Sockets of agents, which a killed server leaves, cannot be copied, and are left out.
    """
    return Path(shutil.copytree(source, target, symlinks=True, ignore=_sockets))


def _sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if stat.S_ISSOCK(Path(folder, name).lstat().st_mode)}
