"""Test bench: one execution directory, its checkpoint engine, and the git program as a witness."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.model import (
    CheckpointMade,
    CheckpointRequest,
    RestorePlan,
    RestoreReport,
)
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.pruning import Housekeeping
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.paths import Layout
from hankweave_server.worktree.open_files import OpenFiles
from support.merges import Trees
from support.privileges import as_ordinary_user

RUN = RunId("1736000000000-abc123-def456")
EVERYTHING = ("**",)
START = datetime(2025, 1, 4, 12, 0, tzinfo=UTC)


class Lab:
    """A test bench that edits, checkpoints and rolls back a work tree, and inspects it with git."""

    def __init__(self, root: Path, *, in_place: bool = False) -> None:
        self.layout = Layout.in_place(root) if in_place else Layout.of_execution(root)
        self.tree = self.layout.work_tree
        self.tree.mkdir(parents=True, exist_ok=True)
        self.size_limit: int | None = None
        self.engine = CheckpointEngine.open(self.layout)
        self._count = 0

    def reopen(self, *, forget: bool = False) -> CheckpointEngine:
        """Close the engine and start another, as a daemon restart does."""
        self.engine.close()
        if forget:
            self.layout.scan_cache.unlink(missing_ok=True)

        self.engine = CheckpointEngine.open(self.layout, size_limit=self.size_limit)
        return self.engine

    def write_index(self, sha: Sha) -> None:
        """Write the index of stock git for a checkpoint."""
        repo = ShadowRepo(self.layout.shadow_repository)
        commit = repo.commit(sha)
        assert commit is not None
        repo.write_index(commit.tree)
        repo.close()

    # The work tree

    def path(self, name: str | bytes) -> bytes:
        return os.path.join(os.fsencode(self.tree), os.fsencode(name))

    def write(self, name: str | bytes, content: str | bytes = b"", mode: int | None = None) -> None:
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)

        if mode is not None:
            os.chmod(path, mode)

    def link(self, name: str | bytes, target: str | bytes) -> None:
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(os.fsencode(target), path)

    def read(self, name: str | bytes) -> bytes:
        with open(self.path(name), "rb") as stream:
            return stream.read()

    def delete(self, name: str | bytes) -> None:
        path = self.path(name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)

    def exists(self, name: str | bytes) -> bool:
        return os.path.lexists(self.path(name))

    def mode(self, name: str | bytes) -> int:
        return stat.S_IMODE(os.lstat(self.path(name)).st_mode)

    def picture(self) -> dict[bytes, tuple[str, int, bytes]]:
        """Return everything in the work tree: kind, permissions and content, folders included."""
        root = os.fsencode(self.tree)
        found: dict[bytes, tuple[str, int, bytes]] = {}
        for folder, folders, files in os.walk(root):
            if folder == root and b".hankweave" in folders:
                folders.remove(b".hankweave")

            for name in folders + files:
                path = os.path.join(folder, name)
                found[os.path.relpath(path, root)] = _seen(path)

        return found

    # The engine

    def request(
        self,
        kind: str = "completed",
        patterns: tuple[str, ...] = EVERYTHING,
        *,
        also: frozenset[bytes] = frozenset(),
        before: RestorePlan | None = None,
        open_files: Callable[[], OpenFiles] = OpenFiles,
        run: RunId = RUN,
        codon: str | None = "build",
        name: str = "Build it",
        label: str | None = None,
    ) -> CheckpointRequest:
        self._count += 1
        return CheckpointRequest(
            kind=kind,
            codon_id=None if codon is None else CodonId(codon),
            codon_name=name,
            run_id=run,
            timestamp=START + timedelta(seconds=self._count),
            duration_ms=45000,
            operation_id=f"op-{self._count}",
            event_seq=self._count,
            session_id="session-1",
            memory_epoch=2,
            label=label,
            patterns=patterns,
            also=also,
            before=before,
            open_files=open_files,
        )

    def checkpoint(self, *patterns: str, **details: object) -> CheckpointMade:
        request = self.request(patterns=patterns or EVERYTHING, **details)  # type: ignore[arg-type]
        return self.engine.checkpoint(request)

    def rollback(
        self,
        target: Sha,
        patterns: tuple[str, ...] = EVERYTHING,
        paths: frozenset[bytes] | None = None,
        keep: frozenset[bytes] = frozenset(),
    ) -> RestoreReport:
        """Plan, take the safety checkpoint, restore and detach, in the daemon's order."""
        plan = self.engine.plan_restore(target, patterns, paths)
        safety = self.engine.checkpoint(self.request("safety", patterns, before=plan, codon=None))
        report = self.engine.restore(target, safety.sha, paths, keep, detaches=paths is None)

        if not keep:
            planned = (plan.added, plan.updated, plan.removed)
            assert (report.added, report.updated, report.removed) == planned

        return report

    def detach(self, sha: Sha) -> None:
        """Detach HEAD at a commit, as a restore does; every branch keeps its history."""
        self.engine._repo.detach(sha)

    # The git program

    def git(self, *arguments: str, check: bool = True, text: bool = True) -> str:
        return self.git_bytes(*arguments, check=check).decode("utf-8", "surrogateescape")

    def git_bytes(self, *arguments: str, check: bool = True) -> bytes:
        """Run the git program as seed 000 documents it, with a hostile home directory."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "GIT_DIR": str(self.layout.shadow_repository),
            "GIT_WORK_TREE": str(self.tree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_PAGER": "cat",
        }
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.layout.root,
            env=environment,
            capture_output=True,
            check=False,
        )
        if check:
            assert done.returncode == 0, (arguments, done.stderr)

        return done.stdout + (b"" if check else done.stderr)

    def names(self, sha: str) -> set[bytes]:
        listed = self.git_bytes("ls-tree", "-r", "-z", "--name-only", sha)
        return set(filter(None, listed.split(b"\0")))

    def archives(self, shas: list[Sha]) -> dict[Sha, str]:
        """Return the content of these checkpoints, as the git program reads it."""
        return {sha: self.git("archive", "--format=tar", sha) for sha in shas}

    def objects(self) -> set[str]:
        """Return the name and the type of every object."""
        form = "--batch-check=%(objectname) %(objecttype)"
        return set(self.git("cat-file", "--batch-all-objects", form).splitlines())

    def packs(self) -> list[Path]:
        return sorted((self.layout.shadow_repository / "objects" / "pack").glob("*.pack"))

    def leftovers(self) -> list[Path]:
        """Return the temporary files of the repository."""
        return list(self.layout.shadow_repository.rglob("tmp_*"))

    def housekeeping(self) -> Housekeeping:
        """Open the repository for another process that prunes and packs it."""
        repo = ShadowRepo(self.layout.shadow_repository)
        return Housekeeping(repo, Notes(repo), self.layout)

    def assert_sound(self) -> None:
        assert self.git("fsck", "--full", "--strict", "--no-dangling") == ""


def _seen(path: bytes) -> tuple[str, int, bytes]:
    status = os.lstat(path)
    permissions = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return "link", 0o777, os.readlink(path)

    if stat.S_ISDIR(status.st_mode):
        return "folder", permissions, b""

    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as stream:
            return "file", permissions, stream.read()

    return "special", permissions, b""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    laboratory = Lab(tmp_path / "execution")
    yield laboratory
    laboratory.engine.close()


@pytest.fixture
def housekeeping(lab: Lab) -> Housekeeping:
    return lab.housekeeping()


@pytest.fixture
def in_place_lab(tmp_path: Path) -> Iterator[Lab]:
    laboratory = Lab(tmp_path / "project", in_place=True)
    yield laboratory
    laboratory.engine.close()


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path / "repository")


@pytest.fixture
def repo(trees: Trees) -> Iterator[ShadowRepo]:
    """Yield the repository of these trees."""
    with contextlib.closing(ShadowRepo(trees.repository)) as opened:
        yield opened


@pytest.fixture
def without_privileges() -> Iterator[None]:
    """Drop root's right to read everything in this thread, as for an ordinary user."""
    with as_ordinary_user():
        yield
