"""Claims about the preview of a merge: the merge itself then does exactly what it shows."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.merge import (
    LINES_LIMIT,
    TreeMerge,
    merge,
    write_conflicts,
)
from hankweave_server.domain.path_merge import ConflictKind, ConflictPolicy
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.line_merge import LineMerger, SideNames
from hankweave_server.git.repo import ShadowRepo
from support.merges import (
    EXECUTABLE,
    FILE,
    LINK,
    File,
    Three,
    Tree,
    Trees,
    git,
    snapshot,
)

LINES = LineMerger()
NAMES = SideNames("the execution", "attempt 2")


def merged(
    repo: ShadowRepo, shas: tuple[Sha, Sha, Sha], policy: ConflictPolicy = ConflictPolicy.ASK
) -> TreeMerge:
    return merge(*(snapshot(repo, sha) for sha in shas), LINES, policy=policy)


def one(trees: Trees, repo: ShadowRepo, base: Tree, ours: Tree, theirs: Tree) -> TreeMerge:
    (shas,) = trees.add_threes([Three(base, ours, theirs)])
    return merged(repo, shas)


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if not path.is_dir()
    }


def test_conflicting_lines_are_written_with_markers(
    trees: Trees, repo: ShadowRepo, tmp_path: Path
) -> None:
    """The file is there in each version, and merged with the names of the sides in its markers."""
    base, ours, theirs = (
        {b"d/f": File(EXECUTABLE, b"1\n" + middle + b"\n3\n"), b"g": File(FILE, middle)}
        for middle in (b"2", b"two", b"zwei")
    )
    result = one(trees, repo, base, {**ours, b"g": File(FILE, b"2")}, theirs)
    (conflict,) = write_conflicts(result, tmp_path / "preview", NAMES, LINES)
    assert (conflict.path, conflict.kind) == (b"d/f", ConflictKind.BOTH_CHANGED)
    assert files_in(tmp_path / "preview") == {
        "base/d/f": b"1\n2\n3\n",
        "ours/d/f": b"1\ntwo\n3\n",
        "theirs/d/f": b"1\nzwei\n3\n",
        "merged/d/f": (b"1\n<<<<<<< the execution\ntwo\n=======\nzwei\n>>>>>>> attempt 2\n3\n"),
    }
    assert {str(path.relative_to(tmp_path / "preview")) for path in conflict.files} == set(
        files_in(tmp_path / "preview")
    )


def test_other_conflicts_are_written_in_their_versions(
    trees: Trees, repo: ShadowRepo, tmp_path: Path
) -> None:
    """A side that has no file writes none; binary, long and removed files get no markers."""
    long = b"x" * LINES_LIMIT
    base = {
        b"binary": File(FILE, b"\0"),
        b"gone": File(FILE, b"1"),
        b"link": File(LINK, b"/etc"),
        b"long": File(FILE, long),
    }
    ours = {
        b"added": File(FILE, b"a\n"),
        b"binary": File(FILE, b"\0ours"),
        b"link": File(LINK, b"/etc/passwd"),
        b"long": File(FILE, long + b"1"),
        b"tree": File(FILE, b"file"),
    }
    theirs = {
        b"added": File(FILE, b"b\n"),
        b"binary": File(FILE, b"\0theirs"),
        b"gone": File(FILE, b"2"),
        b"link": File(LINK, b"../.."),
        b"long": File(FILE, long + b"2"),
        b"tree/x": File(FILE, b"folder"),
    }
    folder = tmp_path / "preview"
    found = write_conflicts(one(trees, repo, base, ours, theirs), folder, NAMES, LINES)
    assert {each.path: each.kind for each in found} == {
        b"added": ConflictKind.BOTH_ADDED,
        b"binary": ConflictKind.BINARY,
        b"gone": ConflictKind.REMOVED_BY_OURS,
        b"link": ConflictKind.BOTH_CHANGED,
        b"long": ConflictKind.TOO_LARGE,
        b"tree": ConflictKind.FILE_AND_FOLDER,
    }
    written = files_in(folder)
    assert {name for name in written if name.startswith("merged/")} == {"merged/added"}
    versions = {"base": base, "ours": ours, "theirs": theirs}
    expected = {
        f"{side}/{path.decode()}": tree[path].content
        for side, tree in versions.items()
        for path in tree
        if path != b"tree/x"
    }
    assert {name: text for name, text in written.items() if name != "merged/added"} == expected


def test_a_preview_plants_nothing(trees: Trees, repo: ShadowRepo, tmp_path: Path) -> None:
    """It has no links and no executable files, others cannot read it, and it replaces nothing."""
    base, ours, theirs = (
        {b"f": File(EXECUTABLE, text), b"l": File(LINK, text), b"x/\xff": File(FILE, text)}
        for text in (b"0", b"1", b"2")
    )
    result = one(trees, repo, base, ours, theirs)
    folder = tmp_path / "preview"
    write_conflicts(result, folder, NAMES, LINES)
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        assert stat.S_ISDIR(mode) or stat.S_ISREG(mode)
        assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600)

    with pytest.raises(FileExistsError):
        write_conflicts(result, folder, NAMES, LINES)


def test_a_preview_stays_in_its_folder(trees: Trees, repo: ShadowRepo, tmp_path: Path) -> None:
    """A tree with a name that leads elsewhere is damage, and nothing is written outside."""
    base, ours, theirs = (_tree_that_leads_out(trees, text) for text in (b"0", b"1", b"2"))
    result = merged(repo, (base, ours, theirs))
    assert [each.path for each in result.merged.conflicts] == [b"../f"]
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ShadowRepositoryError):
        write_conflicts(result, tmp_path / "preview", NAMES, LINES)

    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "preview"])
    assert files_in(tmp_path / "preview") == {}


def _tree_that_leads_out(trees: Trees, text: bytes) -> Sha:
    def add(kind: str, data: bytes) -> str:
        words = ("hash-object", "-w", "--literally", "-t", kind, "--stdin")
        return git(trees.repository, *words, stdin=data).decode().strip()

    inner = add("tree", b"100644 f\0" + bytes.fromhex(add("blob", text)))
    outer = add("tree", b"40000 ..\0" + bytes.fromhex(inner))
    body = f"tree {outer}\nauthor t <t> 1 +0000\ncommitter t <t> 1 +0000\n\n"
    return Sha(add("commit", body.encode()))
