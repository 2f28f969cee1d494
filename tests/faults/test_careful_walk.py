"""A random walk: nothing is taken back that nobody asked to take back.

An agent, a person and another program change files; clients roll back, undo and redo; some paths
cannot be replaced; and the server is killed at any call. After each round every byte that a person
wrote is on disk or in a recorded checkpoint, and every acknowledged act can be undone.

In the long tier, a seed draws a walk of `LENGTH` rounds. A walk that goes wrong prints what it did
as a script, as small as a few further walks could make it. Both can be repeated:

    HANKWEAVE_LONG_TIER=1 scripts/test tests/faults/test_careful_walk.py -k seed-7
    HANKWEAVE_WALK=script.txt scripts/test tests/faults/test_careful_walk.py

The scripts in `walks/` are walked in every tier: each is about a fault that a walk has found, or
about one that would be as bad.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from intruders.tier import IS_LONG
from support.nth_call import why_not
from support.small_disk import small_disk
from support.tally import Tally
from support.walk.acts import Round, draw, parsed, script
from support.walk.driver import Walk, kind_of
from support.walk.shrink import shrunk

WALKS = Path(__file__).with_name("walks")
LENGTH = 20
"""Rounds of a walk."""
TRIES = 40
"""Walks that are made to find a smaller script."""
SCRIPT = "HANKWEAVE_WALK"
"""The environment variable with a file that has a script; its walk is then the only one."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    given, rounds = os.environ.get(SCRIPT), metafunc.config.getoption("--rounds")
    scripts = [Path(given)] if given else sorted(WALKS.glob("*.txt"))
    walks = [pytest.param(parsed(path.read_text()), id=path.stem) for path in scripts]
    if IS_LONG and not given:
        walks += [
            pytest.param(draw(seed, min(LENGTH, rounds - at)), id=f"seed-{seed}")
            for seed, at in enumerate(range(0, rounds, LENGTH))
        ]

    metafunc.parametrize("drawn", walks)


@pytest.mark.enclosed
async def test_a_walk_loses_nothing(
    tmp_path: Path,
    drawn: Sequence[Round],
    tally: Tally,
    request: pytest.FixtureRequest,
) -> None:
    """Everything that a person wrote is kept, and everything acknowledged can be undone."""
    if missing := why_not():
        pytest.skip(missing)

    name = request.node.callspec.id
    found, walk = await _walked(tmp_path / "walk", drawn)
    tally.add(
        "careful walk",
        rounds=walk.rounds,
        acknowledged=walk.acknowledged.count,
        violations=[f"{name}, {each}" for each in found],
    )
    if found:
        done = drawn[: walk.rounds]
        small = await _smaller(tmp_path, done, found) if IS_LONG and TRIES else done
        pytest.fail("\n".join([f"{name}:", *found, "", script(small)]), pytrace=False)


async def _walked(place: Path, rounds: Sequence[Round]) -> tuple[list[str], Walk]:
    """Walk on a disk in memory: nothing that is immutable or mounted on it outlives its mount."""
    place.mkdir(parents=True)
    with small_disk(place, "size=512m"):
        walk = Walk(place)
        return await walk.run(rounds), walk


async def _smaller(folder: Path, rounds: Sequence[Round], found: Sequence[str]) -> Sequence[Round]:
    """Return a script that goes wrong in the same way, as small as a few walks can make it."""
    numbers = itertools.count()

    async def goes_wrong(fewer: Sequence[Round]) -> bool:
        again, _ = await _walked(folder / str(next(numbers)), fewer)
        return any(kind_of(each) == kind_of(found[0]) for each in again)

    return await shrunk(rounds, goes_wrong, TRIES)
