"""The hank and the plan of an attempt, made from those of the execution that it tries out.

The plan before the explored codon stays as it ran. The codon gets the variant's prompt; it and all
codons after it get the variant's model and agent. Without `rest` the plan ends with the codon. The
score command is a last codon of its own: it is confined, recorded and repeated after a crash as any
other, and the result of the attempt is the checkpoint before it.

A single codon of a loop is tried once: the attempt's hank has the loop's codons and no loop, so
that no iteration follows.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.attempts import SCORE_CODON, Attempt
from hankweave_protocol.hank import AgentSpec, Codon, CommandAgentSpec, Hank, Loop, Variant
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import PlanEntry
from hankweave_server.domain.plan import Plan

NO_MODEL = "none"
_SCORE_OUTPUT = f"{__file__.rsplit('/', 2)[0]}/execution/score_output.py"
"""The program that runs a score command."""
LONGEST_SCORE = 100_000
"""Bytes of a score command: Linux passes at most 131,071 in one argument."""


def attempt_plan(plan: Plan, attempt: Attempt, agent: AgentSpec | None) -> Plan:
    """Return the plan of an attempt; `agent` is the variant's.

    Raises KeyError for a codon that is not in the plan.
    """
    places = {entry.codon_id: index for index, entry in enumerate(plan)}
    first = places[attempt.codon_id]
    tried = plan[first:] if attempt.rest else plan[first : first + 1]
    explored = plan[first].codon.id
    changed = (
        msgspec.structs.replace(entry, codon=_changed(entry.codon, explored, attempt, agent))
        for entry in tried
    )
    score = score_codon(attempt)
    last = () if score is None else (PlanEntry(codon=score, codon_id=CodonId(score.id)),)
    return (*plan[:first], *changed, *last)


def attempt_hank(hank: Hank, attempt: Attempt, agent: AgentSpec | None) -> Hank:
    """Return the hank of an attempt: with its variant, and the score command as the last codon."""
    explored = attempt.codon_id.partition("#")[0]
    steps = list(_steps(hank, explored, attempt, agent))
    if (score := score_codon(attempt)) is not None:
        steps.append(score)

    variables = {**hank.variables, **attempt.variant.variables}
    return msgspec.structs.replace(hank, hank=tuple(steps), variables=variables)


def attempt_hash(hank_hash: str, attempt: Attempt) -> str:
    """Return the hash of an attempt's hank: it changes with the hank, and with the variant."""
    return hashlib.sha256(hank_hash.encode() + b"\0" + codec.encode(attempt)).hexdigest()


def fault_of_score(score: str) -> str | None:
    """Return why a text cannot be run as the score command; None if it can."""
    if "\0" in score:
        return "The score command contains a NUL character."

    if len(score.encode("utf-8", "surrogatepass")) > LONGEST_SCORE:
        return f"The score command has more than {LONGEST_SCORE:,} bytes."

    return None


def score_codon(attempt: Attempt) -> Codon | None:
    """Return the codon that runs the score command; None without one."""
    if attempt.score is None:
        return None

    return Codon(
        id=SCORE_CODON,
        name="Score of the attempt",
        model=NO_MODEL,
        continuation_mode="fresh",
        prompt_text="",
        output_var="attempt_score",
        agent=CommandAgentSpec(
            # -I -S: nothing of the work tree or of the user's packages is imported.
            command=(sys.executable, "-I", "-S", _SCORE_OUTPUT, attempt.score)
        ),
    )


def _steps(
    hank: Hank, explored: str, attempt: Attempt, agent: AgentSpec | None
) -> Iterator[Codon | Loop]:
    reached = False
    for step in hank.hank:
        is_here = any(codon.id == explored for codon in step.codons)
        reached = reached or is_here
        if not reached:
            yield step
        elif attempt.rest:
            yield _changed_step(step, explored, attempt, agent)
        elif is_here:
            yield from (_changed(codon, explored, attempt, agent) for codon in step.codons)


def _changed_step(
    step: Codon | Loop, explored: str, attempt: Attempt, agent: AgentSpec | None
) -> Codon | Loop:
    if isinstance(step, Codon):
        return _changed(step, explored, attempt, agent)

    codons = tuple(_changed(codon, explored, attempt, agent) for codon in step.codons)
    return msgspec.structs.replace(step, codons=codons)


def _changed(codon: Codon, explored: str, attempt: Attempt, agent: AgentSpec | None) -> Codon:
    variant: Variant = attempt.variant
    if codon.id == explored and (variant.prompt_text or variant.prompt_file) is not None:
        codon = msgspec.structs.replace(
            codon, prompt_text=variant.prompt_text, prompt_file=variant.prompt_file
        )

    return msgspec.structs.replace(
        codon, model=variant.model or codon.model, agent=agent or codon.agent, attempts=None
    )
