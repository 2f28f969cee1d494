"""Three ways to keep checkpoints with the git program."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from bench.stores import LineChanges, Store


class GitStore(Store):
    """`git add -A` and `git commit`, with the index kept and git's own speed settings on."""

    SETTINGS: ClassVar[Mapping[str, str]] = {"feature.manyFiles": "true"}

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_DIR": str(root / "history.git"),
            "GIT_WORK_TREE": str(self.tree),
        }

    def renew(self) -> None:
        shutil.rmtree(self.root / "history.git", ignore_errors=True)
        self._git("init", "-q", "-b", "main")
        always = {"gc.auto": "0", "user.name": "bench", "user.email": "bench@example.org"}
        for name, value in {**always, **self.SETTINGS}.items():
            self._git("config", name, value)

    def checkpoint(self) -> str:
        self._git("add", "-A")
        return self._commit()

    def rollback(self, sha: str) -> None:
        self._git("checkout", "-q", "--force", "--detach", sha)

    def diff(self, old: str, new: str) -> LineChanges:
        found = self._git("diff", "--numstat", "-z", "--no-renames", old, new)
        lines = (line.split("\t", 2) for line in found.split("\0") if line)
        return frozenset((path, _count(added), _count(removed)) for added, removed, path in lines)

    def _commit(self) -> str:
        self._git("commit", "-q", "--allow-empty", "-m", "checkpoint")
        return self._git("rev-parse", "HEAD")

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.tree,
            env=self._environment,
            capture_output=True,
            check=True,
            text=True,
        )
        return done.stdout.strip()


class PlumbingStore(GitStore):
    """The same with commit-tree and update-ref, which omit the extra work of commit."""

    def checkpoint(self) -> str:
        self._git("add", "-A")
        tree = self._git("write-tree")
        sha = self._git("commit-tree", tree, "-m", "checkpoint")
        self._git("update-ref", "refs/heads/main", sha)
        return sha


class DocumentedStore(GitStore):
    """The sequence of Hankweave's documentation (seed 000, "Commit Creation"), a process per step.

    Hankweave's own overhead is left out: its library waits 50 ms after every silent command.
    """

    BATCH = 100
    SETTINGS: ClassVar[Mapping[str, str]] = {}

    def checkpoint(self) -> str:
        self._git("reset", "-q", "--mixed")
        paths = self._resolved()
        for first in range(0, len(paths), self.BATCH):
            self._git("add", "--force", "--", *paths[first : first + self.BATCH])

        return self._commit()

    def _resolved(self) -> list[str]:
        return [
            os.path.relpath(os.path.join(folder, name), self.tree)
            for folder, _, names in os.walk(self.tree)
            for name in names
        ]


def _count(lines: str) -> int:
    """Return the lines of a numstat; a binary file has none."""
    return 0 if lines == "-" else int(lines)
