"""The decisions of a retention policy over random histories: no clock, file or repository."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.ids import CodonId, RunId, Sha, branch_of
from hankweave_server.domain.retention import (
    BranchMove,
    CommitFacts,
    Lineage,
    Pruning,
    RetentionPolicy,
    decide,
    with_ancestors,
)

NOW = datetime(2025, 1, 31, tzinfo=UTC)
KINDS = ("completed", "tool", "turn", "safety", "error")
COST = 100


def sha(number: int) -> Sha:
    return Sha(f"{number:040x}")


def branch(run: int) -> str:
    return "refs/heads/" + branch_of(RunId(f"r{run}"))


def commit(number: int, parent: int | None, kind: str, run: int, age: float) -> Lineage:
    parents = () if parent is None else (sha(parent),)
    facts = CommitFacts(
        sha=sha(number),
        tree=sha(0),
        parents=parents,
        kind=kind,
        codon_id=CodonId("c"),
        codon_name="c",
        run_id=RunId(f"r{run}"),
        timestamp=NOW - timedelta(days=age),
        duration_ms=None,
        operation_id=None,
        event_seq=None,
        session_id=None,
        memory_epoch=0,
        label=None,
    )
    return Lineage(sha(number), parents, facts)


def foreign(number: int, parent: int) -> Lineage:
    return Lineage(sha(number), (sha(parent),), None)


def decided(
    history: list[Lineage],
    branches: dict[str, Sha],
    policy: RetentionPolicy,
    held: frozenset[Sha] = frozenset(),
    bytes_now: int = 0,
) -> Pruning:
    return decide(history, branches, held, policy, NOW, bytes_now, lambda _: COST)


def gone(pruning: Pruning) -> list[int]:
    return [int(facts.sha, 16) for facts in pruning.checkpoints]


# Two runs: 1 - 2 - 3 of run 1 was rolled back to 1, and run 2 continued with 4.
FORK = [
    commit(1, None, "completed", 1, 20),
    commit(2, 1, "tool", 1, 15),
    commit(3, 2, "safety", 1, 10),
    commit(4, 1, "tool", 2, 5),
]
BRANCHES = {branch(1): sha(3), branch(2): sha(4)}
HEAD = frozenset({sha(4)})


def test_by_default_nothing_goes():
    """A policy without a limit prunes nothing, however old it is."""
    pruning = decided(FORK, BRANCHES, RetentionPolicy(kinds=frozenset(KINDS)), bytes_now=1 << 60)
    assert (gone(pruning), pruning.kept, pruning.moves) == ([], 4, ())


def test_age_prunes_abandoned_tails():
    """An old checkpoint on no living thread is pruned, and its branch moves back."""
    pruning = decided(FORK, BRANCHES, RetentionPolicy(max_age=timedelta(days=9)), HEAD)
    assert gone(pruning) == [3, 2]
    assert pruning.moves == (BranchMove(branch(1), sha(3), sha(1)),)
    assert (pruning.kept, pruning.bytes_freed) == (2, 2 * COST)


def test_a_young_checkpoint_keeps_its_ancestors():
    """An old checkpoint stays while a younger retained one descends from it."""
    pruning = decided(FORK, BRANCHES, RetentionPolicy(max_age=timedelta(days=12)), HEAD)
    assert gone(pruning) == []


def test_a_checkpoint_of_just_that_age_stays():
    """An age equal to the limit is within it."""
    assert gone(decided(FORK, BRANCHES, RetentionPolicy(max_age=timedelta(days=10)), HEAD)) == []


def test_count_takes_the_oldest_tips_first():
    """Only the excess is pruned, starting with the branch that was abandoned first."""
    history = [*FORK, commit(5, 4, "turn", 2, 3), commit(6, 1, "tool", 3, 1)]
    branches = {branch(1): sha(3), branch(2): sha(5), branch(3): sha(6)}
    pruning = decided(history, branches, RetentionPolicy(max_count=3), frozenset({sha(6)}))
    assert gone(pruning) == [3, 2, 5]
    assert pruning.kept == 3


def test_bytes_go_until_enough_are_free():
    """Checkpoints are pruned, the oldest tip first, until the store is small enough."""
    policy = RetentionPolicy(max_bytes=1000)
    assert gone(decided(FORK, BRANCHES, policy, HEAD, bytes_now=1000)) == []
    assert gone(decided(FORK, BRANCHES, policy, HEAD, bytes_now=1001)) == [3]
    assert gone(decided(FORK, BRANCHES, policy, HEAD, bytes_now=1101)) == [3, 2]


def test_kinds_limit_what_may_go():
    """A kind that the policy does not name stays, and so do its ancestors."""
    age = timedelta(days=1)
    only_tools = RetentionPolicy(max_age=age, kinds=frozenset({"tool"}))
    assert gone(decided(FORK, BRANCHES, only_tools, HEAD)) == []

    only_safety = RetentionPolicy(max_age=age, kinds=frozenset({"safety"}))
    pruning = decided(FORK, BRANCHES, only_safety, HEAD)
    assert gone(pruning) == [3]
    assert pruning.moves == (BranchMove(branch(1), sha(3), sha(2)),)


def test_completed_never_goes():
    """Not even a policy that names the kind prunes a completed codon's checkpoint."""
    policy = RetentionPolicy(max_count=0, kinds=frozenset({"completed", "tool", "safety"}))
    assert gone(decided(FORK, BRANCHES, policy)) == [3, 2, 4]


