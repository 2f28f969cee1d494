"""Bisect in random histories of a real store: the command runs on the files of each checkpoint."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.confinement.policy import Level
from hankweave_server.features.answers.bisection.search import Bisection
from hankweave_server.features.answers.bisection.trials import (
    Trials,
    candidates_between,
    trial_folder,
)
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.paths import Layout
from support.checkpointing import a_request

HISTORIES = 200
IN_THE_GATE = 4
CHECK = "if [ -e no-build ]; then exit 125; fi; grep -q 1707 rows && touch built"


class RandomHistory:
    """Checkpoints of which the check fails from one on; some cannot be judged, some come again."""

    def __init__(self, layout: Layout, draw: random.Random) -> None:
        self.layout = layout
        self._draw = draw
        self.made: list[Sha] = []
        self._seen: dict[bool, list[dict[str, str]]] = {False: [], True: []}
        self.skips = draw.random() < 0.5
        self.count = draw.randrange(2, 40)
        self.first = draw.randrange(1, self.count)
        layout.work_tree.mkdir(parents=True)
        with closing(CheckpointEngine.open(layout)) as engine:
            for number in range(self.count):
                self._write(self._files(number))
                self.made.append(Sha(engine.checkpoint(a_request(number + 1)).sha))

    def _files(self, number: int) -> dict[str, str]:
        is_broken = number >= self.first
        seen = self._seen[is_broken]
        is_judged = number in (0, self.first - 1, self.first, self.count - 1)
        if seen and not is_judged and self._draw.random() < 0.2:
            return self._draw.choice(seen)  # An earlier tree comes again.

        files = {"rows": "1632" if is_broken else "1707", "notes": f"{number}"}
        if self.skips and not is_judged and self._draw.random() < 0.3:
            files["no-build"] = ""

        seen.append(files)
        return files

    def _write(self, files: dict[str, str]) -> None:
        for path in self.layout.work_tree.iterdir():
            path.unlink()

        for name, text in files.items():
            (self.layout.work_tree / name).write_text(text)


def everything(folder: Path) -> dict[str, tuple[int, int, int]]:
    facts = {path: path.lstat() for path in (folder, *folder.rglob("*"))}
    return {
        str(path): (seen.st_size, seen.st_mtime_ns, seen.st_ino) for path, seen in facts.items()
    }


def seeds() -> Iterator[object]:
    for seed in range(HISTORIES):
        marks = () if seed < IN_THE_GATE else (pytest.mark.full,)
        yield pytest.param(seed, marks=marks)


@pytest.mark.parametrize("seed", list(seeds()))
async def test_the_call_that_broke_it_is_found(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beside checkpoints that cannot be judged; nothing is written, and nothing is left."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    draw = random.Random(seed)
    history = RandomHistory(Layout.of_execution(tmp_path / "execution"), draw)
    parallel = draw.choice((1, 1, 3))
    before = everything(history.layout.root)
    with closing(ShadowRepo(history.layout.shadow_repository)) as repo, trial_folder() as folder:
        candidates = candidates_between(repo, None, history.made[-1])
        trials = Trials(history.layout, repo, folder, CHECK, Level.NONE)
        bisection = Bisection(candidates, trials.attempt, parallel)
        found = await bisection.run()

    assert [each.sha for each in found] == [history.made[history.first]]
    assert len(candidates) == history.count
    if parallel == 1 and bisection.skipped == 0:
        assert bisection.runs <= math.ceil(math.log2(history.count)) + 2

    assert everything(history.layout.root) == before
    assert list(temporary.iterdir()) == []
