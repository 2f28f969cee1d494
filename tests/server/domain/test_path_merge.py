"""The decisions of a three-way merge, path by path."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hankweave_server.domain.path_merge import (
    Action,
    Changes,
    ConflictKind,
    ConflictPolicy,
    Decision,
    Entry,
    MergedPaths,
    decide,
    settle,
    with_lines,
    without_lines,
)

FILE, EXECUTABLE, LINK, SUBMODULE = 0o100644, 0o100755, 0o120000, 0o160000
MERGED = b"m" * 20

Version = Entry | None


def entry(content: str, mode: int = FILE) -> Entry:
    return mode, content.encode().ljust(20)


A, B, C = entry("a"), entry("b"), entry("c")


def changes(base: Mapping[str, Entry], side: Mapping[str, Entry]) -> Changes:
    return {
        path.encode(): (base.get(path), side.get(path))
        for path in base.keys() | side.keys()
        if base.get(path) != side.get(path)
    }


def merged(
    base: Mapping[str, Entry],
    ours: Mapping[str, Entry],
    theirs: Mapping[str, Entry],
    policy: ConflictPolicy = ConflictPolicy.ASK,
    only: str | None = None,
    *,
    uncaptured: frozenset[bytes] = frozenset(),
    lines_merge: bool = True,
) -> MergedPaths:
    def selects(path: bytes) -> bool:
        return only is None or f"{path.decode()}/".startswith(f"{only}/")

    by_ours, by_theirs = changes(base, ours), changes(base, theirs)
    decisions = {
        path: resolved(decision, lines_merge=lines_merge)
        for path, decision in decide(by_ours, by_theirs, selects, uncaptured).items()
    }
    return settle(decisions, by_ours, by_theirs, selects, policy)


def resolved(decision: Decision, *, lines_merge: bool) -> Decision:
    if decision.action is not Action.LINES:
        return decision

    if lines_merge:
        return with_lines(decision, MERGED)

    return without_lines(decision, ConflictKind.BOTH_CHANGED)


def one(base: Version, ours: Version, theirs: Version) -> Decision:
    """Return the only decision about one path with these versions, `LINES` included."""
    (decision,) = decide({b"f": (base, ours)}, {b"f": (base, theirs)}, lambda _path: True).values()
    return decision


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "action", "result"),
    [
        (A, A, B, Action.TAKE, B),
        (A, A, None, Action.TAKE, None),
        (None, None, A, Action.TAKE, A),
        (A, A, entry("t", LINK), Action.TAKE, entry("t", LINK)),
        (A, B, B, Action.SAME, B),
        (A, None, None, Action.SAME, None),
        (None, A, A, Action.SAME, A),
        (A, B, entry("a", EXECUTABLE), Action.MERGE, entry("b", EXECUTABLE)),
        (A, entry("a", EXECUTABLE), B, Action.MERGE, entry("b", EXECUTABLE)),
        (A, entry("b", EXECUTABLE), B, Action.MERGE, entry("b", EXECUTABLE)),
        (A, B, C, Action.LINES, (FILE, b"")),
        (A, entry("b", EXECUTABLE), C, Action.LINES, (EXECUTABLE, b"")),
    ],
)
def test_what_does_not_conflict(
    base: Version, ours: Version, theirs: Version, action: Action, result: Version
) -> None:
    """One side's change is taken, equal ones are the same, mode and content are combined."""
    decision = one(base, ours, theirs)
    assert (decision.action, decision.result, decision.conflict) == (action, result, None)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "kind"),
    [
        (None, A, B, ConflictKind.BOTH_ADDED),
        (None, A, entry("a", EXECUTABLE), ConflictKind.MODE),
        (A, None, B, ConflictKind.REMOVED_BY_OURS),
        (A, None, entry("a", EXECUTABLE), ConflictKind.REMOVED_BY_OURS),
        (A, B, None, ConflictKind.REMOVED_BY_THEIRS),
        (A, B, entry("t", LINK), ConflictKind.TYPE),
        (None, entry("t", LINK), A, ConflictKind.TYPE),
        (entry("t", LINK), A, entry("b", EXECUTABLE), ConflictKind.MODE),
        (entry("t", LINK), A, B, ConflictKind.BOTH_CHANGED),
        (entry("s", LINK), entry("t", LINK), entry("u", LINK), ConflictKind.BOTH_CHANGED),
        (entry("1", SUBMODULE), entry("2", SUBMODULE), entry("3", SUBMODULE), "both-changed"),
    ],
)
def test_what_conflicts(base: Version, ours: Version, theirs: Version, kind: ConflictKind) -> None:
    """A conflict has the kind that says what the two sides did, and no result."""
    decision = one(base, ours, theirs)
    assert (decision.action, decision.result, decision.conflict) == (Action.CONFLICT, None, kind)


