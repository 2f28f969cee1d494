"""The plan of an adoption: the same in preview and in fact, and refused if it is another one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from hankweave_protocol.ids import Sha
from hankweave_server.domain.adoption import (
    AdoptionConflicts,
    AdoptionCounts,
    AdoptionOutdated,
    AdoptionPlan,
    AdoptionRequest,
    CheckpointContent,
    plan_adoption,
    require_adoptable,
)
from hankweave_server.domain.path_merge import (
    Action,
    ConflictKind,
    Decision,
    Entry,
    MergedPaths,
    Policy,
)


def content(letter: str) -> CheckpointContent:
    return CheckpointContent(Sha(letter * 40), Sha(letter.upper() * 40), f"manifest {letter}")


REQUEST = AdoptionRequest("exploration", "attempt-2", content("a"), content("b"), content("c"))
A: Entry = (0o100644, b"a" * 20)
B: Entry = (0o100644, b"b" * 20)
C: Entry = (0o100755, b"c" * 20)

TAKEN = Decision(b"taken", A, A, B, Action.TAKE, B)
ADDED = Decision(b"added", None, None, B, Action.TAKE, B)
REMOVED = Decision(b"removed", A, A, None, Action.TAKE, None)
COMBINED = Decision(b"combined", A, B, C, Action.MERGE, (0o100755, b"m" * 20))
SAME = Decision(b"same", A, B, B, Action.SAME, B)
KEPT = Decision(b"kept", A, B, C, Action.KEEP, B, ConflictKind.BOTH_CHANGED)
REPLACED = Decision(b"replaced", A, B, C, Action.TAKE, C, ConflictKind.BOTH_CHANGED)
CONFLICT = Decision(b"conflict", A, B, C, Action.CONFLICT, None, ConflictKind.BOTH_CHANGED)
CLEAN = (TAKEN, ADDED, REMOVED, COMBINED, SAME, KEPT, REPLACED)


def plan(*decisions: Decision, request: AdoptionRequest = REQUEST) -> AdoptionPlan:
    return plan_adoption(request, MergedPaths(decisions))


def test_paths_are_counted_by_what_happens_to_them() -> None:
    """Each path is in one of the sums; a conflict is also named by how it was decided."""
    assert plan(*CLEAN, CONFLICT).counts == AdoptionCounts(
        added=1, updated=3, removed=1, merged=1, unchanged=1, kept=1, replaced=1, conflicts=1
    )


def test_a_plan_with_a_conflict_is_refused() -> None:
    """The refusal names the conflicts; without any, the plan passes."""
    require_adoptable(plan(*CLEAN), None)
    with pytest.raises(AdoptionConflicts) as refusal:
        require_adoptable(plan(*CLEAN, CONFLICT), None)

    assert refusal.value.conflicts == (CONFLICT,)


def test_a_plan_that_was_not_previewed_is_refused() -> None:
    """An adoption whose preview had another digest is refused, before conflicts are looked at."""
    previewed = plan(*CLEAN)
    require_adoptable(plan(*CLEAN), previewed.digest)
    with pytest.raises(AdoptionOutdated) as refusal:
        require_adoptable(plan(*CLEAN, CONFLICT), previewed.digest)

    assert refusal.value.previewed == previewed.digest


def test_a_new_checkpoint_of_the_same_content_gives_the_same_plan() -> None:
    """The ids of checkpoints do not count: they are taken anew, while trees and manifests do."""
    again = replace(REQUEST, present=replace(REQUEST.present, sha=Sha("d" * 40)))
    assert plan(*CLEAN, request=again).digest == plan(*CLEAN).digest


def test_whatever_differs_gives_another_digest() -> None:
    """No two of these requests and decisions have the same digest."""
    other = content("e")
    requests = [
        REQUEST,
        replace(REQUEST, exploration_id="another"),
        replace(REQUEST, attempt_id="another"),
        replace(REQUEST, exploration_id="explorationattempt-2", attempt_id=""),
        *(replace(REQUEST, **{side: other}) for side in ("origin", "present", "result")),
        replace(REQUEST, present=replace(REQUEST.present, manifest="chmod")),
        replace(REQUEST, policy=Policy.OURS),
        replace(REQUEST, policy=Policy.THEIRS),
        *(
            replace(REQUEST, paths=frozenset(paths))
            for paths in ((), (b"a",), (b"a", b"b"), (b"ab",))
        ),
    ]
    decisions = [
        (),
        *((each,) for each in (*CLEAN, CONFLICT)),
        (replace(TAKEN, result=C),),
        (replace(TAKEN, result=None),),
        (replace(CONFLICT, conflict=ConflictKind.BINARY),),
        (TAKEN, ADDED),
        CLEAN,
    ]
    digests = [plan(TAKEN, request=each).digest for each in requests]
    digests += [plan(*each).digest for each in decisions if each != (TAKEN,)]
    assert all(one != another for one, another in combinations(digests, 2))


def test_edits_of_people_are_lost_only_where_theirs_won() -> None:
    """A conflict that was decided against an edited file is listed; merged edits are not lost."""
    edits = frozenset(each.path for each in (*CLEAN, CONFLICT) if each.path != b"taken")
    assert plan(*CLEAN, request=replace(REQUEST, edits=edits)).lost_edits == (b"replaced",)
    assert plan(*CLEAN).lost_edits == ()


def test_the_provenance_names_attempt_checkpoints_and_choices() -> None:
    """It has the exact checkpoints, unlike the digest, and the paths in order."""
    request = replace(REQUEST, paths=frozenset({b"b", b"a"}), policy=Policy.THEIRS)
    found = plan(*CLEAN, request=request).provenance
    assert (found.exploration_id, found.attempt_id) == ("exploration", "attempt-2")
    assert (found.origin, found.present, found.result) == ("a" * 40, "b" * 40, "c" * 40)
    assert (found.paths, found.policy) == ((b"a", b"b"), Policy.THEIRS)
