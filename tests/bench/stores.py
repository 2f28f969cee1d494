"""Four ways to keep checkpoints of a tree, behind one small face: ours, git twice, pygit2."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path

import pygit2

from hankweave_protocol.ids import RunId, Sha
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.model import CheckpointRequest, RestorePlan
from hankweave_server.layout import Layout

EVERYTHING = ("**",)
FILES_IN_A_FOLDER = 11
RUN = RunId("1736000000000-abc123-def456")


def make_tree(root: Path, size: int) -> Path:
    """Writes source-like files, the same ones for every store."""
    chance = random.Random(size)  # Reproducible, not secret.
    layout = Layout.of_execution(root)
    for number in range(size):
        folder = layout.work_tree / f"part{number // 1100}" / f"module{number // FILES_IN_A_FOLDER}"
        if number % FILES_IN_A_FOLDER == 0:
            folder.mkdir(parents=True)

        lines = [f"value_{chance.randrange(9999)} = {n}\n" for n in range(chance.randrange(5, 400))]
        (folder / f"file{number}.py").write_text("".join(lines))

    return root


class Store(ABC):
    """One work tree and its history."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = Layout.of_execution(root).work_tree
        self._files = sorted(path for path in self.tree.rglob("*.py"))
        self._edits = 0

    def edit(self, count: int) -> None:
        """Appends to that many files, spread over the tree."""
        self._edits += 1
        step = max(1, len(self._files) // max(1, count))
        for path in self._files[::step][:count]:
            with path.open("a") as stream:
                stream.write(f"edit_{self._edits} = True\n")

    @abstractmethod
    def renew(self) -> None:
        """Begins with an empty history."""

    @abstractmethod
    def checkpoint(self) -> str: ...

    def rollback(self, sha: str) -> None:
        raise AssertionError(f"no rollback to {sha} is measured for this store")

    def close(self) -> None:  # noqa: B027 - most stores have nothing open
        """Lets go of what is open."""


class OurStore(Store):
    _engine: CheckpointEngine | None = None

    def renew(self) -> None:
        self.close()
        shutil.rmtree(Layout.of_execution(self.root).checkpoints, ignore_errors=True)
        self._engine = CheckpointEngine.open(Layout.of_execution(self.root))

    @property
    def _open(self) -> CheckpointEngine:
        assert self._engine is not None, "renew comes first"
        return self._engine

    def checkpoint(self) -> str:
        return self._open.checkpoint(_request("manual")).sha

    def rollback(self, sha: str) -> None:
        target = Sha(sha)
        plan = self._open.plan_restore(target, EVERYTHING)
        safety = self._open.checkpoint(_request("safety", plan))
        self._open.restore(target, safety.sha)
        self._open.detach(target)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


class GitStore(Store):
    """`git add -A` and `git commit`, with the index kept and git's own speed settings on."""

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
        for name, value in (
            ("gc.auto", "0"),
            ("feature.manyFiles", "true"),
            ("user.name", "bench"),
            ("user.email", "bench@example.org"),
        ):
            self._git("config", name, value)

    def checkpoint(self) -> str:
        self._git("add", "-A")
        self._git("commit", "-q", "--allow-empty", "-m", "checkpoint")
        return self._git("rev-parse", "HEAD")

    def rollback(self, sha: str) -> None:
        self._git("checkout", "-q", "--force", "--detach", sha)

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
    """The same with commit-tree and update-ref, which leave out what commit does besides."""

    def checkpoint(self) -> str:
        self._git("add", "-A")
        tree = self._git("write-tree")
        sha = self._git("commit-tree", tree, "-m", "checkpoint")
        self._git("update-ref", "refs/heads/main", sha)
        return sha


class Pygit2Store(Store):
    """`add_all`, `write_tree`, `checkout_tree`, as the library's documentation shows them."""

    def renew(self) -> None:
        shutil.rmtree(self.root / "history.git", ignore_errors=True)
        self._repo = pygit2.init_repository(self.root / "history.git", bare=True)
        self._repo.config["core.bare"] = False
        self._repo.config["core.worktree"] = str(self.tree)
        self._repo = pygit2.Repository(str(self.root / "history.git"))

    def checkpoint(self) -> str:
        index = self._repo.index
        index.add_all()
        index.write()
        who = pygit2.Signature("bench", "bench@example.org")
        parents = [] if self._repo.head_is_unborn else [self._repo.head.target]
        return str(
            self._repo.create_commit("HEAD", who, who, "checkpoint", index.write_tree(), parents)
        )

    def rollback(self, sha: str) -> None:
        self._repo.checkout_tree(
            self._repo[sha].peel(pygit2.Tree), strategy=pygit2.enums.CheckoutStrategy.FORCE
        )
        self._repo.set_head(pygit2.Oid(hex=sha))


def _request(kind: str, before: RestorePlan | None = None) -> CheckpointRequest:
    return CheckpointRequest(
        kind=kind,
        codon_id=None,
        codon_name="bench",
        run_id=RUN,
        timestamp=datetime.now(UTC),
        duration_ms=None,
        operation_id="op",
        event_seq=1,
        session_id=None,
        memory_epoch=0,
        label=None,
        patterns=EVERYTHING,
        before=before,
    )
