"""Traps around `continue-previous`: conversations that cannot be continued, loops that cannot end.

Each rule is Hankweave's own (`validateHank` in its 0.12): it refuses a hank whose codon would
resume a conversation of another model or one whose context is used up, and a loop that waits for a
full context while each codon starts an empty one. A first codon that has nothing to continue is a
warning there and here: see `advice`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from hankweave_server.hank.nodes import Node, codons_of, is_blank, is_loop, object_at
from hankweave_server.hank.price_files import packaged_prices
from hankweave_server.hank.problems import Finding

CONTINUE = "continue-previous"
_USE_FRESH = "Use 'fresh' to start a new conversation."

_SameModel = Callable[[str, str], bool]


def continuation_findings(
    root: Node, steps: list[Node], model_override: str | None
) -> Iterator[Finding]:
    """Find every trap; `model_override` is a model that replaces those of all codons."""
    overrides = object_at(root, "overrides")
    own = None if overrides is None else overrides.raw.get("model")
    is_overridden = model_override is not None or (isinstance(own, str) and not is_blank(own))
    same = (lambda _one, _other: True) if is_overridden else _is_same_model
    for step in filter(is_loop, steps):
        yield from _in_loop(step, same)

    for before, step in pairwise(steps):
        if not is_loop(step) and step.raw.get("continuationMode") == CONTINUE:
            yield from _after(before, step, same)


def _in_loop(loop: Node, same: _SameModel) -> Iterator[Finding]:
    codons = list(codons_of(loop))
    if _ends_when_full(loop):
        for codon in codons:
            if codon.raw.get("continuationMode") == "fresh":
                yield Finding(
                    (*codon.path, "continuationMode"),
                    "A loop that ends with 'contextExceeded' never ends with a 'fresh' codon: its "
                    "context is empty in each iteration.",
                    f"Use {CONTINUE!r}, or end the loop with 'iterationLimit'.",
                )

    for before, codon in pairwise(codons):
        if codon.raw.get("continuationMode") == CONTINUE:
            yield from _across_models(before, codon, same)


def _after(before: Node, codon: Node, same: _SameModel) -> Iterator[Finding]:
    """Check a codon of the top level that continues the step before it."""
    place = (*codon.path, "continuationMode")
    last = next(reversed(list(codons_of(before))), None)
    if is_loop(before) and _ends_when_full(before):
        message = f"The loop {before.raw.get('id')!r} ends with a full context"
    elif last is not None and last.raw.get("exhaustWithPrompt"):
        message = f"The codon {last.raw.get('id')!r} has 'exhaustWithPrompt' and fills its context"
    elif last is not None:
        yield from _across_models(last, codon, same)
        return
    else:
        return

    yield Finding(place, f"{message}: there is no conversation to continue.", _USE_FRESH)


def _across_models(before: Node, codon: Node, same: _SameModel) -> Iterator[Finding]:
    earlier, model = before.raw.get("model"), codon.raw.get("model")
    if isinstance(earlier, str) and isinstance(model, str) and not same(earlier, model):
        yield Finding(
            (*codon.path, "continuationMode"),
            f"{model!r} cannot continue the conversation of {before.raw.get('id')!r}, which is "
            f"with {earlier!r}.",
            "Use 'fresh', or the same model for both.",
        )
        return

    one, other = _agent_type(before), _agent_type(codon)
    if one is not None and other is not None and one != other:
        yield Finding(
            (*codon.path, "continuationMode"),
            f"The agent {other!r} cannot continue a conversation of {one!r}.",
            "Use 'fresh', or the same agent for both.",
        )


def _ends_when_full(loop: Node) -> bool:
    end = object_at(loop, "terminateOn")
    return end is not None and end.raw.get("type") == "contextExceeded"


def _agent_type(codon: Node) -> str | None:
    agent = object_at(codon, "agent")
    kind = None if agent is None else agent.raw.get("type")
    return kind if isinstance(kind, str) else None


def _is_same_model(one: str, other: str) -> bool:
    """Compare model names without their providers and dates.

    A family name such as `sonnet` is the same model as any full name of the family: which one it
    stands for depends on the age of the list that resolves it, so only certain mismatches count.
    """
    first, second = _bare(one), _bare(other)
    if first == second or first in second.split("-") or second in first.split("-"):
        return True

    prices = packaged_prices()
    known = prices.model(one)
    return known is not None and known is prices.model(other)


def _bare(name: str) -> str:
    return name.strip().lower().rpartition("/")[2]
