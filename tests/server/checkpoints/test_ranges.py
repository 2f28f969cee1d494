"""Byte ranges of files in checkpoints, and engines opened for reading only."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.errors import CheckpointDamaged, PathNotInCheckpoint
from hankweave_server.checkpoints.model import ContentRange
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.objects import STREAMED_FROM, digest_of
from hankweave_server.paths import Layout
from support.calls import noted

SMALL = b"0123456789" * 50
LARGE = random.Random(7).randbytes(STREAMED_FROM + 1_500_000)
WHOLE = {"small": SMALL, "large": LARGE, "empty": b""}


def test_a_range_is_that_part_of_the_file_in_any_order(lab) -> None:
    """Ranges may go forwards, backwards, past the end, and from file to file."""
    for name, content in WHOLE.items():
        lab.write(name, content)

    sha = lab.checkpoint().sha
    chance = random.Random(11)
    for _ in range(150):
        name = chance.choice(list(WHOLE))
        offset, length = chance.randrange(len(LARGE) + 10), chance.randrange(1, 900_000)
        found = lab.engine.read_range(sha, os.fsencode(name), offset, length)
        assert found.data == WHOLE[name][offset : offset + length]
        assert found.size == len(WHOLE[name])


def test_ranges_in_their_order_read_a_large_file_once(lab, monkeypatch) -> None:
    """The next range continues at the end of the last one."""
    lab.write("large", LARGE)
    sha = lab.checkpoint().sha
    opened = noted(monkeypatch, Path, "open")
    parts = [
        lab.engine.read_range(sha, b"large", offset, 300_000).data
        for offset in range(0, len(LARGE), 300_000)
    ]
    assert b"".join(parts) == LARGE
    assert [path.resolve() for path, *_ in opened].count(_object_of(lab, LARGE)) == 1


def test_a_range_of_a_file_that_is_not_there_is_refused(lab) -> None:
    """A folder and a missing file are refused."""
    lab.write("folder/a", b"a")
    sha = lab.checkpoint().sha
    for path in (b"nobody", b"folder", b"folder/a/b"):
        with pytest.raises(PathNotInCheckpoint):
            lab.engine.read_range(sha, path, 0, 1)


def test_damage_of_a_large_file_is_reported_by_its_last_range_at_the_latest(lab) -> None:
    """Damage is reported by the last range at the latest; until then data is unverified."""
    lab.write("large", LARGE)
    sha = lab.checkpoint().sha
    path = _object_of(lab, LARGE)
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)
    offsets = range(0, len(LARGE), 1_000_000)
    with pytest.raises(CheckpointDamaged):
        _ = [lab.engine.read_range(sha, b"large", offset, 1_000_000) for offset in offsets]


def test_an_engine_for_reading_leaves_everything_as_it_is(lab) -> None:
    """A read-only engine takes no lock, cleans nothing and writes no cache of a running server."""
    lab.write("a", b"a")
    sha = lab.checkpoint().sha
    lock = lab.layout.shadow_repository / "HEAD.lock"
    lock.write_text("somebody is at work")
    lab.layout.scan_cache.unlink(missing_ok=True)
    before = _all_of(lab.layout.root)
    with CheckpointEngine.for_reading(lab.layout) as reading:
        assert reading.read_range(sha, b"a", 0, 9) == ContentRange(b"a", 1, 0o100644)
        assert [each.path for each in reading.tree(sha)] == [b"a"]
        assert reading.diff(sha, None, ("**",)) == ()
        assert reading.head() == sha

    assert _all_of(lab.layout.root) == before


def test_where_there_is_no_repository_none_is_made(tmp_path: Path) -> None:
    """A read-only engine creates no repository."""
    layout = Layout.of_execution(tmp_path)
    layout.work_tree.mkdir()
    with pytest.raises(ShadowRepositoryError), CheckpointEngine.for_reading(layout):
        pass

    assert not layout.state_directory.exists()


def _object_of(lab, content: bytes) -> Path:
    """Return the file of a large blob."""
    name = digest_of("blob", content).hex()
    path: Path = lab.layout.shadow_repository / "objects" / name[:2] / name[2:]
    return path


def _all_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }
