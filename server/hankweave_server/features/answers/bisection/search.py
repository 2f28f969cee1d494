"""Search for the first checkpoint at which a command fails.

`FirstFailure` decides which checkpoints to try. It knows one that passes and a later one that
fails, and halves what lies between; with several tries at a time, it divides that into one part
more. A checkpoint that cannot be judged is passed over, as in `git bisect`: the neighbours decide,
and if only such ones are left, all of them are suspects. Both ends are tried first, so the number
of runs is at most log2(n) + 2. The result of a run is that of the tree: checkpoints that changed
nothing are no candidates, and a tree that comes again is not run again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import Sha
from hankweave_server.background_tasks import task_group

Verdict = Literal["passes", "fails", "skipped"]

SKIP = 125
"""The exit code of a command that cannot judge a checkpoint, as for git."""


class BisectFailed(Exception):
    """A search that has no result; the message says why, and the hint what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class FirstFailure:
    """A search among candidates: number 0 passes, the last one fails."""

    def __init__(self, last: int) -> None:
        self._passes = 0
        self._fails = last
        self._skipped: set[int] = set()

    def tries(self, most: int) -> tuple[int, ...]:
        """Return the candidates to try next, at most so many; none at the end."""
        between = range(self._passes + 1, self._fails)
        left = [number for number in between if number not in self._skipped]
        parts = min(most, len(left)) + 1
        return tuple(left[part * len(left) // parts] for part in range(1, parts))

    def note(self, number: int, verdict: Verdict) -> None:
        """Take the result of a candidate into account."""
        match verdict:
            case "passes" if number < self._fails:
                self._passes = max(self._passes, number)
            case "fails":
                self._fails = min(self._fails, number)
            case "skipped":
                self._skipped.add(number)
            case _:
                pass

    @property
    def suspects(self) -> range:
        """The candidates of which one is the first failure; a single one if nothing was skipped."""
        return range(self._passes + 1, self._fails + 1)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that may be the first failure."""

    sha: Sha
    tree: Sha


@dataclass(slots=True)
class Bisection:
    """A search over checkpoints, from one that passes to one that fails, oldest first."""

    candidates: Sequence[Candidate]
    attempt: Callable[[Candidate], Awaitable[Verdict]]
    """Run the command on a checkpoint."""
    parallel: int = 1
    runs: int = 0
    known: dict[Sha, Verdict] = field(default_factory=dict)
    """The results, by tree."""

    @property
    def skipped(self) -> int:
        """The number of trees that could not be judged."""
        return sum(verdict == "skipped" for verdict in self.known.values())

    async def run(self) -> tuple[Candidate, ...]:
        """Return the first failure, or all that it may be; raise BisectFailed."""
        changed = list(_without_repetitions(self.candidates))
        await self._try((changed[0], changed[-1]) if self.parallel > 1 else (changed[0],))
        self._require(changed[0], "passes")
        await self._try((changed[-1],))
        self._require(changed[-1], "fails")
        search = FirstFailure(len(changed) - 1)
        while numbers := search.tries(self.parallel):
            await self._try([changed[number] for number in numbers])
            for number in numbers:
                search.note(number, self.known[changed[number].tree])

        return tuple(changed[number] for number in search.suspects)

    async def _try(self, candidates: Sequence[Candidate]) -> None:
        new = {each.tree: each for each in candidates if each.tree not in self.known}
        try:
            async with task_group() as tasks:
                for each in new.values():
                    tasks.start_soon(self._judge, each)
        except ExceptionGroup as group:  # The first error has cancelled the others.
            raise group.exceptions[0] from None

    async def _judge(self, candidate: Candidate) -> None:
        self.runs += 1
        self.known[candidate.tree] = await self.attempt(candidate)

    def _require(self, candidate: Candidate, wanted: Verdict) -> None:
        found = self.known[candidate.tree]
        if found == wanted:
            return

        sha = candidate.sha[:12]
        if found == "skipped":
            raise BisectFailed(
                f"The command cannot judge checkpoint {sha}: it exited with {SKIP}.",
                Hint.BISECT_RANGE,
            )

        if wanted == "passes":
            raise BisectFailed(
                f"The command fails at checkpoint {sha} already.",
                Hint.BISECT_GOOD,
            )

        raise BisectFailed(
            f"The command does not fail at checkpoint {sha}.",
            Hint.BISECT_BAD,
        )


def _without_repetitions(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield the candidates that differ from the one before."""
    before = None
    for each in candidates:
        if each.tree != before:
            yield each

        before = each.tree
