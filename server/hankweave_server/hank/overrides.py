"""What a hank's `overrides` change in its codons (Hankweave, hank.json)."""

from __future__ import annotations

import msgspec

from hankweave_protocol.hank import Codon, Hank, Loop, Overrides


def applied(hank: Hank) -> Hank:
    """Gives the hank as it runs: with its model for every codon, its idle timeout where a codon
    has none of its own."""
    overrides = hank.overrides
    if overrides is None or (overrides.model is None and overrides.shim_idle_timeout is None):
        return hank

    steps = tuple(_step(step, overrides) for step in hank.hank)
    return msgspec.structs.replace(hank, hank=steps)


def _step(step: Codon | Loop, overrides: Overrides) -> Codon | Loop:
    match step:
        case Codon():
            return _codon(step, overrides)
        case Loop():
            codons = tuple(_codon(codon, overrides) for codon in step.codons)
            return msgspec.structs.replace(step, codons=codons)


def _codon(codon: Codon, overrides: Overrides) -> Codon:
    idle = codon.shim_idle_timeout
    return msgspec.structs.replace(
        codon,
        model=overrides.model or codon.model,
        shim_idle_timeout=overrides.shim_idle_timeout if idle is None else idle,
    )
