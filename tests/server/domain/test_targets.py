"""Rollback targets: the selected checkpoint, and where the plan continues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import CheckpointKind, CodonCheckpointType, Travel
from hankweave_protocol.state import State
from hankweave_server.domain.execution_thread import next_codon, thread
from hankweave_server.domain.targets import (
    ATTEMPT_START,
    AttemptStart,
    Checkpoints,
    RollbackTarget,
    attempt_start,
    last_success,
    of_codon,
    of_prefix,
    of_travel,
    target_of,
)
from support.histories import a_plan, completed, failed, sha, skipped
from support.timelines import (
    INITIAL,
    a_state,
    checkpoints_of,
    continued,
    ended,
    record,
    rigged,
    with_extra,
)

PLAN = a_plan("one", "two", "three", "four")
FIRST = ended(
    "first",
    rigged(completed("one", 0x11), 0x21),
    completed("two", 0x12),
    rigged(failed("three", sha(0x13)), 0x23),
)
STATE = a_state(FIRST, plan=PLAN)
KNOWN = checkpoints_of(STATE)


def where(target: RollbackTarget) -> tuple[Sha, str | None, list[str]]:
    """Return the target's checkpoint, the codon it continues after, and the rolled-back codons."""
    passed = [entry.codon.codon_id for entry in target.passed]
    return target.checkpoint.sha, target.after_codon, list(passed)


def refusal(resolve: Callable[[], Any]) -> Refused:
    with pytest.raises(Refused) as refused:
        resolve()

    return refused.value


# --- The last success -----------------------------------------------------------------------------


def test_the_last_success_is_the_newest_completed_codon() -> None:
    """A failed codon after the success is rolled back."""
    assert where(last_success(STATE, KNOWN)) == (sha(0x12), "two", ["three"])


def test_a_success_that_git_has_not_is_no_target() -> None:
    """If git lacks the newest success's commit, the success before it is used."""
    known = {at: found for at, found in KNOWN.items() if at != sha(0x12)}
    assert where(last_success(STATE, known)) == (sha(0x11), "one", ["three", "two"])


def test_without_a_success_the_newest_rig_is_taken() -> None:
    """The rig before the failed codon is preferred to the initial checkpoint."""
    state = a_state(ended("first", rigged(failed("one", sha(0x11)), 0x21)), plan=PLAN)
    assert where(last_success(state, checkpoints_of(state))) == (sha(0x21), None, [])


def test_without_any_codon_the_initial_state_is_taken() -> None:
    """The initial checkpoint is used if no codon has one."""
    state = a_state(ended("first", failed("one")), plan=PLAN)
    assert where(last_success(state, checkpoints_of(state))) == (INITIAL, None, ["one"])


def test_with_no_checkpoint_at_all_a_rollback_is_refused() -> None:
    """The refusal says when a rollback becomes possible."""
    refused = refusal(lambda: last_success(a_state(initial=None), {}))
    assert refused.code is ErrorCode.CHECKPOINT_NOT_FOUND
    assert refused.hint


# --- Checkpoints of a codon -----------------------------------------------------------------------

SKIPPING = a_state(
    ended("first", completed("one", 0x11), rigged(skipped("two", sha(0x12)), 0x22)), plan=PLAN
)

OF_CODON: list[tuple[State, str, CodonCheckpointType, Sha, str | None, list[str]]] = [
    (STATE, "one", "rig-setup", sha(0x21), None, ["three", "two"]),
    (STATE, "one", "start", sha(0x21), None, ["three", "two"]),
    (STATE, "one", "completed", sha(0x11), "one", ["three", "two"]),
    (STATE, "one", "end", sha(0x11), "one", ["three", "two"]),
    (STATE, "two", "start", sha(0x11), "one", ["three", "two"]),
    (STATE, "two", "completed", sha(0x12), "two", ["three"]),
    (STATE, "three", "rig-setup", sha(0x23), "two", []),
    (STATE, "three", "error", sha(0x13), "two", []),
    (STATE, "three", "end", sha(0x13), "two", []),
    (SKIPPING, "two", "skipped", sha(0x12), "two", []),
    (SKIPPING, "two", "end", sha(0x12), "two", []),
    (SKIPPING, "two", "start", sha(0x22), "one", []),
    (SKIPPING, "one", "start", INITIAL, None, ["two", "one"]),
]


