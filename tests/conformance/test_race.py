"""A folder is swapped for a link that leads outside, over and over, during restores."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from conformance.case import assert_same, values
from conformance.exchanger import exchange
from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.engine import CheckpointEngine
from support.checkpointing import EngineAccess
from support.work_tree import folder, link, write

SWAPS = 10_000
RESTORES = 200
MET = 10
"""The minimum number of restores that a swap must disturb; with fewer the test shows nothing."""


async def test_no_byte_leaves_the_tree_in_ten_thousand_swaps(tmp_path: Path) -> None:
    """A restore never writes or deletes behind a link, even if a path it has opened is swapped."""
    store = EngineAccess(tmp_path / "place" / "execution", ("d/**",))
    await store.begin()
    tree, engine = store.tree, store.engine
    tree.apply(write("d/f", b"one"), write("d/g", b"one"), write("d/deep/h", b"one"))
    first = await store.checkpoint()
    then = values(tree.picture())
    tree.apply(write("d/f", b"two"), write("d/deep/h", b"two", 0o755), write("d/i", b"two"))
    second = await store.checkpoint()
    # The bytes outside equal those inside: only the path tells a restore not to touch them.
    tree.apply(write("{outside}/f", b"two"), write("{outside}/g", b"one"))
    tree.apply(write("{outside}/deep/h", b"two", 0o755), write("{outside}/i", b"two"))
    tree.apply(folder("{outside}/deep/empty"), link("swap", "{outside}"))
    outside = tree.picture_outside()
    shas = Sha(first.sha), Sha(second.sha)
    restores = met = 0
    with _neighbour(tree.at("d"), tree.at("swap")) as neighbour:
        assert neighbour.stdin is not None
        assert neighbour.stdout is not None
        while neighbour.poll() is None:
            met += not _restored(engine, *shas)
            shas = shas[1], shas[0]
            restores += 1
            enough = met >= MET or restores >= 10 * RESTORES
            if restores >= RESTORES and enough and not neighbour.stdin.closed:
                neighbour.stdin.close()

        swaps = int(neighbour.stdout.read())

    assert_same("what lies outside", tree.picture_outside(), outside)
    assert swaps >= SWAPS
    assert met >= MET
    if Path(tree.at("d").decode()).is_symlink():
        assert exchange(tree.at("d"), tree.at("swap"))

    await store.rollback(first.sha)
    assert_same("the tree", _below_d(values(tree.picture())), _below_d(then))
    assert_same("what lies outside", tree.picture_outside(), outside)
    await store.end()


def _restored(engine: CheckpointEngine, target: Sha, safety: Sha) -> bool:
    """Restore as far as possible; return False if the restore reports that it is incomplete."""
    return not engine.restore(target, safety).unrestored


def _below_d(picture: dict[bytes, tuple[str, int, bytes]]) -> dict[bytes, tuple[str, int, bytes]]:
    return {path: seen for path, seen in picture.items() if path.startswith(b"d/")}


@contextlib.contextmanager
def _neighbour(one: bytes, other: bytes) -> Iterator[subprocess.Popen[bytes]]:
    program = Path(__file__).with_name("exchanger.py")
    words = [sys.executable, str(program), one.decode(), other.decode(), str(SWAPS)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()
