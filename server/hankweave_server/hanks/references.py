"""What a hank refers to outside of its JSON: its own files, and places in the work tree."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from hankweave_server.layout import DATA_SOURCE, RIG_ARCHIVE, STATE_DIRECTORY

_DRIVE = re.compile(r"[A-Za-z]:")


def fault_of_relative(reference: str) -> str | None:
    """Says what is wrong with a path that must stay below some folder, at every step of it."""
    if not reference.strip():
        return "The path is empty."

    if "\0" in reference:
        return "The path holds a NUL."

    if "\\" in reference:
        return f"{reference!r} has a backslash; write it with '/'."

    if reference.startswith("/") or _DRIVE.match(reference):
        return f"{reference!r} is absolute; write it relative."

    depth = 0
    for step in reference.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(step, 1)
        if depth < 0:
            return f"{reference!r} leads out of its folder."

    return None


def fault_of_target(reference: str) -> str | None:
    """Says what is wrong with a place in the work tree that is going to be replaced."""
    fault = fault_of_relative(reference)
    if fault is not None:
        return fault

    if ".." in reference.split("/"):
        return f"{reference!r} has a '..'; name the place directly."

    steps = [step for step in reference.split("/") if step not in ("", ".")]
    if not steps:
        return f"{reference!r} is the whole work tree."

    if steps[0] in (DATA_SOURCE, RIG_ARCHIVE):
        return f"{steps[0]!r} is a protected name."

    protected = next(filter(_is_protected, steps), None)
    return None if protected is None else f"{protected!r} is a protected name."


def fault_of_file(directory: Path, reference: str) -> str | None:
    """Says what is wrong with a reference that must name a regular file of the hank."""
    fault = _fault_of_way(directory, reference)
    if fault is None and not (directory / reference).is_file():
        return f"{reference!r} is not a file."

    return fault


def fault_of_rig(directory: Path, reference: str) -> str | None:
    """Says what is wrong with a file or tree of the hank that a rig copies."""
    fault = _fault_of_way(directory, reference)
    if fault is not None:
        return fault

    source = directory / reference
    if os.path.normpath(source) == os.path.normpath(directory):
        return "The hank's own directory cannot be copied; name something in it."

    return _fault_of_tree(source, reference)


def _fault_of_way(directory: Path, reference: str) -> str | None:
    fault = fault_of_relative(reference)
    if fault is not None:
        return fault

    reached = directory
    for step in reference.split("/"):
        reached = reached / step
        if not os.path.lexists(reached):
            return f"There is no {reference!r} in the hank's directory."

        if reached.is_symlink():
            return f"{reference!r} goes through a symbolic link."

    return None


def _fault_of_tree(source: Path, reference: str) -> str | None:
    mode = source.lstat().st_mode
    if stat.S_ISREG(mode):
        return None

    if not stat.S_ISDIR(mode):
        kind = "symbolic link" if stat.S_ISLNK(mode) else "special file"
        return f"{reference!r} holds a {kind}: {source.name}."

    for item in sorted(source.iterdir()):
        if _is_protected(item.name):
            return f"{reference!r} holds {item.name!r}, which is a protected name."

        fault = _fault_of_tree(item, reference)
        if fault is not None:
            return fault

    return None


def _is_protected(name: str) -> bool:
    return name.lower() == ".git" or name.lower().startswith(STATE_DIRECTORY)