@pytest.mark.parametrize(("state", "codon", "kind", "at", "after", "passed"), OF_CODON)
def test_a_codons_checkpoint_is_found_by_type_and_alias(
    state: State,
    codon: str,
    kind: CodonCheckpointType,
    at: Sha,
    after: str | None,
    passed: list[str],
) -> None:
    """`start` is the rig or the end of the preceding codon; `end` is the end of any kind; rig and
    error repeat the codon, completed and skipped continue after it."""
    target = of_codon(state, checkpoints_of(state), CodonId(codon), kind)
    assert where(target) == (at, after, passed)


@pytest.mark.parametrize(
    ("codon", "kind", "hint"),
    [
        ("one", "error", "rig-setup, completed"),
        ("one", "skipped", "rig-setup, completed"),
        ("two", "rig-setup", "completed"),
        ("three", "completed", "rig-setup, error"),
    ],
)
def test_a_type_the_codon_does_not_have_is_refused_with_those_it_has(
    codon: str, kind: CodonCheckpointType, hint: str
) -> None:
    """The refusal lists the codon's own checkpoints."""
    refused = refusal(lambda: of_codon(STATE, KNOWN, CodonId(codon), kind))
    assert (refused.code, refused.path) == (
        ErrorCode.CHECKPOINT_NOT_FOUND,
        "$.data.checkpointType",
    )
    assert refused.hint == f"It has: {hint}."


def test_a_codon_that_did_not_run_is_refused_with_those_that_did() -> None:
    """The refusal lists the codons of the plan that have a checkpoint."""
    refused = refusal(lambda: of_codon(STATE, KNOWN, CodonId("four"), "end"))
    assert (refused.code, refused.path) == (ErrorCode.UNKNOWN_CODON, "$.data.codonId")
    assert "one, two, three" in (refused.hint or "")


def test_the_newest_execution_of_a_codon_is_meant() -> None:
    """If a codon ran again in a later run, the later execution counts."""
    second = continued("second", completed("two", 0x32), of="first", after="one", at=sha(0x11))
    state = a_state(FIRST, second, plan=PLAN)
    target = of_codon(state, checkpoints_of(state), CodonId("two"), "completed")
    assert target.checkpoint.sha == sha(0x32)


def test_a_codon_of_another_run_is_found_and_the_run_is_named() -> None:
    """After a rollback past the codon, the newest run that has it counts, and a note names it."""
    second = continued("second", completed("two", 0x32), of="first", after="one", at=sha(0x11))
    third = continued("third", of="second", after=None, at=INITIAL)
    state = a_state(FIRST, second, third, plan=PLAN)
    known = checkpoints_of(state)
    two = of_codon(state, known, CodonId("two"), "completed")
    assert where(two) == (sha(0x32), "two", [])
    assert "run second" in (two.note or "")
    error = of_codon(state, known, CodonId("three"), "error")
    assert where(error) == (sha(0x13), "two", [])
    assert "run first" in (error.note or "")
    start = of_codon(state, known, CodonId("two"), "start")
    assert where(start)[0] == sha(0x11)


def test_the_current_thread_comes_before_other_runs() -> None:
    """A newer checkpoint on an abandoned run is not used, and there is no note."""
    second = continued("second", completed("one", 0x31), of="first", after=None, at=INITIAL)
    third = continued("third", of="first", after="two", at=sha(0x12))
    state = a_state(FIRST, second, third, plan=PLAN)
    target = of_codon(state, checkpoints_of(state), CodonId("one"), "completed")
    assert (target.checkpoint.sha, target.note) == (sha(0x11), None)


def test_a_codon_whose_checkpoint_is_lost_is_refused() -> None:
    """A sha in the state that the repository lacks is not a target."""
    refused = refusal(lambda: of_codon(STATE, {}, CodonId("one"), "end"))
    assert refused.code is ErrorCode.CHECKPOINT_NOT_FOUND


# --- Shas and prefixes ----------------------------------------------------------------------------


