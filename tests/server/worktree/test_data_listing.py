"""Claims about the hash of the data: every change changes it; unchanged data is not listed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hankweave_server.paths import Layout
from hankweave_server.worktree.data_listing import DataListing, TooManyFiles
from hankweave_server.worktree.data_source import link_data

CHANGES: dict[str, Callable[[Path], object]] = {
    "a file is written": lambda data: (data / "b" / "one.txt").write_text("other"),
    "a file is written deep below": lambda data: (data / "b" / "c" / "d" / "deep").write_text("x"),
    "a file is new": lambda data: (data / "b" / "new.txt").touch(),
    "a file is gone": lambda data: (data / "b" / "one.txt").unlink(),
    "a file has another name": lambda data: (data / "b" / "one.txt").rename(data / "two.txt"),
    "a file has other permissions": lambda data: (data / "b" / "one.txt").chmod(0o600),
    "a file has another time": lambda data: os.utime(data / "b" / "one.txt", ns=(1, 1)),
    "a folder is new": lambda data: (data / "e").mkdir(),
    "a folder is gone": lambda data: (data / "empty").rmdir(),
    "a folder has another name": lambda data: (data / "b").rename(data / "f"),
    "a file is in .git": lambda data: (data / ".git" / "HEAD").write_text("other"),
    "a link is new": lambda data: (data / "link").symlink_to("b"),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    for folder in ("b/c/d", "empty", ".git"):
        (data / folder).mkdir(parents=True)

    for name in ("b/one.txt", "b/c/d/deep", ".git/HEAD"):
        (data / name).write_text("content")

    return data


@pytest.fixture
def layout(tmp_path: Path, data: Path) -> Layout:
    layout = Layout.of_execution(tmp_path / "execution")
    layout.root.mkdir()
    link_data(layout, data, copy=False)
    return layout


@pytest.fixture
def watched(layout: Layout) -> Iterator[DataListing]:
    with closing(DataListing(layout, watched_from=1)) as listing:
        yield listing


def test_unchanged_data_is_listed_twice_at_most(watched: DataListing, data: Path) -> None:
    """The first listing shows that it is worth a watch, and the second one begins it."""
    first = watched.digest()
    assert [watched.digest() for _ in range(5)] == [first] * 5
    assert watched.listings == 2
    (data / "b" / "one.txt").read_text()
    list(data.rglob("*"))
    assert watched.digest() == first
    assert watched.listings == 2, "reading is no change"


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_watched", [True, False])
def test_every_change_changes_the_hash(
    layout: Layout, data: Path, name: str, is_watched: bool
) -> None:
    """With a watch and without, also of names that checkpoints never hold."""
    with closing(DataListing(layout, watched_from=1 if is_watched else 1_000)) as listing:
        before = [listing.digest() for _ in range(3)]
        CHANGES[name](data)
        after = listing.digest()
        assert after not in before
        assert [listing.digest() for _ in range(2)] == [after] * 2
        assert after == DataListing(layout).digest(), "the watch does not change the result"


def test_a_watch_begins_again_after_each_change(watched: DataListing, data: Path) -> None:
    """A change costs one listing."""
    for number in range(5):
        watched.digest()
        watched.digest()
        listings = watched.listings
        (data / "b" / "one.txt").write_text(f"content {number}")
        watched.digest()
        watched.digest()
        assert watched.listings == listings + 1


def test_data_in_another_place_is_other_data(watched: DataListing, data: Path) -> None:
    """The folder at the path now is compared, wherever the watched one has gone."""
    for _ in range(3):
        before = watched.digest()

    data.rename(data.with_name("moved"))
    data.mkdir()
    assert watched.digest() != before


@pytest.mark.parametrize("kind", ["link to a file", "link to a folder", "second name"])
def test_what_changes_without_an_event_is_listed_each_time(
    watched: DataListing, tmp_path: Path, data: Path, kind: str
) -> None:
    """A link leads out of the data, or a file has a second name elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("content")
    match kind:
        case "link to a file":
            (data / "there").symlink_to(elsewhere / "file")
        case "link to a folder":
            (data / "there").symlink_to(elsewhere)
        case _:
            os.link(elsewhere / "file", data / "there")

    before = [watched.digest() for _ in range(3)]
    (elsewhere / "file").write_text("other content")
    assert watched.digest() not in before


def test_a_single_file_is_compared_itself(tmp_path: Path) -> None:
    """It is reached by a link, which does not change with it."""
    layout = Layout.of_execution(tmp_path / "execution")
    layout.root.mkdir()
    (tmp_path / "rows.csv").write_text("a,b\n")
    link_data(layout, tmp_path / "rows.csv", copy=False)
    listing = DataListing(layout)
    before = listing.digest()
    (tmp_path / "rows.csv").write_text("a,c\n")
    assert listing.digest() != before


def test_links_in_circles_and_to_nowhere_are_listed(layout: Layout, data: Path) -> None:
    """A folder is listed once, whatever leads to it."""
    (data / "b" / "up").symlink_to("..")
    (data / "nowhere").symlink_to("missing")
    (data / "itself").symlink_to("itself")
    assert DataListing(layout).digest() == DataListing(layout).digest()


def test_data_with_too_many_files_is_not_listed(layout: Layout) -> None:
    """The reason has the limit."""
    with pytest.raises(TooManyFiles, match="more than 3 files"):
        DataListing(layout, most=3).digest()


def test_an_execution_without_data_has_no_hash(tmp_path: Path) -> None:
    assert DataListing(Layout.of_execution(tmp_path)).digest() is None