def test_lines_keep_the_merged_mode() -> None:
    """The result of merging lines has the mode that was merged, and the new content."""
    found = merged({"f": A}, {"f": entry("b", EXECUTABLE)}, {"f": C})
    assert found.changes == {b"f": (EXECUTABLE, MERGED)}


def test_paths_that_theirs_has_not_changed_are_not_decided() -> None:
    """Changes of ours alone need no decision; decisions are in the order of their paths."""
    found = merged({"a": A, "b": A, "c": A}, {"a": B, "b": A, "c": A}, {"a": A, "b": B})
    assert [each.path for each in found.decisions] == [b"b", b"c"]


@pytest.mark.parametrize("policy", [ConflictPolicy.OURS, ConflictPolicy.THEIRS])
def test_a_policy_decides_conflicts_alone(policy: ConflictPolicy) -> None:
    """Clean changes are taken and merged all the same; a decision keeps the kind of conflict."""
    base = {"clean": A, "lines": A, "gone": A}
    ours = {"clean": A, "lines": B, "gone": B}
    theirs = {"clean": B, "lines": C}
    found = merged(base, ours, theirs, policy)
    by_path = {each.path: each for each in found.decisions}
    assert by_path[b"clean"].result == B
    assert by_path[b"lines"].result == (FILE, MERGED)
    decided = by_path[b"gone"]
    assert decided.conflict is ConflictKind.REMOVED_BY_THEIRS
    assert decided.result == (B if policy is ConflictPolicy.OURS else None)
    assert found.conflicts == ()
    assert (b"gone" in found.changes) == (policy is ConflictPolicy.THEIRS)


def test_a_policy_takes_a_file_whole() -> None:
    """If lines conflict, the whole file is of one side: its parts belong together."""
    sides = {"f": A}, {"f": B}, {"f": C}
    assert merged(*sides, ConflictPolicy.OURS, lines_merge=False).changes == {}
    assert merged(*sides, ConflictPolicy.THEIRS, lines_merge=False).changes == {b"f": C}


def test_what_ours_could_not_capture_is_never_overwritten() -> None:
    """Such a path is a conflict that theirs cannot win; ours can."""
    versions: tuple[dict[str, Entry], ...] = ({"f": A}, {}, {"f": B})
    for policy in (ConflictPolicy.ASK, ConflictPolicy.THEIRS):
        (conflict,) = merged(*versions, policy, uncaptured=frozenset({b"f"})).conflicts
        assert conflict.conflict is ConflictKind.NOT_CAPTURED

    kept = merged(*versions, ConflictPolicy.OURS, uncaptured=frozenset({b"f"}))
    assert (kept.conflicts, kept.changes) == ((), {})


# --- files and folders ----------------------------------------------------------------------------


FILE_AGAINST_FOLDER = [
    pytest.param({}, {"a": A}, {"a/b": B, "a/c/d": C}, id="our-file"),
    pytest.param({}, {"a/b": B, "a/c/d": C}, {"a": A}, id="their-file"),
    pytest.param({"a/b": A}, {"a/b": A, "a/new": B}, {"a": A}, id="their-file-for-our-folder"),
    pytest.param({"a": A}, {"a": B}, {"a/b": B}, id="their-folder-for-our-file"),
    pytest.param({"a/b": A}, {"a/b": B}, {"a": A}, id="their-file-and-our-change"),
    pytest.param({}, {"a/b": A}, {"a": A, "x": B}, id="among-others"),
    pytest.param({}, {"a": A}, {"a/b": B, "a-b": C}, id="a-name-that-sorts-between"),
]