def named(text: str) -> Sha:
    return Sha(text.ljust(40, "0"))


def of_two_timelines() -> tuple[State, Checkpoints]:
    """Return `abcd1…` on the thread, and `abcd2…`, `beef1…`, `beef2…` on an old timeline."""
    one = msgspec.structs.replace(completed("one"), completion_checkpoint=named("abcd1"))
    old = [
        msgspec.structs.replace(completed(name), completion_checkpoint=named(text))
        for name, text in (("two", "abcd2"), ("three", "beef1"), ("four", "beef2"))
    ]
    second = continued("second", of="first", after="one", at=named("abcd1"))
    state = a_state(ended("first", one, *old), second, plan=PLAN)
    return state, checkpoints_of(state)


def test_a_prefix_that_is_unique_on_the_thread_is_enough() -> None:
    """A match on another timeline does not make a prefix ambiguous."""
    state, known = of_two_timelines()
    assert of_prefix(state, known, "abcd").checkpoint.sha == named("abcd1")


def test_a_sha_may_be_written_in_upper_case() -> None:
    """A whole sha and a prefix may be in upper case, as Windows tools print them."""
    state, known = of_two_timelines()
    assert of_prefix(state, known, "ABCD").checkpoint.sha == named("abcd1")
    assert of_prefix(state, known, named("beef2").upper()).checkpoint.sha == named("beef2")


def test_a_prefix_of_an_old_timeline_is_found_where_the_thread_has_none() -> None:
    """Rolled-back checkpoints stay reachable; no codon of the current thread is passed."""
    state, known = of_two_timelines()
    assert where(of_prefix(state, known, "abcd2")) == (named("abcd2"), "two", [])
    assert where(of_prefix(state, known, named("beef2"))) == (named("beef2"), "four", [])


def test_an_ambiguous_prefix_is_refused_with_all_matches() -> None:
    """The refusal lists each match with its kind and codon."""
    state, known = of_two_timelines()
    refused = refusal(lambda: of_prefix(state, known, "beef"))
    assert (refused.code, refused.path) == (
        ErrorCode.AMBIGUOUS_CHECKPOINT,
        "$.data.checkpointSha",
    )
    assert "beef10000000 completed:three" in (refused.hint or "")
    assert "beef20000000 completed:four" in (refused.hint or "")


@pytest.mark.parametrize("text", ["", "abc", "ABCG", "abcd ", "../../x", "g" * 8, "a" * 41, "HEAD"])
def test_what_cannot_begin_a_sha_is_refused(text: str) -> None:
    """Prefixes too short, too long or not hexadecimal are refused with the expected format."""
    refused = refusal(lambda: of_prefix(STATE, KNOWN, text))
    assert (refused.code, refused.path) == (
        ErrorCode.CHECKPOINT_NOT_FOUND,
        "$.data.checkpointSha",
    )
    assert "hexadecimal" in (refused.hint or "")


def test_an_unknown_sha_is_refused() -> None:
    """A well-formed prefix that matches no checkpoint is refused."""
    refused = refusal(lambda: of_prefix(STATE, KNOWN, "ffffffff"))
    assert refused.code is ErrorCode.CHECKPOINT_NOT_FOUND


# --- Where the plan continues ---------------------------------------------------------------------


def test_the_initial_checkpoint_is_before_everything() -> None:
    """All codons are rolled back, newest first, and the plan starts from the beginning."""
    assert where(target_of(STATE, KNOWN, INITIAL)) == (INITIAL, None, ["three", "two", "one"])


@pytest.mark.parametrize(
    ("at", "after"), [(0x21, None), (0x11, "one"), (0x12, "two"), (0x23, "two"), (0x13, "two")]
)
def test_an_old_timelines_checkpoint_re_enters_as_its_own_run_saw_it(
    at: int, after: str | None
) -> None:
    """The point of re-entry is found in the thread of the run that took the checkpoint."""
    second = continued("second", of="first", after=None, at=INITIAL)
    state = a_state(FIRST, second, plan=PLAN)
    assert where(target_of(state, checkpoints_of(state), sha(at))) == (sha(at), after, [])


