"""A three-way merge, path by path: what is taken, what is merged by lines, what is a conflict.

The input is two sets of changes against the same base: *ours*, the side that takes something over,
and *theirs*, the side it comes from. The result is a set of changes to ours. A path that only one
side has changed keeps that change; if both have, the rules are those of `git merge` without the
detection of renames:

- The same change on both sides is no change.
- Content and mode are merged separately. If each was changed by one side alone, both changes are
  combined. If both sides changed the content of a regular file, its lines must be merged, which is
  the caller's work (`Action.LINES`).
- Everything else is a conflict, and `ConflictKind` says of what kind.

`decide` applies these rules to each path that theirs has changed and that was selected. The caller
then replaces the decisions that need lines (`with_lines`, `without_lines`). `settle` applies the
policy for conflicts, and finds files that would lie in the place of folders: no path shows that
alone. A file and what lies below its path form one conflict, at the file's path.

A path outside of the selection never changes, whatever the policy is. A conflict with such a path
therefore stays one even if theirs should win.

Adding different content on both sides is always a conflict. Git takes the other file if one of them
is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

Entry = tuple[int, bytes]
"""Mode of a file or link as in a git tree, and the digest of its content."""

Changes = Mapping[bytes, tuple[Entry | None, Entry | None]]
"""What a path was and what it is now, where that differs; None if there is no file or link."""

Selects = Callable[[bytes], bool]
"""Return whether a path was selected; with a folder, everything below it is."""

T = TypeVar("T", int, bytes)

_TYPE = 0o170000
_REGULAR = 0o100000


class ConflictPolicy(StrEnum):
    """The treatment of conflicts: a question, or the version of one side."""

    ASK = "ask"
    OURS = "ours"
    THEIRS = "theirs"


class ConflictKind(StrEnum):
    """Why a path cannot be merged."""

    BOTH_CHANGED = "both-changed"
    """Both sides changed the same lines, or a link's target."""
    BOTH_ADDED = "both-added"
    """Both sides added the path, with different content."""
    REMOVED_BY_OURS = "removed-by-ours"
    """Ours removed what theirs changed."""
    REMOVED_BY_THEIRS = "removed-by-theirs"
    """Theirs removed what ours changed."""
    MODE = "mode"
    """Both sides made it executable or not, differently."""
    TYPE = "type"
    """A regular file on one side, a link or another kind of entry on the other."""
    FILE_AND_FOLDER = "file-and-folder"
    """A file or link on one side, a folder on the other."""
    BINARY = "binary"
    """Both sides changed content that has no lines."""
    TOO_LARGE = "too-large"
    """Both sides changed content that is too long to merge its lines."""
    NOT_CAPTURED = "not-captured"
    """Theirs changed what ours has, but could not capture."""


class Action(StrEnum):
    """The result of a merge at a path."""

    TAKE = "take"
    """What theirs has."""
    MERGE = "merge"
    """The changes of both sides."""
    SAME = "same"
    """What both sides have: they made the same change."""
    KEEP = "keep"
    """What ours has, because a conflict was decided for it."""
    LINES = "lines"
    """What merging the lines will show."""
    CONFLICT = "conflict"
    """Nothing yet: it must be decided."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one path."""

    path: bytes
    base: Entry | None
    ours: Entry | None
    theirs: Entry | None
    action: Action
    result: Entry | None = None
    """The entry of the result; of `LINES` only the mode counts, of `CONFLICT` nothing."""
    conflict: ConflictKind | None = None
    """The conflict that it is, or that the policy has decided."""

    @property
    def changes_ours(self) -> bool:
        return self.action in (Action.TAKE, Action.MERGE) and self.result != self.ours


@dataclass(frozen=True, slots=True)
class MergedPaths:
    """The decisions about all paths that were selected and that theirs has changed, in order.

    If theirs won over a file in the place of a folder, there are also decisions about paths that
    only ours has changed.
    """

    decisions: tuple[Decision, ...]

    @property
    def conflicts(self) -> tuple[Decision, ...]:
        """Return the paths that must be decided; with one, the merge has no result."""
        return tuple(each for each in self.decisions if each.action is Action.CONFLICT)

    @property
    def changes(self) -> dict[bytes, Entry | None]:
        """Return what ours has to change to become the result."""
        return {each.path: each.result for each in self.decisions if each.changes_ours}


def decide(
    ours: Changes, theirs: Changes, selects: Selects, uncaptured: Collection[bytes] = ()
) -> dict[bytes, Decision]:
    """Decide about each selected path that theirs has changed.

    `uncaptured` are those of them that exist on our side, but could not be captured. Raise
    ValueError if the changes do not have the same base.
    """
    return {
        path: _decided(path, ours, theirs, is_captured=path not in uncaptured)
        for path in theirs
        if selects(path)
    }


def with_lines(decision: Decision, digest: bytes) -> Decision:
    """Return the decision about a path whose lines were merged into this content."""
    assert decision.result is not None, "a decision about lines has a mode"
    return replace(decision, action=Action.MERGE, result=(decision.result[0], digest))


def without_lines(decision: Decision, kind: ConflictKind) -> Decision:
    """Return the decision about a path whose lines could not be merged."""
    return _conflict(decision, kind)


