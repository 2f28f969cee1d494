"""Ignore rules that apply to a project from outside: those of the repository that contains it.

A project may be one folder of a larger repository, whose `.gitignore` files hide what does not
belong into a checkpoint. They are read once, when the work tree is opened; nothing else of that
repository is ever read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hankweave_server.worktree.gitignore import IGNORE_FILE, IgnoreRules
from hankweave_server.worktree.scan import IGNORE_FILE_LIMIT


def rules_above(work_tree: Path) -> IgnoreRules | None:
    """Return the rules of the folders above, from the top of their repository; None without any.

    A project with its own repository inherits no rules. If the rules ignore the project as a
    whole, they are disregarded, because the user chose that folder explicitly.
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
    """Return the folders between a work tree and the top of its repository, nearest first."""
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