def test_the_state_before_a_codon_of_a_continued_run_crosses_into_its_parent() -> None:
    """The rig of an old continuation re-enters after its parent run's codon."""
    second = continued(
        "second", rigged(completed("two", 0x32), 0x42), of="first", after="one", at=sha(0x11)
    )
    third = continued("third", of="first", after=None, at=INITIAL)
    state = a_state(FIRST, second, third, plan=PLAN)
    assert target_of(state, checkpoints_of(state), sha(0x42)).after_codon == "one"


@pytest.mark.parametrize("kind", ["manual", "tool", "turn"])
@pytest.mark.parametrize(
    ("codon", "behind", "after", "passed"),
    [
        ("one", 0x21, None, ["three", "two"]),
        ("one", 0x11, "one", ["three", "two"]),
        ("two", 0x11, "one", ["three"]),
        ("two", 0x12, "two", ["three"]),
        ("three", 0x23, "two", []),
    ],
)
def test_a_checkpoint_between_ends_holds_what_had_ended_before_it(
    kind: CheckpointKind, codon: str, behind: int, after: str | None, passed: list[str]
) -> None:
    """A checkpoint taken while a codon ran repeats it; one taken after its end continues."""
    known = with_extra(KNOWN, kind, "first", codon, 0xFF, behind=sha(behind))
    assert where(target_of(STATE, known, sha(0xFF))) == (sha(0xFF), after, passed)


def test_a_manual_checkpoint_of_a_run_without_codons_goes_on_where_that_run_does() -> None:
    """Taken right after a rollback, it belongs to the new run and names the old run's codon."""
    second = continued("second", of="first", after="one", at=sha(0x11))
    state = a_state(FIRST, second, plan=PLAN)
    known = with_extra(checkpoints_of(state), "manual", "second", "one", 0xFF, behind=sha(0x13))
    assert target_of(state, known, sha(0xFF)).after_codon == "one"


def test_a_safety_checkpoint_brings_back_where_its_run_stood() -> None:
    """After a rollback from the third codon's end, its safety checkpoint continues there."""
    first = ended("first", completed("one", 0x11), completed("two", 0x12), completed("three", 0x13))
    second = continued("second", completed("two", 0x32), of="first", after="one", at=sha(0x11))
    state = a_state(first, second, plan=PLAN)
    known = with_extra(checkpoints_of(state), "safety", "first", None, 0xFF, behind=sha(0x13))
    assert where(target_of(state, known, sha(0xFF))) == (sha(0xFF), "three", [])


@pytest.mark.parametrize(("kind", "after"), [("completed", "two"), ("rig-setup", None)])
def test_a_run_that_no_state_knows_is_gone_on_from_by_its_commit_alone(
    kind: CheckpointKind, after: str | None
) -> None:
    """A lost run's checkpoint continues after its ended codon, else from the beginning."""
    stray = record(kind, RunId("lost"), CodonId("two"), sha(0xEE))
    known = {**KNOWN, stray.sha: stray}
    assert where(target_of(STATE, known, stray.sha)) == (stray.sha, after, [])


# --- Undo targets ---------------------------------------------------------------------------------

SAFETY = 0xEE
WITH_SAFETY = with_extra(KNOWN, "safety", "first", None, SAFETY, behind=sha(0x13))


def a_journey(source: Sha | None, *, in_place: bool = False) -> Travel:
    """Return a rollback that started where the source checkpoint is the newest."""
    left = None if source is None else record("completed", RunId("first"), None, source).coordinate
    return Travel(operation_id="op", safety=sha(SAFETY), source=left, in_place=in_place)


def test_an_undo_goes_on_where_its_rollback_left() -> None:
    """The files are those of the safety checkpoint, the position is that of the source."""
    travel = a_journey(sha(0x12))
    target = of_travel(STATE, WITH_SAFETY, travel)
    assert where(target) == (sha(SAFETY), "two", ["three"])
    assert target.place == travel.source


@pytest.mark.parametrize("source", [None, sha(0xDD)])
def test_an_undo_to_a_place_that_git_has_not_begins_the_plan_anew(source: Sha | None) -> None:
    """The files are still restored, and every codon of the thread is rolled back."""
    target = of_travel(STATE, WITH_SAFETY, a_journey(source))
    assert where(target) == (sha(SAFETY), None, ["three", "two", "one"])


