"""How well the server is: what is wrong at the moment, each with a code, a sentence and since when.

A server with a problem is *degraded*: it stays up, answers who asks, and refuses what it could not
keep. What it cannot live with it does not report here: it ends, with a sentence and an exit code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from hankweave_protocol.records import Problem, ProblemCode

__all__ = ["Health", "Problem", "ProblemCode"]


@dataclass(frozen=True, slots=True)
class Health:
    """All problems there are, the oldest first; at most one of each code."""

    problems: tuple[Problem, ...] = ()

    @property
    def status(self) -> Literal["ok", "degraded"]:
        return "degraded" if self.problems else "ok"

    @property
    def sentence(self) -> str:
        """All that is wrong, for people; empty where nothing is."""
        return " ".join(problem.message for problem in self.problems)

    def problem(self, code: ProblemCode) -> Problem | None:
        return next((problem for problem in self.problems if problem.code == code), None)

    def with_problem(self, problem: Problem) -> Health:
        """Adds a problem; one that is known already stays as it was first told."""
        if self.problem(problem.code) is not None:
            return self

        return replace(self, problems=(*self.problems, problem))

    def without(self, code: ProblemCode) -> Health:
        """Takes a problem away, if it is there."""
        return replace(self, problems=tuple(each for each in self.problems if each.code != code))
