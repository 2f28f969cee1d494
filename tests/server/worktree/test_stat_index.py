"""The data that the stat index keeps and drops, and its size."""

from __future__ import annotations

import os
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest

from hankweave_server.worktree.file_modes import FileModes
from hankweave_server.worktree.stat_index import Signature, StatIndex, signature_of

READ = Signature(ctime_ns=2**62, mtime_ns=-5, size=2**40, inode=2**64 - 1, mode=0o100644)
REGULAR, EXECUTABLE = 0o100644, 0o100755
DIGEST = b"d" * 20


def test_a_file_is_remembered_as_it_was_held():
    """Signature, digest and modes are read back unchanged, at the limits of their ranges."""
    table = StatIndex()
    file = table.track(b"a/b/c")
    table.record_capture(file, READ, DIGEST, REGULAR, 0o600)

    again = table.files[b"a/b/c"]
    assert (again.signature, again.captured) == (READ, (REGULAR, 0o600, DIGEST))
    assert again.path == b"a/b/c"


@pytest.mark.parametrize("year", [1902, 1969, 2025, 2261, 2263, 2300, 2446])
def test_the_date_of_a_file_is_reported_as_it_is(year):
    """A date that wraps in the index, too."""
    written = datetime(year, 6, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    nanoseconds = written // timedelta(microseconds=1) * 1000
    times = {"st_ctime_ns": 0, "st_mtime_ns": nanoseconds}
    status = os.stat_result((REGULAR, *range(9)), times)
    table = StatIndex()
    file = table.track(b"a")
    table.record_capture(file, signature_of(status), DIGEST, REGULAR, 0o644)

    assert table.top.modified_ns(b"a") == nanoseconds


def test_a_file_that_could_not_be_captured_has_no_digest():
    """Storing no digest discards the previous one."""
    table = StatIndex()
    file = table.track(b"pipe")
    table.record_capture(file, READ, DIGEST, REGULAR, 0o644)
    table.record_capture(file, None)

    assert file.signature is None
    assert file.captured == (0, 0, bytes(20))
    assert list(table.top.captured()) == []


def test_the_place_of_a_lost_file_is_used_again_and_is_empty():
    """A new file never inherits the data of another."""
    table = StatIndex()
    old = table.track(b"old")
    table.record_capture(old, READ, DIGEST, REGULAR, 0o644)
    table.lose(old)
    new = table.track(b"new")

    assert new.slot == old.slot
    assert new.signature is None
    assert not table.is_tracked(old)
    assert table.is_tracked(new)


def test_a_lost_folder_takes_everything_in_it_along():
    """The lost folder's files are gone, folders below it unknown, and their slots free."""
    table = StatIndex()
    for path in (b"d/a", b"d/e/b", b"c"):
        table.record_capture(table.track(path), READ, DIGEST, REGULAR, 0o644)

    table.lose_folder(table.folders[b"d"])
    assert list(table.files) == [b"c"]
    assert len(table.files) == 1
    assert table.gone == {b"d/a", b"d/e/b"}
    assert table.permissions.files == 1
    size = len(table.slots.block)
    for path in (b"x/1", b"x/2"):
        table.track(path)

    assert len(table.slots.block) == size


def test_a_tracked_file_costs_less_than_four_hundred_bytes():
    """Ten thousand files in folders of eleven are measured, with all their data."""
    tracemalloc.start()
    try:
        table = StatIndex()
        for number in range(10_000):
            path = b"part%d/module%d/file%d.py" % (number // 1100, number // 11, number)
            table.record_capture(table.track(path), READ, DIGEST, REGULAR, 0o644)

        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert used < 10_000 * 400


def test_unusual_permissions_are_known_by_name_as_files_come_and_go():
    """The commonest permissions of a kind are usual, and all others are listed."""
    table = StatIndex()
    kinds = {b"a": (REGULAR, 0o600), b"b": (REGULAR, 0o600), b"c": (REGULAR, 0o644)}
    kinds |= {b"x": (EXECUTABLE, 0o755)}
    for path, (git_mode, permissions) in kinds.items():
        table.record_capture(table.track(path), READ, DIGEST, git_mode, permissions)

    usual, others = table.permissions_of_files()
    assert (usual[REGULAR], usual[EXECUTABLE]) == (0o600, 0o755)
    assert others == {b"c": 0o644}

    table.lose(table.files[b"a"])
    table.record_capture(table.files[b"x"], READ, DIGEST, EXECUTABLE, 0o700)
    table.record_capture(table.track(b"y"), READ, DIGEST, EXECUTABLE, 0o755)
    usual, others = table.permissions_of_files()
    assert (usual[REGULAR], usual[EXECUTABLE]) == (0o644, 0o755), "a tie goes to git's own"
    assert others == {b"b": 0o600, b"x": 0o700}


def test_permissions_do_not_walk_while_the_same_ones_are_usual():
    """The whole index is walked only when another value has become the commonest."""
    permissions = FileModes()
    for number in range(10):
        permissions.change(lambda n=number: b"%d" % n, (0, 0), (REGULAR, 0o644))

    permissions.change(lambda: b"secret", (0, 0), (REGULAR, 0o600))

    def everything():
        raise AssertionError("nobody asked for all files")

    assert permissions.settled(everything)[1] == {b"secret": 0o600}
