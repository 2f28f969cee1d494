"""Comparing many paths with the disk: the C helper and the Python loop agree."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import sysconfig

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hankweave_server.worktree.stat_index import (
    DIFFERS,
    STRIDE,
    Slots,
    differing_in_python,
    native,
    signature_of,
)

COMPARISONS = {"python": differing_in_python}
if native is not None:
    COMPARISONS["native"] = lambda root, groups, block: native.differing(
        root, groups, block, STRIDE
    )


@pytest.fixture(params=COMPARISONS)
def differing(request):
    """Return one of the two implementations."""
    return COMPARISONS[request.param]


@pytest.fixture
def root(tmp_path):
    """Return the descriptor of an empty folder."""
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


FAR_AWAY = [-(2**31) + 1, -1, 10_413_792_000, 15_000_000_000]
"""Dates in the years 1901, 1969, 2300 and 2445; 64 bits end in 2262."""


def dated(*, ctime_ns: int, mtime_ns: int) -> os.stat_result:
    """Return stat data with these times."""
    return os.stat_result((0o100644, *range(9)), {"st_ctime_ns": ctime_ns, "st_mtime_ns": mtime_ns})


def known(slots: Slots, root: int, path: bytes) -> int:
    """Store the current signature of a path in a slot."""
    slot = slots.take()
    slots.sign(slot, signature_of(os.lstat(path, dir_fd=root)))
    return slot


def test_the_helper_in_c_is_built_wherever_a_compiler_is():
    """An installation with a compiler and Python's headers has the fast implementation."""
    headers = os.path.join(sysconfig.get_path("include"), "Python.h")
    if not os.path.exists(headers) or subprocess.run(["sh", "-c", "command -v cc gcc"]).returncode:
        pytest.skip("no compiler, or no headers of Python")

    assert native is not None


