"""What must hold in a hank beyond its shape: names, exclusive fields, references, budgets.

The rules read the raw JSON and pass over what has the wrong type: that is reported by the shape
already, and a hank with a misspelt key still deserves to hear of its missing prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hankweave_server.hanks import references
from hankweave_server.hanks.problems import Finding, JsonPath, path_text
from hankweave_server.hanks.prompts import PromptFault, read_prompt_file
from hankweave_server.hanks.shape import is_finite

Raw = dict[str, Any]


class Node(NamedTuple):
    """An object of the file and where it stands."""

    raw: Raw
    path: JsonPath


def findings(raw: Any, directory: Path) -> Iterator[Finding]:
    """Finds all that cannot be right in a hank whose files lie in that directory."""
    if not isinstance(raw, dict):
        return

    root = Node(raw, ())
    steps = list(_objects(root, "hank"))
    yield from _of_global_prompt(root, directory)
    yield from _of_names(steps)
    yield from _of_first(steps)
    yield from _of_budgets(root, steps)
    for step in steps:
        if _is_loop(step):
            yield from _of_archives(step)

        for codon in _codons(step):
            yield from _of_codon(codon, directory)


def _of_codon(codon: Node, directory: Path) -> Iterator[Finding]:
    yield from _of_prompts(codon, directory)
    yield from _of_failure_policy(codon)
    yield from _of_rig(codon, directory)
    yield from _of_outputs(codon)
    yield from _of_files(codon, directory)
    yield from _of_archives(codon)


# --- prompts ------------------------------------------------------------------------------------
def _of_global_prompt(root: Node, directory: Path) -> Iterator[Finding]:
    yield from _exclusive(root, "globalSystemPromptFile", "globalSystemPromptText")
    yield from _of_prompt_files(root, "globalSystemPromptFile", directory)


def _of_prompts(codon: Node, directory: Path) -> Iterator[Finding]:
    if not _is_said(codon, "promptFile") and not _is_said(codon, "promptText"):
        message = "The codon has no prompt: give a promptFile or a promptText."
        yield Finding((*codon.path, "promptFile"), message)

    yield from _exclusive(codon, "appendSystemPromptFile", "appendSystemPromptText")
    yield from _of_prompt_files(codon, "promptFile", directory)
    yield from _of_prompt_files(codon, "appendSystemPromptFile", directory)


def _of_prompt_files(owner: Node, key: str, directory: Path) -> Iterator[Finding]:
    for reference, path in _texts(owner, key):
        fault = references.fault_of_file(directory, reference)
        if fault is not None:
            yield Finding(path, fault)
            continue

        try:
            read_prompt_file(directory / reference)
        except PromptFault as problem:
            yield Finding(path, str(problem))


def _is_said(owner: Node, key: str) -> bool:
    """Tells whether a field says anything; a wrong type is the shape's fault, not this rule's."""
    value = owner.raw.get(key)
    return bool(value.strip()) if isinstance(value, str) else value not in (None, [])


def _exclusive(owner: Node, file: str, text: str) -> Iterator[Finding]:
    if owner.raw.get(file) is not None and owner.raw.get(text) is not None:
        yield Finding((*owner.path, text), f"{file!r} and {text!r} exclude each other.")


# --- names and order ----------------------------------------------------------------------------
def _of_names(steps: list[Node]) -> Iterator[Finding]:
    """Ids name files, plan entries and coordinates: no codon of a hank shares one with another."""
    yield from _duplicates([codon for step in steps for codon in _codons(step)], "codon")
    yield from _duplicates([step for step in steps if _is_loop(step)], "loop")


def _duplicates(nodes: list[Node], what: str) -> Iterator[Finding]:
    first: dict[str, JsonPath] = {}
    for node in nodes:
        name = node.raw.get("id")
        if not isinstance(name, str):
            continue

        known = first.setdefault(name, node.path)
        if known != node.path:
            message = f"The id {name!r} belongs to another {what} already: {path_text(known)}."
            yield Finding((*node.path, "id"), message)


def _of_first(steps: list[Node]) -> Iterator[Finding]:
    first = next((codon for step in steps for codon in _codons(step)), None)
    if first is not None and first.raw.get("continuationMode") == "continue-previous":
        yield Finding(
            (*first.path, "continuationMode"),
            "The first codon has no previous session to continue.",
            "Use 'fresh'.",
        )


# --- failure policy, rigs, files ----------------------------------------------------------------
def _of_failure_policy(codon: Node) -> Iterator[Finding]:
    if codon.raw.get("retryConfig") is not None and codon.raw.get("onFailure") != "retry":
        path = (*codon.path, "retryConfig")
        yield Finding(path, "'retryConfig' has no effect without 'onFailure': 'retry'.")


def _of_rig(codon: Node, directory: Path) -> Iterator[Finding]:
    for item in _objects(codon, "rigSetup"):
        copy = _object(item, "copy")
        if copy is None:
            continue

        yield from _faults(copy, "from", lambda text: references.fault_of_rig(directory, text))
        yield from _faults(copy, "to", references.fault_of_target)


def _of_outputs(codon: Node) -> Iterator[Finding]:
    for output in _objects(codon, "outputFiles"):
        yield from _faults(output, "copy", references.fault_of_relative)
        for item in _objects(output, "beforeCopy"):
            command = _object(item, "command")
            if command is not None and command.raw.get("workingDirectory") == "lastCopied":
                path = (*command.path, "workingDirectory")
                yield Finding(path, "A command before copying runs in 'project' only.")


def _of_files(codon: Node, directory: Path) -> Iterator[Finding]:
    def fault_of_file(text: str) -> str | None:
        return references.fault_of_file(directory, text)

    for sentinel in _objects(codon, "sentinels"):
        yield from _faults(sentinel, "sentinelConfig", fault_of_file)

    agent = _object(codon, "agent")
    if agent is not None:
        yield from _faults(agent, "script", fault_of_file)


def _of_archives(step: Node) -> Iterator[Finding]:
    yield from _faults(step, "archiveOnSuccess", references.fault_of_target)


# --- budgets ------------------------------------------------------------------------------------
def _of_budgets(root: Node, steps: list[Node]) -> Iterator[Finding]:
    overrides = _object(root, "overrides")
    whole = None if overrides is None else _object(overrides, "budget")
    if whole is not None:
        yield from _of_shares(whole, steps)

    for loop in filter(_is_loop, steps):
        budget = _object(loop, "budget")
        if budget is not None:
            yield from _of_shares(budget, list(_codons(loop)))


def _of_shares(budget: Node, members: list[Node]) -> Iterator[Finding]:
    """Checks the shares of a budget (Hankweave, container budgets)."""
    shares = _object(budget, "shares")
    if shares is None:
        return

    if budget.raw.get("allocation", "shared") == "shared":
        yield Finding(shares.path, "Shares need an 'allocation' that is proportional.")

    if budget.raw.get("maxDollars") is None:
        yield Finding(shares.path, "Shares need a 'maxDollars' to be shares of.")

    known = {str(member.raw.get("id")) for member in members}
    for name in shares.raw:
        if name not in known:
            yield Finding((*shares.path, name), f"There is no {name!r} to have a share.")

    numbers = (share for share in shares.raw.values() if isinstance(share, int | float))
    total = sum(filter(is_finite, numbers))
    if total > 1 + 1e-9:
        yield Finding(shares.path, f"The shares add up to {total:g}, which is more than 1.")


# --- looking into raw JSON ----------------------------------------------------------------------
def _codons(step: Node) -> Iterator[Node]:
    if _is_loop(step):
        yield from _objects(step, "codons")
    else:
        yield step


def _is_loop(step: Node) -> bool:
    return step.raw.get("type") == "loop"


def _object(owner: Node, key: str) -> Node | None:
    value = owner.raw.get(key)
    return Node(value, (*owner.path, key)) if isinstance(value, dict) else None


def _objects(owner: Node, key: str) -> Iterator[Node]:
    value = owner.raw.get(key)
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield Node(item, (*owner.path, key, index))


def _texts(owner: Node, key: str) -> Iterator[tuple[str, JsonPath]]:
    value = owner.raw.get(key)
    if isinstance(value, str):
        yield value, (*owner.path, key)

    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, str):
            yield item, (*owner.path, key, index)


def _faults(owner: Node, key: str, fault_of: Callable[[str], str | None]) -> Iterator[Finding]:
    for text, path in _texts(owner, key):
        fault = fault_of(text)
        if fault is not None:
            yield Finding(path, fault)
