"""The file tree event: its contents, its timing and its size limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_protocol.events import FileNode, FiletreeUpdated, FileUpdated
from hankweave_server.worktree.stat_index import StatIndex
from hankweave_server.worktree.tree_outline import Branch, outline
from support.running_server import run_headless
from support.scripted_hank import codon, write_hank, writes
from support.watching import events_of


def table_of(*paths: bytes) -> StatIndex:
    table = StatIndex()
    for path in paths:
        table.track(path)

    return table


def paths_of(branch: Branch) -> list[bytes]:
    prefix = branch.path + b"/" if branch.path else b""
    below = [path for folder in branch.folders for path in paths_of(folder)]
    return [*(prefix + name for name in branch.files), *below]


def test_a_picture_has_every_tracked_file_that_fits() -> None:
    """The files of a folder precede its subfolders, in order of their names."""
    table = table_of(b"b/c/d", b"a", b"b/e")
    drawn = outline(table.top, 10)
    assert paths_of(drawn.top) == [b"a", b"b/e", b"b/c/d"]
    assert drawn.omitted == 0


@pytest.mark.parametrize(
    ("most", "shown", "omitted"),
    [
        (1, [b"a"], 3),  # The folder b and the two files below it.
        (2, [b"a"], 3),  # b is shown empty: e, the folder c, and d below it are omitted.
        (3, [b"a", b"b/e"], 2),
        (4, [b"a", b"b/e"], 1),
    ],
)
def test_what_does_not_fit_is_counted(most: int, shown: list[bytes], omitted: int) -> None:
    """Upper levels come first, and the number of omitted entries is given."""
    drawn = outline(table_of(b"a", b"b/c/d", b"b/e").top, most)
    assert (paths_of(drawn.top), drawn.omitted) == (shown, omitted)


async def test_clients_receive_the_file_tree(tmp_path: Path, execution: Path) -> None:
    """It is sent at a codon's start and end, also for a shell command's files, if it changed."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a"), {"run": "mkdir -p deep/er; echo b > deep/er/b.txt"}),
        codon("two", {"append": {"path": "a.txt", "text": "more"}}),
    )
    assert await run_headless(hank, execution) == 0

    trees = events_of(execution, FiletreeUpdated)
    assert [node.path for node in _flat(trees[-1].tree)] == [
        "deep",
        "deep/er",
        "deep/er/b.txt",
        "a.txt",
    ]
    made = [news for news in events_of(execution, FileUpdated) if news.path == "deep/er/b.txt"]
    assert [(news.action, news.source.kind) for news in made] == [("created", "tool_use")]
    assert [tree.omitted for tree in trees] == [0] * len(trees)


def _flat(nodes: tuple[FileNode, ...]) -> list[FileNode]:
    return [each for node in nodes for each in (node, *_flat(node.children))]
