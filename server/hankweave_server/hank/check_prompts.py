"""What must hold in the prompts of a hank: something is said, and each file of it can be read."""

from __future__ import annotations

from collections.abc import Iterator

from hankweave_server.hank.nodes import Node, texts
from hankweave_server.hank.problems import Finding
from hankweave_server.hank.prompts import cleaned
from hankweave_server.hank.rules import Rule, Surroundings, of_prompt_files

PROMPTS = frozenset({"promptFile", "promptText"})


def without_prompt(codon: Node) -> Finding:
    """Tells of a codon that says nothing to its agent."""
    message = "The codon has no prompt: give a promptFile or a promptText."
    return Finding((*codon.path, "promptFile"), message)


def of_prompt_file(codon: Node, around: Surroundings) -> Iterator[Finding]:
    """Checks `promptFile`, which wins over `promptText`."""
    names = list(texts(codon, "promptFile"))
    if not names and codon.raw["promptFile"] in (None, []) and codon.raw.get("promptText") is None:
        yield without_prompt(codon)

    found = list(of_prompt_files(codon, "promptFile", around))
    yield from found
    if names and not found and _is_all_blank(around, [name for name, _ in names]):
        path = (*codon.path, "promptFile")
        yield Finding(path, "The prompt is empty without its frontmatter and comments.")


def _is_all_blank(around: Surroundings, names: list[str]) -> bool:
    return not any(around.files.prompt(name).text.strip() for name in names)


def of_prompt_text(codon: Node, _: Surroundings) -> Iterator[Finding]:
    """Checks `promptText` where it is what the agent is told."""
    text = codon.raw["promptText"]
    if codon.raw.get("promptFile"):
        return

    if text is None and "promptFile" not in codon.raw:
        yield without_prompt(codon)
    elif isinstance(text, str) and not cleaned(text).strip():
        yield Finding((*codon.path, "promptText"), "The prompt is empty.")


def system_prompt(file: str, text: str) -> dict[str, Rule]:
    """Makes the rules of a pair of fields of which only one may be there."""

    def of_file(owner: Node, around: Surroundings) -> Iterator[Finding]:
        yield from of_prompt_files(owner, file, around)

    def of_text(owner: Node, _: Surroundings) -> Iterator[Finding]:
        if owner.raw.get(file) is not None and owner.raw[text] is not None:
            message = f"{file!r} and {text!r} exclude each other."
            yield Finding((*owner.path, text), message, "Keep one of them.")

    return {file: of_file, text: of_text}