def test_a_branch_that_has_nothing_left_is_deleted():
    """If all of a branch's own checkpoints are pruned, the rest belongs to another run."""
    history = [*FORK[:3], commit(4, 2, "tool", 2, 14)]
    branches = {branch(1): sha(3), branch(2): sha(4)}
    pruning = decided(history, branches, RetentionPolicy(max_age=timedelta(days=9)))
    assert gone(pruning) == [4, 3, 2]
    assert pruning.moves == (
        BranchMove(branch(1), sha(3), sha(1)),
        BranchMove(branch(2), sha(4), None),
    )


def test_a_foreign_commit_stays():
    """A commit that is no known checkpoint protects its ancestors."""
    history = [*FORK, foreign(5, 3)]
    policy = RetentionPolicy(max_count=0)
    assert gone(decided(history, {**BRANCHES, branch(1): sha(5)}, policy, HEAD)) == []


@st.composite
def histories(draw):
    """Return a forest of checkpoints on runs, with branches at tips, and some commits held."""
    count = draw(st.integers(1, 14))
    history: list[Lineage] = []
    tips: dict[int, int] = {}
    for number in range(1, count + 1):
        parent = draw(st.none() | st.integers(1, number - 1)) if number > 1 else None
        of_parent = None if parent is None else history[parent - 1].facts
        if of_parent is not None and tips.get(int(of_parent.run_id[1:])) == parent:
            run = draw(st.sampled_from([int(of_parent.run_id[1:]), number]))
        else:
            run = number

        kind = draw(st.sampled_from(KINDS))
        history.append(commit(number, parent, kind, run, draw(st.integers(0, 30))))
        tips[run] = number

    branches = {branch(run): sha(tip) for run, tip in tips.items()}
    held = draw(st.frozensets(st.integers(1, count).map(sha), max_size=2))
    return history, branches, held


policies = st.builds(
    RetentionPolicy,
    max_age=st.none() | st.integers(0, 30).map(lambda days: timedelta(days=days)),
    max_count=st.none() | st.integers(0, 14),
    max_bytes=st.none() | st.integers(0, 14 * COST),
    kinds=st.none() | st.frozensets(st.sampled_from(KINDS)),
)


@given(histories(), policies)
def test_whatever_stays_is_whole(drawn, policy):
    """No commit is pruned that is held, of a protected kind, or an ancestor of a retained one."""
    history, branches, held = drawn
    commits = {item.sha: item for item in history}
    parents = {item.sha: item.parents for item in history}
    pruning = decided(history, branches, policy, held, bytes_now=COST * len(history))
    going = {facts.sha for facts in pruning.checkpoints}
    staying = commits.keys() - going

    assert pruning.kept == len(staying)
    assert with_ancestors(staying | held, parents).isdisjoint(going)
    assert all(policy.allows(facts.kind) for facts in pruning.checkpoints)
    moved = {move.ref: move.new for move in pruning.moves}
    ends = {moved.get(ref, tip) for ref, tip in branches.items()} - {None}
    assert ends <= staying
    assert with_ancestors(ends | held, parents) == staying | held
    for ref, new in moved.items():
        assert branches[ref] in going
        assert new is None or ref == branch(int(commits[new].facts.run_id[1:]))


@given(histories(), policies)
def test_a_policy_is_satisfied_or_out_of_candidates(drawn, policy):
    """Pruning ends exactly when the limits hold or no tip may be pruned."""
    history, branches, held = drawn
    commits = {item.sha: item for item in history}
    size = COST * len(history)
    pruning = decided(history, branches, policy, held, bytes_now=size)
    left = {item.sha: item for item in history} | {}
    for facts in pruning.checkpoints:
        assert _asks(policy, commits[facts.sha], len(left), COST * len(left))
        assert not any(facts.sha in item.parents for item in left.values())
        del left[facts.sha]

    fixed = {s for s, c in commits.items() if not policy.allows(c.facts.kind)} | held
    parents = {item.sha: item.parents for item in history}
    free = left.keys() - with_ancestors(fixed, parents)
    tips = [s for s in free if not any(s in item.parents for item in left.values())]
    oldest = min(tips, key=lambda s: (commits[s].facts.timestamp, s), default=None)
    assert oldest is None or not _asks(policy, commits[oldest], len(left), COST * len(left))


def _asks(policy: RetentionPolicy, item: Lineage, count: int, size: int) -> bool:
    assert item.facts is not None
    age = NOW - item.facts.timestamp
    return (
        (policy.max_age is not None and age > policy.max_age)
        or (policy.max_count is not None and count > policy.max_count)
        or (policy.max_bytes is not None and size > policy.max_bytes)
    )
