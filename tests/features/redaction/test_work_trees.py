"""The places that `hankweave redact` finds in the present work tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_server.features.redaction import command as redact
from hankweave_server.features.redaction.redaction import RedactionRequest, left_in_work_tree
from hankweave_server.paths import Layout
from hankweave_server.redaction.redactor import Redactor

VALUE = "Tr0ub4dor & three"
REQUEST = RedactionRequest(Redactor({"value": VALUE}, rules=()), ("value",))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Return an execution whose work tree has the value in contents, links and names."""
    layout = Layout.of_execution(tmp_path)
    work = layout.work_tree
    (work / f"of {VALUE}" / "sub").mkdir(parents=True)
    (work / f"of {VALUE}" / "sub" / "clean.txt").write_text("nothing")
    (work / "content.txt").write_text(f"it is {VALUE}")
    (work / f"{VALUE}.txt").write_text(VALUE)
    (work / "link").symlink_to(f"/nowhere/{VALUE}")
    (work / "to folder").symlink_to(f"of {VALUE}")
    (work / f"link {VALUE}").symlink_to("content.txt")
    (work / "clean").symlink_to("content.txt")
    (work / ".git").mkdir()
    (work / ".git" / VALUE).write_text(VALUE)
    layout.rig_archive.mkdir()
    (layout.rig_archive / VALUE).write_text("nothing")
    return layout


def inode(layout: Layout, name: str) -> int:
    return (layout.root / name).lstat().st_ino


def test_links_and_names_with_the_value_are_listed(layout: Layout) -> None:
    """Each once, where it begins, without the value and with a number that finds it."""
    left = left_in_work_tree(layout, REQUEST)
    work, archive = (
        str(each.relative_to(layout.root)) for each in (layout.work_tree, layout.rig_archive)
    )
    gone = "[redacted:value]"
    assert sorted(left.files) == sorted([f"{work}/content.txt", f"{work}/{gone}.txt"])
    assert left.links == [
        f"{work}/link (inode {inode(layout, f'{work}/link')})",
        f"{work}/to folder (inode {inode(layout, f'{work}/to folder')})",
    ]
    assert sorted(left.names) == sorted(
        f"{top}/{name.replace(VALUE, gone)} (inode {inode(layout, f'{top}/{name}')})"
        for top, name in (
            (work, f"{VALUE}.txt"),
            (work, f"link {VALUE}"),
            (work, f"of {VALUE}"),
            (archive, VALUE),
        )
    )


def test_a_value_that_spans_two_names_is_found(tmp_path: Path) -> None:
    """In the first path that has the whole of it."""
    layout = Layout.of_execution(tmp_path)
    (layout.work_tree / "home-of" / "somebody" / "below").mkdir(parents=True)
    by = Redactor({"value": "home-of/somebody"}, rules=())
    left = left_in_work_tree(layout, RedactionRequest(by, ("value",)))
    (name,) = left.names
    assert name.startswith("agentRoot/[redacted:value] (inode ")


def test_the_command_says_what_to_do_with_each(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    """And it does not print the value."""
    redact._print_done(None, left_in_work_tree(layout, REQUEST), layout)
    printed = capsys.readouterr()
    assert "The next checkpoint will have it again:" in printed.err
    assert "files with it (--work-tree changes them): 2" in printed.err
    assert "links with it in their target (make them anew): 2" in printed.err
    assert "files, folders and links with it in their name (rename them): 4" in printed.err
    assert f"find {layout.work_tree} {layout.rig_archive} -inum NUMBER" in printed.err
    assert VALUE not in printed.out + printed.err


def test_a_clean_work_tree_is_not_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout.of_execution(tmp_path)
    layout.work_tree.mkdir()
    redact._print_done(None, left_in_work_tree(layout, REQUEST), layout)
    assert capsys.readouterr().err == ""
