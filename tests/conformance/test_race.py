"""The race: a folder is swapped for a link outwards, over and over, while a tree is restored."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from conformance.case import same, values
from conformance.exchanger import exchange
from hankweave_server.checkpoints.errors import RestoreIncomplete
from support.checkpointing import EngineDoor
from support.work_tree import folder, link, write

SWAPS = 10_000
RESTORES = 100
"""At least so many must have met the swaps, or the test has shown nothing."""


async def test_no_byte_leaves_the_tree_in_ten_thousand_swaps(tmp_path: Path) -> None:
    """Whatever a restore opened a moment ago, it never writes or deletes behind a link."""
    door = EngineDoor(tmp_path / "place" / "execution", ("d/**",))
    await door.begin()
    tree, engine = door.tree, door.engine
    tree.apply(write("d/f", b"one"), write("d/g", b"one"), write("d/deep/h", b"one"))
    first = await door.checkpoint()
    then = values(tree.picture())
    tree.apply(write("d/f", b"two"), write("d/deep/h", b"two", 0o755), write("d/i", b"two"))
    second = await door.checkpoint()
    tree.apply(*(write(f"{{outside}}/{name}", b"not yours") for name in ("g", "i", "deep/h")))
    tree.apply(folder("{outside}/deep/empty"), link("swap", "{outside}"))
    outside = tree.picture_outside()
    restores = incomplete = 0
    with _neighbour(tree.at("d"), tree.at("swap")) as neighbour:
        while neighbour.poll() is None:
            for target, safety in ((first, second), (second, first)):
                restores += 1
                try:
                    engine.restore(engine.find(target.sha)[0], engine.find(safety.sha)[0])
                except RestoreIncomplete:
                    incomplete += 1

        assert neighbour.stdout is not None
        swaps = int(neighbour.stdout.read())

    same("what lies outside", tree.picture_outside(), outside)
    assert swaps == SWAPS
    assert restores >= RESTORES
    assert incomplete > 0, "no restore ever met a swap"
    if Path(tree.at("d").decode()).is_symlink():
        assert exchange(tree.at("d"), tree.at("swap"))

    await door.rollback(first.sha)
    same("the tree", _below_d(values(tree.picture())), _below_d(then))
    same("what lies outside", tree.picture_outside(), outside)
    await door.end()


def _below_d(picture: dict[bytes, tuple[str, int, bytes]]) -> dict[bytes, tuple[str, int, bytes]]:
    return {path: seen for path, seen in picture.items() if path.startswith(b"d/")}


@contextlib.contextmanager
def _neighbour(one: bytes, other: bytes):
    program = Path(__file__).with_name("exchanger.py")
    words = [sys.executable, str(program), one.decode(), other.decode(), str(SWAPS)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
