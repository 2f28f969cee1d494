"""Claims about the link to the data in the work tree: it always exists, and it destroys nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hankweave_server.paths import Layout
from hankweave_server.worktree.data_source import DisplacedData, adopt, link_data, restore_link

NOW = 1736000000000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    (path / "rows.csv").write_text("1,2\n")
    return path


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout.of_execution(tmp_path / "execution")
    layout.state_directory.mkdir(parents=True)
    layout.work_tree.mkdir()
    return layout


@pytest.fixture
def link(layout: Layout) -> Path:
    assert layout.data_link is not None
    return layout.data_link


def test_linked_data_is_named_absolutely(layout: Layout, link: Path, source: Path) -> None:
    """The link is absolute, so a copy of it works in any folder."""
    link_data(layout, source, copy=False)
    assert restore_link(layout, NOW) is None
    assert os.readlink(link) == str(source)
    assert restore_link(layout, NOW) is None


def test_copied_data_moves_with_the_execution(layout: Layout, link: Path, source: Path) -> None:
    """The link to a copy is relative: an execution that was moved finds its own copy."""
    link_data(layout, source, copy=True)
    restore_link(layout, NOW)
    moved = layout.root.rename(layout.root.with_name("elsewhere"))
    assert (moved / link.relative_to(layout.root) / "rows.csv").read_text() == "1,2\n"


@pytest.mark.parametrize("copy", [False, True])
def test_a_removed_link_is_made_again(layout: Layout, link: Path, source: Path, copy: bool) -> None:
    """There is nothing to report, because nothing was lost."""
    link_data(layout, source, copy=copy)
    restore_link(layout, NOW)
    link.unlink()
    assert restore_link(layout, NOW) is None
    assert (link / "rows.csv").read_text() == "1,2\n"


def test_another_link_is_replaced_and_named(
    layout: Layout, link: Path, source: Path, tmp_path: Path
) -> None:
    """The old link's target is not touched, and the report names it."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept").touch()
    link_data(layout, source, copy=False)
    link.symlink_to(other)
    assert restore_link(layout, NOW) == DisplacedData(led_to=str(other))
    assert os.readlink(link) == str(source)
    assert (other / "kept").exists()


@pytest.mark.parametrize("mode", [0o700, 0o500])
def test_a_folder_in_its_place_is_kept(layout: Layout, link: Path, source: Path, mode: int) -> None:
    """The folder, writable or not, is moved beside the work tree with its mode."""
    link_data(layout, source, copy=False)
    link.mkdir()
    (link / "notes.md").write_text("work of hours")
    link.chmod(mode)
    displaced = restore_link(layout, NOW)
    kept = layout.root / f"read_only_data_source.replaced-{NOW}"
    assert displaced == DisplacedData(moved_to=kept)
    assert str(kept) in displaced.sentence
    assert (kept / "notes.md").read_text() == "work of hours"
    assert kept.stat().st_mode & 0o777 == mode
    assert (link / "rows.csv").exists()


def test_a_file_in_its_place_is_kept(layout: Layout, link: Path, source: Path) -> None:
    """The file is moved beside the work tree as well."""
    link_data(layout, source, copy=False)
    link.write_text("work")
    displaced = restore_link(layout, NOW)
    assert displaced is not None
    assert displaced.moved_to is not None
    assert displaced.moved_to.read_text() == "work"
    assert (link / "rows.csv").exists()


def test_where_there_is_no_data_there_is_no_link(layout: Layout, link: Path) -> None:
    """Without data, an agent's file of that name is an ordinary one."""
    link.mkdir()
    assert restore_link(layout, NOW) is None
    assert link.is_dir()
    assert not link.is_symlink()


def test_a_project_gets_no_link(tmp_path: Path, source: Path) -> None:
    """A user's project reaches the data through `.hankweave`; nothing is added to the project."""
    layout = Layout.in_place(tmp_path / "project")
    layout.state_directory.mkdir(parents=True)
    link_data(layout, source, copy=False)
    assert restore_link(layout, NOW) is None
    assert os.listdir(layout.root) == [".hankweave"]
    assert layout.data_path == layout.data_source
    assert (layout.data_path / "rows.csv").exists()


# --- executions of the TypeScript Hankweave -------------------------------------------------------


def test_a_foreign_link_is_adopted(layout: Layout, link: Path, source: Path) -> None:
    """Hankweave keeps the link only in the work tree; afterwards there is one beside it, too."""
    link.symlink_to(source)
    adopt(layout)
    assert restore_link(layout, NOW) is None
    assert os.readlink(layout.data_source) == os.readlink(link) == str(source)


def test_a_foreign_copy_is_adopted(layout: Layout, link: Path) -> None:
    """The copy moves from the work tree to beside it, and is reached by its former name."""
    link.mkdir()
    (link / "rows.csv").write_text("1,2\n")
    link.chmod(0o500)
    adopt(layout)
    restore_link(layout, NOW)
    assert not layout.data_source.is_symlink()
    assert link.is_symlink()
    assert (link / "rows.csv").read_text() == "1,2\n"


def test_data_beside_the_work_tree_is_left_alone(layout: Layout, link: Path, source: Path) -> None:
    """A folder that an agent put in place of the link does not become the data."""
    link_data(layout, source, copy=False)
    link.mkdir()
    adopt(layout)
    assert os.readlink(layout.data_source) == str(source)
