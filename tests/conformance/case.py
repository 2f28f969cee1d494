"""A conformance case, and the comparison that all cases share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from support.checkpointing import Made, Restored, StoreAccess, shown, witness
from support.work_tree import Picture, Step


@dataclass(frozen=True)
class Case:
    """A hazard: the tree at the checkpoint, and the changes made to it afterwards.

    After the rollback the tree is exactly as it was at the checkpoint, except for the fields below.
    """

    claim: str
    arrange: tuple[Step, ...]
    disturb: tuple[Step, ...]
    untracked: tuple[str | bytes, ...] = ()
    """Paths that are never captured: after the rollback they are as the disturbance left them."""
    stays: tuple[str | bytes, ...] = ()
    """The same for paths that were added, or became unreadable, after the checkpoint."""
    permissions: Mapping[str, int] = field(default_factory=dict)
    """Permissions of files whose permissions are deliberately not restored."""
    unsaved: Mapping[str | bytes, str] = field(default_factory=dict)
    """The paths that the checkpoint must report as skipped, with the reason."""
    is_partial: bool = False
    untouched: Mapping[str | bytes, str] = field(default_factory=dict)
    """The paths the rollback must report as skipped, with the reason; it may report more."""
    needs_root: bool = False
    """True if only root can create the hazard."""


def skip_what_cannot_be_made(case: Case) -> None:
    if case.needs_root and os.geteuid() != 0:
        pytest.skip("only root can make this hazard")


async def assert_restores(case: Case, store: StoreAccess) -> None:
    """Arrange, checkpoint, disturb, roll back, and compare every path."""
    tree = store.tree
    tree.apply(*case.arrange)
    then = tree.picture()
    made = await store.checkpoint()
    tree.apply(*case.disturb)
    before, outside = tree.picture(), tree.picture_outside()

    restored = await store.rollback(made.sha)

    after = tree.picture()
    assert_same("the tree", values(after), expected(case, then, before))
    assert_same("what was rewritten needlessly", rewritten(before, after), [])
    assert_same("what lies outside", tree.picture_outside(), outside)
    _judge_the_reports(case, made, restored, before, after)
    _judge_the_repository(case, store, made, then)


def assert_same(what: str, is_: object, should_be: object) -> None:
    """Assert equality; fail with only the difference, because pictures are long."""
    match is_, should_be:
        case dict(), dict():
            paths = {path for path in {**is_, **should_be} if is_.get(path) != should_be.get(path)}
            differing = {path: (is_.get(path), should_be.get(path)) for path in paths}
            assert not differing, f"{what}, as it is and should be: {differing}"
        case _:
            assert is_ == should_be, f"{what} is {is_!r} and should be {should_be!r}"


def values(picture: Picture) -> dict[bytes, tuple[str, int, bytes]]:
    return {path: seen.value for path, seen in picture.items()}


def expected(case: Case, then: Picture, before: Picture) -> dict[bytes, tuple[str, int, bytes]]:
    """Return the checkpoint's picture, with uncaptured paths as they were before the rollback."""
    stays = encoded((*case.untracked, *case.stays))
    wanted = {path: seen.value for path, seen in then.items() if not is_below(path, stays)}
    kept = {path: seen.value for path, seen in before.items() if is_below(path, stays)}
    # A folder stays as long as it contains something.
    kept |= {top: before[top].value for path in kept for top in above(path) if top not in wanted}
    wanted |= kept
    for name, mode in case.permissions.items():
        kind, _, content = wanted[name.encode()]
        wanted[name.encode()] = (kind, mode, content)

    return wanted


def rewritten(before: Picture, after: Picture) -> list[bytes]:
    """Return paths that were already equal but now have another mtime or inode."""
    return [
        path
        for path, seen in after.items()
        if seen.is_storable
        and path in before
        and before[path].value == seen.value
        and before[path].identity != seen.identity
    ]


def _judge_the_reports(
    case: Case, made: Made, restored: Restored, before: Picture, after: Picture
) -> None:
    """Assert that both reports name exactly the skipped and the touched paths."""
    unsaved = {shown(_bytes(path)): reason for path, reason in case.unsaved.items()}
    untouched = {shown(_bytes(path)): reason for path, reason in case.untouched.items()}
    assert_same("what the checkpoint passed over", made.skipped, unsaved)
    assert_same("whether it is partial", made.partial, case.is_partial)
    named = {path: restored.skipped.get(path) for path in untouched}
    assert_same("what the rollback passed over", named, untouched)
    stood = {
        shown(path) for path in before if is_below(path, encoded((*case.untracked, *case.stays)))
    }
    assert_same("what it passed over and yet changed", restored.skipped.keys() - stood, set())
    changed = {
        shown(path)
        for path in before.keys() | after.keys()
        if _storable(before, path) != _storable(after, path)
    }
    assert_same("what the rollback says it touched", restored.touched, changed)


def _storable(picture: Picture, path: bytes) -> tuple[str, int, bytes] | None:
    seen = picture.get(path)
    return seen.value if seen is not None and seen.is_storable else None


def _judge_the_repository(case: Case, store: StoreAccess, made: Made, then: Picture) -> None:
    """Assert that git finds no fault, and that the commit contains exactly the captured paths."""
    git = witness(store.layout)
    git.assert_sound()
    untracked = encoded(case.untracked)
    names = git.run("ls-tree", "-r", "-z", "--name-only", made.sha).split("\0")[:-1]
    captured = {name.encode("utf-8", "surrogateescape") for name in names}
    wanted = {
        path for path, seen in then.items() if seen.is_storable and not is_below(path, untracked)
    }
    assert_same("what the commit holds", captured, wanted)


def above(path: bytes) -> list[bytes]:
    """Return the parent folders of a path."""
    parts = path.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(1, len(parts))]


def encoded(paths: Iterable[str | bytes]) -> tuple[bytes, ...]:
    return tuple(_bytes(path) for path in paths)


def is_below(path: bytes, tops: Iterable[bytes]) -> bool:
    return b".git" in path.split(b"/") or any(
        path == top or path.startswith(top + b"/") for top in tops
    )


def _bytes(path: str | bytes) -> bytes:
    return path.encode() if isinstance(path, str) else path
