"""Retention: decide which checkpoints may be removed, and why each of the others stays.

Commits are parents of one another, and no SHA may ever change. So a checkpoint is removed only if
nothing that stays descends from it: history is pruned from the tips of abandoned branches inwards,
and each branch moves back to its newest checkpoint that stays.

The decision is pure, so that a dry run and the real run cannot differ: the state and the known
checkpoints come in. `completed` and pinned checkpoints stay because of their kind; `thread_needs`
and `journeys_need` name the ones that stay because of where the execution stands. Results of
attempts that were discarded are `completed` checkpoints that may go.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from hankweave_protocol.ids import CodonId, RunId, Sha, branch_of
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import KeepReason, KeptCheckpoint
from hankweave_protocol.state import Continuation, State
from hankweave_server.domain.execution_thread import (
    beginnings,
    thread,
)
from hankweave_server.domain.targets import Checkpoints, thread_checkpoints

_KEPT = "refs/hankweave/kept/"
"""Refs that alone lead to their checkpoints, of any run."""

ALWAYS_KEPT = frozenset({"completed"})
"""Kinds that no policy prunes."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The limits on checkpoints; without a limit nothing is removed."""

    max_age: timedelta | None = None
    max_count: int | None = None
    max_bytes: int | None = None
    """The size of the whole shadow repository on the disk."""
    kinds: frozenset[str] | None = None
    """The kinds that may be removed; None means all except the ones that are always kept."""

    def allows(self, kind: str) -> bool:
        return kind not in ALWAYS_KEPT and (self.kinds is None or kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Lineage:
    """A commit on the shadow repository's refs; a commit without facts is foreign, and stays."""

    sha: Sha
    parents: tuple[Sha, ...]
    facts: CommitFacts | None


@dataclass(frozen=True, slots=True)
class BranchMove:
    """The new tip of a branch whose tip is removed; None deletes the branch."""

    ref: str
    old: Sha
    new: Sha | None


@dataclass(frozen=True, slots=True)
class Pruning:
    """The result of a policy for the current history."""

    checkpoints: tuple[CommitFacts, ...]
    """The checkpoints to remove, in the order they were chosen: every child before its parent."""
    kept: int
    bytes_freed: int
    """An estimate: content shared with other checkpoints is left out, but may be counted twice."""
    moves: tuple[BranchMove, ...]
    keep: frozenset[Sha]
    """Commits the caller needs, whether or not they are on a ref."""


def decide(
    history: Iterable[Lineage],
    branches: Mapping[str, Sha],
    held: frozenset[Sha],
    policy: RetentionPolicy,
    now: datetime,
    bytes_now: int,
    cost: Callable[[CommitFacts], int],
    unwanted: frozenset[Sha] = frozenset(),
) -> Pruning:
    """Choose the checkpoints to remove: the oldest tip first, as long as the policy is exceeded.

    `held` are commits that stay with all their ancestors: HEAD, pinned ones, the targets of refs
    other than a run's branch, and what the caller needs. `cost` returns the bytes that one frees.
    Of `unwanted` ones, any kind may go, even one that is always kept.
    """
    commits = {commit.sha: commit for commit in history}
    parents = {sha: commit.parents for sha, commit in commits.items()}
    staying = with_ancestors((_not_to_go(commits.values(), policy) - unwanted) | held, parents)
    children = dict.fromkeys(commits, 0)
    for commit in commits.values():
        for parent in commit.parents:
            children[parent] = children.get(parent, 0) + 1

    tips = [_aged(c.facts) for c in commits.values() if c.facts and not children[c.sha]]
    tips = [tip for tip in tips if tip[1] not in staying]
    heapq.heapify(tips)
    going: dict[Sha, CommitFacts] = {}
    count = sum(commit.facts is not None for commit in commits.values())
    freed = 0
    while tips:
        moment, sha = heapq.heappop(tips)
        if not _asks_for_more(policy, now - moment, count - len(going), bytes_now - freed):
            break

        facts = commits[sha].facts
        assert facts is not None, "commits of others stay"
        going[sha] = facts
        freed += cost(facts)
        for parent in commits[sha].parents:
            children[parent] -= 1
            above = commits.get(parent)
            if above and above.facts and not children[parent] and parent not in staying:
                heapq.heappush(tips, _aged(above.facts))

    moves = tuple(_moves(branches, commits, going))
    return Pruning(tuple(going.values()), count - len(going), freed, moves, held)


def with_ancestors(shas: Iterable[Sha], parents: Mapping[Sha, tuple[Sha, ...]]) -> set[Sha]:
    """Return these commits and all their ancestors."""
    found: set[Sha] = set()
    waiting = list(shas)
    while waiting:
        sha = waiting.pop()
        if sha not in found:
            found.add(sha)
            waiting += parents.get(sha, ())

    return found


def _not_to_go(commits: Iterable[Lineage], policy: RetentionPolicy) -> set[Sha]:
    return {c.sha for c in commits if c.facts is None or not policy.allows(c.facts.kind)}


def _aged(facts: CommitFacts) -> tuple[datetime, Sha]:
    return facts.timestamp, facts.sha


def _asks_for_more(policy: RetentionPolicy, age: timedelta, count: int, size: int) -> bool:
    return (
        (policy.max_age is not None and age > policy.max_age)
        or (policy.max_count is not None and count > policy.max_count)
        or (policy.max_bytes is not None and size > policy.max_bytes)
    )


def _moves(
    branches: Mapping[str, Sha], commits: Mapping[Sha, Lineage], going: Mapping[Sha, CommitFacts]
) -> Iterator[BranchMove]:
    for ref, tip in sorted(branches.items()):
        if tip in going:
            yield BranchMove(ref, tip, _new_tip(ref, tip, commits, going))


def _new_tip(
    ref: str, tip: Sha, commits: Mapping[Sha, Lineage], going: Mapping[Sha, CommitFacts]
) -> Sha | None:
    """Return the branch's newest commit that stays; a commit of another run is not the branch's."""
    sha = tip
    while sha in going:
        if not commits[sha].parents:
            return None

        sha = commits[sha].parents[0]

    facts = commits[sha].facts if sha in commits else None
    if ref.startswith(_KEPT):
        return sha if facts is not None else None

    return sha if facts is not None and ref.endswith("/" + branch_of(facts.run_id)) else None


def thread_needs(state: State, known: Checkpoints) -> frozenset[Sha]:
    """Return the thread's checkpoints: its origins, the ones it names, and the ones it took."""
    entries = thread(state)
    executions = {(entry.run_id, entry.codon.codon_id) for entry in entries}
    taken = {
        sha
        for sha, record in known.items()
        if (record.coordinate.run_id, record.coordinate.codon_id) in executions
    }
    origins = {
        run.starting_conditions.source.checkpoint_sha
        for run in state.runs[:1]
        if isinstance(run.starting_conditions, Continuation)
    }
    origins |= set(beginnings(state).values())
    return thread_checkpoints(state).union(taken, filter(None, origins))


def of_discarded_attempts(state: State, parents: Mapping[Sha, tuple[Sha, ...]]) -> frozenset[Sha]:
    """Return the checkpoints of attempts that were discarded: from each result to its beginning."""
    found: set[Sha] = set()
    for exploration in state.explorations:
        for attempt in exploration.attempts:
            sha = attempt.checkpoint_sha if attempt.status == "discarded" else None
            while sha is not None and sha != exploration.checkpoint_sha:
                found.add(sha)
                sha = next(iter(parents.get(sha, ())), None)

    return frozenset(found)


def journeys_need(state: State, known: Checkpoints) -> frozenset[Sha]:
    """Return the targets of the next undo and redo, and always the newest safety checkpoint."""
    # Not in list order: git returns commits of one second in any. Not by time: clocks are set.
    safeties = [record for record in reversed(list(known.values())) if record.kind == "safety"]
    newest = max(safeties, key=_age, default=None)
    travels = (*state.undo[-1:], *state.redo[-1:])
    sources = (travel.source for travel in travels if travel.source is not None)
    places = (source.checkpoint_sha for source in sources)
    last = () if newest is None else (newest.sha,)
    return frozenset((*last, *(travel.safety for travel in travels), *places))


def _age(record: CheckpointRecord) -> tuple[int, str]:
    return record.coordinate.event_seq, record.timestamp


def reasons(
    *,
    needed: frozenset[Sha],
    journeys: frozenset[Sha],
    kinds: frozenset[str] | None,
    unwanted: frozenset[Sha] = frozenset(),
) -> Callable[[CheckpointRecord], KeepReason | None]:
    """Return a function that tells why a checkpoint stays; None if only the limits keep it."""

    def reason(record: CheckpointRecord) -> KeepReason | None:
        if record.pinned:
            return "pinned"

        is_unwanted = record.sha in unwanted
        if record.kind == "completed" and not is_unwanted:
            return "completed"

        if record.sha in needed:
            return "thread"

        if record.sha in journeys:
            return "undo"

        may_go = is_unwanted or kinds is None or record.kind in kinds
        return None if may_go else "kind"

    return reason


def kept_because(
    kept: Iterable[CheckpointRecord],
    reason: Callable[[CheckpointRecord], KeepReason | None],
    parents: Mapping[Sha, tuple[Sha, ...]],
) -> tuple[KeptCheckpoint, ...]:
    """Return each remaining checkpoint with its first valid reason, in the given order.

    A commit cannot be removed before its descendants; that is a reason too.
    """
    records = tuple(kept)
    own = {record.sha: reason(record) for record in records}
    above = with_ancestors((sha for sha, why in own.items() if why is not None), parents)
    return tuple(
        KeptCheckpoint(
            sha=record.sha,
            kind=record.kind,
            reason=own[record.sha] or ("ancestor" if record.sha in above else "limits"),
        )
        for record in records
    )


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """The facts in a checkpoint's commit: enough to rebuild the journal's record of it."""

    sha: Sha
    tree: Sha
    parents: tuple[Sha, ...]
    kind: str
    codon_id: CodonId | None
    codon_name: str
    run_id: RunId
    timestamp: datetime
    duration_ms: int | None
    operation_id: str | None
    event_seq: int | None
    session_id: str | None
    memory_epoch: int
    label: str | None
    codon_state: str | None = None
    """The codon's status at that moment; None also in commits of the first version."""
    message_id: str | None = None
    summary: str | None = None
