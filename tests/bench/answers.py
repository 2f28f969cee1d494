"""Blame of a long file after a long day: how long one waits for who wrote its lines.

The history is written directly, and packed as a server packs it: checkpoints that change one of
many small files each, and every tenth the long one. The journal has no calls, so the time is that
of reading checkpoints and comparing lines; git's own blame of the same commits is the reference.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import median

from bench.figures import AtMost, Figure
from bench.scale import Scale
from bench.stopwatch import Stopwatch
from bench.stores import RUN, request
from hankweave_protocol.ids import Sha, branch_of
from hankweave_server.checkpoints import commit_message
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.features.answers.blame import blame
from hankweave_server.features.answers.local_past import reading_history
from hankweave_server.git.repack import Pace
from hankweave_server.git.repo import BRANCHES, ShadowRepo
from hankweave_server.git.trees import FOLDER, REGULAR, Entry, encoded
from hankweave_server.paths import Layout

BENCH = "blame"
TARGET = AtMost(1_000)  # Milliseconds.
LINES = 2_000
OTHERS = 50
EVERY = 10
"""The long file changes in one of so many checkpoints."""

AT_ONCE = 200
"""Checkpoints in one pack."""

PATH = "src/long.py"


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    layout, count = Layout.of_execution(folder / "execution"), scale.long_checkpoints
    make_history(layout, count)
    watch = Stopwatch()
    ours = median(watch.time(lambda: _blamed(layout)) for _ in range(scale.rounds))
    gits = median(watch.time(lambda: _blamed_by_git(layout)) for _ in range(scale.rounds))
    name = f"{LINES:,} lines through {count:,} checkpoints"
    return [Figure(BENCH, name, ours, "ms", "git blame", gits, TARGET)]


def _blamed(layout: Layout) -> None:
    with reading_history(layout) as past:
        version = past.files.file_at(past.named(None), PATH.encode())
        count = past.files.content(version.blob).count(b"\n")
        assert blame(version, count, [(0, count)], past.files)


def _blamed_by_git(layout: Layout) -> None:
    environment = {"PATH": os.environ["PATH"], "GIT_DIR": str(layout.shadow_repository)}
    words = ("git", "blame", "--porcelain", "HEAD", "--", PATH)
    subprocess.run(words, env=environment, capture_output=True, check=True)


def make_history(layout: Layout, count: int) -> None:
    """Write so many checkpoints, and an empty journal."""
    layout.work_tree.mkdir(parents=True)
    CheckpointEngine.open(layout).close()
    layout.journal.parent.mkdir(parents=True, exist_ok=True)
    layout.journal.touch()
    repo = ShadowRepo(layout.shadow_repository)
    versions, tip = _versions(count), list[Sha]()
    files: dict[bytes, Entry] = {}
    for first in range(0, count, AT_ONCE):
        staging = repo.staging()
        for number in range(first, min(count, first + AT_ONCE)):
            name, content = next(versions)
            files[name] = Entry(REGULAR, staging.add("blob", content))
            below = Entry(FOLDER, staging.add("tree", encoded(files)))
            tree = staging.add("tree", encoded({b"src": below}))
            asked = request("manual")
            asked = replace(
                asked, timestamp=asked.timestamp + timedelta(seconds=number), event_seq=number + 1
            )
            message = commit_message.written(asked)
            body = commit_message.commit_object(tree, tip, asked.timestamp, message)
            tip = [Sha(staging.add("commit", body).hex())]

        branch = BRANCHES + branch_of(RUN)
        repo.publish(staging, {branch: tip[0], "HEAD": f"ref: {branch}"})

    repo.close()
    engine = CheckpointEngine.open(layout)
    engine.housekeeping.consolidate(Pace(lambda: False))
    engine.close()


def _versions(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the file that each checkpoint changes, and its content."""
    draw = random.Random(1)  # Reproducible, not secret.
    lines = [_line(draw) for _ in range(LINES)]
    others = [[_line(draw)] * 20 for _ in range(OTHERS)]
    for number in range(count):
        if number % EVERY:
            name, changed = b"m%d.py" % (number % OTHERS), others[number % OTHERS]
            changed.append(_line(draw))
        else:
            name, changed = b"long.py", lines
            start, gone = draw.randrange(LINES), draw.choice((1, 1, 2, 3))
            changed[start : start + gone] = [_line(draw) for _ in range(draw.choice((1, 1, 2, 4)))]

        yield name, "".join(changed).encode()


def _line(draw: random.Random) -> str:
    """Return a line; some are alike in all files."""
    if draw.random() < 0.2:
        return draw.choice(("\n", "    }\n", "    return found\n"))

    return f"    {draw.getrandbits(64):016x} = {draw.randrange(9)}\n"
