"""A loaded hank as an attempt runs it."""

from __future__ import annotations

from dataclasses import replace

from hankweave_protocol.attempts import SCORE_CODON, Attempt
from hankweave_protocol.hank import AgentSpec, Variant
from hankweave_server.domain.attempts import attempt_hank, attempt_hash
from hankweave_server.hank.agents import BY_NAME, fault_of_name
from hankweave_server.hank.load import LoadedHank
from hankweave_server.hank.prompts import HankFiles, PromptFault, ResolvedPrompt, resolve


class VariantInvalid(Exception):
    """A variant cannot be used with the hank; its text is a sentence."""


def agent_of(variant: Variant) -> AgentSpec | None:
    """Return the agent that a variant names; raise VariantInvalid for an unknown name."""
    if not isinstance(variant.agent, str):
        return variant.agent

    if (fault := fault_of_name(variant.agent)) is not None:
        raise VariantInvalid(" ".join(fault))

    return BY_NAME[variant.agent]


def attempted(loaded: LoadedHank, attempt: Attempt) -> LoadedHank:
    """Return the hank that an attempt runs; raise VariantInvalid if it cannot be made."""
    hank = attempt_hank(loaded.hank, attempt, agent_of(attempt.variant))
    explored = attempt.codon_id.partition("#")[0]
    codons = {codon.id: codon for codon in hank.codons}
    if explored not in codons:
        raise VariantInvalid(f"The hank has no codon {explored} any more.")

    prompts = dict(loaded.prompts)
    try:
        files = HankFiles(loaded.directory)
        prompts[explored] = resolve(hank, codons[explored], files.prompt)
    except PromptFault as fault:
        raise VariantInvalid(str(fault)) from None

    prompts[SCORE_CODON] = ResolvedPrompt(text="", system_prompt=None, metadata=None)
    return replace(
        loaded,
        hank=hank,
        hank_hash=attempt_hash(loaded.hank_hash, attempt),
        prompts=prompts,
        foreign_hashes=frozenset(),
    )
