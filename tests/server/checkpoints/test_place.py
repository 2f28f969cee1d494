"""A store directory that is moved away under an open engine is detected."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.repo_init import StoreMoved, StorePlace, refuse_links
from hankweave_server.paths import Layout

FOLDERS = (".hankweave", ".hankweave/checkpoints", ".hankweave/checkpoints/.hankweavecheckpoints")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout.of_execution(tmp_path / "execution")
    layout.work_tree.mkdir(parents=True)
    CheckpointEngine.open(layout).close()
    return layout


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_gone_is_named_until_it_is_back(layout: Layout, name: str) -> None:
    """A missing folder is named in the error, and accepted again once it is moved back."""
    place = StorePlace.of(layout)
    place.require_same_store()
    folder = layout.root / name
    folder.rename(layout.root / "moved")
    with pytest.raises(StoreMoved, match="was moved or removed") as moved:
        place.require_same_store()

    assert str(folder) in str(moved.value)
    (layout.root / "moved").rename(folder)
    place.require_same_store()


@pytest.mark.parametrize("name", FOLDERS)
def test_neither_a_link_nor_another_folder_passes_for_it(layout: Layout, name: str) -> None:
    """A link is refused, even one to the moved folder, and no engine opens behind a link."""
    place = StorePlace.of(layout)
    folder = layout.root / name
    folder.rename(layout.root / "moved")
    folder.symlink_to(layout.root / "moved")
    with pytest.raises(StoreMoved, match="was replaced by a link"):
        place.require_same_store()

    for refused in (refuse_links, CheckpointEngine.open):
        with pytest.raises(StoreMoved, match="is a link to"):
            refused(layout)

    folder.unlink()
    folder.mkdir()
    with pytest.raises(StoreMoved, match=r"was (replaced|moved)"):
        place.require_same_store()
