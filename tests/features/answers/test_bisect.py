"""Claims about bisect: the first failure is found, in few runs, and nothing is left behind."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import anyio.lowlevel
import pytest

from hankweave_protocol.ids import Sha
from hankweave_server.features.answers.bisection.search import (
    BisectFailed,
    Bisection,
    Candidate,
    Verdict,
)

HISTORIES = 200


def candidate(number: int, tree: int) -> Candidate:
    return Candidate(Sha(f"{number:040x}"), Sha(f"{tree:040x}"))


@dataclass
class Broken:
    """Checkpoints of which the command fails from one on; the trees of some repeat."""

    candidates: list[Candidate]
    first: int
    skipped: frozenset[Sha] = frozenset()
    tried: list[Sha] = field(default_factory=list)

    async def attempt(self, candidate: Candidate) -> Verdict:
        await anyio.lowlevel.checkpoint()
        self.tried.append(candidate.tree)
        if candidate.tree in self.skipped:
            return "skipped"

        trees = [each.tree for each in self.candidates]
        return "fails" if trees.index(candidate.tree) >= self.first else "passes"


def broken(draw: random.Random, *, skips: bool) -> Broken:
    """Return checkpoints with a planted break; some change nothing, and some trees come again."""
    count = draw.randrange(2, 200)
    first = draw.randrange(1, count)
    trees = [0]
    for number in range(1, count):
        again = [tree for tree in trees if (tree >= first) == (number >= first)]
        is_new = number == first or not again or draw.random() < 0.8
        trees.append(number if is_new else draw.choice(again))

    candidates = [candidate(number, tree) for number, tree in enumerate(trees)]
    skipped = frozenset[Sha]()
    if skips:
        inner = {each.tree for each in candidates[1:-1]} - {
            candidates[place].tree for place in (0, first - 1, first, -1)
        }
        skipped = frozenset(tree for tree in sorted(inner) if draw.random() < 0.3)

    return Broken(candidates, first, skipped)


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("parallel", [1, 3])
async def test_the_planted_break_is_found(parallel: int, skips: bool) -> None:
    """It is, in every history; each tree is run once, and one at a time takes log2(n) + 2 runs."""
    for seed in range(HISTORIES):
        made = broken(random.Random(seed), skips=skips)
        bisection = Bisection(made.candidates, made.attempt, parallel)
        found = await bisection.run()
        assert found == (made.candidates[made.first],), seed
        assert len(made.tried) == len(set(made.tried)) == bisection.runs
        assert bisection.skipped == len(made.skipped & set(made.tried))
        if parallel == 1 and not skips:
            assert bisection.runs <= math.ceil(math.log2(len(made.candidates))) + 2


async def test_skipped_neighbours_are_all_suspects() -> None:
    """If the ones before the failure cannot be judged, each of them may be the first."""
    candidates = [candidate(number, number) for number in range(10)]
    made = Broken(candidates, 4, frozenset(each.tree for each in candidates[3:7]))
    found = await Bisection(candidates, made.attempt).run()
    assert found == tuple(candidates[3:8])


@pytest.mark.parametrize(
    ("first", "skipped", "message"),
    [
        (0, (), "fails at checkpoint 000000000000 already"),
        (5, (), "does not fail at checkpoint 000000000000"),
        (3, (0,), "cannot judge checkpoint"),
        (3, (4,), "cannot judge checkpoint"),
    ],
)
async def test_both_ends_are_tried_first(
    first: int, skipped: tuple[int, ...], message: str
) -> None:
    """A command that fails at the good end, or passes at the bad one, ends the search."""
    candidates = [candidate(number, number) for number in range(5)]
    made = Broken(candidates, first, frozenset(candidates[number].tree for number in skipped))
    with pytest.raises(BisectFailed, match=message):
        await Bisection(candidates, made.attempt).run()

    assert len(made.tried) <= 2


async def test_an_error_of_a_run_is_raised_as_it_is() -> None:
    """Also if several runs are under way."""

    async def attempt(_: Candidate) -> Verdict:
        raise BisectFailed("The command was ended by SIGSEGV.", "Mend it.")

    candidates = [candidate(number, number) for number in range(5)]
    with pytest.raises(BisectFailed, match="SIGSEGV"):
        await Bisection(candidates, attempt, parallel=3).run()