@pytest.mark.parametrize(("base", "ours", "theirs"), FILE_AGAINST_FOLDER)
def test_a_file_and_a_folder_conflict_once(
    base: dict[str, Entry], ours: dict[str, Entry], theirs: dict[str, Entry]
) -> None:
    """The conflict is named by the file's path; nothing below is decided besides."""
    found = merged(base, ours, theirs)
    assert [(each.path, each.conflict) for each in found.conflicts] == [
        (b"a", ConflictKind.FILE_AND_FOLDER)
    ]
    assert not any(each.path.startswith(b"a/") for each in found.decisions)


@pytest.mark.parametrize(("base", "ours", "theirs"), FILE_AGAINST_FOLDER)
@pytest.mark.parametrize("policy", [ConflictPolicy.OURS, ConflictPolicy.THEIRS])
def test_a_file_or_a_folder_wins_whole(
    base: dict[str, Entry], ours: dict[str, Entry], theirs: dict[str, Entry], policy: ConflictPolicy
) -> None:
    """With a policy, the file's path and everything below it are as one side has them."""
    found = merged(base, ours, theirs, policy)
    result = {path.encode(): entry for path, entry in ours.items()} | found.changes
    side = ours if policy is ConflictPolicy.OURS else theirs
    at_a = {
        path: entry for path, entry in result.items() if entry and f"{path.decode()}/"[:2] == "a/"
    }
    assert at_a == {p.encode(): e for p, e in side.items() if f"{p}/"[:2] == "a/"}
    assert found.conflicts == ()


def test_a_folder_that_becomes_empty_is_in_no_ones_way() -> None:
    """A file takes the place of a folder if both sides have emptied it."""
    base = {"a/1": A, "a/2": A}
    assert merged(base, {"a/2": A}, {"a": B}).changes == {b"a": B, b"a/2": None}


def test_a_file_gives_way_to_a_folder() -> None:
    """A file that only theirs has replaced by a folder is replaced."""
    assert merged({"a": A}, {"a": A}, {"a/b": B}).changes == {b"a": None, b"a/b": B}


def test_of_nested_conflicts_the_outermost_is_named() -> None:
    """A file in the place of a folder hides what conflicts inside of that folder."""
    base = {"a/b/c": A, "z": A}
    found = merged(base, {"a": B, "z": B}, {"a/b/c": C, "a/b/d": A, "z": A})
    assert [each.path for each in found.conflicts] == [b"a"]


def test_a_selected_file_below_ours_needs_ours_to_be_selected() -> None:
    """Theirs wins over a file of ours only if that file was selected as well."""
    sides: tuple[dict[str, Entry], ...] = ({}, {"a": A}, {"a/b": B})
    (conflict,) = merged(*sides, ConflictPolicy.THEIRS, only="a/b").conflicts
    assert conflict.path == b"a"
    assert merged(*sides, ConflictPolicy.THEIRS, only="a").changes == {b"a": None, b"a/b": B}
    assert merged(*sides, ConflictPolicy.OURS, only="a/b").changes == {}


def test_a_selection_leaves_everything_else() -> None:
    """Only selected paths are decided, and a conflict elsewhere does not matter."""
    found = merged({"d/1": A, "e": A}, {"d/1": A, "e": B}, {"d/1": B, "d/2": B}, only="d")
    assert found.changes == {b"d/1": B, b"d/2": B}
    assert found.conflicts == ()


def test_changes_of_different_bases_are_refused() -> None:
    """Both sides must have been compared with the same base."""
    with pytest.raises(ValueError, match="base"):
        decide({b"f": (A, B)}, {b"f": (C, B)}, lambda _path: True)
