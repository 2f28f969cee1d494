"""What the hank's variables stand for now: what it says, and what its codons have answered."""

from __future__ import annotations

from collections.abc import Mapping

from hankweave_server.domain.conditions import parse
from hankweave_server.domain.history import answers_of, thread
from hankweave_server.execution.context import Surroundings


def known(around: Surroundings) -> Mapping[str, str]:
    """Gives the variables of the execution thread: a rollback takes its answers back, too."""
    return {**around.hank.hank.variables, **answers_of(thread(around.state))}


def holds(condition: str, around: Surroundings) -> bool:
    """Tells whether a codon's condition lets it run; the hank's loader has seen to its grammar."""
    return parse(condition).holds(known(around))
