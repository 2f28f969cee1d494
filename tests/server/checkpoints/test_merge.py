"""Merges of checkpoints, with git as an independent witness."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.merge import LINES_LIMIT, TreeMerge, merge
from hankweave_server.domain.path_merge import Action, ConflictKind, ConflictPolicy
from hankweave_server.git.line_merge import LineMerger
from hankweave_server.git.objects import STREAMED_FROM
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
    random_path,
    random_three,
    snapshot,
)

CASES = 4000
LINES = LineMerger()
OTHERWISE_NAMED = {ConflictKind.BOTH_ADDED, ConflictKind.FILE_AND_FOLDER, ConflictKind.TYPE}
"""Kinds of conflicts for which git makes up a new path, or that it does not always see."""


def plain(**files: str) -> Tree:
    """Return a tree of regular files; `__` in a name is a slash."""
    return {
        name.replace("__", "/").encode(): File(FILE, content.encode())
        for name, content in files.items()
    }


def merged(
    repo: ShadowRepo,
    shas: tuple[Sha, Sha, Sha],
    paths: frozenset[bytes] | None = None,
    policy: ConflictPolicy = ConflictPolicy.ASK,
    *,
    other: ShadowRepo | None = None,
) -> TreeMerge:
    base, ours, theirs = shas
    sides = snapshot(repo, base), snapshot(repo, ours), snapshot(other or repo, theirs)
    return merge(*sides, LINES, paths=paths, policy=policy)


def stored(repo: ShadowRepo, result: TreeMerge) -> str:
    """Store the result of a merge; return its tree."""
    staging = repo.staging()
    tree = result.store(staging)
    staging.settle()
    return tree.hex()


def content_of(trees: Trees, tree: str) -> Tree:
    """Return what git reads of a tree."""
    found: dict[bytes, File] = {}
    for line in git(trees.repository, "ls-tree", "-r", "-z", tree).split(b"\0")[:-1]:
        facts, path = line.split(b"\t", 1)
        mode, _, digest = facts.split()
        content = git(trees.repository, "cat-file", "blob", digest.decode())
        found[path] = File(int(mode, 8), content)

    return found


def below(path: bytes, paths: frozenset[bytes]) -> bool:
    return any(path == each or path.startswith(each + b"/") for each in paths)


class CountingRepo(ShadowRepo):
    """A repository that counts the objects that are read, by kind."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reads: Counter[str] = Counter()

    def read(self, digest: bytes) -> tuple[str, bytes]:
        kind, data = super().read(digest)
        self.reads[kind] += 1
        return kind, data


# --- against git ----------------------------------------------------------------------------------


def an_empty_file_meets_another(three: Three, path: bytes) -> bool:
    """Return whether both sides have a new file, one of them empty: git takes the other."""
    base, ours, theirs = (tree.get(path) for tree in three)
    if (base is not None and base.mode != LINK) or ours is None or theirs is None:
        return False

    return not ours.content or not theirs.content


def test_thousands_of_random_trees_merge_as_git_merges_them(trees: Trees, repo: ShadowRepo) -> None:
    """The tree is the same where git merges cleanly; elsewhere, the same paths conflict.

    There are two deliberate differences. A file that both sides added with different content, or
    made of a link, conflicts even if one of them is empty. Where a file is in the place of a
    folder, the conflict is named once, by the path of the file.
    """
    random = Random(21)
    threes = [random_three(random) for _ in range(CASES)]
    merges = trees.add_threes(threes)
    kinds: Counter[ConflictKind | None] = Counter()
    clean = 0
    for three, shas, verdict in zip(threes, merges, trees.verdicts(merges), strict=True):
        result = merged(repo, shas)
        conflicts = {each.path: each.conflict for each in result.merged.conflicts}
        kinds.update(conflicts.values())
        if verdict.is_clean and conflicts:
            assert all(an_empty_file_meets_another(three, path) for path in conflicts), three
        elif verdict.is_clean:
            clean += 1
            assert result.tree is not None
            assert result.tree.hex() == verdict.tree, three
        else:
            assert conflicts, three
            assert result.tree is None
            if OTHERWISE_NAMED.isdisjoint(conflicts.values()):
                assert conflicts.keys() == verdict.conflicts, three

    assert CASES // 4 < clean < CASES
    possible = {*ConflictKind} - {
        ConflictKind.BINARY,
        ConflictKind.TOO_LARGE,
        ConflictKind.NOT_CAPTURED,
    }
    assert possible <= kinds.keys()


