"""The work of other programs where this one takes a checkpoint or rolls back.

git with the settings that make it fast, the sequence that Hankweave documents, and two coding
agents whose own code runs here in a process of its own, as in the agent: Gemini CLI's GitService
and Hermes Agent's CheckpointManager. Each works on a copy of the same tree, with its defaults.

`scripts/test --agents` installs Gemini CLI; `HERMES` must be a folder with Hermes Agent:
`pip install --no-deps --target .agents/hermes hermes-agent==0.19.0`. What is missing is left out,
and named in the legend.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from bench.git_stores import DocumentedStore, GitStore
from bench.stores import Store
from bench.trees import copy_tree
from support.real_agents import NPM, TOP

GIT, DOCUMENTED, GEMINI, HERMES = "git", "documented", "Gemini CLI", "Hermes"
GEMINI_BUNDLE = NPM / "@google" / "gemini-cli" / "bundle"
HERMES_FOLDER = Path(os.environ.get("HANKWEAVE_BENCH_HERMES", TOP / ".agents" / "hermes"))
HERMES_LIMIT = 50_000
"""It takes no checkpoint of more files."""

GEMINI_LIMIT = 50_000
"""Its first checkpoint of 100,000 files took 476 s."""

LEGEND: Mapping[str, str] = {
    GIT: "`git add -A`, `git commit`, `git reset --hard`, with `feature.manyFiles` and the "
    "untracked cache",
    DOCUMENTED: "the sequence in Hankweave's documentation: `git reset --mixed`, `git add --force` "
    "in batches of 100 paths, `git commit`; `git checkout --force --detach`",
    GEMINI: "the `GitService` of Gemini CLI 0.61.0 itself, in one Node.js process: "
    "`createFileSnapshot`, `restoreProjectFromSnapshot`",
    HERMES: "the `CheckpointManager` of Hermes Agent 0.19.0 itself, in one Python process: "
    "`ensure_checkpoint`, `restore`, which takes a snapshot first; at most 50,000 files; "
    "`max_snapshots` is raised, so that nothing is pruned in between",
}


class TunedGit(GitStore):
    """git with the settings that make it fast, and `reset --hard` for rollbacks."""

    SETTINGS: ClassVar[Mapping[str, str]] = {
        "feature.manyFiles": "true",
        "core.untrackedCache": "true",
    }

    def rollback(self, sha: str) -> None:
        self._git("reset", "-q", "--hard", sha)


class _Bridged(Store):
    """A store in another process, which answers one line of JSON with another."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.home = root.with_name(f"{root.name}-home")
        self.home.mkdir()
        self._process: subprocess.Popen[str] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home)}

    def renew(self) -> None:
        self._process = subprocess.Popen(
            self.command(),
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer()

    def ask(self, *words: str) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{type(self).__name__} ended with {self._process.wait()}")

        return json.loads(line)[0]

    def rollback(self, sha: str) -> None:
        if self.ask("restore", sha) is not True:
            raise RuntimeError(f"{type(self).__name__} could not restore {sha}")

    def close(self) -> None:
        if self._process is not None:
            with suppress(OSError):
                self._process.communicate(timeout=10)


class GeminiStore(_Bridged):
    def command(self) -> list[str]:
        bridge = Path(__file__).with_name("gemini_bridge.mjs")
        return ["node", str(bridge), str(GEMINI_BUNDLE), str(self.tree)]

    def checkpoint(self) -> str:
        return str(self.ask("snapshot", ""))


class HermesStore(_Bridged):
    _count = 0

    def command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("hermes_bridge.py")), str(self.tree)]

    def environment(self) -> dict[str, str]:
        mine = {"PYTHONPATH": str(HERMES_FOLDER), "HERMES_HOME": str(self.home)}
        return super().environment() | mine

    def checkpoint(self) -> str:
        """Take a checkpoint and return its name."""
        self._count += 1
        name = f"checkpoint {self._count}"
        self.ask("snapshot", name)
        return name

    def find(self, name: str) -> str:
        """Return the hash of a checkpoint."""
        found = self.ask("find", name)
        if found is None:
            raise RuntimeError(f"Hermes has no {name!r}")

        return str(found)


@contextmanager
def peers(
    original: Path, folder: Path, size: int, documented_up_to: int, *, git_alone: bool
) -> Iterator[dict[str, Store]]:
    """Open git, and every other peer that can be had, each with a copy of the tree."""
    kinds: dict[str, Callable[[Path], Store]] = {GIT: TunedGit}
    if not git_alone:
        kinds |= _others(size, documented_up_to)

    opened: dict[str, Store] = {}
    try:
        for name, kind in kinds.items():
            opened[name] = kind(copy_tree(original, folder / name.replace(" ", "-")))
            opened[name].renew()

        yield opened
    finally:
        for store in opened.values():
            store.close()


def _others(size: int, documented_up_to: int) -> dict[str, Callable[[Path], Store]]:
    kinds: dict[str, Callable[[Path], Store]] = {}
    if size <= documented_up_to:
        kinds[DOCUMENTED] = DocumentedStore

    has_gemini = GEMINI_BUNDLE.is_dir() and shutil.which("node") is not None
    if has_gemini and size <= GEMINI_LIMIT:
        kinds[GEMINI] = GeminiStore

    if (HERMES_FOLDER / "tools" / "checkpoint_manager.py").exists() and size <= HERMES_LIMIT:
        kinds[HERMES] = HermesStore

    for name in LEGEND.keys() - kinds.keys() - {GIT}:
        print(f"{name} is left out: it is not installed, or too slow", file=sys.stderr)

    return kinds
