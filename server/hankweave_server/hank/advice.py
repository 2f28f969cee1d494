"""Warnings about parts of a hank that are valid but probably not intended.

`hankweave validate` prints these sentences, and a start logs them. Most correspond to Hankweave's
own warnings (`validateHank` in its 0.12), in different words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from hankweave_protocol.hank import Codon, ContextExceededEnd, Loop, RigCommand, RigCopy
from hankweave_server.domain.permissions import can_ask, can_refuse, permissions_of
from hankweave_server.hank.load import LoadedHank
from hankweave_server.hank.prompts import unknown_variables
from hankweave_server.plain_text import counted

_LARGE_PROMPT = 1024 * 1024

_SHORT_LOOP = 3
"""Iterations up to which a failure costs little; in longer loops 'abort' surprises."""

_DANGEROUS = re.compile(r"rm\s+-rf\s+[/~]|>\s*/dev/sd|\bmkfs\b")
"""Commands that destroy more than a work tree."""


def advice(loaded: LoadedHank) -> Iterator[str]:
    """Yield a sentence for each thing that the author may want to check."""
    if not loaded.prompts:
        return  # No plan, or one from a record: there is no file to change.

    yield from _of_dropped_keys(loaded)
    yield from _of_names(loaded)
    yield from _of_continuation(loaded)
    for step in loaded.hank.hank:
        for codon in step.codons:
            sentences = [*_of_codon(codon, loaded), *(_in_loop(codon) if _is_long(step) else ())]
            yield from (f"{codon.id}: {sentence}" for sentence in sentences)

    if not any(codon.patterns for codon in loaded.hank.codons):
        yield "No codon has trackedFiles, so checkpoints will contain no files."


def _of_dropped_keys(loaded: LoadedHank) -> Iterator[str]:
    for problem in loaded.warnings:
        hint = "" if problem.suggestion is None else f" {problem.suggestion}"
        line = "" if problem.line is None else f"Line {problem.line}: "
        yield f"{line}{problem.path}: {problem.message}{hint}"


def _of_names(loaded: LoadedHank) -> Iterator[str]:
    counts = Counter(codon.name for codon in loaded.hank.codons)
    for name, count in counts.items():
        if count > 1:
            yield f"{counted(count, 'codon')} are named {name!r}; give each its own name."


# --- conversations --------------------------------------------------------------------------------


def _of_continuation(loaded: LoadedHank) -> Iterator[str]:
    steps = loaded.hank.hank
    first = steps[0]
    if isinstance(first, Codon) and _continues(first):
        yield (
            f"{first.id}: The first codon has 'continue-previous', but no codon runs before it: it "
            "will fail when it starts. Use 'fresh'."
        )
    elif isinstance(first, Loop) and _continues(first.codons[0]):
        yield (
            f"{first.codons[0].id}: It starts the first loop with 'continue-previous' and will "
            f"fail in iteration 0, because no codon runs before it.{_remedy(first)}"
        )

    for before, step in pairwise(steps):
        if isinstance(step, Codon) and _continues(step):
            yield from _of_what_it_continues(before, step)


def _remedy(loop: Loop) -> str:
    if isinstance(loop.terminate_on, ContextExceededEnd):
        return " Put a 'fresh' codon before the loop."

    return ""


def _of_what_it_continues(before: Codon | Loop, codon: Codon) -> Iterator[str]:
    last = before.codons[-1]
    if not last.patterns:
        yield f"{codon.id}: It continues {last.id!r}, which has no trackedFiles."

    if isinstance(before, Codon) and before.on_failure == "ignore":
        yield (
            f"{before.id}: Its failure is ignored, but {codon.id!r} continues its conversation: "
            f"if it fails, {codon.id!r} fails as well."
        )


def _continues(codon: Codon) -> bool:
    return codon.continuation_mode == "continue-previous"


# --- single codons --------------------------------------------------------------------------------


def _of_codon(codon: Codon, loaded: LoadedHank) -> Iterator[str]:
    if codon.prompt_file and codon.prompt_text:
        yield "It has both promptFile and promptText; promptFile is used."

    prompt = loaded.prompts.get(codon.id)  # A recorded plan has no prompts.
    if prompt is not None and len(prompt.text) > _LARGE_PROMPT:
        yield f"Its prompt is large: {len(prompt.text) / _LARGE_PROMPT:.1f} MiB."

    for text in () if prompt is None else (prompt.text, prompt.system_prompt or ""):
        for variable in unknown_variables(text):
            yield f"{variable} is not a known variable; the agent receives it unchanged."

    yield from _of_rig(codon)
    permissions = permissions_of(codon, loaded.hank.overrides)
    could_refuse = permissions is not None and can_refuse(permissions)
    if could_refuse and codon.agent is not None and not can_ask(codon.agent):
        yield "Its agent is not known to ask for permission, so the codon would fail with these."


def _of_rig(codon: Codon) -> Iterator[str]:
    copied = False
    for item in codon.rig_setup:
        copied = copied or isinstance(item, RigCopy)
        if not isinstance(item, RigCommand):
            continue

        if item.command.working_directory == "lastCopied" and not copied:
            yield "A command runs in 'lastCopied', but nothing is copied before it."

        if _DANGEROUS.search(item.command.run):
            yield f"A rig command looks dangerous: {item.command.run!r}."


def _in_loop(codon: Codon) -> Iterator[str]:
    if any(not item.allow_failure for item in codon.rig_setup):
        yield (
            "Its rig runs in every iteration; without 'allowFailure', a command that fails, such "
            "as one that cannot run twice, ends the loop."
        )

    if codon.on_failure == "abort":
        yield (
            "It is in a loop with onFailure 'abort': a single transient failure ends the whole "
            "run. Consider 'retry' or 'ignore'."
        )


def _is_long(step: Codon | Loop) -> bool:
    if not isinstance(step, Loop):
        return False

    end = step.terminate_on
    return isinstance(end, ContextExceededEnd) or end.limit > _SHORT_LOOP