def test_what_is_stored_is_what_git_reads(trees: Trees, repo: ShadowRepo) -> None:
    """Every object of a result is stored, so that git's fsck finds all of them sound."""
    random = Random(22)
    merges = trees.add_threes([random_three(random) for _ in range(200)])
    verdicts = trees.verdicts(merges)
    git(trees.repository, "prune", "--expire=now")
    repo.reopen()
    tips = 0
    for shas, verdict in zip(merges, verdicts, strict=True):
        result = merged(repo, shas)
        if not result.merged.conflicts:
            tips += 1
            assert stored(repo, result) == verdict.tree or not verdict.is_clean
            git(trees.repository, "rev-parse", "--verify", f"{result.tree.hex()}^{{tree}}")
            git(trees.repository, "ls-tree", "-r", "-t", "-l", result.tree.hex())
            tag = f"refs/tags/{tips}"
            git(trees.repository, "update-ref", tag, result.tree.hex())

    assert tips > 50
    assert git(trees.repository, "fsck", "--full", "--strict", "--no-dangling") == b""


# --- selection and policy -------------------------------------------------------------------------


def test_a_restriction_changes_only_what_it_names(trees: Trees, repo: ShadowRepo) -> None:
    """With paths, all other files of the result are ours; the named ones are as in a full merge."""
    random = Random(23)
    threes = [random_three(random) for _ in range(400)]
    compared = 0
    for three, shas in zip(threes, trees.add_threes(threes), strict=True):
        every = sorted(three.ours.keys() | three.theirs.keys()) or [b"a"]
        paths = frozenset({random.choice(every), random_path(random)})
        for policy in ConflictPolicy:
            part, whole = (merged(repo, shas, each, policy).merged for each in (paths, None))
            assert all(below(path, paths) for path in part.changes)
            if not (whole.conflicts or part.conflicts):
                wanted = {
                    path: entry for path, entry in whole.changes.items() if below(path, paths)
                }
                folders = {ConflictKind.FILE_AND_FOLDER}
                every_decision = (*whole.decisions, *part.decisions)
                if folders.isdisjoint(each.conflict for each in every_decision):
                    compared += 1
                    assert part.changes == wanted

    assert compared > 400


def test_ours_and_theirs_decide_every_conflict(trees: Trees, repo: ShadowRepo) -> None:
    """A conflicting path has one side's version whole; other paths are as if nothing conflicted."""
    random = Random(24)
    threes = [random_three(random) for _ in range(400)]
    decided = 0
    for three, shas in zip(threes, trees.add_threes(threes), strict=True):
        asked = merged(repo, shas)
        sides = {ConflictPolicy.OURS: three.ours, ConflictPolicy.THEIRS: three.theirs}
        for policy, side in sides.items():
            result = merged(repo, shas, policy=policy)
            assert result.merged.conflicts == ()
            found = content_of(trees, stored(repo, result)) if asked.merged.conflicts else {}
            tops = frozenset(each.path for each in asked.merged.conflicts)
            for path in found.keys() | side.keys() if tops else ():
                if below(path, tops):
                    decided += 1
                    assert found.get(path) == side.get(path)

            clean = {p: e for p, e in result.merged.changes.items() if not below(p, tops)}
            assert clean == {p: e for p, e in asked.merged.changes.items() if not below(p, tops)}

    assert decided > 100


def test_a_file_outside_of_the_selection_is_never_replaced(trees: Trees, repo: ShadowRepo) -> None:
    """A selected file below a path that is our file stays a conflict, although theirs should win.

    If the file's path is selected, theirs wins.
    """
    ours, theirs = plain(a="ours", z="1"), plain(a__b="theirs", z="1")
    (shas,) = trees.add_threes([Three(plain(z="1"), ours, theirs)])
    part = merged(repo, shas, frozenset({b"a/b"}), ConflictPolicy.THEIRS)
    assert [(each.path, each.conflict) for each in part.merged.conflicts] == [
        (b"a", ConflictKind.FILE_AND_FOLDER)
    ]
    whole = merged(repo, shas, frozenset({b"a"}), ConflictPolicy.THEIRS)
    assert content_of(trees, stored(repo, whole)) == theirs
    kept = merged(repo, shas, frozenset({b"a/b"}), ConflictPolicy.OURS)
    assert content_of(trees, stored(repo, kept)) == ours


# --- content --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("middle", "kind"),
    [(b"\0", ConflictKind.BINARY), (b"x" * LINES_LIMIT, ConflictKind.TOO_LARGE)],
    ids=["binary", "too-large"],
)
def test_content_without_lines_is_not_merged(
    trees: Trees, repo: ShadowRepo, middle: bytes, kind: ConflictKind
) -> None:
    """Different changes to binary or very long content conflict, but not if one side has none."""
    base, ours, theirs = (
        {b"f": File(FILE, top + b"\n" + middle + b"\n" + end)}
        for top, end in ((b"1", b"2"), (b"one", b"2"), (b"1", b"two"))
    )
    both, one = trees.add_threes([Three(base, ours, theirs), Three(base, base, theirs)])
    assert [each.conflict for each in merged(repo, both).merged.conflicts] == [kind]
    assert content_of(trees, stored(repo, merged(repo, one))) == theirs


