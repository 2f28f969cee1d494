"""Claims about an execution's data: it is identified by a hash and never changed."""

from __future__ import annotations

import json
import os
import re
import stat
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from hankweave_protocol.records import ExecutionMeta
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.paths import Layout
from hankweave_server.worktree.data_source import (
    content_hash,
    data_hash,
    find_execution,
    link_data,
    managed_name,
    read_meta,
    write_meta,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    (path / "a" / "b" / "c" / "d").mkdir(parents=True)
    (path / "rows.csv").write_text("1,2\n")
    (path / "a" / "b" / "x.json").write_text("{}")
    (path / "link").symlink_to("rows.csv")
    return path


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout.of_execution(tmp_path / "execution")
    layout.state_directory.mkdir(parents=True)
    return layout


def a_meta(hashed: str | None) -> ExecutionMeta:
    return ExecutionMeta(
        version="1.0.0",
        read_only_source_data_path="/path/to/your/data",
        read_only_source_resolved_data_path="/actual/resolved/path",
        data_hash=hashed,
        hank_hash="789",
        hank_path="/path/to/hank.json",
        link_type="symlink",
        created_at="2025-01-04T12:00:00.000Z",
        last_used="2025-01-04T14:30:00.000Z",
    )


# --- the hash -----------------------------------------------------------------------------------


def test_equal_data_has_an_equal_hash_wherever_it_lies(source: Path) -> None:
    """The hash has 12 hex digits and depends neither on the location nor on the path to it."""
    first = data_hash(source)
    assert re.fullmatch(r"[0-9a-f]{12}", first)
    (source.parent / "way").symlink_to(source)
    assert data_hash(source.parent / "way") == first
    assert data_hash(source.rename(source.parent / "elsewhere")) == first


@pytest.mark.parametrize(
    "change",
    ["content", "time", "new file", "new folder", "removed file", "retargeted link", "renamed"],
)
def test_a_change_changes_the_hash(source: Path, change: str) -> None:
    """Names, sizes, times and kinds down to the third level count."""
    before = data_hash(source)
    match change:
        case "content":
            (source / "rows.csv").write_text("1,2,3\n")
        case "time":
            os.utime(source / "a/b/x.json", (1, 1))
        case "new file":
            (source / "a/b/y").touch()
        case "new folder":
            (source / "a/e").mkdir()
        case "removed file":
            (source / "rows.csv").unlink()
        case "retargeted link":
            (source / "link").unlink()
            (source / "link").symlink_to("a/b/x.json")
        case "renamed":
            (source / "a/b/x.json").rename(source / "a/b/z.json")

    assert data_hash(source) != before


def test_what_is_hidden_generated_or_deep_does_not_count(source: Path) -> None:
    """Hidden files, build folders and the fourth level do not change the hash."""
    before = data_hash(source)
    (source / ".hidden").touch()
    (source / "a" / "__pycache__").mkdir()
    (source / "node_modules").mkdir()
    (source / "a/b/c/new").touch()
    assert data_hash(source) == before


def test_a_file_can_be_the_data(source: Path) -> None:
    """A single file is hashed by its name, size and time; a missing one is an error."""
    before = data_hash(source / "rows.csv")
    (source / "rows.csv").write_text("more than before\n")
    assert data_hash(source / "rows.csv") != before
    with pytest.raises(FileNotFoundError):
        data_hash(source / "none")


def test_data_that_takes_too_long_is_known_by_its_place(source: Path) -> None:
    """When hashing exceeds its time limit, the hash depends only on the location of the data."""
    slow = [
        data_hash(source, timedelta(seconds=limit), monotonic=count().__next__) for limit in (1, 2)
    ]
    assert slow[0] == slow[1] != data_hash(source)
    (source / "new").touch()
    assert data_hash(source, timedelta(0), monotonic=count().__next__) == slow[0]


def test_a_content_hash_depends_on_contents_and_names_alone(tmp_path: Path) -> None:
    """Touching files changes nothing; a change of a byte, a name or a link does."""
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a").write_text("one")
    (folder / "link").symlink_to("sub/a")
    hashes = [content_hash(folder)]
    os.utime(folder / "sub" / "a", (1, 1))
    assert content_hash(folder) == hashes[0]
    (folder / "sub" / "a").write_text("two")
    hashes.append(content_hash(folder))
    (folder / "sub" / "a").rename(folder / "sub" / "b")
    hashes.append(content_hash(folder))
    (folder / "link").unlink()
    (folder / "link").symlink_to("sub/b")
    hashes.append(content_hash(folder))
    assert len(set(hashes)) == 4


def test_a_copy_of_data_has_the_contents_of_the_data(layout: Layout, source: Path) -> None:
    """That of a single file lies in a folder, and has its content hash all the same."""
    for data in (source, source / "rows.csv"):
        link_data(layout, data, copy=True)
        assert content_hash(layout.data_source) == content_hash(data)


# --- the directory ------------------------------------------------------------------------------


def test_a_managed_name_has_three_parts() -> None:
    """The name has milliseconds, four random characters, and six of the data's hash (seed 001)."""
    assert re.fullmatch(
        r"1736000000000-[0-9a-z]{4}-abc123", managed_name(10**9 * 1736, "abc123def")
    )
    assert managed_name(1, None).endswith("-nodata")


def test_the_newest_execution_of_the_data_is_found(tmp_path: Path) -> None:
    """The name orders them; the metadata must have the whole hash. A damaged one is skipped."""
    for name, hashed in (
        ("1736000000001-aaaa-abc123", "abc123def456"),
        ("1736000000003-bbbb-abc123", "abc123def456"),
        ("1736000000004-cccc-abc123", "abc123000000"),
        ("1736000000005-dddd-fff123", "fff123def456"),
    ):
        layout = Layout.of_execution(tmp_path / name)
        layout.state_directory.mkdir(parents=True)
        write_meta(layout, a_meta(hashed))

    damaged = Layout.of_execution(tmp_path / "1736000000009-eeee-abc123")
    damaged.state_directory.mkdir(parents=True)
    damaged.meta.write_text("{")
    (tmp_path / "1736000000010-ffff-abc123").mkdir()
    assert find_execution(tmp_path, "abc123def456") == tmp_path / "1736000000003-bbbb-abc123"
    assert find_execution(tmp_path, "000000000000") is None
    assert find_execution(tmp_path / "none", "abc123def456") is None


# --- link and copy ------------------------------------------------------------------------------


def test_a_link_leads_to_the_data_itself(layout: Layout, source: Path) -> None:
    """The link is absolute and resolved, and a second one replaces it."""
    (source.parent / "way").symlink_to(source)
    link_data(layout, source.parent / "way", copy=False)
    link_data(layout, source.parent / "way", copy=False)
    assert os.readlink(layout.data_source) == str(source)


def test_a_copy_is_complete_and_read_only(layout: Layout, source: Path) -> None:
    """A copy has all files, keeps links as links, leaves out pipes, and is writable by no user."""
    os.mkfifo(source / "pipe")
    link_data(layout, source, copy=True)
    copy = layout.data_source
    assert not copy.is_symlink()
    assert (copy / "rows.csv").read_text() == "1,2\n"
    assert os.readlink(copy / "link") == "rows.csv"
    assert not (copy / "pipe").exists()
    for path in (copy, *copy.rglob("*")):
        assert path.is_symlink() or not stat.S_IMODE(path.lstat().st_mode) & 0o222

    assert (source / "rows.csv").stat().st_mode & 0o200


def test_a_copy_is_made_again_after_an_interruption(layout: Layout, source: Path) -> None:
    """Files that an interrupted copy left are not part of the data."""
    partial = layout.root / "read_only_data_source.partial"
    (partial / "half").mkdir(parents=True)
    (partial / "half").chmod(0o500)
    link_data(layout, source, copy=True)
    link_data(layout, source, copy=True)
    assert not (layout.data_source / "half").exists()
    assert not partial.exists()
    assert sorted(path.name for path in layout.root.iterdir()) == [
        ".hankweave",
        "read_only_data_source",
    ]


@pytest.mark.parametrize("copy", [False, True])
def test_a_single_file_keeps_its_name(layout: Layout, source: Path, copy: bool) -> None:
    """Data that is one file is `read_only_data_source/NAME`, as in Hankweave."""
    link_data(layout, source / "rows.csv", copy=copy)
    reached = layout.data_source / "rows.csv"
    assert reached.read_text() == "1,2\n"
    assert reached.is_symlink() is not copy
    assert not layout.data_source.stat().st_mode & 0o222
    link_data(layout, source, copy=False)
    assert os.readlink(layout.data_source) == str(source)


def test_data_and_execution_do_not_lie_within_each_other(layout: Layout) -> None:
    """A copy of itself would have no end, and an agent could write data inside the execution."""
    inside = layout.root / "inside"
    inside.mkdir()
    for source, copy in ((layout.root, False), (inside, False), (layout.root.parent, True)):
        with pytest.raises(Stop) as stop:
            link_data(layout, source, copy=copy)

        assert stop.value.exit_code == ExitCode.USAGE


# --- the metadata -------------------------------------------------------------------------------


def test_metadata_is_written_as_the_seed_shows_it(layout: Layout) -> None:
    """execution-meta.json has seed 001's fields, in their order, and is read back."""
    assert read_meta(layout) is None
    write_meta(layout, a_meta("abc123def456"))
    assert list(json.loads(layout.meta.read_text())) == [
        "version",
        "readOnlySourceDataPath",
        "readOnlySourceResolvedDataPath",
        "dataHash",
        "hankHash",
        "hankPath",
        "linkType",
        "createdAt",
        "lastUsed",
    ]
    assert read_meta(layout) == a_meta("abc123def456")
    assert stat.S_IMODE(layout.meta.stat().st_mode) == 0o600


def test_metadata_of_hankweave_with_more_fields_is_read(layout: Layout) -> None:
    """Fields that a newer Hankweave adds are no fault."""
    write_meta(layout, a_meta("abc123def456"))
    raw = json.loads(layout.meta.read_text())
    layout.meta.write_text(json.dumps(raw | {"hankweaveVersion": "0.12", "environment": {}}))
    assert read_meta(layout) == a_meta("abc123def456")


def test_damaged_metadata_is_reported_and_left_alone(layout: Layout) -> None:
    """A file that cannot be read is reported and never overwritten unasked."""
    layout.meta.write_text('{"version": 1')
    with pytest.raises(Stop) as stop:
        read_meta(layout)

    assert stop.value.exit_code == ExitCode.BAD_DATA
    assert layout.meta.read_text() == '{"version": 1'
