"""Attempts: executions that try one codon, or the rest of a plan, in a way of their own.

An attempt is a branch with a `Variant`. Both are recorded in the attempt's metadata, so that every
start of its server runs it in the same way.
"""

from __future__ import annotations

import math
from typing import Literal

from hankweave_protocol.hank import Variant
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.shapes import Value

AS_THE_HANK = Variant()


class Attempt(Value):
    """How an execution takes part in an exploration."""

    exploration_id: str
    attempt_id: str
    codon_id: CodonId
    """The codon with which it begins: an entry of the plan."""
    variant: Variant = AS_THE_HANK
    rest: bool = False
    """True if the rest of the plan runs, and not only the codon."""
    score: str | None = None
    """A shell command; the last line of its output is the score."""
    max_dollars: float | None = None
    """The most that the execution may cost, in US dollars: what it inherits, and its share of the
    exploration's budget."""


SCORE_CODON = "attempt-score"
"""The codon that runs the score command, after all others."""

AttemptStatus = Literal["waiting", "running", "completed", "failed", "discarded"]
"""`waiting`: not started yet; `failed` ones may still have a score and a checkpoint; `discarded`:
its execution is removed, or about to be."""


class AttemptRecord(Value):
    """One attempt of an exploration, as its parent knows it."""

    attempt_id: str
    """The exploration's id, a hyphen and the attempt's number, from 1."""
    variant: Variant = AS_THE_HANK
    status: AttemptStatus = "waiting"
    """`waiting`, `running`, `completed`, `failed` or `discarded`."""
    execution_path: str | None = None
    """Its execution; null until it is made."""
    run_id: RunId | None = None
    """Its run, in its own state and, when it has ended, in that of its parent."""
    earlier_runs: tuple[RunId, ...] = ()
    """Its runs before that one, oldest first, if its server was started again."""
    checkpoint_sha: Sha | None = None
    """Its result: a checkpoint of the parent, to compare and to adopt."""
    score: float | None = None
    """The score: the higher, the better."""
    message: str | None = None
    """Why it failed, or why it has no score."""
    max_dollars: float | None = None
    """Its share of the exploration's budget in US dollars, reserved when it starts."""
    cost: float = 0.0
    """US dollars."""
    duration_ms: int | None = None
    files: int | None = None
    """The number of files that differ from the checkpoint that it began from."""
    added: int | None = None
    """Lines added."""
    removed: int | None = None
    """Lines removed."""


class JudgedReason(Value):
    """A reason that a model gave for its verdict on an attempt."""

    attempt_id: str
    text: str
    """The reason, as the judge gave it."""


class Judgement(Value):
    """A model's comparison of the attempts, which saw them in two orders."""

    model: str
    order: tuple[tuple[str, ...], ...] = ()
    """Ids of attempts, the best first; those on which the two answers disagree are in one group."""
    agreed: bool = False
    """True if both answers have the same order."""
    reasons: tuple[JudgedReason, ...] = ()
    """Those of the first answer, then those of the second."""
    cost: float = 0.0
    """US dollars."""
    error: str | None = None
    """Why there is no order."""


class Exploration(Value):
    """Several attempts from one checkpoint; which one is adopted shows in the execution thread."""

    exploration_id: str
    created_at: str
    checkpoint_sha: Sha
    """The checkpoint from which all attempts begin."""
    codon_id: CodonId
    """The first codon that they run."""
    attempts: tuple[AttemptRecord, ...]
    """The attempts."""
    rest: bool = False
    """Whether the rest of the plan is tried, and not only one codon."""
    score: str | None = None
    """The command that scores an attempt."""
    judge: str | None = None
    """A model that compares the results, for attempts whose scores are equal."""
    judgement: Judgement | None = None
    """The verdict of the judge about equal scores."""
    parallel: int = 1
    """How many attempts run at the same time."""
    max_dollars: float | None = None
    """The budget of all attempts together."""
    good_enough: float | None = None
    """A score with which no further attempt is started."""
    adopt: Literal["ask", "best"] = "ask"
    """What happens when all attempts have ended."""
    planned: bool = False
    """True if the plan began it: the plan continues when its best attempt is adopted."""
    ended_at: str | None = None
    """The time at which it ended."""

    @property
    def best(self) -> AttemptRecord | None:
        """The eligible attempt with the highest score.

        Of equal ones, the judge's choice, then the cheapest, then the fastest.
        """
        return min(self.eligible, key=self._rank, default=None)

    @property
    def eligible(self) -> tuple[AttemptRecord, ...]:
        """The completed attempts; if there is a score command, only those with a score.

        Nothing is known of the result of an attempt for which the command failed.
        """
        return tuple(
            each
            for each in self.attempts
            if each.status == "completed" and (self.score is None or each.score is not None)
        )

    def _rank(self, attempt: AttemptRecord) -> tuple[float, int, float, float]:
        groups = () if self.judgement is None else self.judgement.order
        place = next((i for i, group in enumerate(groups) if attempt.attempt_id in group), 0)
        time = math.inf if attempt.duration_ms is None else attempt.duration_ms
        return (-(attempt.score or 0.0), place, attempt.cost, time)