def test_what_is_as_known_is_not_listed(differing, root, tmp_path):
    """A path whose stat data equals the signature is not listed, nor is a dangling link."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_text("1")
    (tmp_path / "link").symlink_to("nowhere")
    slots = Slots()
    groups = [
        (b"d", {b"a": known(slots, root, b"d/a")}),
        (b"", {b"link": known(slots, root, b"link")}),
    ]

    assert differing(root, groups, slots.block) == []


def test_each_change_is_listed_with_its_group_and_in_order(differing, root, tmp_path):
    """A change of content, time, mode, inode or kind is enough on its own."""
    names = [b"content", b"time", b"mode", b"inode", b"kind", b"same"]
    slots = Slots()
    for name in names:
        (tmp_path / os.fsdecode(name)).write_text("1")

    groups = [(b"", {name: known(slots, root, name) for name in names})]
    (tmp_path / "content").write_text("22")
    os.utime(tmp_path / "time", ns=(1, 1))
    (tmp_path / "mode").chmod(0o600)
    (tmp_path / "new").write_text("1")
    os.replace(tmp_path / "new", tmp_path / "inode")
    (tmp_path / "kind").unlink()
    (tmp_path / "kind").mkdir()

    expected = [(0, name, DIFFERS) for name in names if name != b"same"]
    assert differing(root, groups, slots.block) == expected


@pytest.mark.parametrize("seconds", FAR_AWAY)
def test_a_time_that_64_bits_do_not_hold_is_known_again(differing, root, tmp_path, seconds):
    """A file of any date is not listed while its date stays, and is listed when that changes."""
    path = tmp_path / "a"
    path.write_text("1")
    os.utime(path, ns=(0, seconds * 10**9 + 5))
    slots = Slots()
    groups = [(b"", {b"a": known(slots, root, b"a")})]
    assert differing(root, groups, slots.block) == []

    os.utime(path, ns=(0, seconds * 10**9 + 6))
    assert differing(root, groups, slots.block) == [(0, b"a", DIFFERS)]


def test_times_beyond_64_bits_stay_apart_and_ctime_in_order():
    """A wrapped mtime is as good as any other; a ctime stays later than any clock."""
    seen = [signature_of(dated(ctime_ns=2**63 + n, mtime_ns=2**63 + n)) for n in range(2)]
    assert seen[0].mtime_ns != seen[1].mtime_ns
    assert seen[0].ctime_ns == 2**63 - 1
    assert signature_of(dated(ctime_ns=-(2**70), mtime_ns=2**70)).ctime_ns == -(2**63)


def test_a_path_that_cannot_be_read_is_listed_with_the_reason(differing, root, tmp_path):
    """A missing path, one behind a file or a loop of links, and one that is too long are listed."""
    (tmp_path / "file").write_text("1")
    (tmp_path / "loop").symlink_to("loop")
    slots = Slots()
    one = slots.take()
    groups = [
        (b"", {b"gone": one}),
        (b"file", {b"a": one}),
        (b"loop", {b"a": one}),
        (b"/".join([b"d" * 200] * 25), {b"a": one}),
        (b"", {b"n" * 300: one}),
    ]

    reasons = [reason for _, _, reason in differing(root, groups, slots.block)]
    assert reasons == [
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENAMETOOLONG,
    ]


def test_a_slot_without_a_signature_differs_from_everything(differing, root, tmp_path):
    """A path that must be read again is always listed."""
    (tmp_path / "a").write_text("1")
    slots = Slots()
    slot = known(slots, root, b"a")
    slots.sign(slot, None)

    assert differing(root, [(b"", {b"a": slot})], slots.block) == [(0, b"a", DIFFERS)]


def test_thousands_of_paths_are_listed_in_their_order(differing, root, tmp_path):
    """Several threads share the work without a visible effect on the result."""
    slots = Slots()
    names = [b"%05d" % number for number in range(5000)]
    for name in names:
        (tmp_path / os.fsdecode(name)).touch()

    groups = [(b"", {name: known(slots, root, name) for name in names})]
    for name in names[::7]:
        os.chmod(tmp_path / os.fsdecode(name), 0o600)

    assert [name for _, name, _ in differing(root, groups, slots.block)] == names[::7]


name = st.binary(min_size=1, max_size=8).filter(lambda n: n not in (b".", b"..") and b"/" not in n)
tree = st.lists(
    st.tuples(name.filter(lambda n: b"\0" not in n), st.sampled_from("afdlx")), max_size=20
)


@pytest.mark.skipif(len(COMPARISONS) < 2, reason="the helper in C is not built here")
@settings(max_examples=60)
@given(tree=tree, changes=st.lists(st.integers(0, 19), max_size=5))
def test_both_ways_give_the_same_answer(tree, changes, tmp_path_factory):
    """Both agree for any names and any changes."""
    folder = tmp_path_factory.mktemp("tree")
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    slots, names = Slots(), {}
    for name, kind in tree:
        path = os.path.join(os.fsencode(folder), name)
        if os.path.lexists(path):
            continue

        if kind == "d":
            os.mkdir(path)
        elif kind == "l":
            os.symlink(b"x", path)
        elif kind != "x":
            with open(path, "wb") as stream:
                stream.write(name)

        names[name] = slots.take() if kind == "x" else known(slots, root, name)

    for number in changes:
        if number < len(names):
            slots.sign(list(names.values())[number], None)

    try:
        answers = [way(root, [(b"", names)], slots.block) for way in COMPARISONS.values()]
        assert answers[0] == answers[1]
    finally:
        os.close(root)


@pytest.mark.skipif(len(COMPARISONS) < 2, reason="the helper in C is not built here")
def test_the_helper_refuses_what_would_lead_it_out_of_the_block(root):
    """A slot outside the block is an error, not a read of other memory."""
    refused = COMPARISONS["native"]
    slots = Slots()
    slots.take()

    for slot in (1, -1, sys.maxsize):
        with pytest.raises(IndexError):
            refused(root, [(b"", {b"a": slot})], slots.block)

    with pytest.raises(TypeError):
        refused(root, [(b"", {"a": 0})], slots.block)

    with pytest.raises(TypeError):
        refused(root, [("", {b"a": 0})], slots.block)

    with pytest.raises(TypeError):
        refused(root, [7], slots.block)
