"""The hank that a command line names: found, loaded and checked against this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.load import LoadedHank, load
from hankweave_server.hank.requirements import requirements_of
from hankweave_server.worktree.patterns import UnifiedFileResolver, UnsupportedPattern

HANK_FILE = "hank.json"

_ORDINARY_PATTERN = re.compile(r"!?[\w.*/@+ -]*[\w*/]")
"""What every resolver can read: most patterns, and so they need not be tried."""


def file_of(path: Path) -> Path:
    """Finds the hank.json; raises Stop where there is none."""
    file = path / HANK_FILE if path.is_dir() else path
    if not file.exists():
        raise Stop(
            f"There is no hank at {file}.",
            ExitCode.NO_INPUT,
            hint="Name a hank.json, or a directory that holds one; `hankweave init` writes one.",
        )

    return file


def in_folder(folder: Path) -> Path | None:
    """Return the hank.json of a folder, if it has one."""
    file = folder / HANK_FILE
    return file if file.is_file() else None


def read(path: Path, model_override: str | None = None) -> LoadedHank:
    """Load a hank; raise Stop where there is none, HankInvalid with all that is wrong in it."""
    return load(file_of(path), fault_of_pattern, model_override=model_override)


def require(hank: LoadedHank) -> None:
    """Raises Stop with everything that the hank requires and this machine has not."""
    wanted = requirements_of(hank.hank, os.environ)
    missing = [each.sentence for each in wanted if not each.is_met]
    if missing:
        raise Stop(
            " ".join(missing),
            ExitCode.CONFIGURATION,
            hint="The hank's 'requirements' name what it needs; `hankweave validate` shows it.",
        )


def fault_of_pattern(pattern: str) -> str | None:
    """Says why the resolver of the work tree cannot use a pattern."""
    if _ORDINARY_PATTERN.fullmatch(pattern):
        return None

    try:
        UnifiedFileResolver([pattern])
    except UnsupportedPattern as problem:
        return f"{pattern!r} is no pattern: {problem}."

    return None
