"""A campaign's points depend on its seed and the calls of the server, and on nothing else."""

from __future__ import annotations

from itertools import chain

from support.tiers import Tier

FAST = Tier(is_long=False, rounds=3)
SAMPLE = Tier(is_long=True, rounds=3, sampled=20)
WHOLE = Tier(is_long=True, rounds=3)

Point = tuple[str, int]


def calls(renames: int, flushes: int) -> list[list[Point]]:
    return [
        [("rename", at + 1) for at in range(renames)],
        [("fsync", at + 1) for at in range(flushes)],
    ]


def test_each_tier_tries_a_fixed_number_of_points() -> None:
    """The fast tier tries a few, a sample as many as it was told, the whole tier all of them."""
    assert len(FAST.some(calls(40, 50), 3, seed=1)) == 3
    assert len(SAMPLE.some(calls(40, 50), 3, seed=1)) == 20
    assert sorted(WHOLE.some(calls(4, 5), 3, seed=1)) == sorted(chain(*calls(4, 5)))


def test_the_seed_chooses_the_points() -> None:
    """They are the same with the same seed, and others with another one."""
    one, again, other = (SAMPLE.some(calls(40, 50), 3, seed) for seed in (1, 1, 2))
    assert one == again
    assert set(one) != set(other)


def test_the_points_are_spread_over_the_kinds_of_calls() -> None:
    """Each kind has as many points as another, while it has any."""
    names = [name for name, _ in SAMPLE.some(calls(40, 50), 3, seed=1)]
    assert (names.count("rename"), names.count("fsync")) == (10, 10)
    names = [name for name, _ in SAMPLE.some(calls(4, 50), 3, seed=1)]
    assert (names.count("rename"), names.count("fsync")) == (4, 16)


def test_one_call_more_changes_at_most_one_point() -> None:
    """A server that makes one call more or less is struck at the same points, but for one."""
    before = set(SAMPLE.some(calls(40, 50), 3, seed=1))
    for flushes in range(51, 200):
        after = set(SAMPLE.some(calls(40, flushes), 3, seed=1))
        assert len(after - before) <= 1
        before = after