def test_mode_and_content_are_merged_separately(trees: Trees, repo: ShadowRepo) -> None:
    """One side's new content and the other side's new mode are combined, in both directions."""
    base, content, mode = File(FILE, b"1"), File(FILE, b"2"), File(EXECUTABLE, b"1")
    for ours, theirs in ((content, mode), (mode, content)):
        (shas,) = trees.add_threes([Three({b"f": base}, {b"f": ours}, {b"f": theirs})])
        result = merged(repo, shas)
        assert [each.action for each in result.merged.decisions] == [Action.MERGE]
        assert content_of(trees, stored(repo, result)) == {b"f": File(EXECUTABLE, b"2")}


def test_links_are_taken_whole(trees: Trees, repo: ShadowRepo) -> None:
    """A link that one side changed is taken; one that both changed conflicts."""
    one, two, three = ({b"l": File(LINK, target)} for target in (b"1\n", b"2\n", b"1\n3\n"))
    taken, conflict = trees.add_threes([Three(one, one, two), Three(one, two, three)])
    assert content_of(trees, stored(repo, merged(repo, taken))) == two
    (link,) = merged(repo, conflict).merged.conflicts
    assert link.conflict is ConflictKind.BOTH_CHANGED


def test_everything_can_be_removed(trees: Trees, repo: ShadowRepo) -> None:
    """If theirs removed all files, the result is the empty tree, and it is stored."""
    (shas,) = trees.add_threes([Three(plain(a__b="1"), plain(a__b="1"), {})])
    tree = stored(repo, merged(repo, shas))
    assert git(trees.repository, "cat-file", "-t", tree) == b"tree\n"
    assert content_of(trees, tree) == {}


def test_very_deep_paths_merge(trees: Trees, repo: ShadowRepo) -> None:
    """Paths of 1,500 folders merge: depth is limited by no recursion."""
    deep = b"/".join([b"d"] * 1500)
    base = {deep + b"/1": File(FILE, b"1"), deep + b"/2": File(FILE, b"2")}
    ours, theirs = (
        {**base, deep + b"/1": File(FILE, b"x")},
        {**base, deep + b"/2": File(FILE, b"y")},
    )
    (shas,) = trees.add_threes([Three(base, ours, theirs)])
    result = merged(repo, shas)
    assert result.merged.changes.keys() == {deep + b"/2"}
    tree = stored(repo, result)
    wanted = {**ours, deep + b"/2": File(FILE, b"y")}
    (same,) = trees.add([(wanted, None)])
    assert git(trees.repository, "rev-parse", f"{same}^{{tree}}").decode().strip() == tree


# --- costs and side effects -----------------------------------------------------------------------