def settle(
    decisions: Mapping[bytes, Decision],
    ours: Changes,
    theirs: Changes,
    selects: Selects,
    policy: ConflictPolicy,
) -> MergedPaths:
    """Apply the policy to the conflicts, once no decision needs lines any more."""
    settled = {path: _by_policy(decision, policy) for path, decision in decisions.items()}
    for top, paths in _files_with_folders(settled, ours, theirs).items():
        group = [_three(path, ours, theirs) for path in sorted(paths)]
        is_uncaptured = any(_is_uncaptured(decisions.get(each.path)) for each in group)
        is_theirs = policy is ConflictPolicy.THEIRS and selects(top) and not is_uncaptured
        for path in paths:
            settled.pop(path, None)

        if is_theirs or policy is ConflictPolicy.OURS:
            selected = (each for each in group if selects(each.path) and each.ours != each.theirs)
            settled.update((each.path, _won(each, policy)) for each in selected)
        else:
            settled[top] = _conflict(_three(top, ours, theirs), ConflictKind.FILE_AND_FOLDER)

    return MergedPaths(tuple(settled[path] for path in sorted(settled)))


# --- one path -------------------------------------------------------------------------------------


def _three(path: bytes, ours: Changes, theirs: Changes) -> Decision:
    """Return the three versions of a path that one of the sides has changed."""
    base = (ours if path in ours else theirs)[path][0]
    if path in theirs and theirs[path][0] != base:
        raise ValueError("the changes do not have the same base")

    our = ours[path][1] if path in ours else base
    their = theirs[path][1] if path in theirs else base
    return Decision(path, base, our, their, Action.SAME, our)


def _decided(path: bytes, ours: Changes, theirs: Changes, *, is_captured: bool) -> Decision:
    three = _three(path, ours, theirs)
    if not is_captured:
        return _conflict(three, ConflictKind.NOT_CAPTURED)

    if three.ours == three.theirs:
        return three

    if three.ours == three.base:
        return replace(three, action=Action.TAKE, result=three.theirs)

    return _both_changed(three)


def _both_changed(three: Decision) -> Decision:
    base, ours, theirs = three.base, three.ours, three.theirs
    if ours is None:
        return _conflict(three, ConflictKind.REMOVED_BY_OURS)

    if theirs is None:
        return _conflict(three, ConflictKind.REMOVED_BY_THEIRS)

    if _type(ours) != _type(theirs):
        return _conflict(three, ConflictKind.TYPE)

    mode = _one_of(None if base is None else base[0], ours[0], theirs[0])
    if mode is None:
        return _conflict(three, ConflictKind.MODE)

    if base is None:
        return _conflict(three, ConflictKind.BOTH_ADDED)

    digest = _one_of(base[1], ours[1], theirs[1])
    if digest is not None:
        return replace(three, action=Action.MERGE, result=(mode, digest))

    if _type(base) == _type(ours) == _REGULAR:
        return replace(three, action=Action.LINES, result=(mode, b""))

    return _conflict(three, ConflictKind.BOTH_CHANGED)


def _one_of(base: T | None, ours: T, theirs: T) -> T | None:
    """Return the value of the side that changed it, or of both if they agree; else None."""
    if ours in (base, theirs):
        return theirs

    return ours if theirs == base else None


def _type(entry: Entry) -> int:
    return entry[0] & _TYPE


def _conflict(decision: Decision, kind: ConflictKind) -> Decision:
    return replace(decision, action=Action.CONFLICT, result=None, conflict=kind)


def _by_policy(decision: Decision, policy: ConflictPolicy) -> Decision:
    assert decision.action is not Action.LINES, "lines are merged before"
    if decision.action is not Action.CONFLICT or policy is ConflictPolicy.ASK:
        return decision

    if policy is ConflictPolicy.THEIRS and decision.conflict is ConflictKind.NOT_CAPTURED:
        return decision

    return _won(decision, policy)


def _won(decision: Decision, policy: ConflictPolicy) -> Decision:
    """Return the decision for one side; without a kind of conflict, it is one with a folder."""
    action, result = Action.KEEP, decision.ours
    if policy is ConflictPolicy.THEIRS:
        action, result = Action.TAKE, decision.theirs

    kind = decision.conflict or ConflictKind.FILE_AND_FOLDER
    return replace(decision, action=action, result=result, conflict=kind)


def _is_uncaptured(decision: Decision | None) -> bool:
    return decision is not None and decision.conflict is ConflictKind.NOT_CAPTURED


# --- files in the place of folders ----------------------------------------------------------------


def _files_with_folders(
    decisions: Mapping[bytes, Decision], ours: Changes, theirs: Changes
) -> dict[bytes, list[bytes]]:
    """Return each file that the result would have at the path of a folder.

    With it come all paths there that one of the sides has changed, the file's own included. A path
    that neither side has changed needs no look: all three trees have it, so none has a file above.
    """
    changed = ours.keys() | theirs.keys()
    present = {path for path in changed if _is_present(path, decisions, ours, theirs)}
    blocking = {above for path in present for above in _parents_of(path) if above in present}
    if not blocking:
        return {}

    tops = {path for path in blocking if blocking.isdisjoint(_parents_of(path))}
    found: dict[bytes, list[bytes]] = {top: [] for top in tops}
    for path in changed:
        for top in tops.intersection((path, *_parents_of(path))):
            found[top].append(path)

    return found


def _is_present(
    path: bytes, decisions: Mapping[bytes, Decision], ours: Changes, theirs: Changes
) -> bool:
    """Return whether the result has a file at a path, or may have one after a conflict."""
    decision = decisions.get(path)
    if decision is None:
        return _three(path, ours, theirs).ours is not None

    return decision.action is Action.CONFLICT or decision.result is not None


def _parents_of(path: bytes) -> Iterator[bytes]:
    while path := path.rpartition(b"/")[0]:
        yield path
