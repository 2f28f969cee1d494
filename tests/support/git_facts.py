"""A shadow repository as the git program sees it: an independent check.

Git runs as a user would run it, with seed 000's two variables, and with no configuration but the
repository's own.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True)
class GitWitness:
    """The git program on one execution."""

    execution: Path

    def run(self, *arguments: str, stdin: BinaryIO | None = None) -> str:
        """Run git in the execution directory; raise CalledProcessError if it fails."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.execution / "no-home"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_DIR": ".hankweave/checkpoints/.hankweavecheckpoints",
            "GIT_WORK_TREE": "agentRoot",
        }
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.execution,
            env=environment,
            stdin=stdin,
            capture_output=True,
            check=True,
        )
        return done.stdout.decode("utf-8", "surrogateescape")

    def subjects(self, *revisions: str) -> list[str]:
        """Return the commit subjects, newest first."""
        lines = self.run("log", "--topo-order", "--format=%s", *(revisions or ("--all",)))
        return lines.splitlines()

    def files(self, sha: str) -> dict[str, bytes]:
        """Return every file of a commit with its content."""
        names = self.run("ls-tree", "-r", "-z", "--name-only", sha).split("\0")[:-1]
        return {name: self.blob(sha, name) for name in names}

    def blob(self, sha: str, name: str) -> bytes:
        return self.run("show", f"{sha}:{name}").encode("utf-8", "surrogateescape")

    def branches(self) -> set[str]:
        return set(self.run("branch", "--format=%(refname:short)").split())

    def is_detached(self) -> bool:
        return self.run("rev-parse", "--abbrev-ref", "HEAD").strip() == "HEAD"

    def assert_sound(self) -> None:
        """Assert that fsck finds no fault and no dangling object on the server's refs.

        fsck reads the packs that it found at its start: if a running server has repacked them
        meanwhile, it is run again.
        """
        while True:
            packs = self._packs()
            try:
                self.run("fsck", "--full", "--strict", "--no-dangling")
            except subprocess.CalledProcessError:
                if self._packs() == packs:
                    raise
            else:
                return

    def _packs(self) -> set[str]:
        state = self.execution / ".hankweave" / "checkpoints" / ".hankweavecheckpoints"
        return set(os.listdir(state / "objects" / "pack"))
