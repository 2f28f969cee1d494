"""What is allowed in a hank and yet probably not meant: told by `hankweave validate`."""

from __future__ import annotations

from collections.abc import Iterator

from hankweave_protocol.hank import Codon, Loop, RigCommand, RigCopy
from hankweave_server.domain.permissions import can_ask, can_refuse, permissions_of
from hankweave_server.hanks.load import LoadedHank
from hankweave_server.hanks.prompts import unknown_variables


def advice(loaded: LoadedHank) -> Iterator[str]:
    """Gives a sentence for each thing that its author may want to look at again."""
    for codon in _codons(loaded):
        yield from (f"{codon.id}: {sentence}" for sentence in _of_codon(codon, loaded))

    if not any(codon.patterns for codon in _codons(loaded)):
        yield "No codon has trackedFiles: checkpoints of an execution hold no files."


def _of_codon(codon: Codon, loaded: LoadedHank) -> Iterator[str]:
    if codon.prompt_file and codon.prompt_text:
        yield "It has a promptFile and a promptText; the file is what the agent is told."

    prompt = loaded.prompts[codon.id]
    for text in (prompt.text, prompt.system_prompt or ""):
        for variable in unknown_variables(text):
            yield f"{variable} is no variable; the agent is told it as it stands."

    copied = False
    for item in codon.rig_setup:
        copied = copied or isinstance(item, RigCopy)
        in_copied = isinstance(item, RigCommand) and item.command.working_directory == "lastCopied"
        if in_copied and not copied:
            yield "A command wants to run in 'lastCopied', and nothing was copied before it."

    permissions = permissions_of(codon, loaded.hank.overrides)
    could_refuse = permissions is not None and can_refuse(permissions)
    if could_refuse and codon.agent is not None and not can_ask(codon.agent):
        yield "Its agent is not known to ask for leave: with its permissions it would fail."


def _codons(loaded: LoadedHank) -> Iterator[Codon]:
    for step in loaded.hank.hank:
        yield from step.codons if isinstance(step, Loop) else (step,)
