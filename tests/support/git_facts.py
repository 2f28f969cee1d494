"""What the git program itself says about a shadow repository: an independent witness.

It runs as a person would, with seed 000's two variables, and with no configuration but the
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
    """The git program, looking at one execution."""

    execution: Path

    def run(self, *arguments: str, stdin: BinaryIO | None = None) -> str:
        """Runs git in the execution directory; raises CalledProcessError if it complains."""
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
        """Commit subjects, newest first."""
        lines = self.run("log", "--topo-order", "--format=%s", *(revisions or ("--all",)))
        return lines.splitlines()

    def files(self, sha: str) -> dict[str, bytes]:
        """Every file of a commit with its content."""
        names = self.run("ls-tree", "-r", "-z", "--name-only", sha).split("\0")[:-1]
        return {name: self.blob(sha, name) for name in names}

    def blob(self, sha: str, name: str) -> bytes:
        return self.run("show", f"{sha}:{name}").encode("utf-8", "surrogateescape")

    def branches(self) -> set[str]:
        return set(self.run("branch", "--format=%(refname:short)").split())

    def is_detached(self) -> bool:
        return self.run("rev-parse", "--abbrev-ref", "HEAD").strip() == "HEAD"

    def assert_sound(self) -> None:
        """fsck finds nothing wrong and nothing dangling on our refs.

        It reads the packs that it found at its start: where a living server has packed them
        together meanwhile, it is asked again.
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
