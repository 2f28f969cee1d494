"""The ignore rules that hold in a project before its own begin: those of the repository around it.

A project may be one folder of a larger repository, whose `.gitignore` files hide what nobody would
want in a checkpoint. They are read once, when the work tree is opened, and nothing else of that
repository ever is.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hankweave_server.worktree.gitignore import IgnoreRules
from hankweave_server.worktree.scan import IGNORE_FILE, IGNORE_FILE_LIMIT


def rules_above(work_tree: Path) -> IgnoreRules | None:
    """Gives the rules of the folders above, down from the top of their repository; None: none.

    A project with a repository of its own knows no others. One that its surroundings ignore as a
    whole was named by a person all the same, so that their rules say nothing about it.
    """
    rules: IgnoreRules | None = None
    for folder in reversed(_folders_above(work_tree)):
        place = os.fsencode(work_tree.relative_to(folder))
        content = _content(folder / os.fsdecode(IGNORE_FILE))
        if content:
            rules = IgnoreRules(rules, b"", content, above=place)

        if rules is not None and rules.hide_the_root():
            return None

    return rules


def _folders_above(work_tree: Path) -> list[Path]:
    """The folders between a work tree and the top of its repository, nearest first."""
    if os.path.lexists(work_tree / ".git"):
        return []

    found: list[Path] = []
    for folder in work_tree.parents:
        found.append(folder)
        if os.path.lexists(folder / ".git"):
            return found

    return []


def _content(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""

    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, IGNORE_FILE_LIMIT) if is_file else b""
    finally:
        os.close(descriptor)