def test_an_undo_returns_to_the_end_of_a_failed_step() -> None:
    """The step is the last one of the thread again, failed as before, and the next to run."""
    went_back = continued("second", of="first", after="two", at=sha(0x12))
    state = a_state(FIRST, went_back, plan=PLAN)
    target = of_travel(state, WITH_SAFETY, a_journey(sha(0x13)))
    assert where(target) == (sha(SAFETY), "three", [])

    came_back = continued("third", of="first", after=target.after_codon, at=sha(0x13))
    there = a_state(FIRST, went_back, came_back, plan=PLAN)
    assert [entry.codon for entry in thread(there)] == list(FIRST.codons)
    assert next_codon(there) == "three"


def test_the_undo_of_a_journey_of_files_passes_nothing() -> None:
    """Only files changed, so the plan continues after the newest codon."""
    target = of_travel(STATE, WITH_SAFETY, a_journey(sha(0x12), in_place=True))
    assert where(target) == (sha(SAFETY), "three", [])
    assert target.is_in_place


def test_an_undo_without_its_safety_checkpoint_is_refused() -> None:
    """If the safety checkpoint was pruned, the hint refers to the checkpoint list."""
    refused = refusal(lambda: of_travel(STATE, KNOWN, a_journey(sha(0x12))))
    assert refused.code is ErrorCode.CHECKPOINT_NOT_FOUND
    assert "checkpoint.list" in (refused.hint or "")


# --- Where an attempt started ---------------------------------------------------------------------


def begun(codon: str, number: int, label: str = f"{ATTEMPT_START} 1") -> Checkpoints:
    """Return a checkpoint that was taken before an attempt."""
    kept = record("safety", RunId("first"), CodonId(codon), sha(number))
    return {kept.sha: msgspec.structs.replace(kept, label=label)}


def test_the_next_attempt_begins_with_the_rig() -> None:
    """The rig does not have to be set up again."""
    found = attempt_start(STATE, {**KNOWN, **begun("three", 0xF0)}, CodonId("three"))
    assert found == AttemptStart(KNOWN[sha(0x23)], sha(0x23))


def test_without_a_rig_the_newest_start_of_an_attempt_is_taken() -> None:
    """Other checkpoints of the codon, and starts of other codons, are not used."""
    state = a_state(ended("first", failed("three", sha(0x13))), plan=PLAN)
    newest = begun("three", 0xF1)
    others = {**begun("two", 0xF3), **begun("three", 0xF2, "by hand")}
    known = {**checkpoints_of(state), **newest, **begun("three", 0xF0), **others}
    assert attempt_start(state, known, CodonId("three")) == AttemptStart(newest[sha(0xF1)], None)


def test_an_attempt_of_which_nothing_was_kept_has_no_start() -> None:
    """An attempt without a checkpoint, an older codon and the first one have no start."""
    state = a_state(ended("first", failed("three", sha(0x13))), plan=PLAN)
    assert attempt_start(state, checkpoints_of(state), CodonId("three")) is None
    assert attempt_start(STATE, KNOWN, CodonId("two")) is None
    assert attempt_start(a_state(plan=PLAN), KNOWN, CodonId("one")) is None


# --- Refusals -------------------------------------------------------------------------------------


def test_a_codon_without_any_checkpoint_is_refused_with_none() -> None:
    """A skipped codon and one that failed before its rig was set up may have no checkpoint."""
    state = a_state(ended("first", skipped("one"), failed("two")), plan=PLAN, initial=None)
    assert refusal(lambda: of_codon(state, {}, CodonId("one"), "end")).hint == "It has: none."
    assert refusal(lambda: of_codon(state, {}, CodonId("two"), "start")).hint == "It has: none."


def test_a_refusal_names_what_a_skipped_codon_has() -> None:
    """The refusal lists `skipped`, the kind of a skipped codon's end."""
    refused = refusal(
        lambda: of_codon(SKIPPING, checkpoints_of(SKIPPING), CodonId("two"), "completed")
    )
    assert refused.hint == "It has: rig-setup, skipped."
