"""Ids and names, each of its own type so that a type checker tells them apart."""

from __future__ import annotations

import re
from typing import NewType

RunId = NewType("RunId", str)
"""`{epoch ms}-{6 random}-{6 random}`, for example `1736000000000-abc123-def456` (seed 002)."""

CodonId = NewType("CodonId", str)
"""The id of a plan entry: `observe`, or `review#1` for iteration 1 of a loop body (seed 002)."""

Sha = NewType("Sha", str)
"""A full git object id, 40 lower-case hex digits."""

EventSeq = NewType("EventSeq", int)
"""The position of an event in the journal: 1, 2, 3 ... without a gap."""

ClientId = NewType("ClientId", str)
CommandId = NewType("CommandId", str)

_SHA_PREFIX = re.compile(r"[0-9a-f]{4,40}")


def is_sha_prefix(text: str) -> bool:
    """Return True if the text can name a commit: four to forty lower-case hex digits."""
    return _SHA_PREFIX.fullmatch(text) is not None


def iteration_id(codon: str, iteration: int) -> CodonId:
    """Return the id of a loop body's codon in one iteration (seed 002, "Execution Plan")."""
    return CodonId(f"{codon}#{iteration}")


def branch_of(run: RunId) -> str:
    """Return the shadow repository's branch of a run (seed 000, "Branches Per Run")."""
    return f"run-{run}"
