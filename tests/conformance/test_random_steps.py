"""A thousand random steps on a real tree and on a model in memory: both end equal."""

from __future__ import annotations

import copy
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from conformance.case import assert_same, values
from conformance.model import IGNORED, Flat, Leaf, Model
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.model import CheckpointRequest, RestorePlan
from hankweave_server.paths import Layout
from support.checkpointing import a_request
from support.git_facts import GitWitness
from support.work_tree import WorkTree, remove

EXAMPLES, STEPS = 20, 50

FOLDERS = st.lists(st.sampled_from([b"a", b"b", b"\xff\n"]), max_size=2)
PATHS = st.builds(
    lambda folders, name: b"/".join([*folders, name]),
    FOLDERS,
    st.sampled_from([b"a", b"b", b"\xff\n", b"x.ign"]),
)
FOLDER_PATHS = st.lists(st.sampled_from([b"a", b"b", b"e"]), min_size=1, max_size=3).map(b"/".join)
CONTENT = st.sampled_from([b"", b"one", b"two", b"\r\n\0", b"$Id$\n"])
MODES = st.sampled_from([0o644, 0o755, 0o600, 0o444])
TEXTS = st.sampled_from([b"a", b"nowhere", b"/", b"..", b"\xff"])


class Against(RuleBasedStateMachine):
    """The tree and its model take the same steps; a rollback must lead both to the same state."""

    checkpoints: Bundle[Any] = Bundle("checkpoints")

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="conformance-"))
        self.layout = Layout.of_execution(self.place / "place" / "execution")
        self.tree = WorkTree.beside(self.layout.work_tree)
        self.engine = CheckpointEngine.open(self.layout)
        self.model = Model()
        self.count = 0

    def teardown(self) -> None:
        self.engine.close()
        GitWitness(self.layout.root).assert_sound()
        shutil.rmtree(self.place)

    @initialize(target=checkpoints)
    def begin(self) -> Any:
        self.write(b".gitignore", b"*.ign\n", 0o644)
        return self.checkpoint()

    # The agent

    @rule(path=PATHS, content=CONTENT, mode=MODES)
    def write(self, path: bytes, content: bytes, mode: int) -> None:
        self._clear(path)
        full = self.tree.at(path)
        with open(full, "wb") as stream:
            stream.write(content)

        os.chmod(full, mode)
        self.model.put(path, Leaf("file", hashlib.sha256(content).digest(), mode))

    @rule(path=PATHS, text=TEXTS)
    def link(self, path: bytes, text: bytes) -> None:
        self._clear(path)
        os.symlink(text, self.tree.at(path))
        self.model.put(path, Leaf("link", text, 0o777))

    @rule(path=FOLDER_PATHS)
    def make_folder(self, path: bytes) -> None:
        if isinstance(self.model.at(path), dict):
            return

        self._clear(path)
        os.mkdir(self.tree.at(path))
        self.model.put(path, {})

    @rule(path=PATHS)
    def delete(self, path: bytes) -> None:
        if self.model.take(path) is not None:
            remove(self.tree.at(path))

    @rule(path=PATHS, mode=MODES)
    def change_mode(self, path: bytes, mode: int) -> None:
        match self.model.at(path):
            case Leaf(kind="file", content=content):
                os.chmod(self.tree.at(path), mode)
                self.model.put(path, Leaf("file", content, mode))

    @rule(source=PATHS, goal=PATHS)
    def move(self, source: bytes, goal: bytes) -> None:
        node = self.model.at(source)
        one, other = source + b"/", goal + b"/"
        is_into_itself = one.startswith(other) or other.startswith(one)
        if node is None or is_into_itself or (isinstance(node, dict) and goal.endswith(IGNORED)):
            return

        self._clear(goal)
        os.rename(self.tree.at(source), self.tree.at(goal))
        self.model.put(goal, node)
        self.model.take(source)

    # The daemon

    @rule(target=checkpoints)
    def checkpoint(self) -> Any:
        made = self.engine.checkpoint(self._request("completed"))
        assert made.skipped == ()
        return made.sha, self.model.captured()

    @rule()
    def restart(self) -> None:
        self.engine.close()
        self.engine = CheckpointEngine.open(self.layout)

    @rule(checkpoint=checkpoints)
    def roll_back(self, checkpoint: Any) -> None:
        sha, then = checkpoint
        plan = self.engine.plan_restore(sha, ("**",))
        safety = self.engine.checkpoint(self._request("safety", plan))
        report = self.engine.restore(sha, safety.sha, detaches=True)
        assert report.skipped == ()
        assert (report.added, report.updated, report.removed) == (
            plan.added,
            plan.updated,
            plan.removed,
        )
        self.model = self.model.rolled_back(then)

    @invariant()
    def both_are_equal(self) -> None:
        assert_same("the tree", values(self.tree.picture()), self.model.flat())

    # Internals

    def _request(self, kind: str, before: RestorePlan | None = None) -> CheckpointRequest:
        self.count += 1
        return a_request(self.count, kind, before)

    def _clear(self, path: bytes) -> None:
        """Create the parent folders of a path, and remove anything at the path."""
        parts = path.split(b"/")
        for depth in range(1, len(parts) + 1):
            here = b"/".join(parts[:depth])
            node = self.model.at(here)
            if node is not None and (depth == len(parts) or isinstance(node, Leaf)):
                self.model.take(here)
                remove(self.tree.at(here))

        os.makedirs(os.path.dirname(self.tree.at(path)), exist_ok=True)


def test_a_thousand_random_steps_end_as_the_model_says() -> None:
    """After edits, moves, checkpoints, restarts and rollbacks, the tree equals the model."""
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Against,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_model_knows_what_is_ignored() -> None:
    """The model itself is right: ignored leaves stay, and their folders are not captured."""
    model = Model()
    model.put(b"d/x.ign", Leaf("file", b"i", 0o644))
    model.put(b"d/a", Leaf("file", b"1", 0o644))
    model.put(b"only/x.ign", Leaf("file", b"i", 0o644))
    model.put(b"empty", {})
    target = model.captured()
    assert set(target.flat()) == {b"d", b"d/a", b"empty"}
    model.take(b"d/a")
    model.put(b"later/b", Leaf("file", b"2", 0o644))
    after: Flat = copy.deepcopy(model).rolled_back(target).flat()
    assert set(after) == {b"d", b"d/a", b"d/x.ign", b"only", b"only/x.ign", b"empty"}
