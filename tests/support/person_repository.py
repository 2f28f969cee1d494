"""A user's git repository, with the git program to check every change to it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest


def alone_with_git(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Hide the user's own git configuration from git and from the server."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)

    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@dataclass(frozen=True)
class PersonRepository:
    """A work tree with git around it."""

    root: Path

    @classmethod
    def made(cls, root: Path, *options: str) -> PersonRepository:
        root.mkdir(parents=True)
        made = cls(root)
        made.git("init", "-q", "-b", "main", *options)
        made.git("config", "user.name", "Ada")
        made.git("config", "user.email", "ada@example.org")
        return made

    def git(self, *arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            input=None if stdin is None else stdin.encode(),
            capture_output=True,
            check=True,
        )
        return done.stdout.decode("utf-8", "surrogateescape")

    def write(self, files: Mapping[str, str | bytes]) -> None:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def commit(self, message: str, files: Mapping[str, str | bytes] | None = None) -> str:
        """Commit everything as a user does."""
        self.write(files or {})
        self.git("add", "-A")
        self.git("commit", "-q", "--no-verify", "--allow-empty", "-m", message)
        return self.head()

    def head(self) -> str:
        return self.git("rev-parse", "HEAD").strip()

    def status(self) -> str:
        return self.git("status", "--porcelain")

    def subjects(self, *revisions: str) -> list[str]:
        return self.git("log", "--format=%s", *revisions).splitlines()

    def files(self, commit: str = "HEAD") -> dict[str, bytes]:
        names = self.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit).split("\0")
        return {
            name: subprocess.run(
                ["git", "show", f"{commit}:{name}"],
                cwd=self.root,
                capture_output=True,
                check=True,
            ).stdout
            for name in names[:-1]
        }

    def standing(self) -> dict[str, bytes | str]:
        """Return every file and link of the work tree, tracked or not."""
        found: dict[str, bytes | str] = {}
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = Path(folder, name)
                place = str(path.relative_to(self.root))
                if place == ".git" or place.startswith(".git/"):
                    continue

                found[place] = os.readlink(path) if path.is_symlink() else path.read_bytes()

        return found

    def assert_sound(self) -> None:
        self.git("fsck", "--strict")
