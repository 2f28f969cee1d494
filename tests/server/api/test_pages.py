"""Pages, listings and names: the pure parts of every read of the past."""

from __future__ import annotations

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.codec import encode
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_server.api.checkpoint_list import ANSWER_BYTES, Listings, TreeListing, below, page_of
from hankweave_server.api.lookup import the_path
from hankweave_server.checkpoints.model import PathEntry
from hankweave_server.worktree.names import is_out_of_bounds, is_within, shown

names = st.binary(min_size=1, max_size=6).filter(lambda name: not {0, 47} & set(name))
paths = st.lists(names, min_size=1, max_size=3).map(b"/".join)
trees = st.frozensets(paths, max_size=20).map(
    # A path is never both a file and a folder.
    lambda found: {p for p in found if not any(q.startswith(p + b"/") for q in found)}
)


def a_listing(*found: bytes) -> TreeListing:
    return TreeListing.of(PathEntry(path, len(path), stat.S_IFREG | 0o644) for path in found)


@given(trees, st.integers(1, 5))
def test_pages_together_are_the_whole(tree: set[bytes], limit: int) -> None:
    """Every file is on exactly one page, in order; the last page has no cursor."""
    listing = a_listing(*tree)
    seen: list[bytes] = []
    cursor: str | None = None
    while True:
        chosen, cursor = page_of(listing.paths, listing.weights, cursor, limit)
        assert len(chosen) <= limit
        seen += listing.paths[chosen.start : chosen.stop]
        if cursor is None:
            break

    assert seen == sorted(tree)


@given(trees, trees, st.integers(1, 5))
def test_a_cursor_holds_where_files_come_and_go(
    before: set[bytes], after: set[bytes], limit: int
) -> None:
    """The next page starts after the last returned path, whether or not that file still exists."""
    first = a_listing(*before)
    chosen, cursor = page_of(first.paths, first.weights, None, limit)
    if cursor is None:
        return

    second = a_listing(*after)
    following, _ = page_of(second.paths, second.weights, cursor, None)
    last = first.paths[chosen.stop - 1]
    assert second.paths[following.start :] == tuple(p for p in sorted(after) if p > last)


def test_a_page_is_no_heavier_than_an_answer_may_be() -> None:
    """A page's JSON size is limited, but it holds at least one item, however large."""
    listing = a_listing(*(b"%06d-%s" % (n, b"x" * 900) for n in range(3_000)))
    chosen, cursor = page_of(listing.paths, listing.weights, None, None)
    assert cursor is not None
    weight = len(encode(listing.files[: chosen.stop]))
    assert ANSWER_BYTES - 2_000 < weight <= ANSWER_BYTES + 2
    heavy = (0, ANSWER_BYTES * 3, ANSWER_BYTES * 3 + 5)
    assert page_of([b"a", b"b"], heavy, None, None)[0] == range(1)


def test_a_limit_of_nothing_gives_nothing_and_no_cursor() -> None:
    """A limit of zero returns no files and no cursor."""
    listing = a_listing(b"a", b"b")
    assert page_of(listing.paths, listing.weights, None, 0) == (range(0), None)


@pytest.mark.parametrize("cursor", ["!", "a", "YQ=", "ü", "YQ==\n"])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    """An invalid cursor is refused with the path of the field."""
    with pytest.raises(Refused) as refused:
        page_of([b"a"], (0, 1), cursor, None)

    assert refused.value.code is ErrorCode.INVALID_COMMAND
    assert refused.value.path == "$.data.cursor"


@given(trees, paths)
def test_what_is_below_a_path_is_found_by_halving(tree: set[bytes], path: bytes) -> None:
    """Bisection finds the same paths below a folder as a linear search."""
    ordered = sorted(tree)
    found = below(ordered, path)
    assert [ordered[index] for index in found] == [
        each for each in ordered if is_within(each, frozenset({path}))
    ]


@given(trees, st.frozensets(paths, max_size=3))
def test_a_part_is_the_listing_of_what_was_selected(
    tree: set[bytes], selection: frozenset[bytes]
) -> None:
    """The sizes and weights of a sublisting are those of its own files."""
    chosen = [path for path in tree if is_within(path, selection)]
    assert a_listing(*tree).part(selection) == a_listing(*chosen)


@given(paths)
def test_a_name_that_was_shown_can_be_given_back(path: bytes) -> None:
    r"""Bytes that are not UTF-8 are shown as `\xff`, and that form is accepted as input."""
    text = shown(path)
    text.encode()
    if is_out_of_bounds(path, frozenset()):
        return

    assert path in the_path(text, at="$")


def test_a_file_that_is_really_called_so_comes_first() -> None:
    r"""A name with a literal backslash and x takes precedence over the escaped form."""
    assert the_path("odd-\\xff", at="$") == (b"odd-\\xff", b"odd-\xff")
    assert the_path("plain/", at="$") == (b"plain",)


@pytest.mark.parametrize(
    "text",
    ["/", "/etc/passwd", "..", "a/../b", "a//b", "./a", ".git/config", "a/.git", ".hankweave/x"],
)
def test_a_path_outside_is_refused(text: str) -> None:
    """Absolute paths, `..`, empty parts and paths that no checkpoint can hold are refused."""
    with pytest.raises(Refused) as refused:
        the_path(text, at="$.data.path")

    assert (refused.value.code, refused.value.path) == (ErrorCode.INVALID_PATH, "$.data.path")
    assert refused.value.hint


def test_old_listings_go_where_there_is_no_room() -> None:
    """The least recently used listing is evicted; a single listing stays, however large it is."""
    one, two, three = (Sha(digit * 40) for digit in "123")
    kept = Listings(kept_files=4)
    for sha in (one, two):
        kept.add(sha, a_listing(b"a", b"b"))

    assert kept.get(one) is not None
    kept.add(three, a_listing(b"a"))
    assert (kept.get(two), kept.get(one) is None, kept.get(three) is None) == (None, False, False)
    kept.add(two, a_listing(*(b"%d" % n for n in range(9))))
    assert kept.get(two) is not None
    assert kept.get(one) is None