def test_few_changes_in_a_huge_tree_read_few_objects(tmp_path: Path) -> None:
    """Three changed files cost the same reads among 10,000 files in 100 folders as among 100."""

    def reads(folders: int) -> Counter[str]:
        trees = Trees(tmp_path / str(folders))
        base = {
            b"%03d/%03d" % (folder, number): File(FILE, b"%d\n2\n3\n" % number)
            for folder in range(folders)
            for number in range(10_000 // 100 if folders == 100 else 10)
        }
        ours = {**base, b"001/001": File(FILE, b"ours\n2\n3\n"), b"002/002": File(FILE, b"ours")}
        theirs = {**base, b"001/001": File(FILE, b"1\n2\ntheirs\n"), b"005/005": File(FILE, b"5")}
        (shas,) = trees.add_threes([Three(base, ours, theirs)])
        with closing(CountingRepo(trees.repository)) as repo:
            result = merged(repo, shas)
            assert not result.merged.conflicts
            assert stored(repo, result)
            return repo.reads

    few, many = reads(10), reads(100)
    assert (few["tree"], few["blob"]) == (many["tree"], many["blob"])
    assert many["blob"] == 3
    assert many["tree"] <= 20


def picture(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_nothing_but_objects_is_written(trees: Trees, repo: ShadowRepo) -> None:
    """A merge writes nothing at all; storing it adds objects, and changes no other file."""
    random = Random(25)
    merges = trees.add_threes([random_three(random) for _ in range(20)])
    before = picture(trees.repository)
    results = [merged(repo, shas, policy=ConflictPolicy.THEIRS) for shas in merges]
    assert picture(trees.repository) == before
    for result in results:
        stored(repo, result)

    after = picture(trees.repository)
    assert {path: seen for path, seen in after.items() if path in before} == before
    new = after.keys() - before.keys()
    assert new
    assert all(path.startswith("objects/") for path in new)


# --- two repositories -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["shared", "copied"])
def test_theirs_may_be_in_another_repository(trees: Trees, tmp_path: Path, how: str) -> None:
    """Objects that only the other repository has are copied, whether it shares ours or not.

    The other repository is not needed any more, and is not changed.
    """
    large = os.urandom(STREAMED_FROM + 1)
    base = {**plain(a="1\n2\n3\n", b="b"), b"large": File(FILE, large)}
    (base_sha,) = trees.add([(base, None)])
    elsewhere = tmp_path / "elsewhere"
    option = "--shared" if how == "shared" else "--no-hardlinks"
    git(tmp_path, "clone", "--quiet", "--bare", option, str(trees.repository), str(elsewhere))
    ours = {**base, b"a": File(FILE, b"one\n2\n3\n")}
    theirs = {
        **base,
        b"a": File(FILE, b"1\n2\nthree\n"),
        b"new/large": File(FILE, large[::-1]),
        b"new/deep/small": File(EXECUTABLE, b"small"),
    }
    (our_sha,) = trees.add([(ours, None)], base_sha)
    (their_sha,) = Trees(elsewhere).add([(theirs, None)], base_sha)
    before = picture(elsewhere)
    with closing(ShadowRepo(trees.repository)) as repo, closing(ShadowRepo(elsewhere)) as other:
        tree = stored(repo, merged(repo, (base_sha, our_sha, their_sha), other=other))

    assert picture(elsewhere) == before
    shutil.rmtree(elsewhere)
    assert content_of(trees, tree) == {**theirs, b"a": File(FILE, b"one\n2\nthree\n")}
    git(trees.repository, "update-ref", "refs/tags/result", tree)
    assert git(trees.repository, "fsck", "--full", "--strict", "--no-dangling") == b""


def test_random_merges_across_repositories_are_those_within_one(
    trees: Trees, repo: ShadowRepo, tmp_path: Path
) -> None:
    """Where theirs comes from does not matter: neither for conflicts nor for the stored tree."""
    random = Random(26)
    threes = [random_three(random) for _ in range(150)]
    within = trees.add_threes(threes)
    alone = Trees(tmp_path / "alone")
    lone = alone.add_threes([Three(three.base, three.ours, {}) for three in threes])
    with closing(ShadowRepo(alone.repository)) as mine:
        for shas, (base, ours, _) in zip(within, lone, strict=True):
            expected = merged(repo, shas)
            result = merged(mine, (base, ours, shas[2]), other=repo)
            assert result.merged == expected.merged
            if not result.merged.conflicts:
                assert git(alone.repository, "ls-tree", "-r", stored(mine, result)) == git(
                    trees.repository, "ls-tree", "-r", stored(repo, expected)
                )


def test_an_object_that_is_lost_elsewhere_is_an_error(trees: Trees, tmp_path: Path) -> None:
    """If a blob cannot be read in the other repository, storing raises KeyError."""
    base, theirs = plain(a="1"), plain(a="1", b="only theirs")
    other_trees = Trees(tmp_path / "other")
    (_, _, their_sha), (base_sha, our_sha, _) = (
        each.add_threes([Three(base, base, tree)])[0]
        for each, tree in ((other_trees, theirs), (trees, base))
    )
    with closing(ShadowRepo(trees.repository)) as repo:
        other = ShadowRepo(other_trees.repository)
        result = merged(repo, (base_sha, our_sha, their_sha), other=other)
        blob = git(other_trees.repository, "rev-parse", f"{their_sha}:b").decode().strip()
        (other_trees.repository / "objects" / blob[:2] / blob[2:]).unlink()
        other.reopen()
        staging = repo.staging()
        with pytest.raises(KeyError):
            result.store(staging)

        staging.abandon()
        other.close()


def test_where_one_side_has_not_changed_the_other_is_the_result(
    trees: Trees, repo: ShadowRepo
) -> None:
    """If ours is the origin, the tree is that of theirs; if theirs is the origin, that of ours."""
    random = Random(27)
    threes: list[Three] = []
    for _ in range(200):
        base, ours, _ = random_three(random)
        threes += [Three(base, base, ours), Three(base, ours, base)]

    shas = trees.add_threes(threes)
    for forward, back in zip(shas[::2], shas[1::2], strict=True):
        taken, kept = merged(repo, forward), merged(repo, back)
        assert taken.tree == snapshot(repo, forward[2]).tree
        assert kept.tree == snapshot(repo, back[1]).tree
        assert kept.changes_nothing
        assert kept.objects.new == {}
