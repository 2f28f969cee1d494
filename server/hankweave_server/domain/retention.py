"""Decides which checkpoints may go; pure, so that a dry run and the act cannot differ.

Commits are parents of one another and no sha may ever change. So a checkpoint goes only when
nothing that stays descends from it: history is pruned from the tips of abandoned branches
inwards, and each branch moves back to its newest checkpoint that stays.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from hankweave_protocol.ids import Sha, branch_of
from hankweave_server.checkpoints.model import CommitFacts

_KEPT = "refs/hankweave/kept/"
"""Refs that alone lead to their checkpoints, of whatever run these are."""

ALWAYS_KEPT = frozenset({"completed"})
"""Kinds that no policy prunes (DESIGN 7, "Retention")."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What may be given up, and when; without a limit nothing ever goes."""

    max_age: timedelta | None = None
    max_count: int | None = None
    max_bytes: int | None = None
    """Of the whole shadow repository on the disk."""
    kinds: frozenset[str] | None = None
    """The kinds that may go; None is all but those that are always kept."""

    def allows(self, kind: str) -> bool:
        return kind not in ALWAYS_KEPT and (self.kinds is None or kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Lineage:
    """A commit on our refs; without facts it is somebody else's, and stays."""

    sha: Sha
    parents: tuple[Sha, ...]
    facts: CommitFacts | None


@dataclass(frozen=True, slots=True)
class BranchMove:
    """Where a branch goes when its tip does; to None means that it is deleted."""

    ref: str
    old: Sha
    new: Sha | None


@dataclass(frozen=True, slots=True)
class Pruning:
    """What a policy comes to for the history as it is now."""

    checkpoints: tuple[CommitFacts, ...]
    """Those to go, in the order in which they were chosen: every child before its parent."""
    kept: int
    bytes_freed: int
    """An estimate: what other checkpoints share was not counted, but may have been twice."""
    moves: tuple[BranchMove, ...]
    keep: frozenset[Sha]
    """Commits the caller needs, on a ref or not."""


def decide(
    history: Iterable[Lineage],
    branches: Mapping[str, Sha],
    held: frozenset[Sha],
    policy: RetentionPolicy,
    now: datetime,
    bytes_now: int,
    cost: Callable[[CommitFacts], int],
) -> Pruning:
    """Chooses what goes: the oldest tip first, for as long as the policy asks for more.

    `held` are commits that stay with all their ancestors: HEAD, the pinned, the targets of refs
    that are no run's branch, and what the caller needs. `cost` tells the bytes one frees.
    """
    commits = {commit.sha: commit for commit in history}
    staying = with_ancestors(_not_to_go(commits.values(), policy) | held, commits)
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


def with_ancestors(shas: Iterable[Sha], commits: Mapping[Sha, Lineage]) -> set[Sha]:
    """Gives those commits and everything they descend from."""
    found: set[Sha] = set()
    waiting = list(shas)
    while waiting:
        sha = waiting.pop()
        if sha not in found:
            found.add(sha)
            waiting += commits[sha].parents if sha in commits else ()

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
    """Finds the branch's newest commit that stays; a commit of another run is not the branch's."""
    sha = tip
    while sha in going:
        if not commits[sha].parents:
            return None

        sha = commits[sha].parents[0]

    facts = commits[sha].facts if sha in commits else None
    if ref.startswith(_KEPT):
        return sha if facts is not None else None

    return sha if facts is not None and ref.endswith("/" + branch_of(facts.run_id)) else None
