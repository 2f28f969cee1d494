"""Blame against a reference that replays every tree forwards, on histories made by the engine."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from hankweave_protocol.ids import RunId, Sha
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.features.answers.file_versions import PathRestore
from hankweave_server.paths import Layout
from support.checkpointing import RUN, a_request
from support.replayed_blame import Files, Replay, credits_by_blame


@dataclass
class Worked:
    """A work tree that an agent and a person change, with a checkpoint after each change."""

    layout: Layout
    draw: random.Random
    replay: Replay = field(default_factory=Replay)
    restores: list[PathRestore] = field(default_factory=list)
    results: dict[str, Sha] = field(default_factory=dict)
    made: list[Sha] = field(default_factory=list)
    parent: list[Sha] = field(default_factory=list)
    number: int = 0
    run: RunId = RUN

    def __post_init__(self) -> None:
        self.layout.work_tree.mkdir(parents=True)
        self.engine = CheckpointEngine.open(self.layout)
        for _ in range(5):
            self.write(f"src/f{self.next()}.py", self.some_lines(80))

        self.checkpoint()

    def next(self) -> int:
        self.number += 1
        return self.number

    def files(self) -> Files:
        top = self.layout.work_tree
        found = (path for path in top.rglob("*") if path.is_file())
        return {str(path.relative_to(top)): path.read_bytes() for path in sorted(found)}

    def write(self, name: str, lines: Sequence[str]) -> None:
        path = self.layout.work_tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))

    def some_lines(self, most: int) -> list[str]:
        words = ("", "}", "    return x", "if a:", "# note")
        lines = [
            self.draw.choice(words) if self.draw.random() < 0.5 else f"line {self.next()}"
            for _ in range(self.draw.randrange(1, most))
        ]
        return [*lines, f"last {self.next()}"]

    def checkpoint(self, joined: Mapping[str, Sha] | None = None, label: str | None = None) -> Sha:
        kind = self.draw.choice(("tool", "manual")) if label is None else "completed"
        request = replace(a_request(self.next()), kind=kind, run_id=self.run, label=label)
        sha = Sha(self.engine.checkpoint(request).sha)
        self.replay.add(sha, self.files(), self.parent, joined or {})
        self.made.append(sha)
        self.parent = [sha]
        return sha

    def edit(self, name: str) -> None:
        lines = self.files()[name].decode().splitlines()
        for _ in range(self.draw.randrange(1, 4)):
            start = self.draw.randrange(len(lines) + 1)
            new = self.some_lines(6) if self.draw.random() < 0.8 else []
            lines[start : start + self.draw.choice((0, 0, 1, 2, 5))] = new

        self.write(name, lines or self.some_lines(3))

    def some_file(self) -> str:
        return self.draw.choice(sorted(self.files()))

    def rename(self) -> None:
        name = self.some_file()
        new = self.layout.work_tree / f"{self.draw.choice(('src', 'lib'))}/f{self.next()}.py"
        new.parent.mkdir(exist_ok=True)
        (self.layout.work_tree / name).rename(new)

    def go_back(self, sha: Sha) -> None:
        plan = self.engine.plan_restore(sha, ("**",))
        safety = self.engine.checkpoint(replace(a_request(self.next()), kind="safety", before=plan))
        self.engine.restore(sha, safety.sha, detaches=True)
        self.restores.insert(0, PathRestore(self.next(), sha, None))
        self.parent = [sha]
        self.run = RunId(f"1736000000000-abc123-{self.number:06x}")  # A rollback begins a new one.
        assert self.files() == self.replay.trees[sha]

    def restore_paths(self) -> None:
        """Bring back one file of any checkpoint, with what was changed since."""
        sha = self.draw.choice(self.made)
        name, content = self.draw.choice(sorted(self.replay.trees[sha].items()))
        self.write(name, content.decode().splitlines())
        self.restores.insert(0, PathRestore(self.number + 1, sha, frozenset({name.encode()})))
        self.checkpoint({name: sha})

    def adopt(self) -> None:
        """Let an attempt edit a file, and merge the result after the main line went on."""
        begin, name, attempt = self.made[-1], self.some_file(), f"a{self.next()}"
        if self.parent != [begin]:
            return

        self.edit(name)
        self.checkpoint()
        self.write(f"src/f{self.next()}.py", self.some_lines(20))
        result = self.results[attempt] = self.checkpoint()
        self.go_back(begin)
        self.edit(self.some_file())
        self.checkpoint()
        theirs, base = self.replay.trees[result], self.replay.trees[begin]
        adopted = {path for path, content in theirs.items() if base.get(path) != content}
        for path in sorted(adopted):
            self.write(path, theirs[path].decode().splitlines())

        paths = dict.fromkeys(theirs, result)
        self.checkpoint(paths, label=f"attempt {attempt}, merged")

    def step(self, *, joins: bool) -> None:
        kinds = ["edit"] * 8 + ["rename", "rename", "new", "remove", "back"]
        match self.draw.choice([*kinds, *(["restore", "adopt"] if joins else ())]):
            case "rename":
                self.rename()
            case "new":
                self.write(f"src/f{self.next()}.py", self.some_lines(40))
            case "remove" if len(self.files()) > 3:
                (self.layout.work_tree / self.some_file()).unlink()
            case "back":
                self.go_back(self.draw.choice(self.made[-20:]))
                return
            case "restore":
                self.restore_paths()
                return
            case "adopt":
                self.adopt()
                return
            case _:
                for name in sorted({self.some_file(), self.some_file()}):
                    self.edit(name)

        self.checkpoint()


def by_git(worked: Worked, sha: Sha, path: str) -> list[str]:
    words = ("blame", "--porcelain", sha, "--", path)
    words = ("git", "--git-dir", str(worked.layout.shadow_repository), *words)
    printed = subprocess.run(words, capture_output=True, check=True).stdout
    heads = [line.split() for line in printed.splitlines() if not line.startswith(b"\t")]
    return [
        line[0].decode()
        for line in heads
        if len(line[0]) == 40 and all(map(bytes.isdigit, line[1:3]))
    ]


def runs() -> Iterator[object]:
    yield pytest.param(60, True, id="60")
    for joins in (True, False):
        name = f"400{'' if joins else ', as git can tell'}"
        yield pytest.param(400, joins, marks=pytest.mark.full, id=name)


@pytest.mark.parametrize(("steps", "joins"), list(runs()))
def test_blame_is_what_a_replay_of_every_tree_says(steps: int, joins: bool, tmp_path: Path) -> None:
    """Through renames, rollbacks, restored paths and adopted attempts, and a person's edits."""
    worked = Worked(Layout.of_execution(tmp_path / "execution"), random.Random(steps))
    while len(worked.made) < steps:
        worked.step(joins=joins)

    worked.engine.close()
    shas = {worked.made[-1], *worked.draw.sample(worked.made, steps // 20)}
    for sha in sorted(shas):
        for path, credits in worked.replay.credits[sha].items():
            ours = credits_by_blame(worked.layout, sha, path, worked.restores, worked.results)
            assert ours == credits, (sha, path)
            if not joins:
                assert [name for name, _ in credits] == by_git(worked, sha, path)
