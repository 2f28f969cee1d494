"""Claims about a store that has lost an object: everything else works, and a repair fixes it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.copies import copy_execution
from support.damage import WAYS, StoredObject, Way, checkpoints, damage, objects_of
from support.damage import small_execution as made
from support.damage_checks import works_around_damage
from support.tally import Tally
from support.tiers import Tier

SEED = 20250104


@pytest.fixture(scope="module")
def execution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("small"))


@pytest.mark.parametrize("way", WAYS)
def test_one_lost_object_makes_only_what_needs_it_unavailable(
    execution: Path, way: Way, tmp_path: Path, tier: Tier, tally: Tally
) -> None:
    """Every command works or names the lost object.

    Each object in turn is removed, truncated or has a bit flipped. `fsck` reports it, and after
    `fsck --repair` stock git finds no fault.
    """
    before = checkpoints(execution)
    completed = [sha for sha, kind in before.items() if kind.startswith("completed")]
    targets = completed[1:2]
    failures: list[str] = []
    chosen = _chosen(objects_of(execution), tier, way)
    for lost in chosen:
        place = tmp_path / lost.sha
        damage(copy_execution(execution, place / "execution"), lost.sha, way)
        try:
            works_around_damage(place / "execution", lost, before, targets)
        except AssertionError as error:
            failures.append(f"{lost.kind} {lost.sha}: {error}")
        else:
            shutil.rmtree(place)

    tally.add(f"lost objects, {way}", rounds=len(chosen), of="objects", violations=failures)
    assert failures == []


def _chosen(objects: list[StoredObject], tier: Tier, way: Way) -> list[StoredObject]:
    """Return some objects, in the fast tier one kind of object for each kind of damage."""
    if tier.is_long:
        return tier.some([objects], len(objects), SEED)

    kind = {"removed": "commit", "truncated": "tree", "flipped": "blob"}[way]
    oldest_first = [each for each in reversed(objects) if each.kind == kind]
    return oldest_first[len(oldest_first) // 2 :][:1]
