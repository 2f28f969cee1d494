"""Random edits, checkpoints, rollbacks and restarts, checked against a copy of the disk and git."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

NAMES = st.sampled_from([b"a", b"b", b"\xff\n", b"c.ign"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
FOLDERS = st.lists(st.sampled_from([b"a", b"b", b"d"]), min_size=1, max_size=3).map(b"/".join)
CONTENT = st.sampled_from([b"", b"one", b"two", b"\r\n\0"])
MODES = st.sampled_from([0o644, 0o755, 0o600, 0o444])

make_lab = None
"""Set by the test below: the Lab class is in conftest, which cannot be imported."""


def is_ignored(path: bytes) -> bool:
    return any(name.endswith(b".ign") for name in path.split(b"/"))


def tracked_part(picture):
    """Return what a checkpoint holds of a picture: files, their folders and empty folders."""
    kept = {
        path: seen for path, seen in picture.items() if seen[0] != "folder" and not is_ignored(path)
    }
    for path, seen in picture.items():
        inside = [other for other in picture if other.startswith(path + b"/")]
        is_alive = any(other in kept for other in inside) or _holds_an_empty_folder(path, picture)
        if seen[0] == "folder" and not is_ignored(path) and is_alive:
            kept[path] = seen

    return kept


def _holds_an_empty_folder(path, picture):
    return any(
        seen[0] == "folder"
        and (other == path or other.startswith(path + b"/"))
        and not is_ignored(other)
        and not any(third.startswith(other + b"/") for third in picture)
        for other, seen in picture.items()
    )


class WorkTreeMachine(RuleBasedStateMachine):
    """After any history, a rollback restores the checkpoint and leaves the rest unchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="machine-"))
        self.lab = make_lab(self.place / "execution")
        self.lab.write(".gitignore", "*.ign\n")
        self.checkpoints: list[tuple[str, dict]] = []
        self.checkpoint()

    def teardown(self) -> None:
        self.lab.engine.close()
        shutil.rmtree(self.place)

    # The agent

    @rule(path=PATHS, content=CONTENT, mode=MODES)
    def write(self, path, content, mode):
        self._make_room(path)
        self.lab.write(path, content, mode)

    @rule(path=PATHS, text=st.sampled_from([b"a", b"nowhere", b"/", b".."]))
    def link(self, path, text):
        self._make_room(path)
        self.lab.link(path, text)

    @rule(path=FOLDERS)
    def make_folder(self, path):
        self._make_room(path)
        os.makedirs(self.lab.path(path))

    @rule(path=PATHS)
    def delete(self, path):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if self._is_really_inside(path):
                self.lab.delete(path)

    @rule(path=PATHS, mode=MODES)
    def change_mode(self, path, mode):
        full = self.lab.path(path)
        if self._is_really_inside(path) and os.path.isfile(full) and not os.path.islink(full):
            os.chmod(full, mode)

    @rule(source=PATHS, goal=PATHS)
    def rename(self, source, goal):
        if goal.startswith(source) or source.startswith(goal) or not self._is_really_inside(source):
            return

        if self.lab.exists(source):
            self._make_room(goal)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.rename(self.lab.path(source), self.lab.path(goal))

    # The daemon

    @rule()
    def checkpoint(self):
        picture = self.lab.picture()
        made = self.lab.checkpoint()
        assert made.skipped == ()
        assert made.tree == self._tree_by_git()
        self.checkpoints.append((made.sha, tracked_part(picture)))

    @rule()
    def scan(self):
        self.lab.engine.scan_changes(("**",))

    @rule(forget=st.booleans())
    def restart(self, forget):
        self.lab.reopen(forget=forget)

    @precondition(lambda self: self.checkpoints)
    @rule(which=st.randoms(use_true_random=False))
    def rollback(self, which):
        sha, wanted = which.choice(self.checkpoints)
        before = self.lab.picture()

        report = self.lab.rollback(sha)

        after = self.lab.picture()
        assert report.skipped == ()
        # A folder that was empty may hold ignored files by now, and then no longer counts as empty.
        assert {path: after.get(path) for path in wanted} == wanted
        assert tracked_part(after).keys() <= wanted.keys()
        ours = {path for path in wanted if wanted[path][0] != "folder"}
        for path, seen in before.items():
            is_in_the_way = any(path.startswith(other + b"/") for other in ours)
            if is_ignored(path) and not is_in_the_way:
                assert after[path] == seen

    def _tree_by_git(self) -> str:
        """Return git's tree for the work tree, built with a separate index."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "GIT_DIR": str(self.lab.layout.shadow_repository),
            "GIT_WORK_TREE": str(self.lab.tree),
            "GIT_INDEX_FILE": str(self.place / "index"),
        }
        (self.place / "index").unlink(missing_ok=True)
        subprocess.run(["git", "add", "-A"], cwd=self.lab.tree, env=environment, check=True)
        written = subprocess.run(
            ["git", "write-tree"],
            cwd=self.lab.tree,
            env=environment,
            check=True,
            capture_output=True,
        )
        return written.stdout.decode().strip()

    def _make_room(self, path: bytes) -> None:
        """Remove what is in the way of a path: links and files above it, and anything at it."""
        parts = path.split(b"/")
        for depth in range(1, len(parts) + 1):
            here = self.lab.path(b"/".join(parts[:depth]))
            is_folder = os.path.isdir(here) and not os.path.islink(here)
            if os.path.lexists(here) and (depth == len(parts) or not is_folder):
                self.lab.delete(b"/".join(parts[:depth]))

        os.makedirs(os.path.dirname(self.lab.path(path)), exist_ok=True)

    def _is_really_inside(self, path: bytes) -> bool:
        parts = path.split(b"/")
        return not any(
            os.path.islink(self.lab.path(b"/".join(parts[:depth])))
            for depth in range(1, len(parts))
        )


def run(examples: int, steps: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        WorkTreeMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_histories_are_restored_exactly(lab):
    """Any sequence of edits, checkpoints, restarts and rollbacks ends in the right tree."""
    global make_lab
    make_lab = type(lab)
    run(examples=25, steps=30)
